"""What frameworks that run agents keep in a store: one module each, which only its users import.

`records` is what they share. Their requests to a model are recorded, and kept inside a budget, by `ctxvc.wire`.
"""
