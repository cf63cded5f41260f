"""A prompt that a host's plugin recomposed, as a change of the ledger: most of it consists of blocks already there.

What a plugin returns is written as new messages, and matched to the blocks that it shows (`core.hosts.match`). A result
with another text is that block archived, with that text as its stub; what is returned twice appears once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ctxvc.core import display
from ctxvc.core.hosts.match import Place, match
from ctxvc.core.hosts.message import HostMessage, ToolResult, ToolUse
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Ledger, Row


@dataclass(slots=True)
class Recast:
    """What became of the blocks of a ledger. `keys` lists the blocks in the prompt: block → its message's new key.

    `stubs` maps blocks to the text that replaces them; `groups` are those whose stub is in the prompt. `additions` are
    the messages that the ledger lacks, each with the block that it precedes, empty for the end.
    """

    keys: dict[str, str] = field(default_factory=dict)
    stubs: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    additions: list[tuple[Message, str]] = field(default_factory=list)


def recast(
    ledger: Ledger,
    prompt: Sequence[Message],
    body: Callable[[Row], bytes],
    *,
    as_recorded: bool = True,
    moves: bool = False,
) -> Recast:
    """How the messages of `prompt` change the blocks of `ledger`.

    A stub of ours removes the block that it names, unless the ledger is no longer `as_recorded`: then verbs have
    decided on that block, and it stays as it is. With `moves`, a text from the client that follows newer blocks, such
    as rules that are always repeated last, is added anew and leaves its old place.
    """
    pairs = [(message, *pair) for message in prompt for pair in _host_messages(message)]
    places = match([host_message for _, host_message, _ in pairs], ledger, body).places
    result = Recast()
    order: list[str] = []  # the blocks of the prompt
    added: list[tuple[Message, int]] = []
    for place in places:
        message, host_message, parts = pairs[place.message]
        if place.shows == "new" or (moves and _has_moved(place, order, added, ledger)):
            new = (parts[place.at],) if place.part != "text" else parts
            added.append((msgspec.structs.replace(message, parts=new), len(order)))
        elif place.shows != "again":
            _note(place, host_message, ledger, result, as_recorded=as_recorded)
            order += [block for block in place.blocks if ledger[block].present]
    result.additions = [(message, order[at] if at < len(order) else "") for message, at in added]
    return result


def _has_moved(place: Place, order: Sequence[str], added: Sequence[object], ledger: Ledger) -> bool:
    """Whether a text that is not the model's follows new messages and blocks that are newer than itself."""
    texts = [ledger[block] for block in place.blocks]
    if (
        place.part != "text"
        or not added
        or not order
        or any(row.role == "assistant" or not row.present for row in texts)
    ):
        return False
    return all(row.number < ledger[order[-1]].number for row in texts)


def _note(place: Place, message: HostMessage, ledger: Ledger, result: Recast, *, as_recorded: bool) -> None:
    if place.group:
        result.groups.add(place.group)
    for block in place.blocks:
        row = ledger[block]
        if place.part == "tool_result" and place.shows == "changed":
            result.stubs[block] = message.tool_results[place.at].text
        elif place.shows == "stub" and not row.present:
            result.stubs[block] = row.stub
        elif place.shows == "stub" and as_recorded and row.state != "masked" and row.origin != "human":
            result.stubs[block] = message.tool_results[place.at].text if place.part == "tool_result" else message.text
        else:
            result.keys[block] = message.key


def _host_messages(message: Message) -> list[tuple[HostMessage, tuple[Part, ...]]]:
    """A message as hosts have it, split by kind of part, with the parts."""
    kinds = (
        tuple(part for part in message.parts if part.kind not in ("tool_use", "tool_result")),
        tuple(part for part in message.parts if part.kind == "tool_use"),
        tuple(part for part in message.parts if part.kind == "tool_result"),
    )
    return [(_host_message(message, parts), parts) for parts in kinds if parts]


def _host_message(message: Message, parts: Sequence[Part]) -> HostMessage:
    kind = parts[0].kind
    return HostMessage(
        role="assistant" if message.role == "assistant" else "user",
        text="" if kind in ("tool_use", "tool_result") else "\n".join(display.decode(part.body) for part in parts),
        tool_uses=tuple(ToolUse(id=part.call, tool=part.tool) for part in parts if kind == "tool_use"),
        tool_results=tuple(
            ToolResult(id=part.call, text=display.decode(part.body), error=part.error)
            for part in parts
            if kind == "tool_result"
        ),
        key=message.key,
    )


def applied(ledger: Ledger, recast: Recast, added: Sequence[tuple[str, list[Row]]], actor: str, group: int) -> Ledger:
    """The ledger with the prompt of `recast`; `added` are the rows of its new messages, as in `recast.additions`.

    Blocks that are no longer in the prompt leave in groups without a stub, numbered from `group` on.
    """
    draft = _Draft(ledger, actor, group)
    for block, key in recast.keys.items():
        draft.keep(ledger[block], key)
    for block, text in recast.stubs.items():
        if not ledger[block].present and ledger[block].stub == text:
            continue  # it left earlier and is unchanged
        draft.put(msgspec.structs.replace(draft.alone(block), state="archived", level=1, stub=text, removed_by=actor))
    staying = {*recast.keys, *recast.stubs, *(row.id for _, rows in added for row in rows)}
    draft.leave([row for row in ledger.rows() if row.id not in staying], recast.groups, added)
    return draft.ledger()


class _Draft:
    """Changes of a ledger's rows and groups."""

    def __init__(self, ledger: Ledger, actor: str, group: int) -> None:
        self._ledger = ledger
        self._actor = actor
        self._group = group
        self._rows: dict[str, Row] = {}
        self._groups: dict[str, Group] = {}

    def ledger(self) -> Ledger:
        return self._ledger.with_rows(self._rows.values()).with_groups(self._groups.values())

    def put(self, row: Row) -> None:
        self._rows[row.id] = row

    def alone(self, block: str) -> Row:
        """The row, removed from all groups."""
        row = self._rows.get(block) or self._ledger[block]
        member, name = block, row.group
        while group := self._groups.get(name) or self._ledger.groups.get(name):
            members = tuple(name for name in group.members if name != member)
            self._groups[name] = msgspec.structs.replace(group, members=members)
            if members:
                break
            member, name = name, group.group
        return msgspec.structs.replace(row, group="")

    def keep(self, row: Row, key: str) -> None:
        """Keeps or returns the row; later lines of the host name it by `key`."""
        if not row.present:
            row = msgspec.structs.replace(self.alone(row.id), state="visible", level=0, stub="", removed_by="")
        own = {**wire.own_metadata(row.extra), "key": key}
        self.put(msgspec.structs.replace(row, extra={**row.extra, "ctxvc": own}) if key else row)

    def leave(self, rows: Sequence[Row], stubs: set[str], added: Sequence[tuple[str, list[Row]]]) -> None:
        """Groups the rows and groups that are not in the prompt, around the added rows that precede a block."""
        rows = [row for row in rows if row.present or (row.stub and not row.group)]
        outer = {
            name: group
            for name, group in self._ledger.groups.items()
            if not group.group and name not in stubs and self._groups.get(name, group).members
        }
        leaving = {row.id for row in rows}
        staying = {
            name
            for name, group in outer.items()
            if any(block not in leaving and self._ledger[block].present for block in group.summary)
        }
        unplaced: list[str] = [*(outer.keys() - staying), *(row.id for row in rows)]
        unplaced.sort(key=self._first)
        moves = _moves(added)
        for number, (before, summary) in enumerate(moves):
            # A group gets the members up to its summary's place, at least one; the last group gets all others.
            later = len(moves) - 1 - number
            until = max(1, sum(self._first(member) < _number(before) for member in unplaced))
            until = max(0, min(until, len(unplaced) - later)) if later else len(unplaced)
            self._gather(unplaced[:until], summary, before)
            unplaced = unplaced[until:]
        if not moves:
            self._gather(unplaced, (), "")

    def _first(self, member: str) -> int:
        """The number of a block, or of the first block in a group."""
        seen: set[str] = set()
        while member.startswith("G") and member not in seen:
            seen.add(member)
            group = self._groups.get(member) or self._ledger.groups[member]
            member = min(group.members, key=lambda name: (name[0] == "G", _number(name)))
        return _number(member)

    def _gather(self, members: Sequence[str], summary: tuple[str, ...], before: str) -> None:
        if not members:
            return
        name, level = f"G{self._group}", 1
        self._group += 1
        for member in members:
            if member.startswith("G"):
                inner = self._groups.get(member) or self._ledger.groups[member]
                level = max(level, inner.level + 1)
                self._groups[member] = msgspec.structs.replace(inner, group=name)
                continue
            row = self._rows.get(member) or self._ledger[member]
            by = self._actor if row.present else row.removed_by
            self.put(msgspec.structs.replace(row, state="archived", level=1, group=name, removed_by=by))
        self._groups[name] = Group(
            id=name,
            members=tuple(members),
            level=level,
            label=f"{len(members)} blocks, compacted by {self._actor}",
            summary=summary,
            before=before,
            removed_by=self._actor,
        )


def _moves(added: Sequence[tuple[str, list[Row]]]) -> list[tuple[str, tuple[str, ...]]]:
    """The added rows that precede a block: (block, rows), in the order of the blocks."""
    moves: dict[str, list[str]] = {}
    for before, rows in added:
        if before:
            moves.setdefault(before, []).extend(row.id for row in rows)
    return sorted(((before, tuple(summary)) for before, summary in moves.items()), key=lambda move: _number(move[0]))


def _number(name: str) -> int:
    return int(name[1:])
