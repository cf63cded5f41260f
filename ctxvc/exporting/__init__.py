"""Revisions → files that other programs go on from."""
