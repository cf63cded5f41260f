"""When a soft edit is committed: now, or later when it costs less (Self-GC, section "Cache-aware commit")."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.prompt import cut
from ctxvc.core.prompt.outline import Slot, outline
from ctxvc.core.view.view import View, cost_of


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The criteria for committing a plan now. Prices are multiples of the price of a fresh input token.

    A plan that removes more than `share` of the prompt is committed at once. `lifetime` is how long the provider keeps
    a cached prefix, in seconds; `calls` is the number of calls for which the prompt is expected to last (0: as many as
    a turn has had on average).
    """

    share: float = 0.3
    read_price: float = 0.1
    write_price: float = 1.25
    lifetime: float = 300.0
    calls: float = 0.0


USUAL = Timing()


class CommitDecision(msgspec.Struct, frozen=True):
    """Whether a plan is committed now, and why. `benefit` and `cost` are in fresh input tokens.

    `cost` is that of the broken cache and of the planning; `benefit` is the savings minus that cost.
    """

    now: bool
    why: str
    benefit: float = 0.0
    cost: float = 0.0


class Reckoning(msgspec.Struct, frozen=True, kw_only=True):
    """Savings and cost of a commit now, in fresh input tokens; `leaving` and `rewritten` are tokens of the prompt.

    The paper's N·(C - C') - L_cache_break - L_GC. C - C' is what the plan frees, at the price of cached tokens. The
    cache breaks at the first edit: what follows it (`rewritten`) is rewritten instead of read. A commit makes a cut, so
    the thinking and dashboards that it removes count as edits, but not as savings: they would leave anyway. L_GC is the
    cost of planning. An expired cache (`cold`) costs nothing to break.
    """

    share: float
    leaving: float
    calls: float
    saved: float
    rewritten: float
    broken: float
    planning: int
    cold: bool

    @property
    def cost(self) -> float:
        return self.broken + self.planning

    @property
    def benefit(self) -> float:
        return self.saved - self.cost

    @property
    def account(self) -> str:
        count = f"{self.calls:,.0f}"
        calls = "call" if count == "1" else f"{count} calls"
        return (
            f"{self.leaving:,.0f} tokens fewer in the next {calls} save {self.saved:,.0f}, "
            f"rewriting {self.rewritten:,.0f} after the first edit costs {self.broken:,.0f}, "
            f"planning cost {self.planning:,}"
        )

    def moment(self, ground: str, *, now: bool = True) -> CommitDecision:
        """The decision, now or not yet, with its ground and the calculation."""
        return CommitDecision(now, f"{ground}; {self.account}", self.benefit, self.cost)


def reckon(view: View, rehearsal: Rehearsal, timing: Timing = USUAL) -> Reckoning:
    """The savings and the cost of committing the rehearsed plan now."""
    price = view.calibration[0] / 1000
    calls = timing.calls or calls_a_turn(view.ledger)
    cold = view.idle > timing.lifetime
    freed = rehearsal.freed * price
    saved = freed * timing.read_price * calls
    if cold:
        saved += freed * (timing.write_price - timing.read_price)  # the next call writes the whole prompt in any case
    rewritten = 0.0 if cold or not rehearsal else behind_first_edit(view, rehearsal) * price
    return Reckoning(
        share=rehearsal.freed / max(1, rehearsal.tokens_before),
        leaving=freed,
        calls=calls,
        saved=saved,
        rewritten=rewritten,
        broken=rewritten * (timing.write_price - timing.read_price),
        planning=rehearsal.plan.cost,
        cold=cold,
    )


def moment(view: View, rehearsal: Rehearsal, timing: Timing = USUAL) -> CommitDecision:
    """Whether the rehearsed plan is committed now, or waits.

    It is committed at once under pressure on the hard budget, after the cache has expired, or above `timing.share`.
    Otherwise it is committed if future calls save more than the broken cache and the planning cost.
    """
    if not rehearsal:
        return CommitDecision(False, "nothing in the plan is left to do")
    reckoned = reckon(view, rehearsal, timing)
    leaves = f"{reckoned.share:.0%} of the prompt leaves"
    if rehearsal.plan.pressure:
        return reckoned.moment(f"the hard budget would be exceeded; {leaves}")
    if reckoned.cold:
        idle = f"the last call was {view.idle:,.0f} s ago"
        return reckoned.moment(f"{idle}, so the cache ({timing.lifetime:,.0f} s) has expired")
    if reckoned.share > timing.share:
        return reckoned.moment(f"{leaves}, more than {timing.share:.0%}")
    saves = "saves more" if reckoned.benefit > 0 else "does not save more"
    return reckoned.moment(f"{leaves}, which {saves} than it costs", now=reckoned.benefit > 0)


def cuts_at_turn(view: View) -> tuple[int, ...]:
    """The `cuts` at a turn's start, with a new one only if it saves more than the cache that it breaks.

    A cut removes thinking and dashboards, and the prefix breaks at the first of them. A batch that leaves anyway makes
    one too, so most cuts wait for that. Scopes with the first version of rendering cut at each turn.
    """
    ledger = view.ledger
    cuts = cut.at_turn(ledger)
    if cuts == ledger.meta.cuts:
        return cuts  # nothing would leave
    if ledger.meta.render < 2 or view.idle > USUAL.lifetime or cut_pays(view, cuts):
        return cuts
    return ledger.meta.cuts


def cut_pays(view: View, cuts: tuple[int, ...]) -> bool:
    """Whether the thinking and dashboards that `cuts` remove cost more in the calls of a turn than the cut does."""
    ledger = view.ledger
    now, after = outline(ledger), outline(ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=cuts)))
    at = _first_difference(now, after)
    rewritten = sum(cost_of(slot, view.price) for slot in after[at:])
    leaving = sum(cost_of(slot, view.price) for slot in now[at:]) - rewritten
    saved = leaving * USUAL.read_price * calls_a_turn(ledger)
    return saved > rewritten * (USUAL.write_price - USUAL.read_price)


def calls_a_turn(ledger: Ledger) -> float:
    """The average number of replies in a turn; at least 1."""
    by_segment = list(ledger.by_segment(_steps_and_turns))
    steps = frozenset[int]().union(*(steps for steps, _ in by_segment))
    turns = frozenset[int]().union(*(turns for _, turns in by_segment))
    return len(steps) / len(turns) if turns else 1.0


def _steps_and_turns(rows: tuple[Row, ...]) -> tuple[frozenset[int], frozenset[int]]:
    """The steps with a reply, and their turns."""
    replies = [row for row in rows if row.role == "assistant"]
    return frozenset(row.step for row in replies), frozenset(row.turn for row in replies)


def committed(rehearsal: Rehearsal) -> Ledger:
    """The ledger once the plan is committed, including the cut that comes with it."""
    meta = msgspec.structs.replace(rehearsal.after.meta, cuts=cut.before_reply(rehearsal.after))
    return rehearsal.after.with_meta(meta)


def behind_first_edit(view: View, rehearsal: Rehearsal) -> int:
    """The tokens of the new prompt that the old one's cache lacks: from the first edit on, including the cut's."""
    now = outline(committed(rehearsal))
    at = _first_difference(outline(view.ledger), now)
    return sum(cost_of(slot, view.price) for slot in now[at:])


def broken_by(view: View, rehearsal: Rehearsal, sent: Ledger) -> int:
    """The tokens of the prompt of `sent` that are still unchanged now, but would not be with the plan committed."""
    before = outline(sent)
    still, then = (_first_difference(before, outline(ledger)) for ledger in (view.ledger, committed(rehearsal)))
    return sum(cost_of(slot, view.price) for slot in before[then:still])


def _first_difference(before: Sequence[Slot], after: Sequence[Slot]) -> int:
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old is not new and _sent(old) != _sent(new):
            return at
    return min(len(before), len(after))


def _sent(slot: Slot) -> tuple[str, ...]:
    """The parts of a slot that decide its bytes: a row may change in ways that are never sent."""
    return (slot.row.id, slot.show, slot.role, slot.kind, slot.text, slot.call)
