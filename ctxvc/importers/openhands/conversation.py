"""OpenHands' events of a conversation, in order, as what each adds to the prompt or removes from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message, Origin, Part
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.forms import elements
from ctxvc.forms.elements import token_counts
from ctxvc.forms.values import objects, taken_over, text_of
from ctxvc.importers.documents import mapping, text_at

#: The folder beside a conversation's events with its sub-agents.
SUBAGENTS = "subagents"

_MISSING = ("the tool definitions",)
#: A folder's name: the conversation's id without its dashes.
_HEX = re.compile("([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")
#: The parent of an event that begins a new tree.
_ROOT = "__root__"
#: Events that are not sent to the model.
_SILENT = frozenset(
    {
        "ACPToolCallEvent", "CondensationRequest", "ConversationErrorEvent", "ConversationStateUpdateEvent",
        "HookExecutionEvent", "InterruptEvent", "LLMCompletionLogEvent", "PauseEvent", "StreamingDeltaEvent",
        "TokenEvent",
    }
)  # fmt: skip


class _Condensed(NamedTuple):
    """A compaction: the events that leave the prompt, and the summary's offset in it, -1 if there is none."""

    forgotten: frozenset[str]
    summary: str  # key of its message
    offset: int

    def applied(self, prompt: list[str]) -> list[str]:
        stays = [name for name in prompt if name not in self.forgotten]
        if self.offset >= 0:
            stays.insert(self.offset, self.summary)
        return stays


class _Link(NamedTuple):
    """An event in the tree of events. `key` is the newest message's on the way to it."""

    parent: str
    key: str
    sent: bool  # whether it is in the prompt
    condensed: _Condensed | None = None


def source_of(state: Any, path: Path) -> str:
    """The id of the conversation at `path`, by its state, else by the folder's name."""
    name = path.parent.name
    digits = _HEX.fullmatch(name)
    return text_of(mapping(state).get("id")) or ("-".join(digits.groups()) if digits else name)


class Conversation:
    """The state after the events so far."""

    def __init__(self, path: Path, state: Any, note: Any = None) -> None:
        """`note` is our export's note on its calls."""
        self._state = state
        self._source = source_of(state, path)
        is_subagent = SUBAGENTS in path.parts[-4:-1]
        self._scope = name_rules.agent_scope(self._source[:12]) if is_subagent else ""
        self._model = text_at(state, "agent", "llm", "model")
        self._messages = Messages(self._model, _usage_by_response(state), note, by_agent=is_subagent)
        self._instructions: list[str] = []
        self._newest = ""  # id of the newest event
        self._key = ""  # key of the newest message
        self._prompt: list[str] = []  # ids of the events in it
        self._links: dict[str, _Link] = {}
        self._unknown: set[str] = set()

    def opened(self) -> Opened:
        return Opened(
            format="openhands",
            source=self._source,
            name=f"openhands-{name_rules.slug(self._source[:8])}",
            model=self._model,
            cwd=text_at(self._state, "workspace", "working_dir"),
            agent="OpenHands",
            missing=("the system prompt", *_MISSING),
            grows=True,
            window=_window(self._state),
        )

    def events(self, event: dict[str, Any], number: int) -> Iterator[Event]:
        """The events for an event of OpenHands."""
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
                message = self._messages.message(kind, event, key)
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

    # -- the tree of events --------------------------------------------------------------------------------------------

    def _parent(self, event: dict[str, Any]) -> str:
        """The id of the event that this one continues; empty for none. Older versions only have an order."""
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
            yield Opened(format="openhands", system=system, missing=_MISSING, grows=True)
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
        stays = frozenset(self._prompt) - {condensed.summary}
        yield Compacted(summary=summary, kept=stays, before=before, end=end, time=time, scope=self._scope)


def _condensed(event: dict[str, Any], key: str) -> _Condensed:
    ids, offset = event.get("forgotten_event_ids"), event.get("summary_offset")
    forgotten = frozenset(filter(None, map(text_of, ids if isinstance(ids, list) else ())))
    if not text_of(event.get("summary")) or type(offset) is not int:
        offset = -1
    return _Condensed(forgotten, f"{key}-summary", offset)


def _reports(state: Any) -> Iterator[dict[str, Any]]:
    """The provider's token counts of each call of the agent and of its condenser."""
    for usage in mapping(state, "stats", "usage_to_metrics").values():
        yield from objects(mapping(usage).get("token_usages"))


def _usage_by_response(state: Any) -> dict[str, dict[str, int]]:
    return {
        text_of(report.get("response_id")): token_counts(
            report.get("prompt_tokens"),
            report.get("cache_read_tokens"),
            report.get("cache_write_tokens"),
            report.get("completion_tokens"),
        )
        for report in _reports(state)
        if report.get("response_id")
    }


def _window(state: Any) -> Window | None:
    """The model's window, as the host has it."""
    tokens_of_calls = [report.get("context_window") for report in _reports(state)]
    for tokens in (*tokens_of_calls, mapping(state, "agent", "llm").get("max_input_tokens")):
        if type(tokens) is int and tokens > 0:
            return Window(tokens=tokens, by="host")
    return None


#: The text before a failed tool's output.
_FAILED = "[An error occurred during execution.]\n"


class Messages:
    """Reads the messages of one conversation. `usage` has the provider's token counts by reply id.

    `by_agent`: the conversation is a sub-agent's, whose user is another agent.
    """

    def __init__(self, model: str, usage: Mapping[str, dict[str, int]], note: Any = None, *, by_agent: bool) -> None:
        self._model = model
        self._usage = usage
        self._note = note
        self._by_agent = by_agent
        self._tools: dict[str, str] = {}  # call → tool

    def message(self, kind: str, event: dict[str, Any], key: str) -> Message | str:
        """The message of an event, or the reason there is none."""
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
            parts += taken_over([call], self._note)
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
        by_program = self._by_agent or source in ("environment", "hook") or bool(text_of(event.get("sender")))
        return "client" if by_program else "human"

    def _call(self, event: dict[str, Any]) -> Part | None:
        call = mapping(event, "tool_call")
        inner = mapping(call, "function") or call
        identifier = text_of(call.get("id")) or text_of(event.get("tool_call_id"))
        name = text_of(inner.get("name")) or text_of(event.get("tool_name"))
        if not identifier or not name:
            return None
        self._tools[identifier] = name
        return wire.call_part(name, identifier, inner.get("arguments", {}))

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
        return [wire.result_part(items, call, tool=tool, error=failed)]


def _reasoning(reply: dict[str, Any]) -> Iterator[Part]:
    """The reasoning of a reply: signed blocks, items of OpenAI's Responses, or text."""
    blocks = objects(reply.get("thinking_blocks"))
    yield from (wire.part(block, "assistant", "model") for block in blocks)
    text = text_of(reply.get("reasoning_content"))
    if item := mapping(reply, "responses_reasoning_item"):
        body = wire.compact({"type": "reasoning", **item})
        yield Part(kind="thinking", role="assistant", origin="model", body=body, ext="json")
    elif text and not blocks:
        yield wire.text_part(text, "assistant", "model", kind="thinking")


def _content(content: Any, is_reply: bool, origin: Origin) -> list[Part]:
    return [wire.part(block, "assistant" if is_reply else "user", origin) for block in _blocks(content)]


def _blocks(content: Any) -> list[dict[str, Any]]:
    """The Messages API's blocks of a content, without empty texts."""
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
    """The blocks that the model is sent for a tool's result: its content, to which some tools add."""
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
