"""Recorded conversations run again under policies and budgets, and what each run keeps, costs and loses."""
