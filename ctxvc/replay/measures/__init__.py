"""The measures of a replay: pure functions of a conversation, its prompts and their uses."""
