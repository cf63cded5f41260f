"""A session, or what a replay measured, as one page that needs nothing else."""
