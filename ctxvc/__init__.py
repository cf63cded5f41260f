"""Version control for what an LLM agent sees."""

__version__ = "0.1.0"
