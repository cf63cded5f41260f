"""Between an agent and its model: every request forwarded as it came, and recorded exactly."""
