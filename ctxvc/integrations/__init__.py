"""Agent frameworks that keep their own data in a store: one module each, which only its users import.

They share `records`. Their requests to a model are recorded, and kept inside a budget, by `ctxvc.wire`.
"""
