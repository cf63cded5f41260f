"""Reports: a session's history, or a replay's results, as one page that needs nothing else."""
