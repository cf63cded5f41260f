"""The former place of `rehearse` and `until`, kept for one version: they are in `ctxvc.core.plan.rehearse` now."""

from ctxvc.core.plan.rehearse import rehearse, until

__all__ = ["rehearse", "until"]
