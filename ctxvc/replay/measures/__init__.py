"""What a replay is measured by: pure functions of a conversation, its prompts and their uses."""
