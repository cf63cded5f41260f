"""A host's own messages: what they are as text and calls, which blocks they show, what they become under a plan."""
