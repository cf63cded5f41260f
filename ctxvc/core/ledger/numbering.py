"""Numbers for what is new: messages in, rows out. The one place that defines a step, a turn and a parent.

- A **step** is what came in before a model's reply, the reply, and the results of its calls. It is complete once the
  reply is there and none of its calls is open.
- A **turn** begins with a human message; several in a row before any reply begin one turn.
- A **note** or a **dashboard** is outside this: it opens no step and no turn, whoever made it.
- The **parent** of a result is its call; of anything else, the block that opened its turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.label import label
from ctxvc.core.ledger.ledger import Counters, Ledger, Row

#: (block id, suffix, bytes): a body, or with a suffix such as `1.png` a sibling of it.
Body = tuple[str, str, bytes]


#: Kinds outside the conversation's steps and turns.
ASIDE: frozenset[str] = frozenset({"note", "dashboard"})

#: Prefix of our names for messages that their source does not name; such a name is never stored.
_UNNAMED = "\0"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one step with their bodies; `done` means that they complete the step."""

    step: int
    rows: tuple[Row, ...]
    bodies: tuple[Body, ...]
    done: bool
    time: str = ""
    model: str = ""
    usage: dict[str, int] = {}


@dataclass(slots=True)
class Numbering:
    """The numbers of a scope so far. Only `add` assigns new ones.

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
        state.replied = counters.step == 0
        newest: list[Row] = []
        for row in ledger.backwards():
            if row.msg == counters.msg:
                state._key = state._key or str(wire.own_metadata(row.extra).get("key", ""))
            if row.turn < counters.turn and row.step < counters.step:
                break
            newest.append(row)
        for row in reversed(newest):
            state._see(row)
        return state

    @property
    def complete(self) -> bool:
        """Whether nothing is pending: a safe boundary."""
        return self.replied and not self.calls

    def counters(self, group: int) -> Counters:
        return Counters(block=self.block, group=group, msg=self.msg, step=self.step, turn=self.turn)

    def add(self, message: Message) -> list[Entry]:
        """The entries of `message`: one for each step that it belongs to, oldest first.

        A reply or a human message that comes while calls are open ends their step first: the missing results are empty
        and marked interrupted. A message without parts has no entry, because no row could represent it.
        """
        entries, rest = self.settle(message)
        return [*entries, *self.begin(rest)]

    def settle(self, message: Message) -> tuple[list[Entry], Message]:
        """The entries by which `message` continues or ends the open step, and what is left for `begin`.

        They contain the answers to open calls and, for a reply or a human message, the results that it interrupts.
        """
        message = _storable(message)
        if message.role == "assistant":
            return (self.interrupt(message.time) if message.parts else []), message
        # A message that is split over two steps stays one message, even if its source has no name for it.
        message = message if message.key else msgspec.structs.replace(message, key=f"{_UNNAMED}{self.block}")
        answers, others = self._split(message)
        entries = [self._entry(message, answers)] if answers else []
        if any(speaks(part.kind, part.role, part.origin) for part in others):
            entries += self.interrupt(message.time)
        return entries, msgspec.structs.replace(message, parts=others) if answers else message

    def begin(self, message: Message) -> list[Entry]:
        """The entry of what `settle` left of a message; none if nothing is left."""
        if not message.parts:
            return []
        return [self._reply(message) if message.role == "assistant" else self._incoming(message)]

    def interrupt(self, time: str = "") -> list[Entry]:
        """The entry that gives every open call an empty result, marked interrupted; none if no call is open."""
        if not self.calls:
            return []
        parts = tuple(interrupted(call, tool) for call, (_, tool) in self.calls.items())
        return [self._entry(Message(role="user", parts=parts, time=time), parts)]

    def aside(self, message: Message) -> tuple[list[Row], list[Body]]:
        """Rows and bodies of what stands between messages, such as a note or a host's summary: no new step or turn."""
        message = _storable(message)
        return self._rows(message, message.parts) if message.parts else ([], [])

    def _split(self, message: Message) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """The parts that answer an open call, and the others, among them results whose call is not open."""
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
            self._open_step()
        if self.turn == 0:
            self._open_turn()
        return self._entry(message, message.parts)

    def _incoming(self, message: Message) -> Entry:
        aside = all(part.kind in ASIDE for part in message.parts)
        if self.complete and not aside:
            self._open_step()
        human = any(speaks(part.kind, part.role, part.origin) for part in message.parts)
        if (self.turn == 0 and self.step) or (human and self.turn_replied):
            self._open_turn()
        entry = self._entry(message, message.parts)
        # What arrives after the end of a step is committed with what follows it.
        return msgspec.structs.replace(entry, done=False) if aside else entry

    def _open_step(self) -> None:
        self.step += 1
        self.replied = False

    def _open_turn(self) -> None:
        self.turn += 1
        self.turn_replied = False
        self.opener = ""

    def _see(self, row: Row) -> None:
        """Advances step and turn by a row; the same rule for new rows and for those of a ledger."""
        if row.turn == self.turn:
            self.turn_replied = self.turn_replied or row.role == "assistant"
            if not self.opener and speaks(row.kind, row.role, row.origin):
                self.opener = row.id
        if row.step == self.step:
            self.replied = self.replied or row.role == "assistant"
            if row.kind == "tool_use":
                self.calls[row.call] = (row.id, row.tool)
            elif row.kind == "tool_result":
                self.calls.pop(row.call, None)

    def _entry(self, message: Message, parts: Sequence[Part]) -> Entry:
        rows, bodies = self._rows(message, parts)
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
        # Parts that came in one message stay one message, even if a step ends inside it.
        if not (message.key and message.key == self._key):
            self.msg += 1
        self._key = message.key
        rows: list[Row] = []
        bodies: list[Body] = []
        for part in parts:
            self.block += 1
            block_id = f"B{self.block}"
            parent, tool = self.opener, part.tool
            if part.kind == "tool_result" and part.call in self.calls:
                parent, call_tool = self.calls[part.call]
                tool = tool or call_tool
            extra = part.extra
            if message.key and not message.key.startswith(_UNNAMED) and not rows:
                extra = {**extra, "ctxvc": {**wire.own_metadata(extra), "key": message.key}}
            row = _row(part, block_id, parent, tool, extra, msg=self.msg, step=self.step, turn=self.turn)
            self._see(row)
            rows.append(row)
            bodies.append((block_id, "", part.body))
            if part.files:
                bodies += [(block_id, suffix, data) for suffix, data in part.files]
        return rows, bodies


def turn_answers(ledger: Ledger) -> frozenset[str]:
    """The conclusion of each turn: its last text, if no call follows."""
    answers: dict[int, str] = {}
    for row in ledger.rows():
        if row.kind == "assistant":
            answers[row.turn] = row.id
        elif row.kind == "tool_use":
            answers.pop(row.turn, None)
    return frozenset(answers.values())


def is_human(role: str, origin: str) -> bool:
    """Whether this is text that a human wrote, which automation never removes (*what a human wrote stays*)."""
    return role == "user" and origin == "human"


def speaks(kind: str, role: str, origin: str) -> bool:
    """Whether this is what a human says to the model, which opens a turn; a person's note is not."""
    return kind not in ASIDE and is_human(role, origin)


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
        files=tuple(suffix for suffix, _ in part.files) if part.files else (),  # the one empty tuple, on every Python
        bytes=len(part.body),
        sha256=hashlib.sha256(part.body).hexdigest(),
        parent=parent,
        label=label(part.kind, part.body, part.ext, tool=tool, media=media),
        extra=storable(extra),
    )


def _storable(message: Message) -> Message:
    """The message with its key and call ids as rows store them, so that lookups succeed."""
    if message.key.isascii() and all(part.call.isascii() for part in message.parts):
        return message
    parts = tuple(msgspec.structs.replace(part, call=storable(part.call)) for part in message.parts)
    return msgspec.structs.replace(message, key=storable(message.key), parts=parts)


def storable(value: Any) -> Any:
    """`value` with `?` for lone surrogates, which no row can store. Bodies keep theirs."""
    if not value or (isinstance(value, str) and value.isascii()):
        return value
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return _mended(value)
    return value


def _mended(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            return {_mended(key): _mended(item) for key, item in value.items()}
        case list() | tuple():
            return [_mended(item) for item in value]
    return value
