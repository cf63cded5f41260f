"""What tests are made of: conversations as messages, and content blocks as a provider has them."""
