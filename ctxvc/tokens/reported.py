"""What the provider counted in the calls of a scope, as its commits have it, and how our count follows that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.prompt.outline import Slot, outline
from ctxvc.core.view.dashboard import Cost
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry, Snapshot
from ctxvc.store.store import Store
from ctxvc.tokens import calibration, models
from ctxvc.tokens.calibration import Calibration
from ctxvc.tokens.meter import Meter
from ctxvc.tokens.models import Usage

#: How many commits back a count is searched for.
_NEAR = 500
#: Operations between two calls after which the prompt of the first is the beginning of the second's.
_ADDING = frozenset({"step", "note", "settings", "tag", "pin", "unpin"})
#: A slope outside says that the counts do not fix one.
_LEAST, _MOST = 0.5, 3.0


class Count(NamedTuple):
    """The provider's count of a call: of its prompt and of the reply.

    `snapshot` is the scope at the call's commit; `end` the number of the reply's last block there: what stands after it
    was not counted. `time` is in seconds since 1970.
    """

    usage: Usage
    snapshot: Snapshot
    entry: Entry
    step: int
    end: int

    @property
    def tokens(self) -> int:
        """The prompt and the reply together: what the next prompt begins with."""
        return self.usage.prompt + self.usage.reply


def newest(store: Store, snapshot: Snapshot) -> Count | None:
    """The newest call of which the provider's count is known; None if none is near."""
    for entry in islice(revision.history(store, snapshot.commit), _NEAR):
        usage = models.usage_of(entry.usage)
        if entry.trailers.get("Ctxvc-Op") != "step" or not usage.prompt:
            continue
        is_now = entry.commit == snapshot.commit and not snapshot.waiting
        then = snapshot if is_now else revision.at(store, entry.commit)
        step = then.ledger.meta.counters.step
        reply = [row.number for row in then.ledger.of_step(step) if row.role == "assistant"]
        if reply:
            return Count(usage, then, entry, step, max(reply))
    return None


def still_holds(count: Count, ledger: Ledger) -> bool:
    """Whether all that was counted still stands in the prompt, and so the count."""
    now = set(map(_key, outline(ledger)))
    return all(_key(slot) in now for slot in outline(count.snapshot.ledger) if slot.row.number <= count.end)


def _key(slot: Slot) -> tuple[str, str, str, str]:
    return slot.row.id, slot.row.sha256, slot.show, slot.text


def samples(store: Store, count: Count, costs: Mapping[str, Cost], overhead: int) -> list[tuple[int, int]]:
    """Our count of each prompt and the provider's, oldest first: of the calls since what stands in it last changed.

    `costs` are those of the blocks at the count, `overhead` that of the recorded system prompt and tools.
    """
    before = dict(_before_replies(count.snapshot.ledger.rows(), costs))
    pairs = []
    for entry in islice(revision.history(store, count.entry.commit), calibration.MOST):
        if entry.trailers.get("Ctxvc-Op") not in _ADDING:
            break
        theirs = models.usage_of(entry.usage).prompt
        step = store.reader.meta(entry.commit).counters.step if theirs else 0
        if step in before:
            pairs.append((before[step] + overhead, theirs))
    return pairs[::-1]


def _before_replies(rows: Iterator[Row], costs: Mapping[str, Cost]) -> Iterator[tuple[int, int]]:
    """Each step that has a reply, and the tokens before it."""
    tokens, newest_step = 0, 0
    for row in rows:
        if row.role == "assistant" and row.step != newest_step:
            newest_step = row.step
            yield row.step, tokens
        tokens += costs[row.id].shown


def line(samples: Sequence[tuple[int, int]], model: str) -> Calibration:
    """How the provider's counts follow ours in a recording, of whose prompts parts are not recorded.

    Through the newest sample: a recording is gone on with from there. Its slope is that of all samples, of too few the
    model's usual one; what the slope does not explain is the parts that are not recorded, the same in every prompt.
    """
    start = calibration.initial(model)
    if not samples:
        return start
    slope = calibration.fit(samples, start).a_milli
    ours, theirs = samples[-1]
    if slope * ours > theirs * 1000:
        slope = max(round(_LEAST * 1000), min(round(_MOST * 1000), theirs * 1000 // ours))
    return Calibration(slope, max(0, theirs - slope * ours // 1000))


def is_uncalibrated(meta: Meta) -> bool:
    """Whether a scope was imported and has no calibration of its own yet."""
    return meta.source is not None and meta.calibration == Calibration()


def recorded_line(store: Store, count: Count, meter: Meter, costs: Mapping[str, Cost] | None = None) -> Calibration:
    """The line of a recording as of a count. `costs` are those of the blocks there, where they are known."""
    then = count.snapshot
    costs = meter.costs(then) if costs is None else costs
    return line(samples(store, count, costs, meter.overhead(then)), then.ledger.meta.model)


def calibration_of(store: Store, snapshot: Snapshot, meter: Meter) -> tuple[int, int]:
    """The scope's calibration; of an imported one that has none yet, the slope of its recorded counts.

    What the recording lacks, as the host's system prompt, is a part of the host's window: no plan can take it out, and
    no request of ours sends it.
    """
    meta = snapshot.ledger.meta
    count = newest(store, snapshot) if is_uncalibrated(meta) else None
    if count is None:
        return meta.calibration
    return recorded_line(store, count, meter).a_milli, 0
