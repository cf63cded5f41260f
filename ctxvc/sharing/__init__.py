"""Sessions on git remotes: which are there, pushed, pulled and withdrawn. A remote has one ref a clone."""
