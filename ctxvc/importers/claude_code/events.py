"""The lines of one Claude Code session as events, in file order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxvc.core import display
from ctxvc.core.hosts.match import is_stub
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.prompt.request import frame
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Sent, Warned
from ctxvc.core.recording.usage import total
from ctxvc.forms.origins import is_by_client
from ctxvc.importers.claude_code import line as lines
from ctxvc.importers.claude_code import requests
from ctxvc.importers.claude_code.arrivals import around, arrivals
from ctxvc.importers.claude_code.line import Entry
from ctxvc.importers.claude_code.requests import Requests, SentRequest
from ctxvc.importers.claude_code.thread import Thread
from ctxvc.importers.claude_code.window import Windows
from ctxvc.importers.file import Line, Recording

FORMAT = "claude-code"

_SYSTEM_PROMPT = "the system prompt"
MISSING = (
    _SYSTEM_PROMPT,
    "the tool definitions",
    "reasoning that the provider hides",
    "reminders and attached files that this version did not record as shown to the model",
    "turns of sub-agents that have no transcript of their own",
)

#: What is missing even if the host recorded its requests.
UNRECORDED = ("turns of sub-agents that have no transcript of their own",)

#: Who compacted if a plugin did. The host does not name it; ours is recognised by its stubs.
_PLUGIN = "plugin:unknown"
_OURS = "plugin:ctxvc"

_TURN_ENDS = frozenset({"turn_duration", "stop_hook_summary"})
_AGENT_TOOLS = frozenset({"Task", "Agent"})


@dataclass(slots=True)
class _Boundary:
    """A compaction whose summary is still to come; `tip` is the last message before it.

    If a plugin compacted, no summary comes: the host writes the messages that the plugin returned as new lines, each a
    child of the one before. `prompt` has these, and `last` is the newest line. `attached` is what the host attaches to
    the new prompt if it records its requests; it follows the summary, whatever its place in the file.
    """

    tip: str
    time: str
    metadata: Mapping[str, Any]
    last: str | None = None
    prompt: list[Message] = field(default_factory=list)
    attached: list[tuple[Entry, Message, Line]] = field(default_factory=list)


class Session:
    """The events of one file. They depend only on the lines so far.

    `stem` names the file. With `subagent` it is a sub-agent's, all in one scope; `task` is the call that started it.
    `settings` are the host's.
    """

    def __init__(self, stem: str, *, subagent: bool = False, task: str = "", settings: Mapping[str, Any] = {}) -> None:
        self._stem = stem
        self._windows = Windows(settings)
        self._requests = Requests()
        self._came_in: list[Message] = []  # since the newest reply
        self._standing: list[Part] = []  # added to or left in the prompt by a compaction since then
        self._summary: Part | None = None  # of that compaction, if it precedes a reply that stayed
        self._replied: set[str] = set()  # the keys of replies
        self._home = name_rules.agent_scope(stem.removeprefix("agent-")) if subagent else ""
        self._end = 0  # of the newest line
        self._known: dict[str, object] = {}  # the fields of the `Opened` events so far
        self._title = ""
        self._titled_by_hand = False
        self._hashes: dict[str, set[int]] = {}  # key → hashes of the messages with it
        self._threads: dict[str, Thread] = {}
        self._replies: set[str] = set()
        self._unclosed: set[str] = set()  # scopes with a message since the last turn's end
        self._boundaries: dict[str, _Boundary] = {}
        self._sidechains: dict[str, str] = {}  # line → scope
        self._tasks = {self._home: task} if task else {}  # scope → the call that started it
        self._launched: dict[str, str] = {}  # call that starts a sub-agent → its prompt
        self._queue: list[str] = []  # typed while the agent worked, not delivered yet
        self._delivered = 0  # texts that attachments brought in before the line that takes them from the queue

    def events(self, recording: Recording) -> Iterator[Event]:
        """The events of a file. Raises: BadInput if it cannot be read."""
        for line in recording.lines():
            self._end = line.end
            try:
                entry, parts = lines.read(line.data)
            except ValueError as error:
                yield from self._news(Entry())
                reason = "not JSON" if line.complete else "the last line is cut short"
                yield Warned(text=f"{reason}: {error}", line=line.number)
                continue
            if entry.type in requests.TYPES:
                if reason := self._requests.line(line.data):
                    yield Warned(text=reason, line=line.number)
                continue
            if entry.type == "attachment":
                self._deliver(entry)
            if parts:
                yield from self._message(entry, parts, line)
            else:
                yield from self._record(entry, line)
        if recording.ended:
            for scope in [scope for scope, boundary in self._boundaries.items() if boundary.prompt]:
                yield self._compaction(self._boundaries.pop(scope), (), scope, self._end)
            for scope, boundary in self._boundaries.items():
                yield from self._attached(boundary, scope)

    def _thread(self, scope: str) -> Thread:
        if scope not in self._threads:
            self._threads[scope] = Thread()
        return self._threads[scope]

    def _news(self, entry: Entry) -> Iterator[Event]:
        """`Opened` if this line has a new fact about the session."""
        reply = entry.message if entry.type == "assistant" and not entry.synthetic else None
        facts = {
            "source": entry.session_id,
            "cwd": entry.cwd,
            "branch": entry.git_branch,
            "time": entry.timestamp,
            "agent": entry.version and f"Claude Code {entry.version}",
            "model": reply.model if reply and bool(entry.is_sidechain) == bool(self._home) else None,
        }
        fresh: dict[str, Any] = {name: fact for name, fact in facts.items() if fact and name not in self._known}
        if self._title and self._title != self._known.get("title"):
            fresh["title"] = self._title
        if not self._known:
            source = fresh.setdefault("source", self._stem)
            fresh |= {"name": name_rules.slug(f"claude-{source[:8]}"), "missing": MISSING, "grows": True}
        if fresh:
            self._known |= fresh
            yield Opened(format=FORMAT, **fresh)

    # -- lines that are no message ------------------------------------------------------------------------------------

    def _record(self, entry: Entry, line: Line) -> Iterator[Event]:
        scope = self._scope(entry)
        self._hang(entry, scope)
        match entry.type:
            case "system" if entry.subtype == "local_command" and not scope:
                self._windows.printed(display.encode(lines.text_of(entry.content)))
            case "system" if entry.subtype == "compact_boundary":
                yield from self._news(entry)
                yield from self._unsummarised(scope, line)
                metadata = entry.compact_metadata or {}
                tip, time = self._thread(scope).tip, entry.timestamp or ""
                self._boundaries[scope] = _Boundary(tip, time, metadata, entry.uuid)
            case "system" if entry.subtype == "microcompact_boundary":
                yield from self._news(entry)
                text = "older tool results were cleared here; they are imported as if they had stayed"
                yield Warned(text=text, line=line.number)
            case "system" | "cost-state" if _ends_turn(entry) and scope in self._unclosed:
                self._unclosed.discard(scope)
                yield Closed(end=self._end, scope=scope)
            case "progress" if entry.data and entry.data.agent_id and entry.parent_tool_use_id:
                self._tasks.setdefault(name_rules.agent_scope(entry.data.agent_id), entry.parent_tool_use_id)
            case "attachment" if system := lines.system_prompt(entry):
                yield from self._news(entry)
                if "tools" not in self._known and system != self._known.get("system"):
                    self._known["system"] = system
                    missing = tuple(item for item in MISSING if item != _SYSTEM_PROMPT)
                    yield Opened(format=FORMAT, system=system, missing=missing)
            case "ai-title" | "custom-title" | "summary":
                yield from self._titled(entry)
            case "queue-operation":
                yield from self._queued(entry, line)
            case "user" | "assistant" if entry.message is None:
                yield from self._news(entry)
                text = f"skipped: it has the type {entry.type} but no readable message"
                yield Warned(text=text, line=line.number)

    def _hang(self, entry: Entry, scope: str) -> None:
        if entry.uuid is None or scope != self._home:
            return
        if entry.type == "system" and entry.subtype == "api_error":
            # After a successful retry, the host makes the error the parent of the lines that follow, beside the reply.
            self._thread(scope).attach_loosely(entry.uuid)
        else:
            self._thread(scope).attach(entry.uuid, entry.parent_uuid)

    def _titled(self, entry: Entry) -> Iterator[Event]:
        by_hand = entry.type == "custom-title"
        if entry.type == "summary" and entry.leaf_uuid not in self._thread(self._home):
            return  # of another session: older versions wrote some of those at a file's head
        title = entry.custom_title or entry.ai_title or entry.summary
        if title and (by_hand or not self._titled_by_hand):
            self._title, self._titled_by_hand = display.one_line(title, 200), by_hand
            if self._known:
                yield from self._news(Entry())

    def _queued(self, entry: Entry, line: Line) -> Iterator[Event]:
        """Text typed while the agent worked. Versions that write no attachment for it have it only here."""
        match entry.operation:
            case "enqueue":
                self._queue.append(lines.text_of(entry.content))
            case "popAll":
                self._queue.clear()
            case "dequeue" if self._queue:
                del self._queue[0]  # it follows as a prompt of its own
            case "remove" if self._delivered:
                self._delivered -= 1
            case "remove" if self._queue and (text := self._queue.pop(0)):
                part = wire.text_part(text, "user", "client" if is_by_client(text) else "human")
                yield from self._message(entry, (part,), line)

    def _deliver(self, entry: Entry) -> None:
        """Takes from the queue the text that an attachment brings in; the line that removes it comes later."""
        typed = lines.queued(entry)
        if typed is not None and self._queue:
            del self._queue[self._queue.index(typed) if typed in self._queue else 0]
            self._delivered += 1

    # -- messages -----------------------------------------------------------------------------------------------------

    def _message(self, entry: Entry, parts: tuple[Part, ...], line: Line) -> Iterator[Event]:
        key = entry.uuid or _line_key(self._home, line)
        content_hash = hash((lines.role(entry), *((part.kind, part.call, part.body) for part in parts)))
        if key in self._hashes:
            if content_hash in self._hashes[key]:
                return  # hosts write some lines twice
            self._hashes[key].add(content_hash)
            key = f"{key}~{_line_key(self._home, line)}"  # another message under the same id
        self._hashes.setdefault(key, set()).add(content_hash)
        yield from self._news(entry)
        scope = self._scope(entry)
        self._link(entry, parts, scope)
        message = _message(entry, parts, key)
        boundary = self._boundaries.get(scope)
        if boundary and lines.is_given_back(entry) and entry.parent_uuid == boundary.last:
            self._give_back(boundary, entry, message, scope)
        elif entry.is_compact_summary:
            yield self._compacted(entry, message, scope)
            if boundary:
                yield from self._attached(boundary, scope)
        elif boundary and not boundary.prompt and entry.type == "attachment" and self._requests.are_recorded:
            boundary.attached.append((entry, message, line))
        else:
            if boundary and boundary.prompt:
                yield from self._unsummarised(scope, line)
            yield from self._message_events(entry, message, scope, line)
        if not scope:  # after the reply: the step before it, which it closes, had the old window
            yield from self._window_news(message)

    def _window_news(self, message: Message) -> Iterator[Event]:
        """`Opened` if the message shows a new window."""
        if message.role == "user":
            self._windows.printed(message.parts[0].body)
        elif message.model and (window := self._windows.replied(message.model, total(message.usage))):
            yield Opened(format=FORMAT, window=window)

    def _message_events(self, entry: Entry, message: Message, scope: str, line: Line) -> Iterator[Event]:
        thread = self._thread(scope)
        aside = entry.type in ("attachment", "queue-operation")
        result = any(part.kind == "tool_result" for part in message.parts)
        goes_on = message.reply != "" and message.reply in self._replies
        prompt = not result and any(part.origin == "human" for part in message.parts)
        starts = not aside and not goes_on and (prompt or message.role == "assistant")
        if starts:
            yield from self._unsummarised(scope, line)
        request = None
        if message.role == "assistant" and not goes_on and scope == self._home and entry.request_ref:
            request = self._requests.sent(entry.request_ref)
        if request:
            yield from self._sent(request, scope)
        if not (aside or result or goes_on or scope or entry.logical_parent_uuid):
            after = thread.fork_point(entry.parent_uuid, at_root=prompt)
            if after is not None:
                thread.fork(after)
                self._came_in = []
                yield Forked(after=after, end=self._end, time=message.time)
        yield Said(message=message, end=self._end, scope=scope, task=self._tasks.get(scope, ""))
        if aside:
            thread.add_aside(message.key, entry.uuid, entry.parent_uuid)
        else:
            early = result and isinstance(entry.parent_uuid, str) and entry.parent_uuid not in thread
            thread.add(message.key, entry.uuid, starts=starts, early=early)
        if scope == self._home:
            self._heard(entry, message, goes_on=goes_on)
        if request:  # after the reply: the step before it, which it closes, had the old tools
            yield from self._frame_news(request)
        self._replies.add(message.reply)
        self._unclosed.add(scope)

    def _sent(self, request: SentRequest, scope: str) -> Iterator[Event]:
        """`Sent` if the request agrees with the transcript's lines."""
        before, after = around(request.beginning, self._summary) if self._summary else ([], [])
        sent = [*before, *after, *request.arrivals]
        if came_in := arrivals(sent, self._came_in, self._standing):
            yield Sent(
                messages=came_in.messages,
                aliases=came_in.aliases,
                prompt=request.digests,
                frame=frame(request.system, request.tools),
                end=self._end,
                scope=scope,
                before=sum(place < len(before) for place in came_in.places),
                after=sum(len(before) <= place < len(before) + len(after) for place in came_in.places),
            )

    def _heard(self, entry: Entry, message: Message, *, goes_on: bool) -> None:
        content = entry.message.content if entry.message and entry.type in ("user", "assistant") else None
        if message.role == "assistant":
            self._replied.add(message.key)
            if not goes_on:
                self._came_in, self._standing, self._summary = [], [], None
            if content is not None:
                self._requests.replied(content, goes_on=goes_on)
        else:
            self._came_in.append(message)
            if content is not None:
                self._requests.heard(content)

    def _frame_news(self, request: SentRequest) -> Iterator[Event]:
        """`Opened` if a request had a new system prompt or new tools."""
        fresh = {"system": request.system, "tools": request.tools}
        if request.tools is not None and any(self._known.get(name) != value for name, value in fresh.items()):
            self._known |= fresh
            yield Opened(format=FORMAT, system=request.system, tools=request.tools, missing=UNRECORDED)

    def _give_back(self, boundary: _Boundary, entry: Entry, message: Message, scope: str) -> None:
        """Adds a message that a compacting plugin returned."""
        boundary.last = entry.uuid
        self._thread(scope).add(message.key, entry.uuid, starts=False)
        if lines.has_no_content(message.parts):
            return
        boundary.prompt.append(message)
        if scope == self._home:
            goes_on = message.role == "assistant" and boundary.prompt[-2:-1] and boundary.prompt[-2].role == "assistant"
            self._heard(entry, message, goes_on=bool(goes_on))

    def _unsummarised(self, scope: str, line: Line) -> Iterator[Event]:
        """The compaction of a boundary without a summary."""
        if boundary := self._boundaries.pop(scope, None):
            yield self._compaction(boundary, (), scope, line.start)
            yield from self._attached(boundary, scope)

    def _attached(self, boundary: _Boundary, scope: str) -> Iterator[Event]:
        """The events of what the host attached to a compaction's prompt."""
        attached, boundary.attached = boundary.attached, []
        for entry, message, line in attached:
            yield from self._message_events(entry, message, scope, line)

    def _compacted(self, entry: Entry, message: Message, scope: str) -> Compacted:
        boundary = self._boundaries.pop(scope, None) or _Boundary(self._thread(scope).tip, message.time, {})
        compaction = self._compaction(boundary, (message,), scope, self._end)
        self._thread(scope).add(message.key, entry.uuid, starts=False)
        return compaction

    def _compaction(self, boundary: _Boundary, summary: tuple[Message, ...], scope: str, end: int) -> Compacted:
        thread = self._thread(scope)
        preserved = _preserved(thread, boundary.metadata) | thread.since(boundary.tip)
        thread.keep(preserved)
        before = thread.first(preserved)
        if scope == self._home:
            kept_messages = [message for message in self._came_in if message.key in preserved] if summary else []
            self._came_in = []
            self._standing = [
                part for one in (*kept_messages, *(summary or _after_reply(boundary.prompt))) for part in one.parts
            ]
            self._summary = summary[0].parts[0] if summary and before in self._replied else None
        detail = {name: value for name, value in boundary.metadata.items() if isinstance(value, str | int | float)}
        return Compacted(
            summary=summary,
            prompt=tuple(boundary.prompt),
            actor=_actor(boundary.prompt),
            end=end,
            kept=preserved,
            before=before,
            time=boundary.time,
            scope=scope,
            detail=detail,
            window=None if scope else self._windows.compacted(boundary.metadata),
        )

    # -- sub-agents ---------------------------------------------------------------------------------------------------

    def _scope(self, entry: Entry) -> str:
        """The scope of a line; older versions mix a sub-agent's lines with the session's own."""
        if self._home or not entry.is_sidechain:
            return self._home
        scope = name_rules.agent_scope(entry.agent_id) if entry.agent_id else None
        if scope is None and isinstance(entry.parent_uuid, str):
            scope = self._sidechains.get(entry.parent_uuid)
        scope = scope or name_rules.agent_scope((entry.uuid or entry.session_id or "")[:8])
        if entry.uuid is not None:
            self._sidechains.setdefault(entry.uuid, scope)
        return scope

    def _link(self, entry: Entry, parts: tuple[Part, ...], scope: str) -> None:
        """Records which call started which sub-agent, by its prompt or by the id in the call's result."""
        for part in parts:
            if part.kind == "tool_use" and part.tool in _AGENT_TOOLS:
                prompt = wire.arguments(part.body, part.ext).get("prompt")
                self._launched[part.call] = prompt if isinstance(prompt, str) else ""
            elif part.kind == "tool_result" and part.call in self._launched and (agent := lines.agent_of(entry)):
                self._tasks.setdefault(name_rules.agent_scope(agent), part.call)
        if scope and scope not in self._threads and scope not in self._tasks:
            task, linked = display.decode(parts[0].body), set(self._tasks.values())
            free = (call for call, prompt in self._launched.items() if prompt == task and call not in linked)
            if call := next(free, ""):
                self._tasks[scope] = call


def _ends_turn(entry: Entry) -> bool:
    """Whether the line ends a turn; the host writes costs then, too."""
    return entry.type == "cost-state" or entry.subtype in _TURN_ENDS


def _line_key(home: str, line: Line) -> str:
    return f"{home}:line:{line.number}" if home else f"line:{line.number}"


def _message(entry: Entry, parts: tuple[Part, ...], key: str) -> Message:
    api_message, role = entry.message, lines.role(entry)
    return Message(
        role=role,
        parts=parts,
        reply=(api_message.id or entry.request_id or "") if api_message and role == "assistant" else "",
        key=key,
        time=entry.timestamp or "",
        model=(api_message.model or "") if api_message and not entry.synthetic else "",
        usage=lines.usage(entry),
    )


def _actor(prompt: list[Message]) -> str:
    """Who compacted: the host, or the plugin that returned `prompt`."""
    stubs = (
        is_stub(display.decode(part.body)) for message in prompt if message.role == "user" for part in message.parts
    )
    return (_OURS if any(stubs) else _PLUGIN) if prompt else "host"


def _after_reply(messages: list[Message]) -> list[Message]:
    """The messages after the model's last one."""
    last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return messages[last + 1 :]


def _preserved(thread: Thread, metadata: Mapping[str, Any]) -> frozenset[str]:
    """The messages that the host kept through a compaction, by its metadata."""
    match metadata:
        case {"preservedMessages": {"uuids": [*keys]}}:
            return thread.existing([key for key in keys if isinstance(key, str)])
        case {"preservedSegment": {"headUuid": str(head), "tailUuid": str(tail)}}:
            return thread.segment(head, tail)
    return frozenset()
