"""Asks a model about replays: whether a plan leaves what the future needs, which of two leaves more, and what the model
perceives of its own context. The model is passed in as a function; answers are parsed strictly, one record a question.
"""
