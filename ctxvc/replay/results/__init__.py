"""Results of replays: a row each, their file, and what is said of many of them."""
