"""What a host's own compaction makes of a ledger: a group of the blocks that left, its summary as their stub."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.recording.events import Compacted


def compacted(ledger: Ledger, event: Compacted, summary: list[Row], number: int) -> tuple[Ledger, str, int]:
    """The ledger after the host's compaction, with the name of the group that left, and the number of its blocks.

    `summary` are the rows of the recorded summary, which stand where the host put it: no text of ours. `number` is the
    group's; where nothing leaves there is none, and its name is empty.
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
    """`ledger` with the blocks of the first messages, so many before and so many behind the host's newest summary.

    As it is where no summary stands before what was kept.
    """
    groups = [group for group in ledger.groups.values() if group.removed_by == "host" and group.before]
    if not groups:
        return ledger
    newest = max(groups, key=lambda group: group_number(group.id))
    ahead, tail = chain(*blocks[:before]), chain(*blocks[before : before + after])
    return ledger.with_groups([msgspec.structs.replace(newest, summary=(*ahead, *newest.summary, *tail))])


def _leaving(ledger: Ledger, remaining: frozenset[str], before: str) -> tuple[list[Row], str]:
    """The rows in the prompt that no kept message has, and the first row of the message `before`."""
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
    """The group of the rows that left; existing outer groups become members of it as they are."""
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
