"""Import speed of every format, with redaction and without: one long recording each, made of a recorded session.

Hosts' own formats repeat a recording of theirs; the others have one session, the same in each. The copies of its
messages differ in their ids and in each longer text, so that nothing of them is stored once for all.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ctxvc import importers
from ctxvc.forms import chat_request as chat
from ctxvc.forms import responses_request as responses
from ctxvc.forms.values import text_of
from ctxvc.recording.files import import_paths
from ctxvc.store.store import create
from tests.benchmarks.measuring import Figure, seconds

#: Bytes of each recording.
SIZE = 8_000_000
ROUNDS = 3
TARGETS = {"claude-code": ">= 20"}

#: Fields by which messages refer to each other, and those that must stay what they are.
_IDS = frozenset(
    {"uuid", "parentUuid", "id", "parentId", "call_id", "tool_use_id", "tool_call_id", "toolCallId", "event_id"}
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
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.splitlines()]


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


#: A recorded session of middling length, of which as many bytes a step as the median of all trajectories.
_SESSION = ("trajectories/agentv-3c-162d1d8ad4-1.jsonl.gz", "trajectory/small.jsonl")


def session() -> Iterator[dict[str, Any]]:
    """That session's messages, in the form of the Messages API, again and again."""
    values = [value for value in values_of(source(*_SESSION)) if value.get("role") in ("user", "assistant")]
    return copies([{"role": value["role"], "content": value["content"]} for value in values])


def chat_messages() -> list[dict[str, Any]]:
    """The same as messages of OpenAI's chat completions, after a system prompt and a task."""
    converted = chat.to_chat({"model": "m", "messages": [*session()]}).value["messages"]
    system = {"role": "system", "content": "You solve tasks with a shell. SUBMIT_FINAL_OUTPUT"}
    return [system, {"role": "user", "content": "Make the tests pass."}, *converted]


def written(value: Any, path: Path) -> Path:
    path.write_text(json.dumps(value, indent=2))
    return path


def swe_agent(folder: Path) -> Path:
    history, steps = [], []
    for message in chat_messages():
        text = text_of(message.get("content"))
        item = {"agent": "main", "message_type": "observation", **message}
        if message["role"] == "assistant":
            item |= {"thought": text, "action": "bash", "message_type": "action"}
            steps.append({"action": "bash", "observation": "", "response": text, "thought": text, "state": {}})
        elif message["role"] == "tool":
            item["tool_call_ids"] = [item.pop("tool_call_id")]
            steps[-1]["observation"] = text
        history.append(item)
    run = {"environment": "main", "trajectory": steps, "history": history, "info": {"exit_status": "submitted"}}
    return written(run, folder / "long.traj")


def mini_swe_agent(folder: Path) -> Path:
    messages = []
    for message in chat_messages():
        response = {"id": "r", "model": "m", "choices": [{"message": message}], "usage": _USAGE}
        extra = {
            "assistant": {"actions": [], "cost": 0.0, "timestamp": 1.0, "response": response},
            "tool": {"raw_output": message.get("content"), "returncode": 0, "timestamp": 1.0},
        }.get(message["role"])
        messages.append({**message, **({"extra": extra} if extra else {})})
    run = {"info": {"mini_version": "2.4.6", "config": {}}, "messages": messages}
    return written({**run, "trajectory_format": "mini-swe-agent-1.1"}, folder / "long.traj.json")


_DONE = {"role": "assistant", "content": "Done."}
_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def langchain_messages() -> Iterator[dict[str, Any]]:
    for number, message in enumerate(chat_messages()):
        fields = {"content": message.get("content") or "", "additional_kwargs": {}, "response_metadata": {}}
        kind = {"user": "human", "assistant": "ai"}.get(message["role"], message["role"])
        calls = [
            {"name": call["function"]["name"], "args": json.loads(call["function"]["arguments"]), "id": call["id"]}
            for call in message.get("tool_calls", ())
        ]
        more = (
            {"tool_calls": calls}
            if kind == "ai"
            else {"tool_call_id": message["tool_call_id"]}
            if kind == "tool"
            else {}
        )
        yield {**fields, "type": kind, "name": None, "id": f"m{number}", **more}


def langchain(folder: Path) -> Path:
    name = {"ai": "AIMessage", "human": "HumanMessage", "tool": "ToolMessage", "system": "SystemMessage"}
    identifier = ["langchain", "schema", "messages"]
    dump = [
        {"lc": 1, "type": "constructor", "id": [*identifier, name[fields["type"]]], "kwargs": fields}
        for fields in langchain_messages()
    ]
    return written(dump, folder / "long.json")


def langgraph(folder: Path) -> Path:
    return written({"values": {"messages": [*langchain_messages()]}, "next": [], "tasks": []}, folder / "long.json")


def openhands(folder: Path) -> Path:
    """A folder with a file an event."""
    (folder / "events").mkdir()
    number = 0

    def event(kind: str, **fields: Any) -> None:
        nonlocal number
        value = {"id": f"e{number}", "timestamp": "2026-02-05T11:24:45.292853", "kind": kind, **fields}
        (folder / "events" / f"event-{number:05d}-{number:08x}.json").write_text(json.dumps(value))
        number += 1

    tools = {}
    for at, message in enumerate(chat_messages()):
        texts = [{"cache_prompt": False, "type": "text", "text": text_of(message.get("content"))}]
        if message["role"] == "system":
            event("SystemPromptEvent", source="agent", system_prompt=texts[0], tools=[])
        elif message["role"] == "tool":
            call = message["tool_call_id"]
            observation = {"content": texts, "is_error": False, "kind": "TerminalObservation"}
            event("ObservationEvent", tool_call_id=call, tool_name=tools[call], observation=observation)
        elif not message.get("tool_calls"):
            source_name = "user" if message["role"] == "user" else "agent"
            inner = {"role": message["role"], "content": texts}
            event("MessageEvent", source=source_name, llm_message=inner, llm_response_id=f"r{at}")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            tools[call["id"]] = function["name"]
            action = {**json.loads(function["arguments"]), "kind": "TerminalAction"}
            tool_call = {"id": call["id"], "origin": "completion", **function}
            event(
                "ActionEvent",
                source="agent",
                thought=texts,
                tool_call=tool_call,
                action=action,
                llm_response_id=f"r{at}",
            )
            texts = []
    state = {"id": "a", "agent": {"llm": {"model": "m"}}, "workspace": {"working_dir": "/project"}}
    return written(state, folder / "base_state.json")


def openai_responses(folder: Path) -> Path:
    request = responses.to_responses({"model": "m", "messages": [*session()]}).value
    return written(request, folder / "long.json")


def hf_trace(folder: Path) -> Path:
    header = {"type": "session", "harness": "pi", "id": "long"}
    path = folder / "long.jsonl"
    with path.open("w") as file:
        for value in (header, *({"type": "message", "message": _traced(message)} for message in chat_messages())):
            file.write(json.dumps(value) + "\n")
    return path


def _traced(message: dict[str, Any]) -> dict[str, Any]:
    fields = {"role": message["role"], "content": text_of(message.get("content")), "timestamp": 1_790_000_000_000}
    if message["role"] == "tool":
        return {**fields, "toolCallId": message["tool_call_id"]}
    return {**fields, "toolCalls": message["tool_calls"]} if message.get("tool_calls") else fields


def otel_genai(folder: Path) -> Path:
    """One span: the last inference of a conversation, with all that was sent."""
    attributes = {"operation.name": "chat", "request.model": "m", "conversation.id": "long"}
    attributes["input.messages"] = json.dumps([_spoken(message) for message in chat_messages()])
    attributes["output.messages"] = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}])
    return span({f"gen_ai.{name}": value for name, value in attributes.items()}, folder)


def span(attributes: dict[str, str], folder: Path) -> Path:
    listed = [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]
    only = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "chat m", "endTimeUnixNano": "1", "attributes": listed}
    return written({"resourceSpans": [{"scopeSpans": [{"spans": [only]}]}]}, folder / "long.json")


def langsmith(folder: Path) -> Path:
    """One run of a model: the last of a conversation, in a batch as the SDK sends it."""
    run = {
        "id": "a",
        "trace_id": "a",
        "dotted_order": "20261123T123612018672Za",
        "run_type": "llm",
        "inputs": {"model": "m", "messages": chat_messages()},
        "outputs": {"choices": [{"message": _DONE}]},
    }
    return written({"post": [run], "patch": []}, folder / "long.json")


def langfuse(folder: Path) -> Path:
    """One span of a generation, with attributes of Langfuse's."""
    values = {"type": "generation", "input": json.dumps({"messages": chat_messages()}), "output": json.dumps(_DONE)}
    return span({f"langfuse.observation.{name}": value for name, value in values.items()}, folder)


def _spoken(message: dict[str, Any]) -> dict[str, Any]:
    text = text_of(message.get("content"))
    if message["role"] == "tool":
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": text}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        parts.append({"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments})
    return {"role": message["role"], "parts": parts}


def opencode(folder: Path) -> Path:
    """A database with the columns that are read."""
    path = folder / "opencode.db"
    calls: dict[str, dict[str, Any]] = {}
    replies: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for message in chat_messages():
        text = text_of(message.get("content"))
        if message["role"] == "tool":
            calls[message["tool_call_id"]] |= {"status": "completed", "output": text}
            continue
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        for call in message.get("tool_calls", ()):
            function = call["function"]
            state = calls[call["id"]] = {"status": "running", "input": json.loads(function["arguments"])}
            parts.append({"type": "tool", "tool": function["name"], "callID": call["id"], "state": state})
        if message["role"] != "system":
            moment = 1_790_000_000_000 + len(replies)
            info = {"role": message["role"], "modelID": "m", "time": {"created": moment, "completed": moment}}
            replies.append((info, parts))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE `session` (id, parent_id, directory, title, version, time_created)")
        database.execute("CREATE TABLE message (id, session_id, time_created, data)")
        database.execute("CREATE TABLE part (id, message_id, session_id, data)")
        database.execute("INSERT INTO session VALUES ('long', NULL, '/project', 'A long one', '1.18', 1)")
        for number, (info, parts) in enumerate(replies):
            name, created = f"m{number:08}", info["time"]["created"]
            database.execute("INSERT INTO message VALUES (?, 'long', ?, ?)", (name, created, json.dumps(info)))
            for at, part in enumerate(parts):
                row = (f"{name}-{at:04}", name, json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, 'long', ?)", row)
    return path


#: format → what makes a long recording of it in a folder, and gives the path to import.
MAKERS: dict[str, Maker] = {
    "ctxvc-trajectory": lines(*_SESSION, header=2),
    "claude-code": lines("transcripts/claude-code/48-b4b05476e5-0.jsonl", "recorded/claude-code.jsonl", header=0),
    "codex": lines("transcripts/codex/a5-7b22d8d4bd-0.jsonl", "recorded/codex.jsonl", header=1),
    "copilot-cli": lines(
        "transcripts/other/copilot-cli/26-9e1b9e5502-0.jsonl.gz", "copilot-cli/26-9e1b9e5502-0.jsonl", header=1
    ),
    "gemini-cli": lines("gemini-cli/session-2026-11-23T19-02-05c20da2.jsonl", header=2),
    "qwen-code": lines("qwen-code/chats/0a27f1cc-2c83-4f8f-98ba-59eff2aeeb1b.jsonl", header=1),
    "pi": lines("transcripts/pi/before-compaction.jsonl.gz", "recorded/pi.jsonl", header=1),
    "swe-agent": swe_agent,
    "mini-swe-agent": mini_swe_agent,
    "openhands": openhands,
    "langgraph": langgraph,
    "langchain": langchain,
    "anthropic-messages": lambda folder: written({"messages": [*session()]}, folder / "long.json"),
    "openai-chat": lambda folder: written({"model": "m", "messages": chat_messages()}, folder / "long.json"),
    "openai-responses": openai_responses,
    "hf-trace": hf_trace,
    "otel-genai": otel_genai,
    "langsmith": langsmith,
    "langfuse": langfuse,
    "opencode": opencode,
}


def figures(folder: Path) -> Iterator[Figure]:
    for name, make in MAKERS.items():
        place = folder / name
        place.mkdir()
        path = make(place)
        size = sum(file.stat().st_size for file in importers.importer(name).files(path)) / 1e6
        exact, redacted, busy = [], [], []
        for number in range(ROUNDS):
            before = _processor()
            exact.append(_import(place / f"{number}-exact", path, redact=False))
            busy.append(_processor() - before)
            redacted.append(_import(place / f"{number}-redacted", path, redact=True))
        target = TARGETS.get(name, ">= 8")
        yield Figure(f"import {name}, {size:.1f} MB", size / min(exact), "MB/s", target=target)
        yield Figure(f"import {name}, for a second of processor time", size / min(busy), "MB")
        ratio = min(redacted) / min(exact)
        yield Figure(f"import {name}, with redaction", size / min(redacted), "MB/s", ratio, "", "time without")


def _processor() -> float:
    """Seconds of processor time so far, of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _import(folder: Path, path: Path, *, redact: bool) -> float:
    def work() -> None:
        (outcome,) = import_paths(store, [path], final=True, redact=redact)
        assert outcome.error is None and outcome.units > 100, outcome

    folder.mkdir()
    with create(folder / ".ctxvc") as store:
        return seconds(work)
