"""Session traces of Hugging Face (STS-Format): a header line, then a message a line.

Our own lines have more under `ctxvc` (`exporters/hf_trace.py`), which is not read in those of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.core.recording.events import Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.origins import is_by_client
from ctxvc.forms.values import objects, text_of, time_of
from ctxvc.importers.file import Line, Recording
from ctxvc.importers.protocol import LINES, Importer, single

FORMAT = "hf-trace"

_ROLES: dict[str, tuple[Role, Origin]] = {
    "user": ("user", "human"),
    "assistant": ("assistant", "model"),
    "system": ("system", "client"),
    "tool": ("user", "tool"),
}


def sniff(head: bytes) -> bool:
    """Whether the first line is the header."""
    return _header(head.split(b"\n", 1)[0]) is not None


def _header(line: bytes) -> dict[str, Any] | None:
    match wire.parsed(line.strip(), dict):
        case {"type": "session", "harness": str(), "id": str()} as header:
            return header
    return None


def events(recording: Recording) -> Iterator[Event]:
    """The session's events. Raises: BadInput if the first line is not a header."""
    lines = recording.lines()
    first = next(lines, None)
    header = _header(first.data) if first else None
    if header is None:
        raise BadInput(f"{recording.path}: the first line is not the header of a session trace")
    ours = header["harness"] == "ctxvc"
    yield Opened(
        format=FORMAT,
        source=header["id"],
        name=name_rules.slug(header["id"]),
        model=text_of(header.get("model")),
        agent=text_of(header.get("agent")) or ("" if ours else header["harness"]),
        title=text_of(header.get("name")),
        missing=("tool definitions", "images"),
    )
    reader = _Reader(ours=ours)
    for line in lines:
        yield from reader.events(line)


IMPORTER = Importer(format=FORMAT, sniff=sniff, conversations=single(events), endings=LINES)


class _Reader:
    """Reads the lines after the header, in order."""

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours
        self._system: list[dict[str, Any]] | None = []
        self._reply = ""

    def events(self, line: Line) -> Iterator[Event]:
        match wire.parsed(line.data, dict):
            case {"type": "message", "message": {"role": str(role)} as message, **rest} if role in _ROLES:
                pass
            case None:
                yield Warned(text="not a JSON object", line=line.number)
                return
            case _:
                yield Warned(text="no message with a known role", line=line.number)
                return
        marks = rest.get("ctxvc") if self._ours else None
        marks = marks if isinstance(marks, dict) else {}
        content = text_of(message.get("content"))
        if role == "system" and self._system is not None and (marks.get("request") is True or not self._ours):
            self._system.append({"type": "text", "text": content})
            yield Opened(format=FORMAT, system=list(self._system))
            return
        self._system = None
        if role == "assistant" and not (self._reply and marks.get("continues") is True):
            self._reply = f"line:{line.number}"
        parts = list(_parts(message, role, content, marks))
        if not parts:
            yield Warned(text="the message is empty", line=line.number)
            return
        timestamp = message.get("timestamp")
        yield Said(
            message=Message(
                role=_ROLES[role][0],
                parts=tuple(parts),
                key=f"line:{line.number}",
                reply=self._reply if role == "assistant" else "",
                time=time_of(timestamp / 1000) if isinstance(timestamp, int | float) else "",
                model=text_of(message.get("model")),
            ),
            end=line.end,
        )


def _parts(message: dict[str, Any], role: str, content: str, marks: dict[str, Any]) -> Iterator[Part]:
    our_role, origin = _ROLES[role]
    if (marked := marks.get("origin")) in ("human", "client", "model", "tool"):
        origin = marked
    elif role == "user" and is_by_client(content):
        origin = "client"
    if role == "tool":
        yield wire.part(
            {
                "type": "tool_result",
                "tool_use_id": text_of(message.get("toolCallId")),
                "content": content,
                "is_error": marks.get("error") is True,
            },
            our_role,
            origin,
        )
        return
    if reasoning := text_of(message.get("reasoningContent")):
        yield wire.text_part(reasoning, our_role, origin, kind="thinking")
    if content:
        yield wire.text_part(content, our_role, origin)
    for call in objects(message.get("toolCalls")):
        match call:
            case {"id": str(name), "function": {"name": str(tool), "arguments": arguments}}:
                yield wire.call_part(tool, name, arguments)
            case _:
                yield wire.other_part(call, our_role, origin)
