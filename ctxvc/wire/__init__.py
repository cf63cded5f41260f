"""Between an agent and its model: requests are forwarded as they are, and what passed is recorded."""
