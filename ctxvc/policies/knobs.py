"""Which values of a knob make sense; the others are refused when the policy is made."""

from __future__ import annotations

from ctxvc.core.policy import Policy

#: More tokens, bytes, steps, calls or seconds than a session has.
_MOST = 10**9


def shares(policy: Policy, *names: str, of: str = "budget") -> None:
    """Raises: ValueError where one of these knobs is no share of the budget, or of something else."""
    for name in names:
        if not 0 <= getattr(policy, name) <= 1:
            raise ValueError(f"{name} is a share of the {of}, from 0 to 1")


def numbers(policy: Policy, least: int, *names: str) -> None:
    """Raises: ValueError where one of these knobs is below `least`, or beyond all that there could be of anything."""
    for name in names:
        if not least <= getattr(policy, name) <= _MOST:
            raise ValueError(f"{name} is a number, at least {least} and at most {_MOST:,}")


def ordered(policy: Policy, *names: str) -> None:
    """Raises: ValueError where one of these knobs is above the next."""
    values = [getattr(policy, name) for name in names]
    if values != sorted(values):
        told = ", ".join(f"{name}={value:g}" for name, value in zip(names, values, strict=True))
        raise ValueError(f"{told} are not {' <= '.join(names)}")
