"""What changes the prompt: actions, plans and their outcome."""

from ctxvc.core.plan.plan import Action, Plan, Problem, Rehearsal
from ctxvc.core.view.view import Price, View

__all__ = ["Action", "Plan", "Price", "Problem", "Rehearsal", "View"]
