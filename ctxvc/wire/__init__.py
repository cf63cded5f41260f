"""Between an agent and its model: forwards every request unchanged, and records it exactly."""
