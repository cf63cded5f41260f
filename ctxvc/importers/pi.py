"""Sessions of the pi coding agent (`<time>_<uuid>.jsonl`) → events.

Since version 2 every entry names its parent, so a file is a tree: continuing from an earlier entry makes a branch.
Version 1 is a plain sequence. Entries that are not messages (a model change, a label, an extension's state) are nodes
of the tree too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.ledger.wire import without
from ctxvc.core.recording.events import Closed, Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.forms.values import objects, taken_over, text_in
from ctxvc.importers.file import Line, Recording, json_lines, object_in
from ctxvc.importers.protocol import LINES, Importer, WarnedOnce, names_project, of_project, single

FORMAT = "pi"

_WORDS = "pi's own words around summaries"
_MISSING = ("the system prompt", "the tool definitions", _WORDS)

_USAGE = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cacheRead": "cache_read_input_tokens",
    "cacheWrite": "cache_creation_input_tokens",
}
#: Entries that add nothing to the prompt.
_SILENT = frozenset({"thinking_level_change", "custom", "label", "usage"})
#: Messages whose content an edit may replace.
_EDITABLE = frozenset({"user", "assistant", "toolResult", "custom", "custom_message"})
_ROLES = frozenset(
    {
        "user",
        "assistant",
        "toolResult",
        "bashExecution",
        "custom",
        "hookMessage",
        "branchSummary",
        "compactionSummary",
        "custom_message",
        "branch_summary",
        "compaction",
    }
)
_USUAL_STOPS = frozenset({"", "stop", "toolUse"})


def sniff(head: bytes) -> bool:
    """Whether a file that begins with `head` is a pi session."""
    header = wire.parsed(head.lstrip().split(b"\n", 1)[0], dict)
    return (
        header is not None
        and header.get("type") == "session"
        and all(isinstance(header.get(key), str) for key in ("id", "timestamp", "cwd"))
    )


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:
    """The folders with pi's sessions of `project`, an absolute path.

    That of `PI_CODING_AGENT_SESSION_DIR` has those of every project.
    """
    base = Path(env["PI_CODING_AGENT_DIR"]) if env.get("PI_CODING_AGENT_DIR") else home / ".pi" / "agent"
    encoded = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", str(project)))
    paths = [base / "sessions" / f"--{encoded}--"]
    if env.get("PI_CODING_AGENT_SESSION_DIR"):
        paths.append(Path(env["PI_CODING_AGENT_SESSION_DIR"]))
    return paths


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The sessions of `project` in one of its `folders`."""
    return of_project(sorted(folder.glob("*.jsonl")), project, is_of_project)


def is_of_project(head: bytes, project: str) -> bool:
    """Whether `head` begins a session in the folder `project` or below it."""
    return sniff(head) and names_project(head, project)


def events(recording: Recording) -> Iterator[Event]:
    """The session's events, in file order. Raises: BadInput if the file cannot be read."""
    session = _Session(recording.stem, _own_windows(recording.path))
    for line, entry in json_lines(recording.lines()):
        yield from session.read(entry if isinstance(entry, dict) else {}, line)


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=single(events),
    endings=LINES,
    grows=True,
    folders=folders,
    recordings=recordings,
)


class _Session:
    """The tree so far. A position in it is the key of the newest message on the way there, empty if there is none."""

    def __init__(self, stem: str, windows: Mapping[str, int] = {}) -> None:
        """`windows` has the windows of the models that the person defined for pi."""
        self._stem = stem
        self._windows = windows
        self._window = Window()
        self._opened = False
        self._described = False
        self._instructed = False  # whether the system prompt and the tools are known
        self._here = ""  # the position after the events so far
        self._entries = [""]  # the id of every entry in file order, which version 1 refers to by number
        self._position = {"": ""}  # of every entry, by its id
        self._above: dict[str, str] = {}  # the position before a message, by its key
        self._summaries: set[str] = set()  # keys of the messages that a compaction added
        self._editable: dict[str, tuple[dict[str, Any], str]] = {}  # id of an entry → its message, and the role
        self._warning = WarnedOnce()

    def read(self, entry: dict[str, Any], line: Line) -> Iterator[Event]:
        kind = text_in(entry, "type")
        if kind == "session" or not self._opened:
            yield from self._open(entry if kind == "session" else {})
        if kind == "session":
            return
        if not kind:
            yield Warned(text="the line is not a session entry", line=line.number)
            return
        position, is_known = self._parent(entry)
        if not is_known:
            yield Warned(
                text="the entry's parent is not in the file; it is placed after the previous line", line=line.number
            )
        key = text_in(entry, "id")
        while key in self._position:
            # Version 1 has no ids, and an id may be there twice.
            key = f"line:{line.number}" if not key.startswith("line:") else key + "~"
        self._entries.append(key)
        self._position[key] = position
        if kind in _SILENT:
            return
        if kind == "model_change":
            yield from _told_later(model=text_in(entry, "modelId"))
            yield from self._window_news(text_in(entry, "modelId"))
        elif kind == "context_edit":
            yield from self._edited(entry, line)
        elif kind == "session_info":
            yield from _told_later(title=text_in(entry, "name"))
        elif kind not in ("message", "custom_message", "branch_summary", "compaction"):
            yield from self._warning(f"entries of an unknown type are skipped: {display.one_line(kind, 40)!r}", line)
        else:
            yield from self._spoken(entry, kind, key, line)

    def _open(self, header: dict[str, Any]) -> Iterator[Event]:
        if self._described or (self._opened and not header):
            return
        self._opened, self._described = True, bool(header)
        yield _opened(header, self._stem)
        yield from self._window_news(text_in(header, "modelId"))

    def _window_news(self, model: str) -> Iterator[Event]:
        """`Opened` if the model's window, by the person's definitions, differs from the one before."""
        tokens = self._windows.get(model, 0)
        window = Window(tokens=tokens, by="models") if tokens else Window()
        if model and window != self._window:
            self._window = window
            yield Opened(format=FORMAT, window=window, grows=True)

    def _parent(self, entry: dict[str, Any]) -> tuple[str, bool]:
        """The position before the entry, and whether the file says so."""
        last = self._position[self._entries[-1]]
        if "parentId" not in entry:
            return last, True
        match entry["parentId"]:
            case None:
                return "", True
            case str(parent) if parent in self._position:
                return self._position[parent], True
        return last, False

    def _spoken(self, entry: dict[str, Any], kind: str, key: str, line: Line) -> Iterator[Event]:
        """The events of an entry that is part of the prompt, at its place in the tree."""
        time, raw = text_in(entry, "timestamp"), entry.get("message") if kind == "message" else entry
        if not isinstance(raw, dict):
            yield Warned(text="the entry has no message", line=line.number)
            return
        role = text_in(raw, "role") if kind == "message" else kind
        if role == "system":
            yield from self._system(raw)
            return
        if role not in _ROLES:
            yield from self._warning(f"messages with an unknown role are skipped: {display.one_line(role, 40)!r}", line)
            return
        position = self._position[key]
        if role in _EDITABLE:
            self._editable[key] = raw, role
        message = _message(raw, role, key, time)
        if message:
            message = msgspec.structs.replace(message, parts=taken_over(message.parts, entry.get("ctxvc")))
            if position != self._here:
                yield Forked(after=position, end=line.end, time=time)
            self._position[key] = self._here = key
            self._above[key] = position
            yield self._compacted(entry, message, line) if kind == "compaction" else Said(message=message, end=line.end)
        if role == "assistant" and self._position[key] == self._here and _is_final(raw, message):
            yield Closed(end=line.end)

    def _system(self, raw: dict[str, Any]) -> Iterator[Event]:
        """The session's first system prompt and tools; pi writes later ones as differences."""
        if self._instructed:
            return
        sections, tools = raw.get("sections"), raw.get("toolsAdded")
        texts = [raw.get("content"), *(sections.values() if isinstance(sections, dict) else ())]
        system = "\n\n".join(text for text in texts if isinstance(text, str) and text)
        definitions = [
            {"name": tool["name"], "description": text_in(tool, "description"), "input_schema": tool.get("parameters")}
            for tool in (tools if isinstance(tools, list) else ())
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        ]
        if system:
            self._instructed = True
            yield Opened(format=FORMAT, system=system, tools=definitions or None, missing=(_WORDS,), grows=True)

    def _edited(self, entry: dict[str, Any], line: Line) -> Iterator[Event]:
        """The edit of an earlier message."""
        target, replacement = text_in(entry, "targetId"), entry.get("replacement")
        raw, role = self._editable.get(target, ({}, ""))
        if not role or not (replacement is None or isinstance(replacement, dict)):
            yield from self._warning("an edit of what no message is was skipped", line)
            return
        content = replacement.get("content") if replacement else None
        message = _message({**raw, "content": content}, role, target, "") if replacement else None
        yield Edited(
            end=line.end,
            key=target,
            call=text_in(raw, "toolCallId") if role == "toolResult" else "",
            parts=message.parts if message else (),
            time=text_in(entry, "timestamp"),
        )

    def _compacted(self, compaction: dict[str, Any], summary: Message, line: Line) -> Compacted:
        kept_keys = self._kept_keys(compaction, self._above[summary.key])
        self._summaries.add(summary.key)
        before = compaction.get("tokensBefore")
        return Compacted(
            summary=(summary,),
            end=line.end,
            kept=frozenset(kept_keys),
            before=kept_keys[-1] if kept_keys else "",
            time=summary.time,
            detail={"tokensBefore": before} if isinstance(before, int) else {},
        )

    def _kept_keys(self, compaction: dict[str, Any], position: str) -> list[str]:
        """Keys of the messages from the first kept entry to the compaction, newest first."""
        first, number = compaction.get("firstKeptEntryId"), compaction.get("firstKeptEntryIndex")
        if isinstance(number, int) and 0 <= number < len(self._entries):
            first = self._entries[number]
        if not isinstance(first, str) or first not in self._position:
            return []
        start = self._position[first]
        keys = []
        while position != start:
            if not position:
                # The first kept entry is on another branch.
                return []
            keys.append(position)
            position = self._above[position]
        if start and start == first:
            keys.append(start)
        return [key for key in keys if key not in self._summaries]


def _own_windows(path: Path) -> dict[str, int]:
    """model → window, by the person's definitions for pi; empty for a session outside of pi's folders."""
    if len(path.parents) < 3 or path.parents[1].name != "sessions":
        return {}
    providers = object_in(path.parents[2] / "models.json").get("providers")
    windows: dict[str, int] = {}
    for provider in providers.values() if isinstance(providers, dict) else ():
        for model in objects(provider.get("models")) if isinstance(provider, dict) else ():
            match model:
                case {"id": str(name), "contextWindow": int(tokens)} if tokens > 0:
                    windows[name] = tokens
    return windows


def _opened(header: dict[str, Any], stem: str) -> Opened:
    source = text_in(header, "id")
    return Opened(
        format=FORMAT,
        source=source,
        name=session_name(source or stem),
        model=text_in(header, "modelId"),
        cwd=text_in(header, "cwd"),
        time=text_in(header, "timestamp"),
        agent="pi",
        missing=_MISSING,
        grows=True,
    )


def _told_later(*, model: str = "", title: str = "") -> Iterator[Event]:
    if model or title:
        yield Opened(format=FORMAT, model=model, title=title, grows=True)


def session_name(source: str) -> str:
    """A session name from an id; from the end of a UUIDv7, whose beginning is the same for a whole minute."""
    return "pi-" + name_rules.slug(source[-8:] if source[14:15] == "7" else source[:8])


def _message(raw: dict[str, Any], role: str, key: str, time: str) -> Message | None:
    """The message that an entry adds to the prompt; None if it adds nothing."""
    parts: tuple[Part, ...]
    match role:
        case "assistant":
            parts = _reply(raw)
            if not parts:
                return None
            return Message(
                role="assistant",
                parts=parts,
                reply=key,
                key=key,
                time=time,
                model=text_in(raw, "model"),
                usage=usage(raw.get("usage")),
            )
        case "toolResult":
            parts = (_result(raw),)
        case "bashExecution":
            parts = () if raw.get("excludeFromContext") is True else _command(raw)
        case "compaction" | "branch_summary" | "compactionSummary" | "branchSummary":
            summary = raw.get("summary")
            parts = (wire.text_part(summary, "user", "client"),) if isinstance(summary, str) else ()
        case "user":
            parts = tuple(_piece(block, origin(block)) for block in _blocks(raw))
        case _:
            parts = tuple(_piece(block, "client") for block in _blocks(raw))
    return Message(role="user", parts=parts, key=key, time=time) if parts else None


def _is_final(raw: dict[str, Any], message: Message | None) -> bool:
    """Whether a reply is the turn's last: pi runs no calls of one that was aborted or failed."""
    if text_in(raw, "stopReason") in ("aborted", "error") or message is None:
        return True
    return all(part.kind != "tool_use" for part in message.parts)


def _blocks(raw: dict[str, Any]) -> list[Any]:
    content = raw.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else [] if content is None else [content]


def origin(block: Any) -> Origin:
    """`client` for a skill that pi expanded from its name; with a person's words after it, the text is `human`."""
    text = text_in(block, "text").strip() if isinstance(block, dict) else ""
    return "client" if text.startswith("<skill name=") and text.endswith("</skill>") else "human"


def _reply(raw: dict[str, Any]) -> tuple[Part, ...]:
    own_signatures = text_in(raw, "api").startswith("anthropic")
    parts = [_model_part(block, own_signatures) for block in _blocks(raw)]
    if parts and (stop := text_in(raw, "stopReason")) not in _USUAL_STOPS:
        annotations = {"stopReason": stop, "errorMessage": text_in(raw, "errorMessage")}
        parts[-1] = _annotated(parts[-1], {key: value for key, value in annotations.items() if value})
    return tuple(parts)


def _model_part(block: Any, own_signatures: bool) -> Part:
    """A part of a reply; with `own_signatures`, signatures are those of the Messages API."""
    match block:
        case {"type": "text", "text": str(value)}:
            return _annotated(wire.text_part(value, "assistant", "model"), without(block, "type", "text"))
        case {"type": "thinking", "thinking": str(value)}:
            fields = without(block, "type", "thinking")
            if own_signatures and (signature := text_in(fields, "thinkingSignature")):
                del fields["thinkingSignature"]
                if fields.pop("redacted", False) is True:
                    return wire.part({"type": "redacted_thinking", "data": signature}, "assistant", "model")
                return _annotated(
                    wire.text_part(value, "assistant", "model", kind="thinking", signature=signature), fields
                )
            return _annotated(wire.text_part(value, "assistant", "model", kind="thinking"), fields)
        case {"type": "toolCall", "id": str(call), "name": str(name), "arguments": arguments}:
            part = wire.call_part(name, call, wire.compact(arguments))
            return _annotated(part, without(block, "type", "id", "name", "arguments"))
    return wire.other_part(block, "assistant", "model")


def _piece(block: Any, origin: Origin) -> Part:
    match block:
        case {"type": "text", "text": str(value)}:
            return _annotated(wire.text_part(value, "user", origin), without(block, "type", "text"))
        case {"type": "image", "data": str(), "mimeType": str()}:
            return wire.part(_image(block), "user", origin)
    return wire.other_part(block, "user", origin)


def _image(block: Mapping[str, Any]) -> dict[str, Any]:
    source = {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}
    return {"type": "image", "source": source}


def _result(raw: dict[str, Any]) -> Part:
    call, tool, error = text_in(raw, "toolCallId"), text_in(raw, "toolName"), raw.get("isError") is True
    blocks = _blocks(raw)
    if not call:
        return wire.other_part(raw, "user", "tool")
    match blocks:
        case [{"type": "text", "text": str(value)}]:
            return wire.result_part(value, call, tool=tool, error=error)
    content = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(value)}:
                content.append({"type": "text", "text": value})
            case {"type": "image", "data": str(), "mimeType": str()}:
                content.append(_image(block))
            case _:
                return wire.result_part(wire.compact(blocks), call, tool=tool, error=error)
    return wire.result_part(content, call, tool=tool, error=error)


def _command(raw: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts of a command that a person typed, and of its output; pi sends both as one text."""
    output, status = text_in(raw, "output"), raw.get("exitCode")
    text = f"```\n{output}\n```" if output else "(no output)"
    if raw.get("cancelled") is True:
        text += "\n\n(command cancelled)"
    elif isinstance(status, int) and status != 0:
        text += f"\n\nCommand exited with code {status}"
    if raw.get("truncated") is True and (path := text_in(raw, "fullOutputPath")):
        text += f"\n\n[Output truncated. Full output: {path}]"
    typed = wire.text_part(f"Ran `{text_in(raw, 'command')}`\n", "user", "human")
    return tuple(
        _annotated(part, {"role": "bashExecution"}) for part in (typed, wire.text_part(text, "user", "client"))
    )


def usage(tokens: Any) -> dict[str, int]:
    """Token counts under the names of the Messages API; empty if the call was not counted."""
    if not isinstance(tokens, dict):
        return {}
    counts = {ours: tokens[theirs] for theirs, ours in _USAGE.items() if isinstance(tokens.get(theirs), int)}
    return counts if any(counts.values()) else {}


def _annotated(part: Part, annotations: dict[str, Any]) -> Part:
    """`part` with pi's own fields in its `extra.ctxvc.pi`, which is not sent."""
    if not annotations:
        return part
    own = part.extra.get("ctxvc", {})
    return msgspec.structs.replace(
        part, extra={**part.extra, "ctxvc": {**own, "pi": {**own.get("pi", {}), **annotations}}}
    )
