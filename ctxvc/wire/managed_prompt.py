"""Matches a client's messages to blocks, and builds the messages of a managed prompt from them.

These are the client's own messages, edited according to the ledger, with texts of ours among them. Calls and results
are matched by the call's id, texts by their content.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt import stub
from ctxvc.core.prompt.outline import Slot
from ctxvc.forms.form import Edit, Form

#: Kinds that are sent whole or not at all.
_NEVER_IN_PART = frozenset({"tool_use", "thinking"})
_BEFORE_ALL = -1


class Item(NamedTuple):
    """A message of the history: `source` is its number in the client's body, -1 if it is not the client's.

    `blocks` has the block of each part, empty if not recorded, and `layout` the item that it comes from.
    """

    value: Any
    source: int
    blocks: Sequence[str] = ()
    layout: Sequence[int] = ()


class Texts(NamedTuple):
    """What is sent for a slot instead of its body: its `text`; or the `guarded` text of a body that looks like one of
    our texts, empty for any other. `is_ours` says whether the block is ours, so that no client sends it."""

    text: Callable[[Slot], str]
    guarded: Callable[[Slot], str]
    is_ours: Callable[[Slot], bool]


def messages(form: Form, items: Sequence[Item], slots: Iterable[Slot], texts: Texts) -> tuple[list[Any], int]:
    """The messages of the prompt with these slots: numbers of the client's own, or other values in their place.

    Also returns the number of messages up to the newest stub of a group, or of a block if there are no groups: what
    leaves next mostly comes after that.
    """
    edits, loose, newest_stub = _edits(form, items, slots, texts)
    out: list[Any] = [form.own(loose[_BEFORE_ALL])] if _BEFORE_ALL in loose else []
    lasting = len(out)
    begins = bool(out)
    for number, item in enumerate(items):
        edit = edits.get(number, Edit())
        value = form.edited(item.value, edit) if any(edit) else item.value
        if value is not None:
            role = form.role(value)
            if not begins and role == "assistant":
                out.append(form.own([stub.BEGINNING]))
            begins = begins or role != "system"
            out.append(item.source if value is item.value and item.source >= 0 else value)
        if number in loose:
            out.append(form.own(loose[number]))
        if number <= newest_stub:
            lasting = len(out)
    return out, lasting


def _edits(
    form: Form, items: Sequence[Item], slots: Iterable[Slot], texts: Texts
) -> tuple[dict[int, Edit], dict[int, list[str]], int]:
    """Number of an item → its edit; → the texts of ours in a message of their own after it; and the item up to which
    prompts are likely to stay."""
    places = {
        block: (number, place)
        for number, item in enumerate(items)
        for block, place in zip(item.blocks, item.layout, strict=True)
        if block
    }
    shown: set[tuple[int, int]] = set()
    replaced: dict[int, dict[int, str]] = defaultdict(dict)
    appended: dict[int, list[str]] = defaultdict(list)
    newest = newest_stub = in_place = _BEFORE_ALL
    for slot in slots:
        at = places.get(slot.row.id)
        if at:
            newest = max(newest, at[0])
            if slot.kind == slot.row.kind and (slot.show == "body" or slot.kind in _NEVER_IN_PART):
                shown.add(at)
                if guarded := texts.guarded(slot):
                    replaced[at[0]][at[1]] = guarded
                continue
            if _stands_in_place(slot):
                replaced[at[0]][at[1]] = texts.text(slot)
                in_place = in_place if slot.row.present else at[0]
                continue
        elif slot.kind == "tool_result" or (slot.show == "body" and not texts.is_ours(slot)):
            continue  # no client sends it; a call without a result gets its own text
        if text := texts.text(slot):
            appended[newest].append(text)
            newest_stub = newest if slot.group else newest_stub
    dropped: dict[int, set[int]] = defaultdict(set)
    for number, place in places.values():
        if (number, place) not in shown and place not in replaced.get(number, ()):
            dropped[number].add(place)
    edits = {
        number: Edit(dropped.get(number, ()), replaced.get(number, {}))
        for number in {*dropped, *replaced}
    }  # fmt: skip
    edits, loose, stands_in = _with_texts(form, items, edits, appended, newest_stub)
    return edits, loose, in_place if newest_stub == _BEFORE_ALL else stands_in


def _with_texts(
    form: Form, items: Sequence[Item], edits: dict[int, Edit], appended: Mapping[int, Sequence[str]], newest_stub: int
) -> tuple[dict[int, Edit], dict[int, list[str]], int]:
    """The edits, with each text of ours appended to the newest message before it that is not the model's.

    `newest_stub` is the item after which the newest stub came; returns the item that this stub is in.
    """
    loose: dict[int, list[str]] = {}
    stands_in = _BEFORE_ALL
    for anchor, own_texts in sorted(appended.items()):
        end = _end_of_results(form, items, anchor)
        target = _target(form, items, edits, end)
        if target is None:
            loose.setdefault(_BEFORE_ALL, []).extend(own_texts)
        else:
            edit = edits.get(target, Edit())
            edits[target] = edit._replace(appended=(*edit.appended, *own_texts))
            stands_in = target if anchor <= newest_stub else stands_in
    return edits, loose, stands_in


def _end_of_results(form: Form, items: Sequence[Item], number: int) -> int:
    """The number of the last result right after an item; the item's own if there is none."""
    while 0 <= number < len(items) - 1 and form.role(items[number + 1].value) == "result":
        number += 1
    return number


def _target(form: Form, items: Sequence[Item], edits: Mapping[int, Edit], end: int) -> int | None:
    """The newest item up to `end` to which a text of ours may be appended; None if there is none."""
    for number in range(end, -1, -1):
        value = items[number].value
        if form.role(value) in ("user", "result"):
            edit = edits.get(number)
            if edit is None or not edit.dropped or form.edited(value, edit) is not None:
                return number
    return None


def _stands_in_place(slot: Slot) -> bool:
    """Whether the slot takes its block's place: a result's stub after the call, or a text's in its message."""
    if slot.group or slot.role != slot.row.role:
        return False
    return slot.kind == slot.row.kind or (slot.kind == "user" and slot.row.kind in ("user", "image", "document"))


_Key = tuple[str, str]


class Places:
    """The blocks of a history, message by message. Messages that are unchanged since the last time are not read again.

    `redacted` returns messages as they are recorded, `body` the body of a row.
    """

    def __init__(
        self, form: Form, redacted: Callable[[Iterable[Message]], Iterable[Message]], body: Callable[[Row], bytes]
    ) -> None:
        self._form, self._redacted, self._body = form, redacted, body
        self._forget()

    def _forget(self) -> None:
        self._reader = self._form.reader()
        self._prints: list[bytes] = []
        self._parts: list[list[Part]] = []
        #: For each message, the block of each part; empty if the part is not recorded.
        self.blocks: list[list[str]] = []
        #: For each message, the item that each part comes from (`Form.layout`).
        self.layouts: list[list[int]] = []
        self._number = 0  # of the newest known row
        self._free: dict[_Key, deque[Row]] = defaultdict(deque)
        self._of_message: dict[int, list[Row]] = defaultdict(list)
        self._messages: dict[str, int] = {}  # block → the number of its message

    def locate(self, messages: Sequence[Any], prints: Sequence[bytes], rows: Iterable[Row]) -> None:
        """Matches the messages to blocks. `rows` are all that may match, in order."""
        if list(prints[: len(self._prints)]) != self._prints:
            self._forget()
        for row in rows:
            if row.number > self._number:
                self._free[self._key_of(row)].append(row)
                self._of_message[row.msg].append(row)
                self._messages[row.id] = row.msg
                self._number = row.number
        for number in range(len(self._prints), len(messages)):
            redacted = self._redacted(self._reader.messages([messages[number]]))
            self._parts.append([part for message in redacted for part in message.parts])
            self.blocks.append([])
            self.layouts.append(self._form.layout(messages[number]))
            self._prints.append(prints[number])
        for number, parts in enumerate(self._parts):
            if len(self.blocks[number]) != len(parts) or "" in self.blocks[number]:
                self._find(number, parts)

    def recorded_since(self, block: int) -> set[_Key]:
        """The keys of all parts whose block has a higher number than `block`."""
        return {
            key(part)
            for parts, blocks in zip(self._parts, self.blocks, strict=True)
            for part, name in zip(parts, blocks, strict=False)
            if name and int(name[1:]) > block
        }

    def _find(self, number: int, parts: Sequence[Part]) -> None:
        blocks = self.blocks[number] or [""] * len(parts)
        for at, part in enumerate(parts):
            if not blocks[at] and (free := self._free.get(key(part))):
                blocks[at] = self._taken(free.popleft())
        # A reply that a client writes in its own way still has its calls: what is beside them is the rest of the reply.
        known = next((self._messages[block] for block in blocks if block), 0)
        for at, part in enumerate(parts):
            beside = (row for row in self._of_message[known] if row.kind == part.kind) if known else iter(())
            if not blocks[at] and part.role == "assistant" and (row := next(beside, None)):
                self._free[self._key_of(row)].remove(row)
                blocks[at] = self._taken(row)
        self.blocks[number] = blocks

    def _taken(self, row: Row) -> str:
        self._of_message[row.msg].remove(row)
        return row.id

    def _key_of(self, row: Row) -> _Key:
        if row.kind in ("tool_use", "tool_result"):
            return row.kind, row.call
        return (row.kind, _digest(self._body(row))) if row.role == "assistant" else (row.kind, row.sha256)


def key(part: Part) -> _Key:
    """The key that a part has in common with its block."""
    if part.kind in ("tool_use", "tool_result"):
        return part.kind, part.call
    is_reply = part.role == "assistant"
    return part.kind, _digest(part.body) if is_reply else hashlib.sha256(part.body).hexdigest()


def _digest(body: bytes) -> str:
    """A digest that ignores white space, since clients repeat a reply's text without some of it."""
    return hashlib.sha256(b"".join(body.split())).hexdigest()
