"""Questions to a model about replays: what a plan takes from the future, which of two takes less, what a prompt tells
of its own state. The model comes in as a function; answers are parsed strictly and kept, a record a question.
"""
