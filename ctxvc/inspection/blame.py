"""blame: what happened to a block or group, commit by commit, and how each model call saw it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.inspection.history import Touch, touches
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry
from ctxvc.store.store import Store


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit did to a block or group. `entry` is None if not committed yet; `step` is the newest step then."""

    what: str
    touch: Touch
    entry: Entry | None
    step: int


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a block or group, and the model calls that saw it, from step `first` to `last`; maybe no call."""

    item: Row | Group
    first: int
    last: int
    cut: bool = False

    @property
    def calls(self) -> int:
        return max(0, self.last - self.first + 1)


def events(stored: StoredSession, scope: str, name: str) -> list[Event]:
    """Everything that was done to a block or group, oldest first. Raises: Damaged."""
    return [
        _event(stored.store, touch, stored.ledger(scope)) for touch in touches(stored, scope, [name], by_name=True)
    ][::-1]


def stays(events: Sequence[Event], ledger: Ledger) -> list[Stay]:
    """The states between one event and the next, without times at which it did not exist."""
    return list(_stays(events, _calls(ledger)))


def _event(store: Store, touch: Touch, ledger: Ledger) -> Event:
    if not touch.commit:
        return Event(what=_what(touch, None), touch=touch, entry=None, step=ledger.meta.counters.step)
    entry = revision.entry(store, touch.commit)
    step = store.reader.meta(touch.commit).counters.step
    return Event(what=_what(touch, entry), touch=touch, entry=entry, step=step)


def _what(touch: Touch, entry: Entry | None) -> str:
    before, after = touch.before, touch.after
    if touch.cut_before != touch.cut_after:
        return "cut"
    if before is None:
        return "made" if isinstance(after, Group) else "brought in"
    if after is None:
        return "dissolved"
    if isinstance(before, Group) or isinstance(after, Group):
        return "changed" if before != after else _operation(entry)
    if before.state != after.state:
        return _turned(before, after)
    if after.reads > before.reads:
        return "read"
    if before.group != after.group:
        return f"put into {after.group}" if after.group else f"taken out of {before.group}"
    return "changed" if before != after else _operation(entry)


def _turned(before: Row, after: Row) -> str:
    if after.state == "visible":
        return "unpinned" if before.state == "pinned" else "restored"
    return f"{after.state} in {after.group}" if after.group else after.state


def _operation(entry: Entry | None) -> str:
    """The operation of a commit that names the block but does not change it."""
    operation = entry.op if entry else ""
    return {"recover": "read"}.get(operation, operation or "named")


def _stays(events: Sequence[Event], calls: int) -> Iterator[Stay]:
    ends = [_first_call(event, calls) - 1 for event in events[1:]] + [calls]
    for event, last in zip(events, ends, strict=True):
        if event.touch.after is not None:
            yield Stay(item=event.touch.after, first=_first_call(event, calls), last=last, cut=event.touch.cut_after)


def _first_call(event: Event, calls: int) -> int:
    """The first call after an event, as the number of its step."""
    row = event.touch.after
    if event.touch.before is None and isinstance(row, Row) and _asks(row) and not _beside(event.entry):
        return row.step
    return (event.step if event.entry else calls) + 1


def _asks(row: Row) -> bool:
    """Whether the reply of the row's own step saw the row, as it came in before."""
    return row.role != "assistant" and row.kind != "tool_result"


def _beside(entry: Entry | None) -> bool:
    """Whether the commit is not a step's: what came with it came after the step's reply."""
    return entry is not None and entry.op != "step"


def _calls(ledger: Ledger) -> int:
    """The number of calls made; the newest step's counts if it has a reply."""
    newest = ledger.meta.counters.step
    for row in ledger.backwards():
        if row.step < newest:
            break
        if row.role == "assistant":
            return newest
    return max(0, newest - 1)
