"""A conversation in opencode's database → events.

A reply and its results are one message, whose row changes until it is complete. So positions are times, in milliseconds
since 1970: of a reply its completion, of all others their creation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from heapq import merge
from typing import Any

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.recording.events import Closed, Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.core.recording.usage import sound
from ctxvc.forms import elements
from ctxvc.forms.values import taken_over, text_in
from ctxvc.importers.opencode.database import Session, Stored, Tree

FORMAT = "opencode"
#: The length of the end of a session's id that is the suffix in `conversations`; the rest is the source.
TAIL = 8

_MISSING = ("the system prompt", "the tool definitions", "opencode's own reminders")
#: The texts that opencode sends for parts without one.
_STANDING = {"compaction": "What did we do so far?", "subtask": "The following tool was executed by the user"}
_CLEARED = "[Old tool result content cleared]"
#: Default titles.
_UNTITLED = re.compile(r"(New|Child) session - [0-9]{4}-")
#: The position of a reply that is not complete: above every time.
_OPEN = 1 << 62


def events(tree: Tree) -> Iterator[Event]:
    """The events of a conversation and its sub-agents, in the order of their completion."""
    root = tree.sessions[0]
    yield _opened(root)
    for reason in tree.damaged:
        yield Warned(text=reason)
    conversation = _Conversation(tree)
    titled = False
    streams = [_in_order(tree.messages[session.id]) for session in tree.sessions]
    streams.append(_clearings(tree.messages[root.id]))
    for position, _, item in merge(*streams, key=lambda entry: entry[:2]):
        end = conversation.at(position, item)
        for event in conversation.events(item, end):
            yield event
            if not titled and isinstance(event, Said):
                # A session gets its title after its first prompt.
                titled = True
                yield Opened(format=FORMAT, title=_title(root), grows=True)


def _opened(root: Session) -> Opened:
    return Opened(
        format=FORMAT,
        source=root.id[:-TAIL],
        name="opencode-",
        cwd=root.directory,
        time=_time(root.created),
        agent=f"opencode {root.version}".strip(),
        title=_title(root),
        missing=_MISSING,
        grows=True,
    )


def _title(root: Session) -> str:
    return "" if _UNTITLED.match(root.title) else root.title


_Entry = tuple[int, int, Stored | Edited]


def _in_order(messages: list[Stored]) -> Iterator[_Entry]:
    """The messages of a session with growing positions; an incomplete last reply comes last."""
    position = 0
    for number, message in enumerate(messages):
        moment = message.created
        match message.info:
            case {"role": "assistant", "time": {"completed": int(completed)}}:
                moment = completed
            case {"role": "assistant"} if number == len(messages) - 1:
                moment = _OPEN
        position = max(position, moment)
        yield position, 0, message


def _clearings(messages: list[Stored]) -> Iterator[_Entry]:
    """The results that opencode cleared later to make room, by the time of that."""
    edits: list[_Entry] = []
    for position, _, item in _in_order(messages):
        for part in item.parts if isinstance(item, Stored) else ():
            match part:
                case {
                    "type": "tool",
                    "callID": str(call),
                    "state": {"status": "completed", "time": {"compacted": int(moment)}},
                } if call:
                    end = min(max(moment, position), _OPEN)
                    parts = (wire.result_part(_CLEARED, call, tool=text_in(part, "tool")),)
                    edits.append((end, 1, Edited(end=end, call=call, parts=parts, time=_time(moment))))
    return iter(sorted(edits, key=lambda edit: edit[0]))


class _Conversation:
    """The state after the events so far."""

    def __init__(self, tree: Tree) -> None:
        root = tree.sessions[0]
        self._root = root
        self._created = {session.id: session.created for session in tree.sessions}
        self._scopes = _scopes(tree)
        self._end = 0
        self._model = ""
        # The root's messages on the way here, each with the key of the newest one in the prompt then.
        self._path: list[tuple[Stored, str]] = []
        self._asked: dict[str, Message] = {}  # requested compactions, by the message that did
        self._by_person: set[str] = set()  # messages that announce a person's command
        self._tails: dict[str, str] = {}  # compaction → the first message that it keeps

    def at(self, position: int, item: Stored | Edited) -> int:
        """The position of an item's events; an incomplete reply has the time of its start."""
        moment = item.created if position == _OPEN and isinstance(item, Stored) else position
        self._end = max(self._end, moment)
        return self._end

    def events(self, item: Stored | Edited, end: int) -> Iterator[Event]:
        if isinstance(item, Edited):
            yield Edited(end=end, call=item.call, parts=item.parts, time=item.time)
            return
        main = item.session == self._root.id
        if main:
            yield from self._rewound(item, end)
        spoken = list(self._spoken(item, end, *self._scopes[item.session]))
        if main:
            before = self._path[-1][1] if self._path else ""
            entered = any(isinstance(event, (Said, Compacted)) for event in spoken)
            self._path.append((item, item.id if entered else before))
        yield from spoken

    def _rewound(self, item: Stored, end: int) -> Iterator[Event]:
        here = self._path[-1][1] if self._path else ""
        while self._path and 0 < self._path[-1][0].removed < item.born:
            self._path.pop()
        after = self._path[-1][1] if self._path else ""
        if after != here:
            yield Forked(after=after, end=end, time=_time(item.created))

    def _spoken(self, item: Stored, end: int, scope: str, task: str) -> Iterator[Event]:
        match text_in(item.info, "role"):
            case "user":
                parts = tuple(_incoming(item.parts, to_agent=bool(scope)))
                message = Message(role="user", parts=parts, key=item.id, time=_time(item.created))
                self._noted(item, message)
                if parts and item.id not in self._asked:
                    yield Said(message=message, end=end, scope=scope, task=task)
            case "assistant":
                yield from self._replied(item, end, scope, task)
            case role:
                yield Warned(text=f"message {item.id[:50]!r} has an unknown role and was skipped: {role[:40]!r}")

    def _noted(self, item: Stored, message: Message) -> None:
        for part in item.parts:
            if part.get("type") == "compaction":
                self._asked[item.id] = message
                self._tails[item.id] = text_in(part, "tail_start_id")
        if [part.get("text") for part in item.parts] == [_STANDING["subtask"]]:
            self._by_person.add(item.id)

    def _replied(self, item: Stored, end: int, scope: str, task: str) -> Iterator[Event]:
        info, parent = item.info, text_in(item.info, "parentID")
        if info.get("error") and not _is_sent(item):
            return  # opencode leaves it out of every prompt
        caller: Origin = "human" if parent in self._by_person else "model"
        model = text_in(info, "modelID")
        if not scope and model and model != self._model:
            self._model = model
            yield Opened(format=FORMAT, model=model, grows=True)
        if info.get("summary") is True and parent in self._asked:
            yield from self._compacted(item, end, scope, parent)
            return
        copied = item.created < self._created[item.session]  # a fork writes its history again, which cost nothing
        for number, segment in enumerate(_segments(item.parts)):
            key = f"{item.id}/{number}" if number else item.id
            reply, results = _reply(segment, caller), _results(segment)
            if not reply:
                continue
            usage = {} if copied else _usage(segment, info)
            answered = Message(
                role="assistant", parts=reply, reply=key, key=key, time=_time(item.created), model=model, usage=usage
            )
            yield Said(message=answered, end=end, scope=scope, task=task)
            if results:
                outputs = Message(role="user", parts=results, key=f"{key}/results", time=_completed(item))
                yield Said(message=outputs, end=end, scope=scope, task=task)
        if text_in(info, "finish") not in ("", "tool-calls", "unknown") or info.get("error"):
            yield Closed(end=end, scope=scope)

    def _compacted(self, item: Stored, end: int, scope: str, parent: str) -> Iterator[Event]:
        if not text_in(item.info, "finish"):
            return  # it is not complete, and nothing left
        texts = [text_in(part, "text") for part in item.parts if part.get("type") == "text"]
        parts = tuple(wire.text_part(text, "assistant", "model") for text in texts if text)
        summary = Message(role="assistant", parts=parts, key=item.id, time=_completed(item))
        staying = self._staying(self._tails[parent], parent)
        yield Compacted(
            summary=(self._asked[parent], *([summary] if parts else [])),
            end=end,
            kept=frozenset(key for first in staying for key in (first, f"{first}/results")),
            before=staying[0] if staying else "",
            time=summary.time,
            scope=scope,
            detail={"tokensBefore": total} if (total := sum(_usage(item.parts, item.info).values())) else {},
        )

    def _staying(self, first: str, last: str) -> list[str]:
        """The messages from the first that a compaction keeps up to the one that requested it."""
        ids = [message.id for message, _ in self._path]
        if first not in ids:
            return []
        return [key for key in ids[ids.index(first) :] if key != last]


def _scopes(tree: Tree) -> dict[str, tuple[str, str]]:
    """session → its scope (empty for the root), and the call that started it."""
    root, *agents = tree.sessions
    tasks: dict[str, str] = {}
    for messages in tree.messages.values():
        for message in messages:
            for part in message.parts:
                match part:
                    case {"type": "tool", "callID": str(call), "state": {"metadata": {"sessionId": str(session)}}}:
                        tasks.setdefault(session, call)
    scopes = {root.id: ("", "")}
    for agent in agents:
        scope = name_rules.agent_scope(agent.id[-12:])
        while scope in (name for name, _ in scopes.values()):
            scope = f"{scope}-{len(scopes) + 1}"
        scopes[agent.id] = scope, tasks.get(agent.id, "")
    return scopes


def _incoming(parts: list[dict[str, Any]], *, to_agent: bool) -> Iterator[Part]:
    for part in parts:
        match part:
            case {"type": "text", "ignored": True}:
                continue
            case {"type": "text", "text": str(text)} if text:
                by_host = to_agent or part.get("synthetic") is True
                yield wire.text_part(text, "user", "client" if by_host else "human")
            case {"type": "file", "url": str(url)} if media := _media(url):
                yield wire.part(media, "user", "client" if to_agent else "human")
            case {"type": "compaction" | "subtask" as kind}:
                yield wire.text_part(_STANDING[kind], "user", "client")


def _media(url: str) -> dict[str, Any] | None:
    """The Messages API's block for a picture or a PDF; None for any other file, whose text is sent by another part."""
    source = elements.image(url)["source"]
    kind = text_in(source, "media_type")
    return elements.media(kind, source["data"]) if kind.startswith(("image/", "application/pdf")) else None


def _is_sent(item: Stored) -> bool:
    """Whether a failed reply is in later prompts: one that a person stopped is, as far as it came."""
    match item.info.get("error"):
        case {"name": "MessageAbortedError"}:
            return any(part.get("type") not in ("step-start", "reasoning") for part in item.parts)
    return False


def _segments(parts: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The parts of each model call: older versions have those of a whole turn in one message."""
    segment: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start" and any(one.get("type") == "step-finish" for one in segment):
            yield segment
            segment = []
        segment.append(part)
    yield segment


def _reply(parts: list[dict[str, Any]], caller: Origin) -> tuple[Part, ...]:
    reply: list[Part] = []
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)} if text:
                reply.append(wire.text_part(text, "assistant", "model"))
            case {"type": "reasoning", "text": str(text)}:
                reply.append(_thinking(text, part.get("metadata")))
            case {"type": "tool", "callID": str(call), "tool": str(name), "state": dict(state)} if call:
                part_of_call = wire.call_part(name, call, wire.compact(state.get("input", {})), origin=caller)
                metadata = part.get("metadata")
                reply += taken_over([part_of_call], metadata.get("ctxvc") if isinstance(metadata, dict) else None)
    return tuple(reply)


def _thinking(text: str, metadata: object) -> Part:
    match metadata:
        case {"anthropic": {"signature": str(signature)}}:
            return wire.text_part(text, "assistant", "model", kind="thinking", signature=signature)
        case {"anthropic": {"redactedData": str(data)}}:
            return wire.part({"type": "redacted_thinking", "data": data}, "assistant", "model")
    return wire.text_part(text, "assistant", "model", kind="thinking")


def _results(parts: list[dict[str, Any]]) -> tuple[Part, ...]:
    results: list[Part] = []
    for part in parts:
        match part:
            case {"type": "tool", "callID": str(call), "tool": str(name), "state": dict(state)} if call:
                if result := _result(call, name, state):
                    results.append(result)
    return tuple(results)


def _result(call: str, name: str, state: dict[str, Any]) -> Part | None:
    """A call's result; None if there is none, as for one that was running when the program ended."""
    match state:
        case {"status": "completed", "output": str(output)}:
            attachments = state.get("attachments")
            urls = [text_in(one, "url") for one in attachments if isinstance(one, dict)] if attachments else []
            if images := [media for url in urls if (media := _media(url))]:
                return wire.result_part([{"type": "text", "text": output}, *images], call)
            return wire.result_part(output, call, tool=name)
        case {"status": "error", "metadata": {"interrupted": True, "output": str(output)}}:
            return wire.result_part(output, call, tool=name)
        case {"status": "error"}:
            return wire.result_part(text_in(state, "error"), call, tool=name, error=True)
    return None


def _usage(parts: list[dict[str, Any]], info: Mapping[str, Any]) -> dict[str, int]:
    """The token counts of a call under the names of the Messages API; empty if it was not counted."""
    finished = [part.get("tokens") for part in parts if part.get("type") == "step-finish"]
    tokens = finished[-1] if finished else info.get("tokens")
    if not isinstance(tokens, dict):
        return {}
    cache = tokens.get("cache")
    cached = cache if isinstance(cache, dict) else {}
    counts = {
        "input_tokens": _count(tokens, "input"),
        "output_tokens": _count(tokens, "output") + _count(tokens, "reasoning"),
        "cache_read_input_tokens": _count(cached, "read"),
        "cache_creation_input_tokens": _count(cached, "write"),
    }
    return sound(counts) if any(counts.values()) else {}


def _count(tokens: Mapping[str, Any], name: str) -> int:
    value = tokens.get(name)
    return value if type(value) is int else 0


def _completed(item: Stored) -> str:
    match item.info.get("time"):
        case {"completed": int(moment)}:
            return _time(moment)
    return _time(item.created)


def _time(moment: int) -> str:
    """ISO 8601 for milliseconds since 1970; empty if out of range."""
    try:
        return datetime.fromtimestamp(moment / 1000, timezone.utc).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return ""
