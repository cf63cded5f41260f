"""Coding agents that let an extension change their prompt at each call: their messages, and the service they ask.

`conversation` is what they share, `pi` and `opencode` know one host each, and `service` speaks docs/serve.md.
"""
