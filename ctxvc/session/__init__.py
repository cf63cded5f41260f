"""A session under a budget."""
