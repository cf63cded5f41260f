"""Conversations of OpenHands (a folder with `base_state.json` and `events/event-NNNNN-ID.json`) → events.

The recording is the folder; its path is that of `base_state.json`. Positions are numbers of events. Sub-agents have
folders of the same kind in `subagents`. What a model is sent for an event is what the `to_llm_message` of its class in
the OpenHands SDK makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.conversion import fields
from ctxvc.core.ledger import names, wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import documents
from ctxvc.importers.documents import mapping, text_at
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Stamp, single
from ctxvc.importers.request_log import objects, opening, text_of

FORMAT = "openhands"
ENDINGS = (".json",)
GROWS = True

_STATE = "base_state.json"
_EVENTS = "events"
_SUBAGENTS = "subagents"
_NAME = re.compile(r"event-(\d{5,12})-[0-9A-Fa-f-]{8,}\.json")
_MISSING = ("the tool definitions",)
#: The parent of an event that begins a tree of its own.
_ROOT = "__root__"
#: Stands before what a tool gave back when it failed.
_FAILED = "[An error occurred during execution.]\n"
#: Events that no model is sent.
_SILENT = frozenset(
    {
        "ACPToolCallEvent", "CondensationRequest", "ConversationErrorEvent", "ConversationStateUpdateEvent",
        "HookExecutionEvent", "InterruptEvent", "LLMCompletionLogEvent", "PauseEvent", "StreamingDeltaEvent",
        "TokenEvent",
    }
)  # fmt: skip


def sniff(head: bytes) -> bool:
    """Whether a `base_state.json` begins with `head`."""
    if b'"agent"' not in head:
        return False
    for value in opening(head)[:1]:
        agent = mapping(value, "agent")
        return isinstance(value, dict) and text_of(value.get("id")) != "" and "llm" in agent
    return False


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001 - as every importer has it
    """The folder in which its command line keeps the conversations of all projects."""
    own = Path(env.get("OPENHANDS_PERSISTENCE_DIR") or home / ".openhands")
    return [Path(env.get("OPENHANDS_CONVERSATIONS_DIR") or own / "conversations")]


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The conversations in the folder that were held in `project` or below it."""
    for path in sorted(folder.glob(f"*/{_STATE}")):
        try:
            state = wire.parse(Recording(path).document())
        except (BadInput, ValueError):
            continue
        place = text_at(state, "workspace", "working_dir")
        if place and Path(place).is_relative_to(project):
            yield path


def beside(path: Path) -> list[Path]:
    """The conversations of the sub-agents, and of theirs."""
    return sorted(path.parent.glob(f"{_SUBAGENTS}/**/{_STATE}"))


def files(path: Path) -> Iterator[Path]:
    """The state and the events."""
    yield path
    yield from (file for _, file in _event_files(path))


def stamp(path: Path) -> Stamp:
    """Changes with the state, the number of events, and the newest of these. Raises: OSError."""
    events = _event_files(path)
    status = [file.stat() for file in (path, *(file for _, file in events[-1:]))]
    return Stamp(len(events) + sum(file.st_size for file in status), max(file.st_mtime_ns for file in status))


def events(recording: Recording) -> Iterator[Event]:
    """The events of the conversation. Raises: BadInput if there are none."""
    try:
        state = wire.parse(recording.document())
    except ValueError:
        state = None  # it is written anew at every change, and the events are what counts
    numbered = _event_files(recording.path)
    if not numbered:
        raise BadInput(f"{recording.path}: no {_EVENTS}/event-*.json beside it")
    conversation = _Conversation(recording.path, state)
    yield conversation.opened()
    if not isinstance(state, dict):
        yield Warned(text="base_state.json is no JSON object: the model, the folder and token counts are unknown")
    expected = 0
    for number, path in numbered:
        if number > expected:
            yield Warned(text=f"events {expected} to {number - 1} are missing")
        expected = number + 1
        try:
            event = wire.parse(recording.other(path).document())
        except (ValueError, BadInput) as error:
            if path != numbered[-1][1]:  # else it is being written
                yield Warned(text=f"event {number} was skipped: {display.one_line(str(error), 200)}")
            continue
        if not isinstance(event, dict):
            yield Warned(text=f"event {number} was skipped: it is no object")
            continue
        yield from conversation.events(event, number)


conversations = single(events)
state = documents.state_by_events(conversations)


def _event_files(path: Path) -> list[tuple[int, Path]]:
    """The files of events by their numbers."""
    try:
        inside = [*(path.parent / _EVENTS).iterdir()]
    except OSError:
        return []
    return sorted((int(match[1]), file) for file in inside if (match := _NAME.fullmatch(file.name)))


class _Condensed(NamedTuple):
    """What a compaction does: events leave the prompt, and a summary comes in at an offset; -1 where there is none."""

    gone: frozenset[str]
    summary: str  # key of its message
    offset: int

    def applied(self, prompt: list[str]) -> list[str]:
        stays = [name for name in prompt if name not in self.gone]
        if self.offset >= 0:
            stays.insert(self.offset, self.summary)
        return stays


class _Link(NamedTuple):
    """An event in the tree of events. `key` is that of the newest message on the way to it."""

    parent: str
    key: str
    sent: bool  # whether it stands in the prompt
    condensed: _Condensed | None = None


class _Conversation:
    """The state after the events so far."""

    def __init__(self, path: Path, state: Any) -> None:
        self._path = path
        self._state = state
        self._source = text_of(mapping(state).get("id")) or path.parent.name
        is_subagent = _SUBAGENTS in path.parts[-4:-1]
        self._scope = names.slug(f"agent-{self._source[:12]}".lower(), "agent") if is_subagent else ""
        self._usage = _usage_by_response(state)
        self._model = text_at(state, "agent", "llm", "model")
        self._instructions: list[str] = []
        self._tools: dict[str, str] = {}  # call → tool
        self._newest = ""  # id of the newest event
        self._key = ""  # key of the newest message
        self._prompt: list[str] = []  # ids of the events in it
        self._links: dict[str, _Link] = {}
        self._unknown: set[str] = set()

    def opened(self) -> Opened:
        return Opened(
            format=FORMAT,
            source=self._source,
            name=f"openhands-{names.slug(self._source[:8])}",
            model=self._model,
            cwd=text_at(self._state, "workspace", "working_dir"),
            agent="OpenHands",
            missing=("the system prompt", *_MISSING),
            grows=True,
            window=_window(self._state),
        )

    def events(self, event: dict[str, Any], number: int) -> Iterator[Event]:
        """The events of one of OpenHands'."""
        key, end = text_of(event.get("id")) or f"event:{number}", number + 1
        if key in self._links:
            yield Warned(text=f"event {number} was skipped: it has the id of an earlier one")
            return
        parent = self._parent(event)
        if parent != self._newest:
            yield from self._forked(parent, event, end)
        sent, condensed = False, None
        match text_of(event.get("kind")):
            case "SystemPromptEvent":
                sent = True
                yield from self._instructed(event)
            case "Condensation":
                condensed = _condensed(event, key)
                yield from self._compacted(condensed, event, end)
            case (
                "MessageEvent"
                | "ActionEvent"
                | "ObservationEvent"
                | "UserRejectObservation"
                | "AgentErrorEvent" as kind
            ):
                message = self._message(kind, event, key)
                if isinstance(message, str):
                    yield Warned(text=f"event {number} was skipped: {message}")
                else:
                    sent, self._key = True, key
                    yield Said(message=message, end=end, scope=self._scope)
                    if kind == "MessageEvent" or text_of(event.get("tool_name")) == "finish":
                        yield Closed(end=end, scope=self._scope)
            case "PauseEvent" | "InterruptEvent":
                yield Closed(end=end, scope=self._scope)
            case kind if kind not in _SILENT and kind not in self._unknown:
                self._unknown.add(kind)
                yield Warned(text=f"events of an unknown kind are skipped: {display.one_line(kind, 40)!r}")
        if sent:
            self._prompt.append(key)
        self._links[key] = _Link(parent, self._key, sent, condensed)
        self._newest = key

    # -- where an event stands -----------------------------------------------------------------------------------------

    def _parent(self, event: dict[str, Any]) -> str:
        """The id of the event that this one goes on from; empty for none. Older versions have no tree, only an order."""
        parent = text_of(event.get("parent_id"))
        if parent == _ROOT:
            return ""
        return parent if parent in self._links else self._newest

    def _forked(self, parent: str, event: dict[str, Any], end: int) -> Iterator[Event]:
        key = self._links[parent].key if parent else ""
        way = []
        while parent:
            way.append(parent)
            parent = self._links[parent].parent
        self._prompt = []
        for name in reversed(way):
            link = self._links[name]
            if link.sent:
                self._prompt.append(name)
            elif link.condensed:
                self._prompt = link.condensed.applied(self._prompt)
        if key != self._key and not self._scope:
            yield Forked(after=key, end=end, time=text_of(event.get("timestamp")))
        self._key = key

    def _instructed(self, event: dict[str, Any]) -> Iterator[Event]:
        blocks = [text for name in ("system_prompt", "dynamic_context") if (text := text_at(event, name, "text"))]
        if not blocks or self._scope:
            return
        if not self._instructions:
            self._instructions = blocks
            system = blocks[0] if len(blocks) == 1 else [{"type": "text", "text": text} for text in blocks]
            yield Opened(format=FORMAT, system=system, missing=_MISSING, grows=True)
        elif blocks != self._instructions:
            yield Warned(text="the system prompt changes within the conversation; the first one is kept")

    def _compacted(self, condensed: _Condensed, event: dict[str, Any], end: int) -> Iterator[Event]:
        time = text_of(event.get("timestamp"))
        self._prompt = condensed.applied(self._prompt)
        summary: tuple[Message, ...] = ()
        before = ""
        if condensed.offset >= 0:
            part = wire.text_part(text_of(event.get("summary")), "user", "client")
            summary = (Message(role="user", parts=(part,), key=condensed.summary, time=time),)
            before = next(iter(self._prompt[self._prompt.index(condensed.summary) + 1 :]), "")
        kept = frozenset(self._prompt) - {condensed.summary}
        yield Compacted(summary=summary, kept=kept, before=before, end=end, time=time, scope=self._scope)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _message(self, kind: str, event: dict[str, Any], key: str) -> Message | str:
        """The message of an event, or the reason why there is none."""
        reply = text_of(event.get("llm_response_id"))
        if kind == "MessageEvent":
            inner = mapping(event, "llm_message")
            is_reply = inner.get("role") == "assistant"
            parts = [*_reasoning(inner), *_content(inner.get("content"), is_reply, self._maker(event))]
            parts += _content(event.get("extended_content"), is_reply, "client")
        elif kind == "ActionEvent":
            is_reply = True
            parts = [*_reasoning(event), *_content(event.get("thought"), True, "model")]
            call = self._call(event)
            if call is None:
                return "its call has no name or id"
            parts.append(call)
        else:
            is_reply = False
            parts = self._result(kind, event)
        if not parts:
            return "it is empty"
        return Message(
            role="assistant" if is_reply else "user",
            parts=tuple(parts),
            key=key,
            reply=reply if is_reply else "",
            time=text_of(event.get("timestamp")),
            model=self._model if is_reply else "",
            usage=self._usage.get(reply, {}) if is_reply else {},
        )

    def _maker(self, event: dict[str, Any]) -> Origin:
        source = text_of(event.get("source"))
        if source == "agent":
            return "model"
        by_program = self._scope or source in ("environment", "hook") or text_of(event.get("sender"))
        return "client" if by_program else "human"

    def _call(self, event: dict[str, Any]) -> Part | None:
        call = mapping(event, "tool_call")
        inner = mapping(call, "function") or call
        identifier = text_of(call.get("id")) or text_of(event.get("tool_call_id"))
        name = text_of(inner.get("name")) or text_of(event.get("tool_name"))
        if not identifier or not name:
            return None
        arguments = inner.get("arguments", {})
        self._tools[identifier] = name
        body = display.encode(arguments) if isinstance(arguments, str) else wire.compact(arguments)
        return wire.call_part(name, identifier, body)

    def _result(self, kind: str, event: dict[str, Any]) -> list[Part]:
        call = text_of(event.get("tool_call_id"))
        tool = self._tools.get(call) or text_of(event.get("tool_name"))
        if not call:
            return []
        if kind == "AgentErrorEvent":
            return [wire.result_part(text_of(event.get("error")), call, tool=tool, error=True)]
        if kind == "UserRejectObservation":
            text = f"Action rejected: {text_of(event.get('rejection_reason'))}"
            return [wire.result_part(text, call, tool=tool, error=True)]
        observation = mapping(event, "observation")
        failed = observation.get("is_error") is True
        items = [*_sent_for(observation), *_blocks(event.get("extended_content"))]
        if failed:
            items.insert(0, {"type": "text", "text": _FAILED})
        if all(item["type"] == "text" and item.keys() == {"type", "text"} for item in items):
            # The Messages API's several texts are one to every reader; a result of one text is plain.
            return [wire.result_part("".join(item["text"] for item in items), call, tool=tool, error=failed)]
        block = {"type": "tool_result", "tool_use_id": call, "content": items, "is_error": failed}
        return [msgspec.structs.replace(wire.part(block, "user", "tool"), tool=tool)]


def _condensed(event: dict[str, Any], key: str) -> _Condensed:
    forgotten, offset = event.get("forgotten_event_ids"), event.get("summary_offset")
    gone = frozenset(filter(None, map(text_of, forgotten if isinstance(forgotten, list) else ())))
    if not text_of(event.get("summary")) or type(offset) is not int:
        offset = -1
    return _Condensed(gone, f"{key}-summary", offset)


def _reasoning(said: dict[str, Any]) -> Iterator[Part]:
    """The reasoning of a reply: signed blocks, items of OpenAI's Responses, or text."""
    blocks = objects(said.get("thinking_blocks"))
    yield from (wire.part(block, "assistant", "model") for block in blocks)
    text = text_of(said.get("reasoning_content"))
    if item := mapping(said, "responses_reasoning_item"):
        body = wire.compact({"type": "reasoning", **item})
        yield Part(kind="thinking", role="assistant", origin="model", body=body, ext="json")
    elif text and not blocks:
        yield wire.text_part(text, "assistant", "model", kind="thinking")


def _content(content: Any, is_reply: bool, origin: Origin) -> list[Part]:
    return [wire.part(block, "assistant" if is_reply else "user", origin) for block in _blocks(content)]


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Content as blocks of the Messages API, without empty texts."""
    blocks: list[dict[str, Any]] = []
    for item in [content] if isinstance(content, str) else content if isinstance(content, list) else ():
        match item:
            case str(text) | {"type": "text", "text": str(text)}:
                blocks += [{"type": "text", "text": text}] if text else []
            case {"type": "image", "image_urls": list(urls)}:
                blocks += [elements.image(url) for url in urls if isinstance(url, str)]
            case dict():
                blocks.append(item)
    return blocks


def _sent_for(observation: dict[str, Any]) -> list[dict[str, Any]]:
    """What the model is sent for a tool's result. Most tools send its content; some add to it."""
    blocks = _blocks(observation.get("content") or observation.get("output"))
    match observation:
        case {"task_id": str(task), "subagent": str(name), "status": str(status)}:
            facts = f"Task ID: {task}\nSubagent: {name}\nStatus: {status}"
            return [{"type": "text", "text": facts}, *blocks]
        case {"screenshot_data": str(data)} if data:
            kind = "jpeg" if data.startswith("/9j/") else "png"
            return [*blocks, elements.image(f"data:image/{kind};base64,{data}")]
        case {"metadata": {"exit_code": int(code)} as metadata} if all(block["type"] == "text" for block in blocks):
            text = text_of(metadata.get("prefix")) + "".join(block["text"] for block in blocks)
            text += text_of(metadata.get("suffix"))
            if folder := text_of(metadata.get("working_dir")):
                text += f"\n[Current working directory: {folder}]"
            if interpreter := text_of(metadata.get("py_interpreter_path")):
                text += f"\n[Python interpreter: {interpreter}]"
            if code != -1:
                text += f"\n[Command finished with exit code {code}]"
            return [{"type": "text", "text": text}]
    return blocks


def _reports(state: Any) -> Iterator[dict[str, Any]]:
    """The provider's counts of each call, of the agent and of its condenser."""
    for usage in mapping(state, "stats", "usage_to_metrics").values():
        yield from objects(mapping(usage).get("token_usages"))


def _usage_by_response(state: Any) -> dict[str, dict[str, int]]:
    return {
        text_of(report.get("response_id")): fields.usage(
            report.get("prompt_tokens"),
            report.get("cache_read_tokens"),
            report.get("cache_write_tokens"),
            report.get("completion_tokens"),
        )
        for report in _reports(state)
        if report.get("response_id")
    }


def _window(state: Any) -> Window | None:
    """The model's window, as the host was told."""
    told = [report.get("context_window") for report in _reports(state)]
    for tokens in (*told, mapping(state, "agent", "llm").get("max_input_tokens")):
        if type(tokens) is int and tokens > 0:
            return Window(tokens=tokens, by="host")
    return None
