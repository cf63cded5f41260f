"""Frameworks that run agents, with ctxvc behind them: one module each, which only its users import.

`conversation` is what they share where ctxvc makes the prompt, `records` where it keeps what only they can read.
"""
