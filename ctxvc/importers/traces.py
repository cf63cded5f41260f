"""Helpers for importers of traces: inferences of one or several agents, each with its whole prompt.

An inference's agent is found by the runs above it. The first agent of a trace is the conversation's; the others are its
sub-agents, in scopes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.block import Message
from ctxvc.core.recording.events import Compacted, Event, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.form import Facts
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations
from ctxvc.importers.request_log import Log, Record, Turn


class Inference(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a model. `value` is what `Form.turns` reads.

    `agent` is the run or span above it that made the call. If that may be just a step of an agent, `beginning` is a
    checksum of the agent's prompts: agents with an equal one are the same.
    """

    value: Any
    trace: str
    agent: str
    conversation: str = ""
    beginning: bytes = b""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a format's inferences are read. `reader` returns a converter for the messages of one agent."""

    format: str
    turns: Callable[[Any], Iterator[Turn]]
    fingerprint: Callable[[Any], bytes]
    reader: Callable[[], Callable[[Any, str, Facts], Message | str]]
    hint: str


Entry = tuple[Inference, Record]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run of a model, a tool, an agent, or anything else (empty `kind`)."""

    id: str
    parent: str
    kind: Literal["model", "tool", "agent", ""]


class Tree:
    """The runs of a file so far."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def add(self, run: Run) -> None:
        self._runs[run.id] = run

    def is_within_model(self, run: Run) -> bool:
        """Whether this run is within a model's call: two tracers recorded the same."""
        return any(above.kind == "model" for above in self._above(run))

    def agent(self, run: Run) -> tuple[str, bool]:
        """The run that made a model's call, and whether it is certainly an agent's and not a step of one.

        A tool that calls a model is an agent, and so is an agent's run within another's or a tool's.
        """
        nearest = ""
        for above in self._above(run):
            if nearest and above.kind in ("tool", "agent"):
                return nearest, True
            if above.kind == "tool":
                return above.id, True
            if above.kind == "agent":
                nearest = above.id
        return nearest or run.parent, False

    def _above(self, run: Run) -> Iterator[Run]:
        passed = {run.id}
        while (above := self._runs.get(run.parent)) is not None and above.id not in passed:
            passed.add(above.id)
            yield above
            run = above


def conversations(recording: Recording, form: Form, entries: Iterable[Entry | Warned]) -> Conversations:
    """A conversation per conversation id, else per trace. Raises: BadInput if there is none."""
    warnings: list[Warned] = []
    together: dict[str, list[Entry]] = {}
    homes: dict[str, str] = {}  # trace → its first inference's conversation: a sub-agent may name one of its own
    for entry in entries:
        if isinstance(entry, Warned):
            warnings.append(entry)
            continue
        inference = entry[0]
        own = inference.conversation or inference.trace
        together.setdefault(homes.setdefault(inference.trace, own), []).append(entry)
    if not together:
        raise BadInput(f"{recording.path}: no inference with its messages", hint=form.hint)
    endings: set[str] = set()
    for number, (name, inferences) in enumerate(together.items(), 1):
        ending = f"-{name_rules.slug(name[-12:]).lower()}" if len(together) > 1 else ""
        if ending in endings:
            ending += f"-{number}"
        endings.add(ending)
        yield ending, _events(inferences, recording.stem, form, warnings if number == 1 else [])


def _events(entries: list[Entry], stem: str, form: Form, warnings: Iterable[Warned]) -> Iterator[Event]:
    """One conversation's events; sub-agents' are in scopes of their own."""
    logs: dict[str, Log] = {}
    scopes = _Scopes()
    silent = True
    for inference, record in entries:
        scope = scopes.of(inference)
        log = logs.get(scope)
        if log is None:
            log = logs[scope] = Log(form.format, stem, form.fingerprint, form.reader())
        try:
            for event in log.events([Record(inference.value, record.line, record.end)], form.turns):
                silent = silent and not isinstance(event, Said)
                if not scope:
                    # A tracer may append its next batch.
                    yield msgspec.structs.replace(event, grows=True) if isinstance(event, Opened) else event
                    yield from warnings
                    warnings = ()
                elif isinstance(event, Said | Compacted):
                    yield _of_agent(event, scope)
                elif isinstance(event, Warned):
                    yield event
        except BadInput:
            continue  # nothing in it is a message
    if silent:
        raise BadInput(f"{stem}: no message in the format {form.format}")


class _Scopes:
    """The scopes of agents; the conversation's own is empty."""

    def __init__(self) -> None:
        self._agents: dict[tuple[str, str], str] = {}
        self._beginnings: dict[tuple[str, bytes], str] = {}
        self._traces: set[str] = set()

    def of(self, inference: Inference) -> str:
        trace, agent, beginning = inference.trace, inference.agent, inference.beginning
        scope = self._agents.get((trace, agent))
        if scope is None and beginning:
            scope = self._beginnings.get((trace, beginning))
        if scope is None:
            scope = name_rules.agent_scope(agent[-12:]) if trace in self._traces else ""
        self._traces.add(trace)
        self._agents[trace, agent] = scope
        if beginning:
            self._beginnings.setdefault((trace, beginning), scope)
        return scope


def _of_agent(event: Said | Compacted, scope: str) -> Said | Compacted:
    """An event in a sub-agent's scope, whose user is another agent."""
    if isinstance(event, Said):
        return msgspec.structs.replace(event, message=_message_of_agent(event.message, scope), scope=scope)
    return msgspec.structs.replace(
        event,
        summary=tuple(_message_of_agent(message, scope) for message in event.summary),
        kept=frozenset(f"{scope}/{key}" for key in event.kept),
        before=event.before and f"{scope}/{event.before}",
        scope=scope,
    )


def _message_of_agent(message: Message, scope: str) -> Message:
    key = f"{scope}/{message.key}"
    parts = tuple(
        msgspec.structs.replace(part, origin="client") if part.origin == "human" else part for part in message.parts
    )
    return msgspec.structs.replace(message, key=key, reply=key if message.reply else "", parts=parts)
