"""Sessions on git remotes: listed, pushed, pulled and withdrawn. A remote has one ref per clone."""
