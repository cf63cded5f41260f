"""Matches a client's messages to blocks, and builds the messages of a managed prompt from them.

These are the client's own messages, edited as the ledger says, with texts of ours among them. A call and its result are
matched by the call's id, a text by its content.
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
    """A message of the history: `source` is its number in the client's body, -1 for one of the model's or ours.

    `blocks` has the block of each part, empty for one that is not recorded, and `layout` its place in the message.
    """

    value: Any
    source: int
    blocks: Sequence[str] = ()
    layout: Sequence[int] = ()


class Texts(NamedTuple):
    """What is sent for a slot instead of its body: its own text, or the guarded text of a body that reads as one of
    ours, empty for none; and whether a row is ours, so that no client sends it."""

    text: Callable[[Slot], str]
    guarded: Callable[[Slot], str]
    is_ours: Callable[[Slot], bool]


def messages(form: Form, items: Sequence[Item], slots: Iterable[Slot], texts: Texts) -> tuple[list[Any], int]:
    """The messages of the prompt whose slots these are: numbers of the client's, or values in their place.

    And how many of them there are up to the newest stub of a group, or of a block where there are no groups: what
    leaves next mostly stands behind it.
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
    """Number of an item → its edit; and → the texts of ours that stand alone behind it; and the item up to
    which prompts are likely to stay."""
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
            continue  # no client sends it; for a call without a result it has a text of its own
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
    """The edits, with the texts that came after an item at the end of the newest message that is not the model's.

    `newest_stub` is the item that the newest stub came after; the one that it stands in is given.
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
    """The number of the last result that follows an item; its own where none does."""
    while 0 <= number < len(items) - 1 and form.role(items[number + 1].value) == "result":
        number += 1
    return number


def _target(form: Form, items: Sequence[Item], edits: Mapping[int, Edit], end: int) -> int | None:
    """The newest item up to `end` at whose end a text of ours may stand; None if there is none."""
    for number in range(end, -1, -1):
        value = items[number].value
        if form.role(value) in ("user", "result"):
            edit = edits.get(number)
            if edit is None or not edit.dropped or form.edited(value, edit) is not None:
                return number
    return None


def _stands_in_place(slot: Slot) -> bool:
    """Whether the slot stands where its block did: a result's stub behind its call, or a text's in its message."""
    if slot.group or slot.role != slot.row.role:
        return False
    return slot.kind == slot.row.kind or (slot.kind == "user" and slot.row.kind in ("user", "image", "document"))


_Key = tuple[str, str]


class Places:
    """The blocks of a history, message by message. What is as the last time is not read again.

    `redacted` are messages as they are recorded, `body` is that of a row.
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
        #: Of each message, the block of each part; empty for one that is not recorded.
        self.blocks: list[list[str]] = []
        #: Of each message, the item of each part (`Form.layout`).
        self.layouts: list[list[int]] = []
        self._number = 0  # of the newest row that is known
        self._free: dict[_Key, deque[Row]] = defaultdict(deque)
        self._of_message: dict[int, list[Row]] = defaultdict(list)
        self._messages: dict[str, int] = {}  # block → the number of its message

    def locate(self, messages: Sequence[Any], prints: Sequence[bytes], rows: Iterable[Row]) -> None:
        """Matches the messages to blocks. `rows` are all of the session's, in order."""
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
        """The keys of all parts whose block has a higher number than this one."""
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
        # A reply that a client writes in its own way has its calls at least: what stands beside them is the rest of it.
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
    """The key by which a part is matched with its block."""
    if part.kind in ("tool_use", "tool_result"):
        return part.kind, part.call
    is_reply = part.role == "assistant"
    return part.kind, _digest(part.body) if is_reply else hashlib.sha256(part.body).hexdigest()


def _digest(body: bytes) -> str:
    """Equal for a reply's text and the same without some of its white space, as clients repeat it."""
    return hashlib.sha256(b"".join(body.split())).hexdigest()
