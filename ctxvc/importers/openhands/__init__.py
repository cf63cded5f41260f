"""Conversations of OpenHands (a folder with `base_state.json` and `events/event-NNNNN-ID.json`) → events.

The recording is the folder; its path is that of `base_state.json`. Positions are numbers of events. Sub-agents have
such folders in `subagents`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Event, Warned
from ctxvc.errors import BadInput
from ctxvc.forms.values import text_of
from ctxvc.importers.documents import mapping, text_at
from ctxvc.importers.file import Recording
from ctxvc.importers.openhands.conversation import SUBAGENTS, Conversation, source_of
from ctxvc.importers.protocol import Importer, Stamp, State, single
from ctxvc.importers.request_log import opening

FORMAT = "openhands"
#: The file of our exports with the calls as the agent before had made them (`taken_over`).
NOTE = "ctxvc.json"

_STATE = "base_state.json"
_EVENTS = "events"
_MESSAGE = re.compile(rb'"kind"\s*:\s*"(?:Message|Action|Observation|AgentError)Event"')
_NAME = re.compile(r"event-(\d{5,12})-[0-9A-Fa-f-]{8,}\.json")


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
    """The conversations whose working folder is `project` or below it."""
    for path in sorted(folder.glob(f"*/{_STATE}")):
        try:
            place = text_at(_value(Recording(path)), "workspace", "working_dir")
        except BadInput:
            continue
        if place and Path(place).is_relative_to(project):
            yield path


def beside(path: Path) -> list[Path]:
    """The conversations of the sub-agents, and of theirs."""
    return sorted(path.parent.glob(f"{SUBAGENTS}/**/{_STATE}"))


def more_files(path: Path) -> Iterator[Path]:
    """The other files in the folder of the state: events, sub-agents, whole outputs."""
    yield from (file for file in sorted(path.parent.rglob("*")) if file.is_file() and file != path)


def stamp(path: Path) -> Stamp:
    """A stamp of the state, the number of events, and the newest event. Raises: OSError."""
    events = _event_files(path)
    status = [file.stat() for file in (path, *(file for _, file in events[-1:]))]
    return Stamp(len(events) + sum(file.st_size for file in status), max(file.st_mtime_ns for file in status))


def events(recording: Recording) -> Iterator[Event]:
    """The events of the conversation. Raises: BadInput if there are none."""
    state = _value(recording)  # it is rewritten at every change; the events are what matters
    numbered = _event_files(recording.path)
    if not numbered:
        raise BadInput(f"{recording.path}: no {_EVENTS}/event-*.json beside it")
    conversation = Conversation(recording.path, state, _note(recording))
    yield conversation.opened()
    if not isinstance(state, dict):
        yield Warned(text="base_state.json is no JSON object: the model, the folder and token counts are unknown")
    expected = 0
    for number, path in numbered:
        if number > expected:
            yield Warned(text=f"events {expected} to {number - 1} are missing")
        expected = number + 1
        file = recording.sibling(path)
        try:
            event = wire.parse(file.document())
        except (ValueError, BadInput) as error:
            if path != numbered[-1][1]:  # else it is being written
                yield Warned(text=f"event {number} was skipped: {display.one_line(str(error), 200)}")
            continue
        if not isinstance(event, dict):
            yield Warned(text=f"event {number} was skipped: it is not an object")
            continue
        yield from conversation.events(event, number)
        for bad in file.misread.values():
            yield Warned(text=f"event {number}: {bad} bytes are not UTF-8 and are kept as U+DC80 to U+DCFF")


def _note(recording: Recording) -> Any:
    """The note of our export beside the events, on calls of other agents; None if there is none."""
    place = recording.path.with_name(NOTE)
    try:
        return _value(recording.sibling(place)) if place.is_file() else None
    except BadInput:
        return None


def state(path: Path, positions: Mapping[str, int]) -> State:
    """`Importer.state` of the conversation at `path`."""
    position = positions.get(source_of(_value(Recording(path)), path))
    if position is None:
        return "missing"
    newer = (file for number, file in _event_files(path) if number >= position)
    return "grown" if any(_MESSAGE.search(file.read_bytes()) for file in newer) else "whole"


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=single(events),
    endings=(".json",),
    grows=True,
    folders=folders,
    recordings=recordings,
    beside=beside,
    more_files=more_files,
    stamp=stamp,
    state=state,
)


def _value(recording: Recording) -> Any:
    """The JSON value of a file; None if it is not JSON. Raises: BadInput if it cannot be read."""
    return wire.parsed(recording.document(), object)


def _event_files(path: Path) -> list[tuple[int, Path]]:
    """The files of events with their numbers, in order."""
    try:
        inside = [*(path.parent / _EVENTS).iterdir()]
    except OSError:
        return []
    return sorted((int(match[1]), file) for file in inside if (match := _NAME.fullmatch(file.name)))
