"""Agents on real clients: the adapter, its tools, and what a hostile model or tool may try."""
