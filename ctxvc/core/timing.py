"""When a soft edit is made true: now, or at a moment when it costs less (Self-GC, section "Cache-aware commit")."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ctxvc.core import cuts
from ctxvc.core.engine import cost_of
from ctxvc.core.ledger import Ledger
from ctxvc.core.plan import Rehearsal, View
from ctxvc.core.prompt import Slot, outline


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

    The benefit is the paper's N·(C - C') - L_cache_break - L_GC. C - C' is what the plan frees, at the price of cached
    tokens. The cache breaks behind the first edit: what stands there is written anew instead of read. A commit makes a
    cut, so the thinking and dashboards that it takes away count as edits, but not as savings: they were to leave
    anyway. L_GC is what the planner itself took.
    """
    plan, prices = tried.plan, view.calibration[0] / 1000
    if not tried:
        return Moment(False, "nothing of the plan is left to do")
    share = tried.freed / max(1, tried.tokens_before)
    calls = timing.calls or calls_a_turn(view.ledger)
    cold = view.idle > timing.lifetime
    freed = tried.freed * prices
    saved = freed * timing.read_price * calls
    if cold:
        saved += freed * (timing.write_price - timing.read_price)  # the next call writes all of it in any case
    rewritten = 0.0 if cold else behind_first_edit(view, tried) * prices
    broken = rewritten * (timing.write_price - timing.read_price)
    benefit = saved - broken - plan.cost
    reckoned = (
        f"{calls:,.0f} calls to come save {saved:,.0f}, the cache behind the first edit costs {broken:,.0f}, "
        f"the planning took {plan.cost:,}"
    )
    if plan.pressure:
        return Moment(True, f"the hard budget is at stake; {share:.0%} of the prompt leaves", benefit)
    if share > timing.share:
        return Moment(True, f"{share:.0%} of the prompt leaves, more than {timing.share:.0%}; {reckoned}", benefit)
    if cold:
        idle = f"the last call was {view.idle:,.0f} s ago"
        return Moment(True, f"{idle}, the cache of {timing.lifetime:,.0f} s is gone; {reckoned}", benefit)
    sign = "more" if benefit > 0 else "no more"
    return Moment(benefit > 0, f"{share:.0%} of the prompt leaves, {sign} than it costs: {reckoned}", benefit)


def calls_a_turn(ledger: Ledger) -> float:
    """How many replies a turn has had, on average; at least 1."""
    steps: set[int] = set()
    turns: set[int] = set()
    for row in ledger.rows():
        if row.role == "assistant":
            steps.add(row.step)
            turns.add(row.turn)
    return len(steps) / len(turns) if turns else 1.0


def behind_first_edit(view: View, tried: Rehearsal) -> int:
    """The tokens of the new prompt that no cache of the old one has: from the first edit on, the cut's included."""
    cut = msgspec.structs.replace(tried.after.meta, cuts=cuts.before_reply(tried.after))
    now = outline(tried.after.with_meta(cut))
    at = _first_difference(outline(view.ledger), now)
    return sum(cost_of(slot, view.price) for slot in now[at:])


def _first_difference(before: Sequence[Slot], after: Sequence[Slot]) -> int:
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if _sent(old) != _sent(new):
            return at
    return min(len(before), len(after))


def _sent(slot: Slot) -> tuple[str, ...]:
    """What of a slot decides its bytes: a row may change in ways that nobody is sent."""
    return (slot.row.id, slot.show, slot.role, slot.kind, slot.text, slot.call)
