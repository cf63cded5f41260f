"""Recordings in the neutral format `ctxvc-trajectory/1`: a header line, then a message a line, as in the Messages API.

A message's `meta` has the other facts of the original recording: time, model, usage, whether the client added it
(`injected`), and whether the agent's own compaction dropped everything above (`compact_boundary`, with or without a
`compact_summary` in its place).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Part, Role
from ctxvc.core.recording.events import Compacted, Event, Opened, Said, Warned
from ctxvc.core.recording.usage import counts
from ctxvc.errors import BadInput
from ctxvc.forms.anthropic import origin
from ctxvc.forms.values import annotated, text_of
from ctxvc.importers.file import Line, Recording
from ctxvc.importers.protocol import LINES, Importer, single

FORMAT = "ctxvc-trajectory"

_VERSION = "ctxvc-trajectory/1"
_HEADER = re.compile(rb'\s*\{[^\n]*"format"\s*:\s*"ctxvc-trajectory/1"')

#: What a converter left out, by the header's field for it.
_LEFT_OUT = {
    "attachments_left_out": "reminders and attachments that the client showed the model",
    "cut_before_message": "what came after the first part",
    "images_left_out": "images",
    "server_tools_left_out": "calls of the provider's own tools",
}


def sniff(head: bytes) -> bool:
    """Whether the first line is the header."""
    return _HEADER.match(head) is not None


def events(recording: Recording) -> Iterator[Event]:
    """The events of the file. Raises: BadInput if the first line is not a header of a known version."""
    lines = recording.lines()
    header = _header(recording, next(lines, None))
    yield _opened(header)
    system: list[Any] | None = []
    for line in lines:
        try:
            value = wire.parse(line.data)
        except ValueError as error:
            yield Warned(text=f"not JSON: {error}", line=line.number)
            continue
        match value:
            case {"role": "system", "content": [_, *_] as content} if system is not None:
                system = [*system, *content]
                yield Opened(format=FORMAT, system=system)
            case {"role": "user" | "assistant" | "system" as role, "content": [_, *_] as content}:
                system = None
                meta = value.get("meta")
                yield from _message_events(role, content, meta if isinstance(meta, dict) else {}, line)
            case _:
                yield Warned(text="no message with a role and content", line=line.number)


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=single(events), endings=LINES)


def _header(recording: Recording, line: Line | None) -> dict[str, Any]:
    header = wire.parsed(line.data, dict) if line else None
    if header is None or header.get("format") != _VERSION:
        raise BadInput(f"{recording.path}: the first line is not a header of {_VERSION}")
    return header


def _opened(header: dict[str, Any]) -> Opened:
    source = text_of(header.get("id"))
    fixups = header.get("fixups")
    unrecorded = ["system prompt"] if header.get("native_format") == "claude-code" else []
    left_out = [description for name, description in _LEFT_OUT.items() if isinstance(fixups, dict) and name in fixups]
    return Opened(
        format=FORMAT,
        source=source,
        name=name_rules.slug(source),
        model=text_of(header.get("model")),
        agent=text_of(header.get("agent")),
        title=text_of(header.get("task")),
        missing=(*unrecorded, "tool definitions", *left_out),
    )


def _message_events(role: Role, content: list[Any], meta: dict[str, Any], line: Line) -> Iterator[Event]:
    summary = meta.get("compact_summary") is True
    client = summary or meta.get("injected") is True or meta.get("native_role") == "developer"
    parts = [_part(block, role, client=client) for block in content]
    if notes := {name: value for name, value in meta.items() if name in ("native_role", "speaker")}:
        parts[0] = annotated(parts[0], "ctxvc", notes)
    message = Message(
        role=role,
        parts=tuple(parts),
        key=f"line:{line.number}",
        time=text_of(meta.get("ts")),
        model=text_of(meta.get("model")),
        usage=counts(meta.get("usage")),
    )
    if meta.get("compact_boundary") is not True:
        yield Said(message=message, end=line.end)
    elif summary:
        yield Compacted(summary=(message,), end=line.end, time=message.time)
    else:
        yield Compacted(summary=(), end=line.end, time=message.time)
        yield Said(message=message, end=line.end)


def _part(block: Any, role: Role, *, client: bool) -> Part:
    match block:
        case {"type": "tool_result", "synthetic": True}:
            received = {name: value for name, value in block.items() if name != "synthetic"}
            return annotated(wire.part(received, role, "client"), "ctxvc", {"interrupted": True})
    made_by = origin(block, role)
    return wire.part(block, role, "client" if client and made_by == "human" else made_by)
