"""Frameworks that run agents, with ctxvc behind them: one module each, imported by who has that framework.

`conversation` is what they share where ctxvc makes the prompt, `records` where it keeps what only they can read.
"""
