"""Numbers for what is new: messages in, rows out. The one place that says what a step, a turn and a parent is.

- A **step** is what came in before a model's reply, the reply, and the results of its calls. It is complete once the
  reply is there and none of its calls is open.
- A **turn** begins with a human message; several in a row before any reply are one turn's beginning.
- The **parent** of a result is its call; of anything else, the block that opened its turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ctxvc.core.blocks import Message, Part
from ctxvc.core.labels import label
from ctxvc.core.ledger import Counters, Ledger, Row

#: (block id, suffix, bytes): a body, or with a suffix such as `1.png` a sibling of it.
Body = tuple[str, str, bytes]


#: Begins the name of a message that has none in its source; such a name is never stored.
_UNNAMED = "\0"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one step with their bodies; `done` says that with them the step is complete."""

    step: int
    rows: tuple[Row, ...]
    bodies: tuple[Body, ...]
    done: bool
    time: str = ""
    model: str = ""
    usage: dict[str, int] = {}


@dataclass(slots=True)
class Numbering:
    """Where the numbers of a scope stand. `add` gives numbers out; nothing else does.

    `calls` are the open calls of the current step: call id → (row id, tool). `replied` says whether the current step
    has its reply, `turn_replied` whether the turn has one. `opener` is the human block that opened the turn.
    """

    block: int
    msg: int = 0
    step: int = 0
    turn: int = 0
    replied: bool = True
    turn_replied: bool = False
    opener: str = ""
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    _key: str = ""

    @staticmethod
    def of(ledger: Ledger, block: int) -> Numbering:
        """The state after `ledger`, with `block` as the session's last block number."""
        counters = ledger.meta.counters
        state = Numbering(block=block, msg=counters.msg, step=counters.step, turn=counters.turn)
        answered: set[str] = set()
        replied = False
        for row in ledger.backwards():
            if row.msg == counters.msg:
                state._key = str(row.extra.get("ctxvc", {}).get("key", ""))
            if row.turn < counters.turn:
                break
            state.turn_replied = state.turn_replied or row.role == "assistant"
            if is_human(row.role, row.origin):
                state.opener = row.id
            if row.step == counters.step:
                replied = replied or row.role == "assistant"
                if row.kind == "tool_result":
                    answered.add(row.call)
                elif row.kind == "tool_use" and row.call not in answered:
                    state.calls[row.call] = (row.id, row.tool)
        state.calls = dict(reversed(state.calls.items()))
        state.replied = replied or counters.step == 0
        return state

    @property
    def complete(self) -> bool:
        """Whether nothing is waited for: the safe boundary of DESIGN's words."""
        return self.replied and not self.calls

    def counters(self, group: int) -> Counters:
        return Counters(block=self.block, group=group, msg=self.msg, step=self.step, turn=self.turn)

    def add(self, message: Message) -> list[Entry]:
        """The entries that `message` makes: one for each step that it belongs to, oldest first.

        A reply or a human message that comes while calls are open ends their step first: the missing results are
        empty and marked interrupted.
        """
        message = _with_storable_calls(message)
        if message.role == "assistant":
            return [*self.interrupt(message.time), self._reply(message)]
        # A message that is split over two steps stays one message, also where its source has no name for it.
        message = message if message.key else msgspec.structs.replace(message, key=f"{_UNNAMED}{self.block}")
        answers, others = self._split(message)
        entries = [self._results(message, answers)] if answers else []
        if others:
            if any(is_human(message.role, part.origin) for part in others):
                entries += self.interrupt(message.time)
            entries.append(self._incoming(message, others))
        return entries

    def interrupt(self, time: str = "") -> list[Entry]:
        """The entry that gives every open call an empty result, marked interrupted; none where no call is open."""
        if not self.calls:
            return []
        parts = tuple(interrupted(call, tool) for call, (_, tool) in self.calls.items())
        return [self._results(Message(role="user", parts=parts, time=time), parts)]

    def aside(self, message: Message) -> tuple[list[Row], list[Body]]:
        """Rows and bodies of what a host puts in between two steps, such as a summary: no new step, no new turn."""
        return self._rows(message, message.parts)

    def _split(self, message: Message) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """The parts that answer an open call, and the others (a result whose call is not open is one of these)."""
        open_calls = set(self.calls)
        answers, others = [], []
        for part in message.parts:
            if part.kind == "tool_result" and part.call in open_calls:
                open_calls.discard(part.call)
                answers.append(part)
            else:
                others.append(part)
        return tuple(answers), tuple(others)

    def _reply(self, message: Message) -> Entry:
        if self.replied:
            self.step += 1
        self.replied = self.turn_replied = True
        self.turn = self.turn or 1
        rows, bodies = self._rows(message, message.parts)
        self.calls = {row.call: (row.id, row.tool) for row in rows if row.kind == "tool_use"}
        return self._entry(message, rows, bodies)

    def _results(self, message: Message, parts: Sequence[Part]) -> Entry:
        rows, bodies = self._rows(message, parts)
        for row in rows:
            self.calls.pop(row.call, None)
        return self._entry(message, rows, bodies)

    def _incoming(self, message: Message, parts: Sequence[Part]) -> Entry:
        if self.complete:
            self.step += 1
            self.replied = False
        human = next((at for at, part in enumerate(parts) if is_human(message.role, part.origin)), None)
        if self.turn == 0 or (human is not None and self.turn_replied):
            self.turn += 1
            self.turn_replied = False
            self.opener = ""
        if human is not None and not self.opener:
            self.opener = f"B{self.block + 1 + human}"
        rows, bodies = self._rows(message, parts)
        return self._entry(message, rows, bodies)

    def _entry(self, message: Message, rows: list[Row], bodies: list[Body]) -> Entry:
        return Entry(
            step=self.step,
            rows=tuple(rows),
            bodies=tuple(bodies),
            done=self.complete,
            time=message.time,
            model=message.model,
            usage=message.usage,
        )

    def _rows(self, message: Message, parts: Sequence[Part]) -> tuple[list[Row], list[Body]]:
        # Parts that came in one message stay one message, also where a step ends inside it.
        if not (message.key and message.key == self._key):
            self.msg += 1
        self._key = message.key
        rows: list[Row] = []
        bodies: list[Body] = []
        for part in parts:
            self.block += 1
            block_id = f"B{self.block}"
            opened = bool(self.opener) and int(self.opener[1:]) < self.block
            parent, tool = self.opener if opened else "", part.tool
            if part.kind == "tool_result" and part.call in self.calls:
                parent, call_tool = self.calls[part.call]
                tool = tool or call_tool
            extra = part.extra
            if message.key and not message.key.startswith(_UNNAMED) and not rows:
                extra = {**extra, "ctxvc": {**extra.get("ctxvc", {}), "key": message.key}}
            rows.append(_row(part, block_id, parent, tool, extra, msg=self.msg, step=self.step, turn=self.turn))
            bodies.append((block_id, "", part.body))
            bodies.extend((block_id, suffix, data) for suffix, data in part.files)
        return rows, bodies


def is_human(role: str, origin: str) -> bool:
    """Whether this is text that a human wrote: inviolable for automation (law 6), and what opens a turn."""
    return role == "user" and origin == "human"


def interrupted(call: str, tool: str) -> Part:
    """The result of a call that never got one. The prompt says so; the recording has no bytes for it."""
    return Part(
        kind="tool_result",
        role="user",
        origin="client",
        body=b"",
        call=call,
        tool=tool,
        error=True,
        extra={"ctxvc": {"interrupted": True}},
    )


def _row(
    part: Part, block_id: str, parent: str, tool: str, extra: dict[str, Any], *, msg: int, step: int, turn: int
) -> Row:
    source = part.extra.get("source")
    media = str(source.get("media_type", "")) if isinstance(source, dict) else ""
    return Row(
        id=block_id,
        kind=part.kind,
        role=part.role,
        origin=part.origin,
        msg=msg,
        step=step,
        turn=turn,
        call=part.call,
        tool=storable(tool),
        error=part.error,
        ext=part.ext,
        files=tuple(suffix for suffix, _ in part.files),
        bytes=len(part.body),
        sha256=hashlib.sha256(part.body).hexdigest(),
        parent=parent,
        label=label(part.kind, part.body, part.ext, tool=tool, media=media),
        extra=storable(extra),
    )


def _with_storable_calls(message: Message) -> Message:
    """The message with call ids as rows hold them, so that a result still finds its call."""
    if all(part.call.isascii() for part in message.parts):
        return message
    parts = tuple(msgspec.structs.replace(part, call=storable(part.call)) for part in message.parts)
    return msgspec.structs.replace(message, parts=parts)


def storable(value: Any) -> Any:
    """`value` with U+FFFD for lone surrogates, which no row can hold. Bodies keep theirs."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return _mended(value)
    return value


def _mended(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
        case dict():
            return {_mended(key): _mended(item) for key, item in value.items()}
        case list() | tuple():
            return [_mended(item) for item in value]
    return value
