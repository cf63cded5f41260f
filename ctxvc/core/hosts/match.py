"""Which blocks of a scope a host's messages show.

A host takes messages back as text, under new names, in a file of its own; so a block is recognised by its content.
Calls and results are matched by the call's id, a text by the host's name of its message, then by role and checksum: the
first matching text is the first such block in the prompt, and so on. A stub of ours represents the block or group that
its handle names. Text alone is never trusted: a result that looks like a stub is one only if it differs from what the
store has of that result.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.hosts.message import HostMessage
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Ledger, Row, blocks_of, digest
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.prompt import stub
from ctxvc.core.prompt.outline import MASK_SHOWN

PartName = Literal["text", "tool_use", "tool_result"]
Shows = Literal["whole", "stub", "changed", "again", "new"]

#: Kinds that a host shows as the text of a message.
TEXTS = frozenset({"user", "assistant", "system", "note"})
#: What a host may put between several texts of one message.
_JOINTS = ("\n", "", "\n\n")
#: Bytes of white space by which a host's text may be shorter than the recorded one.
_TRIMMED = 64
_MASK = re.compile(r"\[masked (B[1-9][0-9]{0,11})@([0-9a-f]{6}): [^\]\n]{1,80} left out\]")
_HANDLE = re.compile(
    r"\[(?:archived|masked|pruned|blocked|deleted) (?:(B[1-9][0-9]{0,11})|(G[1-9][0-9]{0,11}))(?:@([0-9a-f]{6}))?",
    re.IGNORECASE,
)


def is_stub(text: str) -> bool:
    """Whether a text has the form of a stub of ours with a checksum, from whatever store."""
    handle = _HANDLE.match(text.strip())
    return bool(handle and handle[3] and text.rstrip().endswith("]"))


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one part of a host's message shows: part `at` of its kind in message `message`.

    `whole` is a block as recorded, `stub` a text of ours for a block or `group`, `changed` a block whose content
    differs now, `again` what an earlier message already shows, `new` what the store lacks. `blocks` has several entries
    only if the host joined the texts of one message.
    """

    message: int
    part: PartName
    at: int = 0
    shows: Shows = "new"
    blocks: tuple[str, ...] = ()
    group: str = ""


class Match(msgspec.Struct, frozen=True):
    """The places of all parts of a host's messages, in order. Parts without any character are omitted."""

    places: tuple[Place, ...]

    @property
    def unknown(self) -> tuple[Place, ...]:
        """The parts that the store lacks."""
        return tuple(place for place in self.places if place.shows == "new")


def match(
    messages: Sequence[HostMessage],
    ledger: Ledger,
    body: Callable[[Row], bytes],
    stored: Callable[[str], str] = lambda text: text,
    former: Mapping[str, str] = {},
) -> Match:
    """What each part of the messages shows. Bodies are read only for rows that checksums do not decide.

    `stored` returns a text as the store has it, without secrets. `former` are stubs that the host was sent and the
    ledger no longer has, as after an undo: text → the block or group that it stood for.
    """
    return _Matcher(messages, ledger, body, stored, former).match()


class _Queue:
    """Rows with equal content, in the order in which a host's messages show them."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)
        self._at = 0

    def settle(self) -> None:
        """Sorts rows in the prompt first, and recorded results before those that mark a call as interrupted."""
        self.rows.sort(key=lambda row: (not row.present, "interrupted" in wire.own_metadata(row.extra), row.number))

    def next(self, used: Collection[str]) -> Row | None:
        """The first row that is not used, or None."""
        while self._at < len(self.rows) and self.rows[self._at].id in used:
            self._at += 1
        return self.rows[self._at] if self._at < len(self.rows) else None


_EMPTY = _Queue()


class _Matcher:
    def __init__(
        self,
        messages: Sequence[HostMessage],
        ledger: Ledger,
        body: Callable[[Row], bytes],
        stored: Callable[[str], str],
        former: Mapping[str, str],
    ) -> None:
        self._messages = messages
        self._ledger = ledger
        self._body = body
        self._stored = stored
        self._texts = [display.encode(stored(message.text)) if message.text.strip() else b"" for message in messages]
        self._sums = [_sum(text) if text else "" for text in self._texts]
        self._taken: dict[str, int] = {}  # block or group → the first message that shows it
        self._calls: dict[tuple[str, str], _Queue] = defaultdict(_Queue)  # by kind and call
        self._by_sum: dict[tuple[str, str], _Queue] = defaultdict(_Queue)  # by role and checksum
        self._by_key: dict[str, list[Row]] = defaultdict(list)
        self._trimmed: dict[tuple[str, str], _Queue] | None = None  # like `_by_sum`, without white space at the ends
        self._joined: dict[tuple[str, str], tuple[str, ...]] | None = None  # likewise, for messages of several texts
        self._stubs = {**former, **{group.stub: group.id for group in ledger.groups.values() if group.stub}}
        self._index()

    def _index(self) -> None:
        sums, keys = set(self._sums), {message.key for message in self._messages if message.key}
        calls = {use.id for message in self._messages for use in message.tool_uses}
        calls |= {result.id for message in self._messages for result in message.tool_results}
        line = (0, "")  # a message of the ledger, and the host's name of it: only the first part of a line has that
        for row in self._ledger.rows():
            line = (row.msg, _key(row) or (line[1] if row.msg == line[0] else "")) if keys else line
            if row.kind in ("tool_use", "tool_result"):
                if row.call in calls:
                    self._calls[row.kind, row.call].rows.append(row)
            elif row.kind in TEXTS or row.kind == "other":  # kinds that hosts do not read are matched by their bytes
                if row.sha256 in sums:
                    self._by_sum[_role(row), row.sha256].rows.append(row)
                if line[1] in keys:
                    self._by_key[line[1]].append(row)
            if row.stub and not row.present:
                self._stubs.setdefault(row.stub, row.id)
        for queue in (*self._calls.values(), *self._by_sum.values()):
            queue.settle()

    def match(self) -> Match:
        places = [place for at, message in enumerate(self._messages) for place in self._of(at, message)]
        return Match(tuple(self._without_chance(places)))

    def _of(self, at: int, message: HostMessage) -> Iterator[Place]:
        if self._texts[at]:
            yield self._text(at, message)
        for index, use in enumerate(message.tool_uses):
            yield self._paired(at, "tool_use", index, use.id, lambda _: "whole")
        for index, result in enumerate(message.tool_results):
            yield self._paired(at, "tool_result", index, result.id, partial(self._result_shows, result.text))

    def _paired(self, at: int, part: PartName, index: int, call: str, shows: Callable[[Row], Shows]) -> Place:
        """The place of a call or result, by the call's id."""
        queue = self._calls.get((part, call), _EMPTY)
        if row := self._next(queue, at):
            return Place(message=at, part=part, at=index, shows=shows(row), blocks=(row.id,))
        if queue.rows:
            return Place(message=at, part=part, at=index, shows="again", blocks=(queue.rows[-1].id,))
        return Place(message=at, part=part, at=index)

    def _next(self, queue: _Queue, at: int) -> Row | None:
        """The first row of the queue that nothing shows yet; marks it as shown by this message."""
        row = queue.next(self._taken)
        if row:
            self._taken[row.id] = at
        return row

    # --- results

    def _result_shows(self, text: str, row: Row) -> Shows:
        data = display.encode(self._stored(text))
        if _sum(data) == row.sha256:
            return "whole"
        if (text == row.stub and not row.present) or self._handle_in(text) == row.id or _is_absent(row, text):
            return "stub"
        if abs(row.bytes - len(data)) <= _TRIMMED or row.ext == "json" or not data.strip():
            body = self._body(row)
            items = wire.items(body, row.extra)
            plain = body if items is None else display.encode(_item_texts(items))
            if plain.strip() == data.strip():
                return "whole"
        return "changed"

    def _handle_in(self, text: str) -> str:
        """The block or group that a text of ours names; empty if its checksum differs."""
        for handle in _HANDLE.finditer(text):
            block, group, checksum = handle.groups()
            if block and checksum and (row := self._ledger.get(block)) and row.sha256.startswith(checksum):
                return str(block)
            if group and checksum and self._sum_of(group).startswith(checksum):
                return str(group)
        return ""

    def _sum_of(self, name: str) -> str:
        """The checksum of a group; empty if there is none."""
        rows = (self._ledger.get(block) for block in blocks_of(self._ledger.groups, name))
        return digest(row for row in rows if row) if name in self._ledger.groups else ""

    # --- texts

    def _text(self, at: int, message: HostMessage) -> Place:
        queue = self._by_sum.get((message.role, self._sums[at]), _EMPTY)
        place = self._by_name(at, message)
        if place is None and (row := self._next(queue, at)):
            place = _text_place(at, "whole", row.id)
        place = place or self._stub(at, message)
        if place is None and (row := self._next(self._alike(at, message), at)):
            place = _text_place(at, "whole", row.id)
        place = place or self._several(at, message)
        if place is None and queue.rows:
            place = _text_place(at, "again", queue.rows[0].id)
        return place or Place(message=at, part="text")

    def _by_name(self, at: int, message: HostMessage) -> Place | None:
        """The texts of the recorded message with the host's name."""
        rows = [row for row in self._by_key.get(message.key, ()) if _role(row) == message.role]
        if not rows:
            return None
        blocks = tuple(row.id for row in rows)
        if self._taken.keys() >= set(blocks):
            return _text_place(at, "again", *blocks)
        if alike := next((row.id for row in rows if row.sha256 == self._sums[at]), ""):
            return _text_place(at, "whole" if self._taken.setdefault(alike, at) == at else "again", alike)
        bodies = [self._body(row).strip() for row in rows]
        is_whole = self._texts[at].strip() in [joint.encode().join(bodies) for joint in _JOINTS]
        self._taken |= dict.fromkeys(blocks, at)
        return _text_place(at, "whole" if is_whole else "changed", *blocks)

    def _stub(self, at: int, message: HostMessage) -> Place | None:
        if message.text == stub.BEGINNING:
            return _text_place(at, "stub")
        text = message.text.strip()
        name = self._masked(text)
        if message.role == "user" and not name:
            name = self._stubs.get(text, "")
            if not name and _HANDLE.match(text) and text.endswith("]"):
                name = self._handle_in(text)
        if not name:
            return None
        shows: Shows = "again" if name in self._taken else "stub"
        self._taken.setdefault(name, at)
        if name.startswith("G"):
            return Place(message=at, part="text", shows=shows, group=name)
        return _text_place(at, shows, name)

    def _masked(self, text: str) -> str:
        """The block whose mask the text is; empty if there is none."""
        mask = _MASK.search(text)
        row = self._ledger.get(mask[1]) if mask else None
        if mask is None or row is None or not row.sha256.startswith(mask[2]):
            return ""
        body = display.decode(self._body(row)) if row.kind in TEXTS else ""
        head = stub.guarded(body[:MASK_SHOWN]).strip()
        return row.id if not body or text[: mask.start()].strip() in (head, body[:MASK_SHOWN].strip()) else ""

    def _alike(self, at: int, message: HostMessage) -> _Queue:
        """The rows in the prompt with the same text, ignoring white space at its ends."""
        if self._trimmed is None:
            self._trimmed = defaultdict(_Queue)
            unsure = {
                len(text) // _TRIMMED
                for text, checksum, message in zip(self._texts, self._sums, self._messages, strict=True)
                if text and (message.role, checksum) not in self._by_sum
            }
            near = {size + more for size in unsure for more in (-1, 0, 1)}
            for row in self._ledger.rows():
                if row.kind in TEXTS and row.present and row.bytes // _TRIMMED in near:
                    self._trimmed[_role(row), _sum(self._body(row).strip())].rows.append(row)
        return self._trimmed.get((message.role, _sum(self._texts[at].strip())), _EMPTY)

    def _several(self, at: int, message: HostMessage) -> Place | None:
        """The texts of one recorded message that the host joined into one."""
        if self._joined is None:
            self._joined = {}
            texts = (row for row in self._ledger.rows() if row.kind in TEXTS and row.present)
            for _, group in groupby(texts, attrgetter("msg")):
                rows = list(group)
                bodies = [self._body(row).strip() for row in rows] if len(rows) > 1 else []
                for joint in _JOINTS if bodies else ():
                    self._joined[_role(rows[0]), _sum(joint.encode().join(bodies))] = tuple(row.id for row in rows)
        blocks = self._joined.get((message.role, _sum(self._texts[at].strip())), ())
        if not blocks or self._taken.keys() & set(blocks):
            return None
        self._taken |= dict.fromkeys(blocks, at)
        return _text_place(at, "whole", *blocks)

    # --- repetitions

    def _without_chance(self, places: list[Place]) -> Iterator[Place]:
        """The places, except that a text repeated by chance is new instead of repeated history.

        Replayed history repeats several messages in order, or under the host's own names.
        """
        origins: dict[int, int] = {}  # a message that only repeats → the message that it repeats
        for at, group in groupby(places, attrgetter("message")):
            parts = list(group)
            if all(part.shows == "again" for part in parts):
                origins[at] = self._taken.get(parts[0].group or parts[0].blocks[0], -1)
        for place in places:
            at = place.message
            by_text = place.part == "text" and place.shows == "again" and not place.group
            if by_text and not self._by_key.get(self._messages[at].key) and not _in_order(origins, at):
                yield Place(message=at, part="text")
            else:
                yield place


def _in_order(origins: Mapping[int, int], at: int) -> bool:
    """Whether the message and a neighbour repeat messages that are also neighbours."""
    if at not in origins:
        return False
    return any(origins.get(at + step) == origins[at] + step for step in (1, -1))


def _text_place(at: int, shows: Shows, *blocks: str) -> Place:
    return Place(message=at, part="text", shows=shows, blocks=blocks)


def _role(row: Row) -> str:
    return "assistant" if row.role == "assistant" else "user"


def _key(row: Row) -> str:
    key = wire.own_metadata(row.extra).get("key", "")
    return key if isinstance(key, str) else ""


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_absent(row: Row, text: str) -> bool:
    """Whether a text states only that the result is not in the prompt, as when its group has the stub."""
    return re.fullmatch(rf"\[[a-z]+ {row.id}(?: in G[0-9]+)?\]", text) is not None


def _item_texts(items: list[object]) -> str:
    texts = (item if isinstance(item, str) else item.get("text") for item in items if isinstance(item, (str, dict)))
    return "\n".join(text for text in texts if isinstance(text, str))


#: (block, suffix) → the bytes of a body.
Bodies = Mapping[tuple[str, str], bytes]


def ahead(ledger: Ledger, messages: Sequence[HostMessage], match: Match) -> tuple[tuple[Row, ...], Bodies]:
    """The rows that the unknown parts of a host's messages would have at the end, with their bodies."""
    numbering = Numbering.of(ledger, ledger.meta.counters.block)
    entries = [entry for message in _messages(messages, match.unknown) for entry in numbering.add(message)]
    rows = tuple(row for entry in entries for row in entry.rows)
    return rows, {(block, suffix): data for entry in entries for block, suffix, data in entry.bodies}


def _messages(messages: Sequence[HostMessage], unknown: Iterable[Place]) -> Iterator[Message]:
    """The unknown parts as messages; neighbours of one role are merged, since a host may write each call separately."""
    for role, places in groupby(unknown, lambda place: messages[place.message].role):
        yield Message(role=role, parts=tuple(_part(messages[place.message], place) for place in places))


def _part(message: HostMessage, place: Place) -> Part:
    match place.part:
        case "tool_use":
            use = message.tool_uses[place.at]
            return wire.call_part(use.tool, use.id, wire.compact(use.input or {}))
        case "tool_result":
            result = message.tool_results[place.at]
            return wire.result_part(result.text, result.id, error=result.error)
    return wire.text_part(message.text, message.role, "model" if message.role == "assistant" else "human")
