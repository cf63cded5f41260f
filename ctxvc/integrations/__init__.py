"""The storage of frameworks that run agents: one module each, which only its users import.

`records` is what they share. Their requests to a model are recorded, and kept inside a budget, by `ctxvc.wire`.
"""
