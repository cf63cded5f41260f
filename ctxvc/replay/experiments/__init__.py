"""The papers' experiments, on recorded or random conversations: our figures beside theirs."""
