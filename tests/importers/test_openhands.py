"""Conversations of OpenHands: events that change the prompt, sub-agents, and what a model is sent for an event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxvc import importers
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.prompt.request import request
from ctxvc.core.recording.events import Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.errors import BadInput
from ctxvc.importers import openhands
from ctxvc.importers.file import Recording
from ctxvc.recording.files import files_below, import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from tests.importers.test_compliance import JSON, places
from tests.making.events import messages, parts

SAMPLE = Path(__file__).parents[1] / "data" / "openhands" / "event-json-to-openai-messages" / "base_state.json"
STATE = {
    "id": "5f3c-1",
    "agent": {"llm": {"model": "m", "max_input_tokens": 32_000}},
    "workspace": {"working_dir": "/p"},
}


def written(folder: Path, *events: Any, state: Any = STATE) -> Path:
    (folder / "events").mkdir(parents=True, exist_ok=True)
    for number, event in enumerate(events):
        text = event if isinstance(event, str) else json.dumps(event)
        (folder / "events" / f"event-{number:05d}-0000000{number}.json").write_text(text)
    (folder / "base_state.json").write_text(json.dumps(state))
    return folder / "base_state.json"


def events_of(path: Path) -> list[Event]:
    return [event for _, stream in openhands.IMPORTER.conversations(Recording(path)) for event in stream]


def system(text: str = "Be brief.", **fields: Any) -> dict[str, Any]:
    prompt = {"type": "text", "text": text}
    return {"id": "s", "kind": "SystemPromptEvent", "source": "agent", "system_prompt": prompt, "tools": [], **fields}


def message(name: str, text: str, source: str = "user", **fields: Any) -> dict[str, Any]:
    role = "assistant" if source == "agent" else "user"
    inner = {"role": role, "content": [{"type": "text", "text": text}]}
    return {"id": name, "kind": "MessageEvent", "source": source, "llm_message": inner, **fields}


def call(name: str, response: str, **fields: Any) -> dict[str, Any]:
    made = {"id": f"call-{name}", "name": "terminal", "arguments": '{ "command": "ls" }'}
    return {
        "id": name,
        "kind": "ActionEvent",
        "source": "agent",
        "tool_call": made,
        "llm_response_id": response,
        **fields,
    }


def result(name: str, of: str, text: str, **observation: Any) -> dict[str, Any]:
    content = {"content": [{"type": "text", "text": text}], "is_error": False, **observation}
    call_id = f"call-{of}"
    return {
        "id": name,
        "kind": "ObservationEvent",
        "tool_call_id": call_id,
        "tool_name": "terminal",
        "observation": content,
    }


def texts(events: list[Event]) -> list[str]:
    return [part.body.decode() for part in parts(events)]


def test_the_state_tells_the_model_the_folder_the_window_and_each_calls_tokens() -> None:
    events = events_of(SAMPLE)

    opened = events[0]
    assert isinstance(opened, Opened)
    assert (opened.source, opened.name) == ("cd945624-03b9-487e-bdd4-018e3f531dfd", "openhands-cd945624")
    assert (opened.model, opened.cwd) == ("openai/gpt-4o-mini", "/workspace/project/software-agent-sdk")
    assert opened.window == Window(tokens=128_000, by="host")
    assert [message.usage.get("output_tokens") for message in messages(events) if message.role == "assistant"] == [
        36,
        32,
        26,
    ]
    assert messages(events)[3].usage["cache_read_input_tokens"] == 3712
    assert messages(events)[3].usage["input_tokens"] == 3869 - 3712
    assert [part.origin for part in parts(events)] == ["human", "model", "tool", "model", "tool", "human", "model"]


def test_calls_of_one_response_are_one_reply(tmp_path: Path, store: Store) -> None:
    thought = {"thought": [{"type": "text", "text": "both"}], "reasoning_content": "hm"}
    path = written(
        tmp_path / "c",
        system(),
        message("u", "go"),
        call("a", "r1", **thought),
        call("b", "r1"),
        result("ra", "a", "one"),
        result("rb", "b", "two"),
        message("m", "done", "agent", llm_response_id="r2"),
    )

    (outcome,) = import_paths(store, [path], final=True)

    assert (outcome.error, outcome.units, outcome.blocks) == (None, 2, 8)
    replies = [message for message in messages(events_of(path)) if message.role == "assistant"]
    assert [[part.kind for part in reply.parts] for reply in replies] == [
        ["thinking", "assistant", "tool_use"],
        ["tool_use"],
        ["assistant"],
    ]
    assert replies[0].parts[2].body == b'{ "command": "ls" }'


def test_texts_that_the_program_adds_are_the_clients(tmp_path: Path) -> None:
    added = {"extended_content": [{"type": "text", "text": "a skill"}]}
    path = written(
        tmp_path, message("u", "go", **added), message("n", "nudge", "environment"), message("o", "hi", sender="other")
    )

    assert [(part.body, part.origin) for part in parts(events_of(path))] == [
        (b"go", "human"),
        (b"a skill", "client"),
        (b"nudge", "client"),
        (b"hi", "client"),
    ]


def test_a_result_is_what_the_model_is_sent_for_it(tmp_path: Path) -> None:
    terminal = {"exit_code": 2, "working_dir": "/p", "py_interpreter_path": "/bin/python", "prefix": "<", "suffix": ">"}
    path = written(
        tmp_path,
        *(call(name, "r") for name in "abcdef"),
        result("1", "a", "no such file", metadata=terminal, is_error=True),
        result("2", "b", "found it", task_id="t1", subagent="explore", status="completed"),
        result("3", "c", "a page", screenshot_data="iVBORw0KGgo="),
        {**result("4", "d", ""), "kind": "AgentErrorEvent", "error": "bad arguments"},
        {**result("5", "e", ""), "kind": "UserRejectObservation", "rejection_reason": "not that"},
        result("6", "f", "plain"),
    )

    found = [part for part in parts(events_of(path)) if part.kind == "tool_result"]
    assert [part.error for part in found] == [True, False, False, True, True, False]
    assert found[0].body.decode() == (
        "[An error occurred during execution.]\n<no such file>\n[Current working directory: /p]\n"
        "[Python interpreter: /bin/python]\n[Command finished with exit code 2]"
    )
    assert found[1].body.decode().startswith("Task ID: t1\nSubagent: explore\nStatus: completed")
    assert found[2].files == (("1.png", b"\x89PNG\r\n\x1a\n"),)
    assert [part.body.decode() for part in found[3:]] == ["bad arguments", "Action rejected: not that", "plain"]
    assert {part.tool for part in found} == {"terminal"}


def test_a_condensation_puts_its_summary_where_the_host_put_it(tmp_path: Path, store: Store) -> None:
    condensation = {
        "id": "k",
        "kind": "Condensation",
        "forgotten_event_ids": ["a", "ra"],
        "summary": "looked around",
        "summary_offset": 2,  # after the system prompt and the first message
        "llm_response_id": "x",
    }
    path = written(
        tmp_path / "c",
        system(),
        message("u", "go"),
        call("a", "r1"),
        result("ra", "a", "one"),
        call("b", "r2"),
        result("rb", "b", "two"),
        condensation,
        message("m", "done", "agent", llm_response_id="r3"),
    )

    (compacted,) = [event for event in events_of(path) if isinstance(event, Compacted)]
    assert [part.body for part in compacted.summary[0].parts] == [b"looked around"]
    assert compacted.kept == {"s", "u", "b", "rb"}
    assert compacted.before == "b"

    list(import_paths(store, [path], final=True))
    assert prompt(store) == ["go", "looked around", "terminal()", "two", "done"]


def prompt(store: Store) -> list[str]:
    """The bodies of what is in the prompt of the only session, in their order."""
    with StoredSession.open(store) as session:
        snapshot = revision.now(session)
        messages_sent = request(snapshot.ledger, snapshot.bodies, None, None).messages
    return [spoken(block) for message in messages_sent for block in message["content"]]


def spoken(block: dict[str, Any]) -> str:
    match block:
        case {"type": "tool_use", "name": name}:
            return f"{name}()"
        case {"type": "tool_result", "content": [{"text": text}]}:
            return str(text)
    return str(block["text"])


def test_going_on_from_an_earlier_event_is_a_fork(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        system(),
        message("u1", "first"),
        message("a1", "one", "agent", llm_response_id="r1"),
        message("u2", "second"),
        message("u3", "another second", parent_id="a1"),
        message("u4", "from the start", parent_id="__root__"),
        message("u5", "goes on", parent_id="u4"),
    )

    assert [event.after for event in events_of(path) if isinstance(event, Forked)] == ["a1", ""]


def test_after_a_fork_a_condensation_counts_what_stands_there(tmp_path: Path) -> None:
    def condensed(name: str, *forgotten: str, **fields: Any) -> dict[str, Any]:
        return {"id": name, "kind": "Condensation", "forgotten_event_ids": forgotten, **fields}

    path = written(
        tmp_path,
        *(message(f"u{number}", str(number)) for number in range(4)),
        condensed("k1", "u0", summary="zero", summary_offset=0),
        message("x", "branch", parent_id="u1"),
        condensed("k2", "u1", summary="one", summary_offset=1),
        message("y", "after k1", parent_id="k1"),
        condensed("k3", "u2"),
    )

    found = [event for event in events_of(path) if isinstance(event, Compacted)]
    assert [sorted(event.kept) for event in found] == [["u1", "u2", "u3"], ["u0", "x"], ["k1-summary", "u1", "u3", "y"]]
    assert [event.before for event in found] == ["u1", "x", ""]


def test_sub_agents_come_with_the_conversation_into_scopes(tmp_path: Path, store: Store) -> None:
    path = written(tmp_path / "c", message("u", "go"), message("m", "done", "agent", llm_response_id="r"))
    inner = tmp_path / "c" / "subagents" / "77aa"
    written(
        inner,
        message("v", "look"),
        message("w", "seen", "agent", llm_response_id="q"),
        state={**STATE, "id": "77aa"},
    )

    assert files_below(tmp_path) == [path]
    outcomes = list(import_paths(store, [tmp_path], final=True))

    assert [(outcome.error, outcome.session) for outcome in outcomes] == [(None, "openhands-5f3c-1")] * 2
    assert sorted(store.tips("openhands-5f3c-1")) == ["agent-77aa", "main"]
    events = events_of(inner / "base_state.json")
    assert [event.scope for event in events if isinstance(event, Said)] == ["agent-77aa"] * 2
    assert [part.origin for part in parts(events)] == ["client", "model"]


def test_a_bad_event_costs_that_event_and_one_that_is_being_written_waits(tmp_path: Path) -> None:
    events = [message("a", "one"), "{", "7", {"kind": "MessageEvent"}, {"kind": "Novelty"}, {"kind": "PauseEvent"}]
    path = written(tmp_path, *events, message("z", "last"), '{"id": "y", "ki')

    found = events_of(path)

    assert texts(found) == ["one", "last"]
    assert [event.text.partition(":")[0] for event in found if isinstance(event, Warned)] == [
        "event 1 was skipped",
        "event 2 was skipped",
        "event 3 was skipped",
        "events of an unknown kind are skipped",
    ]


def test_a_byte_that_is_no_utf_8_costs_one_character(tmp_path: Path) -> None:
    path = written(tmp_path, message("a", "caf_"))
    event = next((tmp_path / "events").iterdir())
    event.write_bytes(event.read_bytes().replace(b"caf_", b"caf\xe9"))

    events = events_of(path)

    assert parts(events)[0].body == "caf\udce9".encode("utf-8", "surrogatepass")
    assert any("event 0: 1 bytes are not UTF-8" in event.text for event in events if isinstance(event, Warned))


def test_events_that_are_missing_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, message("a", "one"), message("b", "two"), message("c", "three"))
    next((tmp_path / "events").glob("event-00001-*")).unlink()

    events = events_of(path)

    assert texts(events) == ["one", "three"]
    assert [event.text for event in events if isinstance(event, Warned)] == ["events 1 to 1 are missing"]


def test_without_events_or_with_a_broken_state(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no events/event-\*\.json beside it"):
        events_of(written(tmp_path / "none"))
    path = written(tmp_path / "torn", message("a", "one"))
    path.write_text('{"id": "5f')

    events = events_of(path)

    assert texts(events) == ["one"]
    assert any("base_state.json is no JSON object" in event.text for event in events if isinstance(event, Warned))


def test_a_state_that_is_being_written_does_not_make_another_session(tmp_path: Path, store: Store) -> None:
    state = {**STATE, "id": "cd945624-03b9-487e-bdd4-018e3f531dfd"}
    path = written(tmp_path / "cd94562403b9487ebdd4018e3f531dfd", message("a", "one"), state=state)
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    (first,) = import_paths(store, [path], format="openhands", final=True)
    path.write_bytes(whole)

    (again,) = import_paths(store, [path], final=True)

    assert (first.units, again.units, again.session) == (1, 0, first.session)


def test_the_command_lines_conversations_of_a_project_are_found(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    ours = written(
        home / ".openhands" / "conversations" / "a",
        message("a", "x"),
        state={**STATE, "workspace": {"working_dir": str(project / "sub")}},
    )
    written(home / ".openhands" / "conversations" / "b", message("a", "x"))

    recordings, folders = importers.find(project, home, {})

    assert ("openhands", ours) in recordings
    assert len([name for name, _ in recordings if name == "openhands"]) == 1
    assert home / ".openhands" / "conversations" in folders
    assert openhands.folders(project, home, {"OPENHANDS_CONVERSATIONS_DIR": "/x"}) == [Path("/x")]
    assert openhands.folders(project, home, {"OPENHANDS_PERSISTENCE_DIR": "/y"}) == [Path("/y/conversations")]


def test_how_much_of_it_a_store_has_is_told_by_the_newest_events(tmp_path: Path) -> None:
    path = written(tmp_path / "c", message("a", "one"), message("b", "two"), {"id": "p", "kind": "PauseEvent"})

    assert openhands.state(path, {}) == "missing"
    assert openhands.state(path, {"5f3c-1": 1}) == "grown"
    assert openhands.state(path, {"5f3c-1": 2}) == "whole"
    path.write_text("{")
    assert openhands.state(path, {"c": 2}) == "whole"
    assert openhands.state(written(tmp_path / "empty"), {"5f3c-1": 2}) == "whole"


def test_its_stamp_changes_with_every_event(tmp_path: Path) -> None:
    path = written(tmp_path, message("a", "one"))
    first = openhands.stamp(path)
    written(tmp_path, message("a", "one"), message("b", "two"))

    assert openhands.stamp(path) != first
    assert next(iter(openhands.IMPORTER.files(path))).name == "base_state.json"
    assert len(list(openhands.IMPORTER.files(path))) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_wrong_type_anywhere_breaks_the_reading(tmp_path: Path, data: st.DataObject) -> None:
    files = sorted((SAMPLE.parent / "events").glob("*.json"))
    condensation = {
        "id": "k",
        "kind": "Condensation",
        "forgotten_event_ids": ["a"],
        "summary": "s",
        "summary_offset": 1,
    }
    values: list[Any] = [json.loads(file.read_bytes()) for file in files]
    values.insert(5, condensation)
    state = json.loads(SAMPLE.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        container, key = data.draw(st.sampled_from(list(places([values[1:], state]))))
        container[key] = data.draw(JSON)

    events = events_of(written(tmp_path, *(json.dumps(value) for value in values), state=state))

    assert isinstance(events[0], Opened)
    keys = [message.key for message in messages(events)]
    assert len(keys) == len(set(keys))
