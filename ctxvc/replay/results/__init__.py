"""Results of replays: one row each, their file, and the totals and comparisons over many."""
