"""A host's own messages: as text and calls, the blocks that they show, and their form under a plan."""
