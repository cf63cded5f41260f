"""Which blocks of a session a client's messages are. A call and its result go by the call's id, a text by itself."""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Row
from ctxvc.forms.form import Form

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
        """Finds the blocks of the messages among the rows, which are all of the session's in their order."""
        if list(prints[: len(self._prints)]) != self._prints:
            self._forget()
        for row in rows:
            if row.number > self._number:
                self._free[self._key_of(row)].append(row)
                self._of_message[row.msg].append(row)
                self._messages[row.id] = row.msg
                self._number = row.number
        for number in range(len(self._prints), len(messages)):
            read = self._redacted(self._reader.messages([messages[number]]))
            self._parts.append([part for message in read for part in message.parts])
            self.blocks.append([])
            self.layouts.append(self._form.layout(messages[number]))
            self._prints.append(prints[number])
        for number, parts in enumerate(self._parts):
            if len(self.blocks[number]) != len(parts) or "" in self.blocks[number]:
                self._find(number, parts)

    def recorded_since(self, block: int) -> set[_Key]:
        """The keys of all parts whose block is newer than this number."""
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
    """What a part has in common with its block."""
    if part.kind in ("tool_use", "tool_result"):
        return part.kind, part.call
    is_reply = part.role == "assistant"
    return part.kind, _digest(part.body) if is_reply else hashlib.sha256(part.body).hexdigest()


def _digest(body: bytes) -> str:
    """Equal for a reply's text and the same without some of its white space, as clients repeat it."""
    return hashlib.sha256(b"".join(body.split())).hexdigest()
