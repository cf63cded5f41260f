"""Import speed of every format, with redaction and without: one long recording each, made of a recorded one.

The copies of its messages differ in their ids and in each longer text, so that nothing of them is stored once for all.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ctxvc import importers
from ctxvc.recording.files import import_paths
from ctxvc.store.store import create
from tests.benchmarks.measuring import Figure, seconds

#: Bytes of each recording.
SIZE = 8_000_000
ROUNDS = 3
TARGETS = {"claude-code": ">= 20"}

#: Fields by which messages refer to each other, and those that must stay what they are.
_IDS = frozenset(
    {"uuid", "parentUuid", "id", "parentId", "call_id", "tool_use_id", "tool_call_id", "toolCallId", "action_id"}
    | {"requestId", "messageId", "interactionId", "llm_response_id", "tool_call_ids", "apiCallId", "leafUuid"}
)
_STAY = frozenset({"data", "arguments", "sessionId", "cwd", "timestamp"})
_PARENTS = ("parentUuid", "parentId")

Maker = Callable[[Path], Path]


def _copy(value: Any, number: int, field: str = "") -> Any:
    """A value as it stands in the copy with this number."""
    if isinstance(value, dict):
        return {name: item if name in _STAY else _copy(item, number, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_copy(item, number, field) for item in value]
    if isinstance(value, str) and field in _IDS:
        return f"{value}-{number}"
    return f"{number} {value}" if isinstance(value, str) and len(value) > 40 else value


def copies(values: list[Any]) -> Iterator[Any]:
    """The values again and again, until they have `SIZE` bytes."""
    size = number = 0
    newest: dict[str, Any] = {}
    while size < SIZE:
        for value in values:
            copied = _copy(value, number)
            for field in _PARENTS:
                own = "uuid" if field == "parentUuid" else "id"
                if number and isinstance(copied, dict) and own in copied and copied.get(field, 0) is None:
                    copied[field] = newest.get(own)
                newest[own] = copied.get(own) if isinstance(copied, dict) and own in copied else newest.get(own)
            size += len(json.dumps(copied))
            yield copied
        number += 1


def source(*names: str) -> Path:
    """The first of these files that is there: recordings of `CTXVC_TEST_DATA`, then those of the tests."""
    shared = Path(os.environ.get("CTXVC_TEST_DATA", "/nowhere"))
    own = Path(__file__).parents[1] / "data"
    return next(path for name in names for folder in (shared, own) if (path := folder / name).exists())


def values_of(path: Path) -> list[Any]:
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(data)] if path.suffix in (".json", ".traj") else [json.loads(line) for line in data.splitlines()]


def lines(*names: str, header: int) -> Maker:
    """A maker of a file with a value a line, of which so many come once, before all others."""

    def make(folder: Path) -> Path:
        values = values_of(source(*names))
        path = folder / "long.jsonl"
        with path.open("w") as file:
            for value in (*values[:header], *copies(values[header:])):
                file.write(json.dumps(value, separators=(",", ":")) + "\n")
        return path

    return make


def document(*names: str, ending: str, messages: Callable[[Any], list[Any]], first: int = 2) -> Maker:
    """A maker of a document in which the list of messages is long, but for so many `first` ones."""

    def make(folder: Path) -> Path:
        (value,) = values_of(source(*names))
        whole = messages(value)
        whole[first:] = [*copies(whole[first:])]
        path = folder / f"long{ending}"
        path.write_text(json.dumps(value, indent=2))
        return path

    return make


def messages_request(folder: Path) -> Path:
    """A request of the Messages API."""
    values = values_of(source("trajectories/agentv-a5-7b22d8d4bd-0.jsonl.gz", "recorded/claude-code.jsonl"))
    messages = [value.get("message", value) for value in values if value.get("message", value).get("role") in ROLES]
    plain = [{"role": message["role"], "content": message["content"]} for message in messages]
    path = folder / "long.json"
    path.write_text(json.dumps({"model": "m", "messages": [*copies(plain)]}))
    return path


ROLES = ("user", "assistant")


def conversation_folder(folder: Path) -> Path:
    """A conversation of OpenHands: a file an event."""
    state = source("transcripts/openhands/event-json-to-openai-messages/base_state.json",
                   "openhands/event-json-to-openai-messages/base_state.json")  # fmt: skip
    events = [json.loads(file.read_bytes()) for file in sorted((state.parent / "events").glob("*.json"))]
    (folder / "events").mkdir()
    path = folder / state.name
    path.write_bytes(state.read_bytes())
    for number, event in enumerate((events[0], *copies(events[1:]))):
        (folder / "events" / f"event-{number:05d}-{number:08x}.json").write_text(json.dumps(event))
    return path


#: format → what makes a long recording of it in a folder, and gives the path to import.
MAKERS: dict[str, Maker] = {
    "ctxvc-trajectory": lines("trajectories/agentv-a5-7b22d8d4bd-0.jsonl.gz", "trajectory/tiny.jsonl", header=2),
    "claude-code": lines("transcripts/claude-code/48-b4b05476e5-0.jsonl", "recorded/claude-code.jsonl", header=0),
    "codex": lines("transcripts/codex/a5-7b22d8d4bd-0.jsonl", "recorded/codex.jsonl", header=1),
    "copilot-cli": lines("transcripts/other/copilot-cli/26-9e1b9e5502-0.jsonl.gz",
                         "copilot-cli/26-9e1b9e5502-0.jsonl", header=1),
    "pi": lines("transcripts/pi/before-compaction.jsonl.gz", "recorded/pi.jsonl", header=1),
    "swe-agent": document("transcripts/swe-agent/marshmallow-1867.function_calling_replace.traj",
                          "swe-agent/function_calling_simple.traj", ending=".traj", messages=lambda run: run["history"]),
    "mini-swe-agent": document("transcripts/mini-swe-agent/github_issue.traj.json",
                               "mini-swe-agent/github_issue.traj.json", ending=".traj.json", messages=lambda run: run),
    "openhands": conversation_folder,
    "langgraph": document("transcripts/langchain/7cfa5f8f.thread.json", "langgraph/90040b36.thread.json",
                          ending=".json", messages=lambda state: state["values"]["messages"]),
    "langchain": document("transcripts/langchain/summarization_seed_messages.json", "langchain/dumpd.json",
                          ending=".json", messages=lambda values: values, first=1),
    "anthropic-messages": messages_request,
    "openai-chat": document("transcripts/openai-chat/openhands-llm-log-function-calling.json",
                            "openai-chat/request.json", ending=".json", messages=lambda request: request["messages"]),
}  # fmt: skip


def figures(folder: Path) -> Iterator[Figure]:
    for name in importers.FORMATS:
        place = folder / name
        place.mkdir()
        path = MAKERS[name](place)
        size = sum(file.stat().st_size for file in importers.importer(name).files(path)) / 1e6
        exact, redacted = [], []
        for number in range(ROUNDS):
            exact.append(_import(place / f"{number}-exact", path, redact=False))
            redacted.append(_import(place / f"{number}-redacted", path, redact=True))
        target = TARGETS.get(name, ">= 8")
        yield Figure(f"import {name}, {size:.1f} MB", size / min(exact), "MB/s", target=target)
        ratio = min(redacted) / min(exact)
        yield Figure(f"import {name}, with redaction", size / min(redacted), "MB/s", ratio, "", "time without")


def _import(folder: Path, path: Path, *, redact: bool) -> float:
    def work() -> None:
        (outcome,) = import_paths(store, [path], final=True, redact=redact)
        assert outcome.error is None and outcome.units > 100, outcome

    folder.mkdir()
    with create(folder / ".ctxvc") as store:
        return seconds(work)
