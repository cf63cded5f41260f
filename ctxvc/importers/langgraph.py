"""Threads of LangGraph → events: the state of a thread as its server returns it, or a list of its states.

A state has all messages of its moment. In a list (`/threads/ID/history`, newest first) each is compared with the one
before: messages are added, removed, replaced by a summary, edited, or the thread continues from an earlier moment. A
state's `tasks` may have the states of sub-graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.recording.events import Closed, Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.values import digest, objects, text_of
from ctxvc.importers import documents
from ctxvc.importers.file import Recording
from ctxvc.importers.langchain_messages import Reader, fields_of, identity, is_summary, leading_system
from ctxvc.importers.protocol import single
from ctxvc.importers.request_log import opening

FORMAT = "langgraph"

_MISSING = ("the tool definitions",)


def sniff(head: bytes) -> bool:
    """Whether `head` begins with a state that has messages of LangChain."""
    if b'"values"' not in head or b'"messages"' not in head:
        return False
    return any(map(_messages, _states(next(iter(opening(head)), None))))


def _states(value: Any) -> list[dict[str, Any]]:
    """The states in a document, oldest first."""
    states = objects(value if isinstance(value, list) else [value])
    if len(states) > 1 and _moment(states[0]) > _moment(states[-1]):
        states.reverse()
    return states


def _moment(state: dict[str, Any]) -> tuple[str, int]:
    step = documents.mapping(state, "metadata").get("step")
    return text_of(state.get("created_at")), step if type(step) is int else 0


def _messages(state: dict[str, Any]) -> list[dict[str, Any]]:
    messages = documents.mapping(state, "values").get("messages")
    return [message for value in objects(messages) if (message := fields_of(value))]


def events(recording: Recording) -> Iterator[Event]:
    """The events of the thread. Raises: BadInput if it has no message."""
    document = documents.document(recording)
    states = [state for state in _states(document.value) if _messages(state)]
    if document.damage and states:  # the last message of a damaged file may lack a part
        states[-1]["values"]["messages"].pop()
    if not states or not _messages(states[0]):
        raise BadInput(f"{recording.path}: no message in the format {FORMAT}")
    beginning = _messages(states[0])
    system, count = leading_system(beginning)
    yield _opened(recording.stem, states, system)
    yield from document.warnings()
    thread = _Thread(_keyed(beginning)[:count])
    for state in states:
        values = documents.mapping(state, "values")["messages"]
        if lost := sum(fields_of(value) is None for value in values):
            yield Warned(text=f"{lost} of the messages are none of LangChain's, and were skipped")
        yield from thread.events(_messages(state))
        yield from thread.subgraphs(state)


IMPORTER = documents.importer(FORMAT, sniff, single(events))


def _opened(stem: str, states: list[dict[str, Any]], system: Any) -> Opened:
    newest = states[-1]
    metadata = documents.mapping(newest, "metadata")
    thread = documents.text_at(newest, "checkpoint", "thread_id") or text_of(metadata.get("thread_id")) or stem
    version, graph = text_of(metadata.get("langgraph_version")), text_of(metadata.get("graph_id"))
    return Opened(
        format=FORMAT,
        # A thread whose older messages were since replaced by a summary begins differently: it is another recording.
        source=documents.identity(thread, identity(_messages(states[0])[0])),
        name=name_rules.slug(f"thread-{thread[:8]}" if thread != stem else stem),
        model=text_of(metadata.get("model_name")),
        time=text_of(states[0].get("created_at")),
        agent=" ".join(filter(None, ("LangGraph", version, graph and f"({graph})"))),
        title=documents.text_at(newest, "values", "title"),
        system=system,
        missing=_MISSING if system else ("the system prompt", *_MISSING),
        grows=True,
    )


class _Thread:
    """The messages of a thread so far. `system` are those of the system prompt, with their keys."""

    def __init__(self, system: list[tuple[str, dict[str, Any]]]) -> None:
        self._system = {key for key, _ in system}
        self._end = sum(len(wire.compact(message)) for _, message in system)
        self._readers = {"": Reader()}
        self._paths: dict[str, list[str]] = {"": []}  # scope → keys of the messages in its prompt
        self._prints: dict[str, bytes] = {}  # key → the fingerprint of its message
        self._calls: dict[str, str] = {}  # key of a result → its call

    def events(self, messages: list[dict[str, Any]]) -> Iterator[Event]:
        """The events of a state with these messages."""
        keyed = [(key, message) for key, message in _keyed(messages) if key not in self._system]
        path, keys = self._paths[""], [key for key, _ in keyed]
        common = next(
            (at for at, (a, b) in enumerate(zip(path, keys, strict=False)) if a != b), min(len(path), len(keys))
        )
        newer = keyed[common:]
        if common < len(path) and newer:
            yield from self._changed(path, keys, common, dict(keyed))
            newer = [(key, message) for key, message in newer if key not in self._prints]
        elif common < len(path):
            return  # an earlier moment, from which nothing continued
        yield from self._edited(keyed[:common])
        for key, message in newer:
            yield from self._added(key, message)
        self._paths[""] = keys

    def _changed(
        self, path: list[str], keys: list[str], common: int, messages: dict[str, dict[str, Any]]
    ) -> Iterator[Event]:
        """The event of a prompt that did not just grow."""
        self._end += 1
        first = messages[keys[common]]
        summary: tuple[Message, ...] = ()
        if is_summary(first) and keys[common] not in self._prints:
            converted = self._readers[""].message(first, keys[common])
            self._prints[keys[common]] = _fingerprint(first)
            summary = (converted,) if isinstance(converted, Message) else ()
        elif not set(path[common:]) & set(keys):
            yield Forked(after=path[common - 1] if common else "", end=self._end)
            return
        stays = [key for key in keys if key in path]
        before = next((key for key in keys[common:] if key in path), "")
        yield Compacted(summary=summary, kept=frozenset(stays), before=before, end=self._end)

    def _edited(self, keyed: list[tuple[str, dict[str, Any]]]) -> Iterator[Event]:
        for key, message in keyed:
            if self._prints.get(key) in (None, fingerprint := _fingerprint(message)):
                continue
            self._prints[key] = fingerprint
            self._end += len(wire.compact(message))
            converted = Reader().message(message, key)  # another, since no call is answered anew
            if isinstance(converted, Message):
                call = self._calls.get(key, "")
                yield Edited(key="" if call else key, call=call, parts=converted.parts, end=self._end)

    def _added(self, key: str, message: dict[str, Any], scope: str = "") -> Iterator[Event]:
        self._prints[key] = _fingerprint(message)
        self._end += len(wire.compact(message))
        converted = self._readers[scope].message(message, key)
        if isinstance(converted, str):
            yield Warned(text=f"message {key[:40]} was skipped: {converted}")
            return
        if message["type"] == "tool":
            self._calls[key] = converted.parts[0].call
        yield Said(message=converted, end=self._end, scope=scope)
        yield Closed(end=self._end, scope=scope)

    def subgraphs(self, state: dict[str, Any]) -> Iterator[Event]:
        """The events of the states of sub-graphs in a state."""
        for task in objects(state.get("tasks")):
            inner = documents.mapping(task, "state")
            messages = _messages(inner)
            if not messages:
                continue
            scope = name_rules.agent_scope(f"{text_of(task.get('name'))[:30]}-{text_of(task.get('id'))[-12:]}")
            self._readers.setdefault(scope, Reader())
            earlier = self._paths.setdefault(scope, [])
            for name, message in _keyed(messages):
                key = f"{scope}/{name}"
                if key not in earlier:
                    earlier.append(key)
                    yield from self._added(key, message, scope)
            yield from self.subgraphs(inner)


def _keyed(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The messages with unique keys."""
    uses: dict[str, int] = {}
    keyed = []
    for message in messages:
        key = identity(message)
        uses[key] = uses.get(key, 0) + 1
        keyed.append((key if uses[key] == 1 else f"{key}~{uses[key]}", message))
    return keyed


def _fingerprint(message: dict[str, Any]) -> bytes:
    return digest([message.get("content"), message.get("tool_calls")])
