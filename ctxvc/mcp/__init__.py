"""A store for hosts that own their prompt, over the Model Context Protocol."""
