"""A recorded conversation as a replay runs it: its model calls in order, and its blocks with their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ctxvc import importers
from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Kind, Message, Origin, Part
from ctxvc.core.ledger.label import label
from ctxvc.core.recording.events import Closed, Compacted, Forked, Opened, Said, Sent
from ctxvc.core.recording.steps import Compaction, Fork, Gatherer, Step
from ctxvc.core.recording.usage import HOUR
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording

#: A file is set aside, and nothing is tuned on it, if its name's SHA-256, as a number, is divisible by this.
ASIDE = 3


class Call(msgspec.Struct, frozen=True, gc=False):
    """A model call: the messages that came in since the previous one (results first), and the recorded reply."""

    before: tuple[Message, ...]
    reply: Message


class Block(msgspec.Struct, frozen=True, gc=False):
    """A content block of a conversation. `number` is its position, from 0.

    `call` is the call that made it: for a reply and its results the reply's own, for other messages the next call.
    `seen` is the first call whose prompt can contain it. `text` is everything that the model could read in it: the
    strings in a call's arguments, the texts of a result's parts. `source` is a call's most telling argument, such as a
    path or a command; a result has its call's. `pair` is the number of a call's result or
    of a result's call, or -1.
    """

    number: int
    call: int
    seen: int
    kind: Kind
    role: str
    origin: Origin
    text: str
    tool: str = ""
    source: str = ""
    error: bool = False
    pair: int = -1


class HostCompaction(msgspec.Struct, frozen=True, gc=False):
    """A compaction by the recorded host before call number `call`, and the summary that it put in; "" for none."""

    call: int
    summary: str


class Conversation(msgspec.Struct, frozen=True, dict=True):
    """A recorded thread. `id` is the recording's own, or its file's name; `sha256` is that of the recording's bytes.

    `system` and `tools` are what the provider got besides the messages, as far as recorded. `compactions` are the
    host's own, which a replay leaves out. `reported` is the provider's token count for each call's prompt, or 0.
    """

    id: str
    file: str
    sha256: str
    calls: tuple[Call, ...]
    model: str = ""
    agent: str = ""
    system: Any = None
    tools: Any = None
    time: str = ""
    compactions: tuple[HostCompaction, ...] = ()
    reported: tuple[int, ...] = ()

    @property
    def aside(self) -> bool:
        """Whether the conversation belongs to the third on which nothing is tuned."""
        return int(hashlib.sha256(self.file.encode()).hexdigest(), 16) % ASIDE == 0

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Every content block, in the order in which a session numbers them."""
        blocks: list[Block] = []
        calls: dict[str, int] = {}  # the id of a call → its block
        for number, call in enumerate(self.calls):
            for message in (*call.before, call.reply):
                for part in message.parts:
                    is_reply = message is call.reply
                    step = number - 1 if part.kind == "tool_result" and part.call in calls else number
                    pair = calls.get(part.call, -1) if part.kind == "tool_result" else -1
                    blocks.append(
                        _block(len(blocks), step, number + is_reply, part, blocks[pair] if pair >= 0 else None)
                    )
                    if pair >= 0:
                        blocks[pair] = msgspec.structs.replace(blocks[pair], pair=len(blocks) - 1)
                    elif part.kind == "tool_use":
                        calls[part.call] = len(blocks) - 1
        return tuple(blocks)


def timestamp(time: str) -> float | None:
    """A message's time in seconds since 1970; None if it has no valid one."""
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() if time else None
    except ValueError:
        return None


def conversations(path: Path, format: str = "auto") -> Iterator[Conversation]:
    """The conversations of a recording that have at least one reply; a sub-agent's thread is one of its own.

    Rewound messages are left out. What a host's compaction removed stays and its summary is left out, so that the whole
    conversation is replayed as if no host had compacted it.
    Raises: BadInput.
    """
    recording = Recording(path)
    name = importers.detect(recording) if format == "auto" else format
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    for suffix, events in importers.conversations(recording, name):
        opened, threads, compactions = _threads(events)
        for scope, steps in threads.items():
            if calls := tuple(model_calls(message for step in steps for message in step.messages)):
                yield Conversation(
                    id=f"{opened.source or recording.stem}{suffix}{'' if scope == 'main' else f'/{scope}'}",
                    file=path.name,
                    sha256=sha256,
                    calls=calls,
                    model=opened.model,
                    agent=opened.agent,
                    system=opened.system,
                    tools=opened.tools,
                    time=next((message.time for step in steps for message in step.messages if message.time), ""),
                    compactions=compactions if scope == "main" else (),
                    reported=tuple(_reported(step.messages for step in steps)),
                )


def _threads(events: Iterable[object]) -> tuple[Opened, dict[str, list[Step]], tuple[HostCompaction, ...]]:
    """A recording's header, its threads as steps (`main`, then each sub-agent's), and the compactions of `main`."""
    gatherer, opened = Gatherer(), Opened(format="")
    steps: dict[str, list[tuple[int, Step]]] = {}
    compacted: list[tuple[int, str, str]] = []
    number, main, forked = 0, gatherer.current, set()

    def take(units: Iterator[object]) -> None:
        nonlocal number, main
        for unit in units:
            number += 1
            match unit:
                case Step(scope=scope, messages=messages, sent=sent):
                    around = sent.before + sent.after if sent else 0  # messages around a summary are left out with it
                    step = msgspec.structs.replace(unit, messages=messages[around:])
                    steps.setdefault(scope, []).append((number, step))
                case Compaction(scope=scope, event=event):
                    texts = (display.decode(part.body) for message in event.summary for part in message.parts)
                    compacted.append((number, scope, "\n".join(texts)))
                case Fork(scope=scope, origin=origin, unit=last):
                    steps[scope] = [item for item in steps.get(origin, []) if item[0] <= last]
                    forked.add(origin)
                    main = scope if origin == main else main

    for event in events:
        match event:
            case Opened():
                fields = {field: value for field in Opened.__struct_fields__ if (value := getattr(event, field))}
                opened = msgspec.structs.replace(opened, **fields)
            case Said() | Sent() | Closed() | Compacted() | Forked():
                take(gatherer.feed(event))
    take(gatherer.finish())
    threads = {"main": [step for _, step in steps.get(main, [])]}
    threads |= {
        scope: [step for _, step in own] for scope, own in steps.items() if scope not in forked and scope != main
    }
    own = steps.get(main, [])
    before = (
        (sum(1 for _ in model_calls(message for at, step in own if at < unit for message in step.messages)), summary)
        for unit, scope, summary in compacted
        if scope == main
    )
    return opened, threads, tuple(HostCompaction(call, summary) for call, summary in before)


def _reported(steps: Iterable[Iterable[Message]]) -> Iterator[int]:
    """The provider's token count for the prompt of each of the `model_calls`."""
    tokens, is_reply = 0, False
    for message in (message for step in steps for message in step):
        if message.role != "assistant":
            if is_reply:
                yield tokens
            tokens, is_reply = 0, False
        elif message.parts:
            tokens = (
                sum(count for name, count in message.usage.items() if name not in ("output_tokens", HOUR)) or tokens
            )
            is_reply = True
    if is_reply:
        yield tokens


def model_calls(messages: Iterable[Message]) -> Iterator[Call]:
    """The calls of a thread. Adjacent replies are merged; what follows the last reply is left out."""
    before: list[Message] = []
    reply: Message | None = None
    for message in messages:
        plain = msgspec.structs.replace(message, usage={}, model="")
        if message.role != "assistant":
            if reply is not None:
                yield Call(tuple(before), reply)
                before, reply = [], None
            before.append(plain)
        elif not message.parts:
            continue
        elif reply is None:
            reply = plain
        else:
            reply = msgspec.structs.replace(reply, parts=(*reply.parts, *plain.parts))
    if reply is not None:
        yield Call(tuple(before), reply)


def _block(number: int, step: int, seen: int, part: Part, call: Block | None) -> Block:
    if part.kind == "tool_use":
        source = label("tool_use", part.body, part.ext, tool=part.tool).partition(": ")[2]
    else:
        source = call.source if call else ""
    return Block(
        number=number,
        call=step,
        seen=seen,
        kind=part.kind,
        role=part.role,
        origin=part.origin,
        text=text_of(part),
        tool=part.tool or (call.tool if call else ""),
        source=source,
        error=part.error,
        pair=call.number if call else -1,
    )


def text_of(part: Part) -> str:
    """The text that a model can read in a block: JSON's strings, one per line; nothing of images and documents."""
    if part.kind in ("image", "document") and part.ext != "json":
        return ""
    if part.ext == "json":
        try:
            return "\n".join(_strings(wire.parse(part.body)))
        except ValueError:
            pass
    return display.decode(part.body)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case bool() | None:
            pass
        case int() | float():
            yield str(value)
        case {"type": "image" | "document", "source": _}:
            pass
        case {"type": "text", "text": str(text)}:
            yield text
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)


def conversations_in(paths: Iterable[Path], format: str = "auto") -> Iterator[Conversation]:
    """The conversations of the files, and of every recording in the folders. Raises: BadInput."""
    for path in paths:
        if not path.is_dir():
            yield from conversations(path, format)
            continue
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.name.endswith(importers.endings()):
                try:
                    yield from conversations(file, format)
                except BadInput:
                    continue  # not a recording


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """What the model saw in call number `call` of a conversation.

    `complete` has the numbers of the blocks that it saw whole, `parts` the visible text of those that it saw in part: a
    preview, a mask, or what `recover` read of one. `texts` are not in the conversation: stubs, notes, summaries,
    dashboards. `routes` maps a block that it did not see whole to the index in `texts` of the stub with an address that
    leads to it: the block's own stub, or its group's. `tokens` is the size of the whole prompt.
    """

    call: int
    complete: frozenset[int]
    parts: Mapping[int, str]
    texts: tuple[str, ...]
    routes: Mapping[int, int]
    tokens: int
