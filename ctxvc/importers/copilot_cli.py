"""Sessions of GitHub Copilot CLI (`session-state/<uuid>/events.jsonl`) → events.

Each line is an event of the host. A few of them are the conversation: what was sent and replied, a tool's result, a
compaction. The others (hooks, permissions, the state of servers) are for its user interface. The names of events and
fields are those of the types in `@github/copilot-sdk`.
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
from ctxvc.core.recording.events import Closed, Compacted, Event, Opened, Said, Warned
from ctxvc.forms import elements
from ctxvc.forms.values import objects, taken_over, text_in
from ctxvc.importers.file import Line, Recording, json_lines
from ctxvc.importers.protocol import (
    LINES,
    Importer,
    State,
    WarnedOnce,
    file_state,
    of_project,
    single,
)

FORMAT = "copilot-cli"

#: The name of every session's file, in a folder named after the session.
_EVENTS = "events.jsonl"
_MISSING = ("the tool definitions", "Copilot's own words around summaries")
#: The part before the dot of the known types of events.
_KNOWN = frozenset(
    {
        "abort", "assistant", "auto_mode_switch", "canvas", "capabilities", "command", "commands", "elicitation",
        "exit_plan_mode", "extensions", "external_tool", "factory", "hook", "mcp", "mcp_app", "model",
        "pending_messages", "permission", "sampling", "session", "session_limits_exhausted", "skill", "subagent",
        "system", "tool", "tool_search", "ui", "user", "user_input",
    }
)  # fmt: skip
#: The beginnings of the `source` of messages that the host adds by itself.
_HOSTS_SOURCES = ("skill-", "agent-")
_MESSAGE = re.compile(rb'"type"\s*:\s*"(?:user\.message|assistant\.message|tool\.execution_complete)"')
_START = re.compile(rb'\{"type":"session\.start","data":\{"sessionId":"')
#: Lines of `workspace.yaml` that name a session.
_TITLE = re.compile(r"^(?:name|summary): *(\S.*)$", re.MULTILINE)
_LARGEST_WORKSPACE = 65_536


def sniff(head: bytes) -> bool:
    """Whether a file that begins with `head` is a session's; the first line may be cut off."""
    first = head.lstrip().split(b"\n", 1)[0]
    event = wire.parsed(first, dict)
    if event is None:
        return bool(_START.match(first))
    return (
        event.get("type") == "session.start"
        and "parentId" in event
        and isinstance(event.get("data"), dict)
        and isinstance(event["data"].get("sessionId"), str)
    )


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001 - as every importer has it
    """The folder with the sessions of all projects."""
    return [Path(env.get("COPILOT_HOME") or home / ".copilot") / "session-state"]


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The sessions of `project` in the folder; those of older versions have no folder of their own."""
    return of_project(sorted([*folder.glob(f"*/{_EVENTS}"), *folder.glob("*.jsonl")]), project)


def more_files(path: Path) -> Iterator[Path]:
    """The other files in the session's folder: summaries of compactions, outputs, notes."""
    if path.name == _EVENTS:
        yield from (file for file in sorted(path.parent.rglob("*")) if file.is_file() and file != path)


def state(path: Path, positions: Mapping[str, int]) -> State:
    """`Importer.state` of the session at `path`."""
    return file_state(path, positions, _stem(Recording(path)), _MESSAGE)


def events(recording: Recording) -> Iterator[Event]:
    """The session's events, in file order. Raises: BadInput if the file cannot be read."""
    session = _Session(_stem(recording), _title(recording.path))
    for line, event in json_lines(recording.lines()):
        yield from session.events(event if isinstance(event, dict) else {}, line)


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=single(events),
    endings=LINES,
    grows=True,
    folders=folders,
    recordings=recordings,
    more_files=more_files,
    state=state,
)


class _Session:
    """The state after the lines so far."""

    def __init__(self, stem: str, title: str) -> None:
        self._stem = stem
        self._title = title
        self._opened = False
        self._described = False
        self._instructed = False  # whether the system prompt is known
        self._model = ""
        self._window = Window()
        self._reply = ("", "")  # of the newest message, if it is a reply's: the provider's id of it, our key
        self._tools: dict[str, str] = {}  # call → tool
        self._pending: set[str] = set()  # calls of the session itself without a result
        self._assets: dict[str, dict[str, Any]] = {}  # id → what a later result refers to
        self._agents: dict[str, tuple[str, str]] = {}  # sub-agent → its scope, the call that started it
        self._since: list[str] | None = None  # keys of the messages since a compaction began, None outside of one
        self._after: set[str] = set()  # calls made since then
        self._compaction: Compacted | None = None  # waits for the results of its step
        self._keys: set[str] = set()
        self._warning = WarnedOnce()

    def events(self, event: dict[str, Any], line: Line) -> Iterator[Event]:
        kind, data, time = text_in(event, "type"), event.get("data"), text_in(event, "timestamp")
        if kind == "session.start" and isinstance(data, dict):
            yield from self._described_by(data, time)
            return
        if not self._opened:
            yield from self._open(
                Opened(format=FORMAT, name=_name(self._stem), missing=("the system prompt", *_MISSING))
            )
        if not kind or not isinstance(data, dict):
            yield Warned(text="the line is not an event of Copilot CLI", line=line.number)
            return
        scope, task = self._agent(event, data)
        match kind:
            case "user.message" | "system.notification" | "assistant.message" | "tool.execution_complete":
                yield from self._spoken(kind, event, data, line, scope, task)
            case "system.message" if not scope:
                yield from self._system(event, data, line)
            case "assistant.turn_end" | "abort" | "session.shutdown":
                yield Closed(end=line.end, scope=scope)
                if not scope:
                    self._reply = ("", "")
                    yield from self._compacted(line.end)
            case _ if not scope:
                yield from self._between(kind, data, line, time)

    # -- facts about the session ---------------------------------------------------------------------------------------

    def _open(self, opened: Opened) -> Iterator[Event]:
        self._opened = True
        yield msgspec.structs.replace(opened, grows=True, title=self._title)

    def _described_by(self, data: dict[str, Any], time: str) -> Iterator[Event]:
        if self._described:
            return
        self._described = True
        context = data.get("context")
        place = context if isinstance(context, dict) else {}
        source = text_in(data, "sessionId")
        self._model = text_in(data, "selectedModel")
        yield from self._open(
            Opened(
                format=FORMAT,
                source=source,
                name=_name(source or self._stem),
                model=self._model,
                cwd=text_in(place, "cwd"),
                branch=text_in(place, "branch"),
                time=text_in(data, "startTime") or time,
                agent=" ".join(filter(None, ("Copilot CLI", text_in(data, "copilotVersion")))),
                missing=("the system prompt", *_MISSING),
            )
        )

    def _system(self, event: dict[str, Any], data: dict[str, Any], line: Line) -> Iterator[Event]:
        """The session's first system prompt; a developer message is a text of the client."""
        content = text_in(data, "content")
        if text_in(data, "role") == "developer":
            part = wire.text_part(content, "user", "client")
            yield from self._sent(Message(role="user", parts=(part,), key=self._key(event, line)), line)
        elif content and not self._instructed:
            self._instructed = True
            yield Opened(format=FORMAT, system=content, missing=_MISSING, grows=True)

    def _modelled(self, model: str) -> Iterator[Event]:
        if model and model != self._model:
            self._model = model
            yield Opened(format=FORMAT, model=model, grows=True)

    def _news_of_window(self, data: dict[str, Any]) -> Window | None:
        """The window, if the event names a new one."""
        tokens = data.get("tokenLimit")
        window = Window(tokens=tokens, by="host") if isinstance(tokens, int) and tokens > 0 else self._window
        if window == self._window:
            return None
        self._window = window
        return window

    def _agent(self, event: dict[str, Any], data: dict[str, Any]) -> tuple[str, str]:
        """The scope of an event's sub-agent and the call that started it; both empty for the main agent."""
        name = text_in(event, "agentId") or text_in(data, "parentToolCallId")
        if not name:
            return "", ""
        if name not in self._agents:
            started = text_in(event, "type") == "subagent.started"
            task = text_in(data, "toolCallId" if started else "parentToolCallId")
            task = task or (name if name in self._tools else "")
            label = text_in(data, "agentName")[:30] if started else ""
            scope = name_rules.agent_scope(f"{label}-{name[-12:]}")
            while scope in {place[0] for place in self._agents.values()}:
                scope = f"{scope}-{len(self._agents) + 1}"
            self._agents[name] = scope, task
        return self._agents[name]

    # -- messages ------------------------------------------------------------------------------------------------------

    def _spoken(
        self, kind: str, event: dict[str, Any], data: dict[str, Any], line: Line, scope: str, task: str
    ) -> Iterator[Event]:
        """The events of a line that adds to the prompt."""
        key, time = self._key(event, line), text_in(event, "timestamp")
        if kind == "assistant.message":
            parts = _reply(data)
            calls = [part.call for part in parts if part.kind == "tool_use"]
            self._tools |= {part.call: part.tool for part in parts if part.kind == "tool_use"}
            if not parts:
                return
            reply = self._reply_of(data, key, scope)
            message = Message(
                role="assistant",
                parts=parts,
                reply=reply,
                key=key,
                time=time,
                model=text_in(data, "model"),
                usage=_usage(data),
            )
            if not scope:
                if reply == key:
                    yield from self._compacted(line.start)
                yield from self._modelled(message.model)
                self._pending.update(calls)
                if self._since is not None:
                    self._since.append(key)
                    self._after.update(calls)
            yield Said(message=message, end=line.end, scope=scope, task=task)
            return
        if kind == "tool.execution_complete":
            message = Message(role="user", parts=self._result(data), key=key, time=time)
        elif kind == "user.message":
            message = Message(role="user", parts=_prompt(data, to_agent=bool(scope)), key=key, time=time)
        else:
            part = wire.text_part(text_in(data, "content"), "user", "client")
            message = Message(role="user", parts=(part,), key=key, time=time)
        yield from self._sent(message, line, scope, task)

    def _sent(self, message: Message, line: Line, scope: str = "", task: str = "") -> Iterator[Event]:
        if not message.parts:
            return
        if scope:
            yield Said(message=message, end=line.end, scope=scope, task=task)
            return
        results = {part.call for part in message.parts if part.kind == "tool_result"}
        if not results:
            self._reply = ("", "")
        if self._since is not None and results <= self._after:
            self._since.append(message.key)
        yield Said(message=message, end=line.end)
        self._pending -= results
        if self._compaction and not self._pending:
            yield from self._compacted(line.end)

    def _key(self, event: dict[str, Any], line: Line) -> str:
        """The event's id, or its line number if the id is missing or repeated."""
        key = text_in(event, "id")
        if not key or key in self._keys:
            key = f"line:{line.number}"
            while key in self._keys:
                key += "~"
        self._keys.add(key)
        return key

    def _reply_of(self, data: dict[str, Any], key: str, scope: str) -> str:
        """The key of the reply that a message belongs to, which may be written in several chunks."""
        identity = text_in(data, "apiCallId")
        if scope or not isinstance(data.get("chunkIndex"), int) or not identity or identity != self._reply[0]:
            if not scope:
                self._reply = (identity, key)
            return key
        return self._reply[1]

    def _result(self, data: dict[str, Any]) -> tuple[Part, ...]:
        call = text_in(data, "toolCallId")
        tool = self._tools.get(call, "")
        result, error = data.get("result"), data.get("error")
        failed = data.get("success") is False
        if not call:
            return (wire.other_part(data, "user", "tool"),)
        if isinstance(result, dict) and isinstance(result.get("content"), str):
            text = result["content"]
        elif isinstance(error, dict):
            text = text_in(error, "message")
        else:
            text = "" if result is None else wire.compact(result).decode("utf-8", "replace")
        images = self._images(result.get("binaryResultsForLlm") if isinstance(result, dict) else None)
        if data.get("isUserRequested") is True and not tool:
            return (wire.text_part(text, "user", "client"),)
        content = [{"type": "text", "text": text}, *images] if images else text
        return (wire.result_part(content, call, tool=tool, error=failed),)

    def _images(self, binaries: object) -> list[dict[str, Any]]:
        """The images among a result's binary parts, whose bytes may have come in an event of their own."""
        parts = (self._assets.get(text_in(part, "assetId"), part) for part in objects(binaries))
        return [image for part in parts if (image := _image(part))]

    # -- what changes the prompt ---------------------------------------------------------------------------------------

    def _between(self, kind: str, data: dict[str, Any], line: Line, time: str) -> Iterator[Event]:
        match kind:
            case "session.model_change":
                yield from self._modelled(text_in(data, "newModel"))
            case "session.resume":
                yield from self._modelled(text_in(data, "selectedModel"))
            case "session.title_changed":
                if title := text_in(data, "title"):
                    yield Opened(format=FORMAT, title=title, grows=True)
            case "session.binary_asset":
                self._assets[text_in(data, "assetId")] = data
            case "session.compaction_start":
                self._since, self._after = [], set()
                if window := self._news_of_window(data):
                    yield Opened(format=FORMAT, window=window, grows=True)
            case "session.compaction_complete":
                yield from self._complete(data, line, time)
            case "session.context_cleared":
                message = text_in(data, "initialMessage")
                part = wire.text_part(message, "user", "client")
                summary = (Message(role="user", parts=(part,), key=f"line:{line.number}.1", time=time),)
                self._since = None
                self._compaction = Compacted(summary=summary if message else (), end=line.end, time=time)
                yield from self._compacted(line.end)
            case "session.truncation":
                if window := self._news_of_window(data):
                    yield Opened(format=FORMAT, window=window, grows=True)
                yield Warned(
                    text="Copilot left out its oldest messages here; they are imported as if they had stayed",
                    line=line.number,
                )
            case _ if kind.partition(".")[0] not in _KNOWN:
                label = display.one_line(kind, 40)
                yield from self._warning(f"events of an unknown type are skipped: {label!r}", line)

    def _complete(self, data: dict[str, Any], line: Line, time: str) -> Iterator[Event]:
        """A compaction: the summary, then the messages that came while it was written."""
        window, summary = self._news_of_window(data), text_in(data, "summaryContent")
        if data.get("success") is not True or not summary:
            self._since = None
            if window:
                yield Opened(format=FORMAT, window=window, grows=True)
            if data.get("success") is True:
                yield Warned(
                    text="a compaction without its summary; the messages are imported as if they had stayed",
                    line=line.number,
                )
            return
        part = wire.text_part(summary, "user", "client")
        before = data.get("preCompactionTokens")
        self._compaction = Compacted(
            summary=(Message(role="user", parts=(part,), key=f"line:{line.number}.1", time=time),),
            end=line.end,
            time=time,
            detail={"tokensBefore": before} if isinstance(before, int) else {},
            window=window,
        )
        if not self._pending:
            yield from self._compacted(line.end)

    def _compacted(self, end: int) -> Iterator[Event]:
        """The compaction that waited for the end of its step, which is at `end`."""
        self._pending.clear()
        if self._compaction:
            newer, self._since = self._since or [], None
            yield msgspec.structs.replace(
                self._compaction, end=end, kept=frozenset(newer), before=newer[0] if newer else ""
            )
            self._compaction = None


def _stem(recording: Recording) -> str:
    """The session's id by the file's path."""
    return recording.path.parent.name if recording.path.name == _EVENTS else recording.stem


def _name(source: str) -> str:
    return "copilot-" + name_rules.slug(source[:8])


def _title(path: Path) -> str:
    """The session's title, from the file beside its events; empty if there is none."""
    if path.name != _EVENTS:
        return ""
    try:
        with path.with_name("workspace.yaml").open("rb") as file:
            text = file.read(_LARGEST_WORKSPACE).decode("utf-8", "replace")
    except OSError:
        return ""
    match = _TITLE.search(text)
    value = match[1].strip() if match else ""
    if value[0:1] == '"':
        value = wire.parsed(value, str) or ""
    return "" if value[0:1] in "|>'" else value


def _prompt(data: dict[str, Any], *, to_agent: bool) -> tuple[Part, ...]:
    """The parts of a sent message: a person's words, and the host's text around them.

    The line has the words and the text that was sent. If that text is the words between sections of the host, each of
    these is a part, and together they are the text; otherwise all of it counts as the person's.
    """
    content, sent = text_in(data, "content"), text_in(data, "transformedContent") or text_in(data, "content")
    by_host = (
        to_agent or data.get("isAutopilotContinuation") is True or text_in(data, "source").startswith(_HOSTS_SOURCES)
    )
    pieces: list[tuple[str, Origin]] = [(sent, "client" if by_host else "human")]
    start = 0 if sent.startswith(content) else sent.find(f">\n\n{content}") + 3
    end = start + len(content)
    is_framed = (start == 0 or (start > 2 and sent.startswith("<"))) and (
        end == len(sent) or sent.startswith("\n\n<", end)
    )
    if content and is_framed and not by_host:
        pieces = [(sent[:start], "client"), (content, "human"), (sent[end:], "client")]
    parts = [wire.text_part(text, "user", origin) for text, origin in pieces if text]
    for attachment in objects(data.get("attachments")):
        if attachment.get("type") == "blob" and (image := _image(attachment)):
            parts.append(wire.part(image, "user", "client" if by_host else "human"))
    return tuple(parts)


def _image(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Messages API's block for an image; None for anything else."""
    media, data = text_in(raw, "mimeType"), text_in(raw, "data")
    if not media.startswith("image/") or not data:
        return None
    return elements.media(media, data)


def _reply(data: dict[str, Any]) -> tuple[Part, ...]:
    parts: list[Part] = []
    opaque = {name: data[name] for name in ("reasoningOpaque", "encryptedContent") if isinstance(data.get(name), str)}
    if reasoning := text_in(data, "reasoningText"):
        extra = {"ctxvc": {"copilot": opaque}} if opaque else {}
        parts.append(wire.text_part(reasoning, "assistant", "model", kind="thinking", **extra))
    elif opaque:
        body = wire.compact({"type": "reasoning", **opaque})
        parts.append(Part(kind="thinking", role="assistant", origin="model", body=body, ext="json"))
    if text := text_in(data, "content"):
        parts.append(wire.text_part(text, "assistant", "model"))
    requests = data.get("toolRequests")
    for request in requests if isinstance(requests, list) else ():
        match request:
            case {"toolCallId": str(call), "name": str(name)} if call:
                parts.append(wire.call_part(name, call, request.get("arguments", {})))
            case _:
                parts.append(wire.other_part(request, "assistant", "model"))
    return taken_over(parts, data.get("ctxvc"))


def _usage(data: dict[str, Any]) -> dict[str, int]:
    """The token counts of a call, of which the line only has the output's."""
    tokens = data.get("outputTokens")
    return {"output_tokens": tokens} if isinstance(tokens, int) and tokens > 0 else {}
