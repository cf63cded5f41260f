"""The size of a call's prompt: the provider's count, else an estimate from our count and the provider's last one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.prompt.outline import Slot, outline
from ctxvc.core.view.dashboard import Cost
from ctxvc.errors import Damaged
from ctxvc.store.format import lacks_nothing
from ctxvc.store.read import revision
from ctxvc.store.read.revision import PROMPT, Entry, Snapshot, sent_prompt
from ctxvc.store.store import Store
from ctxvc.tokens import calibration, models
from ctxvc.tokens.calibration import Calibration
from ctxvc.tokens.meter import Meter
from ctxvc.tokens.models import Usage

#: How many commits back we search for a call, or for a count.
NEAR = 500
#: How many commits back we collect the sizes of calls.
_MOST = 2_000
#: The lowest and the highest plausible ratio of a provider's count to ours, in thousandths.
_LEAST, _MOST_STEEP = 500, 3_000


class Size(NamedTuple):
    """The tokens of a prompt as its provider counts them, and whether that is the provider's count or our estimate.
    `recorded` of them are in the store; the rest was sent but not recorded."""

    tokens: int
    by_provider: bool
    recorded: int

    @property
    def unrecorded(self) -> int:
        return self.tokens - self.recorded


def size(ours: int, usage: Usage, line: Calibration, meta: Meta) -> Size:
    """The size of a prompt with `ours` tokens by our count. `usage` is that of its call, 0 if unknown; `line` converts
    our counts to the provider's. A complete recording has all of it recorded."""
    estimate = max(0, ours * line.a_milli // 1000 + line.b) if ours else 0  # as plans reckon: `View.calibrated`
    tokens = usage.prompt or estimate
    is_whole = ours > 0 and lacks_nothing(meta.source)
    return Size(tokens, usage.prompt > 0, tokens if is_whole else min(tokens, ours * line.a_milli // 1000))


def line_through(ours: int, theirs: int, model: str) -> Calibration:
    """The line from our counts to the provider's, through one prompt that both counted.

    Its slope is the model's usual one. Its offset is what was sent without being recorded, the same in every prompt.
    """
    slope = calibration.initial(model).a_milli
    if slope * ours > theirs * 1000:
        slope = max(_LEAST, min(_MOST_STEEP, theirs * 1000 // ours))
    return Calibration(slope, max(0, theirs - slope * ours // 1000))


def line_of(meta: Meta, recorded: Calibration | None) -> Calibration:
    """A scope's own line; for an imported scope without one, the line through its newest count."""
    return recorded if recorded is not None and is_uncalibrated(meta) else Calibration(*meta.calibration)


def is_uncalibrated(meta: Meta) -> bool:
    """Whether a scope was imported and has no calibration of its own yet."""
    return meta.source is not None and meta.calibration == Calibration()


# --- the calls of a scope


class Call(NamedTuple):
    """A model call. `usage` is the provider's count, all 0 if none is recorded.

    `snapshot` is the scope at the call's commit, `last` the number of the newest block in its prompt: later blocks came
    with the reply or after it.
    """

    usage: Usage
    snapshot: Snapshot
    entry: Entry
    step: int
    last: int


def newest(store: Store, snapshot: Snapshot) -> tuple[Call | None, Call | None]:
    """The newest call, and the newest one that the provider counted; None if there is none within reach."""
    call: Call | None = None
    for entry in islice(revision.history(store, snapshot.commit), NEAR):
        usage = models.usage_of(entry.usage)
        if entry.op != "step" or (call and not usage.prompt):
            continue
        if (earlier := _call(store, snapshot, entry, usage)) is None:
            continue
        call = call or earlier
        if usage.prompt:
            return call, earlier
    return call, None


def _call(store: Store, snapshot: Snapshot, entry: Entry, usage: Usage) -> Call | None:
    """The call whose reply is in a step's commit; None if it has no reply."""
    is_now = entry.commit == snapshot.commit and not snapshot.waiting
    then = snapshot if is_now else revision.at(store, entry.commit)
    step = then.ledger.meta.counters.step
    replies = [row.number for row in then.ledger.of_step(step) if row.role == "assistant"]
    if not replies:
        return None
    sent = sent_prompt(entry.trailers.get(PROMPT, ""))
    last = int(sent.last[1:] or 0) if sent else min(replies) - 1
    return Call(usage, then, entry, step, last)


def still_holds(call: Call, ledger: Ledger) -> bool:
    """Whether everything in the call's prompt is still in the prompt, so that its size still holds."""
    now = set(map(_key, outline(ledger)))
    return all(_key(slot) in now for slot in outline(call.snapshot.ledger) if slot.row.number <= call.last)


def _key(slot: Slot) -> tuple[str, str, str, str]:
    return slot.row.id, slot.row.sha256, slot.show, slot.text


def recorded_line(call: Call, meter: Meter, costs: Mapping[str, Cost] | None = None) -> Calibration:
    """The line of a recording at a call that the provider counted. `costs` are those of the blocks at that point."""
    then = call.snapshot
    costs = meter.costs(then) if costs is None else costs
    ours = meter.overhead(then) + sum(costs[row.id].shown for row in _before(then.ledger, call))
    return line_through(ours, call.usage.prompt, then.ledger.meta.model)


def _before(ledger: Ledger, call: Call) -> list[Row]:
    return [row for row in ledger.rows() if row.number <= call.last]


def calibration_of(store: Store, snapshot: Snapshot, meter: Meter) -> tuple[int, int]:
    """The scope's calibration; for an imported scope without one, the slope at its newest recorded count.

    What was not recorded, such as the host's system prompt, is part of the host's window: no plan can remove it, and
    our requests do not send it.
    """
    meta = snapshot.ledger.meta
    count = newest(store, snapshot)[1] if is_uncalibrated(meta) else None
    return meta.calibration if count is None else (recorded_line(count, meter).a_milli, 0)


def counted_sizes(store: Store, commit: str) -> list[int]:
    """The sizes of the newest prompts that the provider counted, oldest first; none before a damaged commit."""
    sizes: list[int] = []
    with suppress(Damaged):  # what the prompt is now does not depend on it
        for entry in islice(revision.history(store, commit), _MOST):
            if entry.op == "step" and (tokens := models.usage_of(entry.usage).prompt):
                sizes.append(tokens)
    return sizes[::-1]
