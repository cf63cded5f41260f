"""A session, or the results of a replay, as one self-contained page."""
