"""The former place of `rehearse` and `fewest_actions` (then `until`), kept for one version."""

from ctxvc.core.plan.rehearse import fewest_actions, rehearse

until = fewest_actions

__all__ = ["fewest_actions", "rehearse", "until"]
