"""When a soft edit is made true: now, or at a moment when it costs less (Self-GC, section "Cache-aware commit")."""

from __future__ import annotations

import msgspec

from ctxvc.core.plan import Rehearsal, View


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What the moment of a commit is judged by. Prices are multiples of that of a fresh input token.

    A plan that takes away more than `share` of the prompt is committed at once. `lifetime` is how long the provider
    keeps a cached prefix, in seconds; `calls` how many more calls the prompt is expected to be sent with (0: as many as
    a turn has had so far).
    """

    share: float = 0.3
    read_price: float = 0.1
    write_price: float = 1.25
    lifetime: float = 300.0
    calls: float = 0.0


USUAL = Timing()


class Moment(msgspec.Struct, frozen=True):
    """Whether a plan is committed now, why, and what that saves: `benefit`, in fresh input tokens."""

    now: bool
    why: str
    benefit: float = 0.0


def moment(view: View, tried: Rehearsal, timing: Timing = USUAL) -> Moment:
    """Whether the rehearsed plan is committed now, or waits.

    At once: under pressure on the hard budget, when the cache has expired, above `timing.share`. Else when the calls to
    come save more than the broken cache and the planning cost.
    """
    if tried.plan.pressure:
        return Moment(True, "the hard budget is at stake")
    left = 1 - tried.tokens_after / max(1, tried.tokens_before)
    return Moment(left > timing.share or view.idle > timing.lifetime, f"{left:.0%} of the prompt leaves")
