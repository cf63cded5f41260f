"""What the documents say is compared with what the program does."""
