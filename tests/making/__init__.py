"""What tests are made of: conversations as messages."""
