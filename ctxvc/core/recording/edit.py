"""How blocks in the prompt change when a host edits or withholds a message, or compacts. No body changes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part, group_number
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.prompt.stub import guarded
from ctxvc.core.recording.events import Compacted, Edited

_BY_HOST = "host"


def edited(ledger: Ledger, event: Edited) -> list[Row]:
    """The message's rows that the edit changes.

    A block that the edit repeats is in the prompt. Each other block shows the next text of the edit as its stub, or
    leaves without one. Any further text of the edit follows the message.
    """
    rows = _message(ledger, event)
    parts = list(event.parts)
    present: set[str] = set()
    for row in rows:
        equal = next((part for part in parts if _is_same(row, part)), None)
        if equal:
            parts.remove(equal)
            present.add(row.id)
    texts = {row.id: _text_for(row, parts) for row in rows if row.id not in present}
    more = "\n".join(guarded(display.decode(part.body)) for part in parts if part.kind != "tool_use")
    last = max((row.number for row in rows if row.id in present), default=0)
    after = [
        _in_prompt(row, more if row.number == last else "") if row.id in present else _absent(row, texts[row.id])
        for row in rows
    ]
    return [new for new, old in zip(after, rows, strict=True) if new != old]


def withdrawn(ledger: Ledger, parts: Sequence[Part]) -> list[Row]:
    """The rows of `parts`, removed from the prompt: they came in after the newest reply and were never sent."""
    if not parts:
        return []
    unsent = Counter((part.role, part.kind, hashlib.sha256(part.body).hexdigest()) for part in parts)
    rows: list[Row] = []
    for row in ledger.backwards():
        if row.role == "assistant":
            break
        if row.present and unsent[row.role, row.kind, row.sha256] > 0:
            unsent[row.role, row.kind, row.sha256] -= 1
            rows.append(_absent(row, ""))
    return rows


def _message(ledger: Ledger, event: Edited) -> list[Row]:
    """The rows of the message, except those that left in another way than by an edit."""
    if event.call:
        rows = [row for row in ledger.rows() if row.kind == "tool_result" and row.call == event.call][-1:]
    else:
        first = next((row for row in ledger.rows() if wire.own_metadata(row.extra).get("key") == event.key), None)
        rows = [row for row in ledger.rows() if first and row.msg == first.msg and row.kind != "tool_result"]
    return [row for row in rows if row.present or (row.removed_by == _BY_HOST and not row.group)]


def _is_same(row: Row, part: Part) -> bool:
    if row.kind == "tool_use" or part.kind == "tool_use":
        return row.kind == part.kind and row.call == part.call
    return row.kind == part.kind and row.sha256 == hashlib.sha256(part.body).hexdigest()


def _text_for(row: Row, parts: list[Part]) -> str:
    """The text that replaces the row, removed from `parts`; empty for none."""
    for part in parts:
        if part.kind == row.kind and row.kind != "tool_use":
            parts.remove(part)
            return guarded(_text(part))
    return ""


def _text(part: Part) -> str:
    items: Sequence[object] | None = wire.items(part.body, part.extra)
    if items is None:
        return display.decode(part.body)
    return "\n".join(item["text"] for item in items if isinstance(item, dict) and isinstance(item.get("text"), str))


def _in_prompt(row: Row, more: str) -> Row:
    if not row.present:
        row = msgspec.structs.replace(row, state="visible", level=0, stub="", removed_by="")
    return msgspec.structs.replace(row, tag=more)


def _absent(row: Row, text: str) -> Row:
    state = "archived" if text else "pruned"
    return msgspec.structs.replace(row, state=state, stub=text, removed_by=_BY_HOST, tag="")


def compacted(ledger: Ledger, event: Compacted, summary: list[Row], number: int) -> tuple[Ledger, str, int]:
    """The ledger after the host's compaction, the name of the group that left, and the number of its blocks.

    `summary` are the rows of the recorded summary, which is where the host put it, not in a stub of ours. `number` is
    the group's; if nothing leaves there is no group, and its name is empty.
    """
    leaving, before = _leaving(ledger, event.kept, event.before)
    after = ledger.with_rows(summary)
    if not leaving:
        return after, "", 0
    group = _host_group(ledger, f"G{number}", leaving, summary, before)
    nested = [
        msgspec.structs.replace(ledger.groups[member], group=group.id)
        for member in group.members
        if member.startswith("G")
    ]
    archived = [
        msgspec.structs.replace(row, state="archived", level=1, group=group.id, removed_by="host") for row in leaving
    ]
    return after.with_rows(archived).with_groups([group, *nested]), group.id, len(leaving)


def around_summary(ledger: Ledger, blocks: Sequence[Sequence[str]], before: int, after: int) -> Ledger:
    """The ledger with the host's newest summary framed by the blocks of the first messages.

    The first `before` messages precede the summary, the next `after` follow it. The ledger is unchanged unless a
    summary precedes what was kept.
    """
    groups = [group for group in ledger.groups.values() if group.removed_by == "host" and group.before]
    if not groups:
        return ledger
    newest = max(groups, key=lambda group: group_number(group.id))
    ahead, tail = chain(*blocks[:before]), chain(*blocks[before : before + after])
    return ledger.with_groups([msgspec.structs.replace(newest, summary=(*ahead, *newest.summary, *tail))])


def _leaving(ledger: Ledger, remaining: frozenset[str], before: str) -> tuple[list[Row], str]:
    """The rows in the prompt that belong to no kept message, and the first row of the message `before`."""
    leaving: list[Row] = []
    stays: set[int] = set()
    place = ""
    for row in ledger.rows():
        key = row.extra.get("ctxvc", {}).get("key", "")
        if key and key in remaining:
            stays.add(row.msg)
        if key and key == before:
            place = row.id
        if row.present and row.msg not in stays:
            leaving.append(row)
    return leaving, place


def _host_group(ledger: Ledger, name: str, leaving: list[Row], summary: list[Row], before: str) -> Group:
    """The group of the rows that left; existing outer groups become members of it unchanged."""
    outer = [group.id for group in ledger.groups.values() if not group.group]
    level = 1 + max((ledger.groups[group].level for group in outer), default=0)
    return Group(
        id=name,
        members=(*outer, *(row.id for row in leaving)),
        level=level,
        label=f"{len(leaving)} blocks, compacted by the host",
        summary=tuple(row.id for row in summary),
        before=before,
        removed_by="host",
    )
