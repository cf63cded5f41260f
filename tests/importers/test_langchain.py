"""Messages of LangChain and threads of LangGraph: forms of a message, makers, tokens, states that follow each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Compacted, Edited, Event, Forked, Opened, Said, Warned
from ctxvc.importers.file import Recording
from ctxvc.recording.files import import_paths
from ctxvc.store.store import Store
from tests.making.events import messages, parts

DATA = Path(__file__).parents[1] / "data"


def human(text: Any, name: str = "", **extra: Any) -> dict[str, Any]:
    return {"type": "human", "content": text, "id": name or None, "additional_kwargs": extra}


def ai(text: Any, name: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": "ai", "content": text, "id": name or None, **fields}


def tool(call: str, text: Any, name: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": "tool", "content": text, "tool_call_id": call, "id": name or None, **fields}


def call(name: str, call_id: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def told(tmp_path: Path, value: Any, format: str = "langchain") -> list[Event]:
    path = tmp_path / "it.json"
    path.write_text(json.dumps(value))
    assert importers.detect(Recording(path)) == format
    ((_, events),) = importers.conversations(Recording(path), format)
    return list(events)


def found(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(part.kind, part.origin, part.body.decode()) for part in parts(events)]


# --- LangChain


def test_one_list_in_each_of_its_forms_tells_the_same() -> None:
    forms = []
    for name in ("dumpd.json", "to_dict.json", "plain.jsonl"):
        ((_, events),) = importers.conversations(Recording(DATA / "langchain" / name), "langchain")
        forms.append(list(events))

    first = forms[0][0]
    assert isinstance(first, Opened)
    assert (first.system, first.missing) == ("Be brief.", ("the tool definitions",))
    assert [parts(events) for events in forms[1:]] == [parts(forms[0])] * 2
    assert [(part.kind, part.origin, part.call, part.tool, part.error) for part in parts(forms[0])] == [
        ("user", "human", "", "", False),
        ("image", "human", "", "", False),
        ("thinking", "model", "", "", False),
        ("tool_use", "model", "call_1", "read_file", False),
        ("tool_use", "model", "call_2", "look", False),
        ("tool_result", "tool", "call_1", "read_file", False),
        ("tool_result", "tool", "call_2", "look", True),
        ("thinking", "model", "", "", False),
        ("assistant", "model", "", "", False),
        ("user", "human", "", "", False),
    ]
    assert [part.body for part in parts(forms[0])][3:5] == [b'{ "path": "notes.txt" }', b'{"at":']
    reply = messages(forms[0])[1]
    assert (reply.model, reply.usage["input_tokens"], reply.usage["cache_read_input_tokens"]) == (
        "gpt-4o-mini-2024-07-18",
        56,
        64,
    )


def test_calls_stand_where_a_providers_content_has_them(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "a", "input": {"x": 1}, "caller": {"type": "direct"}}
    reply = ai(
        [{"type": "thinking", "thinking": "hm", "signature": "s", "index": 0}, use, {"type": "text", "text": "and"}],
        tool_calls=[call("a", "c1", x=1), call("b", "c2", y=2)],
    )

    events = told(tmp_path, [human("go"), reply, tool("c2", [{"type": "text", "text": "2"}]), tool("c1", "1")])

    assert found(events)[1:] == [
        ("thinking", "model", "hm"),
        ("tool_use", "model", '{"x":1}'),
        ("assistant", "model", "and"),
        ("tool_use", "model", '{"y":2}'),
        ("tool_result", "tool", "2"),
        ("tool_result", "tool", "1"),
    ]
    assert [part.extra for part in parts(events)][1:3] == [{"signature": "s"}, {"caller": {"type": "direct"}}]
    assert [part.tool for part in parts(events) if part.kind == "tool_result"] == ["b", "a"]


def test_calls_that_only_the_providers_content_has_are_calls(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "a", "input": {"x": 1}}

    events = told(tmp_path, [human("go"), ai([use]), tool("c1", "1")])

    assert [(part.kind, part.call, part.tool) for part in parts(events)][1:] == [
        ("tool_use", "c1", "a"),
        ("tool_result", "c1", "a"),
    ]


def test_what_a_program_put_into_the_list_is_the_clients(tmp_path: Path) -> None:
    events = told(
        tmp_path,
        [
            human("Here is a summary of the conversation to date: …", lc_source="summarization"),
            human("<system-reminder>\nmind the tests\n</system-reminder>"),
            human("todo", hide_from_ui=True),
            human("go on"),
            {"type": "system", "content": "files: none"},
        ],
    )

    assert [origin for _, origin, _ in found(events)] == ["client", "client", "client", "human", "client"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"usage_metadata": {"input_tokens": 10, "output_tokens": 2, "input_token_details": {"cache_read": 4}}},
            (6, 4, 2),
        ),
        ({"response_metadata": {"token_usage": {"prompt_tokens": 10, "completion_tokens": 2}}}, (10, 0, 2)),
        ({"response_metadata": {"usage": {"input_tokens": 7, "output_tokens": 1}}}, (7, None, 1)),
        ({"usage_metadata": None}, (None, None, None)),
    ],
)
def test_tokens_are_told_once_and_without_the_cache(tmp_path: Path, fields: Any, expected: Any) -> None:
    usage = messages(told(tmp_path, [human("go"), ai("ok", **fields)]))[1].usage

    names = ("input_tokens", "cache_read_input_tokens", "output_tokens")
    assert tuple(usage.get(name) for name in names) == expected


def test_a_list_within_a_state_or_a_prompt_is_found(tmp_path: Path) -> None:
    spoken = [human("go"), ai("ok")]
    prompt = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "prompts", "ChatPromptValue"],
        "kwargs": {"messages": spoken},
    }

    assert found(told(tmp_path, {"messages": spoken, "files": {}})) == found(told(tmp_path, prompt))


def test_a_bad_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    path.write_text("\n".join([json.dumps(human("a")), "{", "7", json.dumps(ai("b"))]) + "\n" + '{"type": "hum')
    ((_, events),) = importers.conversations(Recording(path), "langchain")
    told_events = list(events)

    assert [text for _, _, text in found(told_events)] == ["a", "b"]
    assert [event.line for event in told_events if isinstance(event, Warned)] == [2, 3]


# --- LangGraph


def state(*spoken: Any, step: int = 0, **fields: Any) -> dict[str, Any]:
    checkpoint = {"thread_id": "7cfa5f8f-a2f8", "checkpoint_ns": "", "checkpoint_id": str(step)}
    return {
        "values": {"messages": list(spoken), "title": "Trends"},
        "next": [],
        "metadata": {"step": step, "model_name": "m", "graph_id": "lead", "langgraph_version": "1.0.6"},
        "created_at": f"2026-01-01T00:00:{step:02}Z",
        "checkpoint": checkpoint,
        **fields,
    }


A, B, C, D = human("a", "1"), ai("b", "2"), human("c", "3"), ai("d", "4")


def test_a_thread_has_its_name_title_model_and_time(tmp_path: Path) -> None:
    first = told(tmp_path, state(A, B, step=3), "langgraph")[0]

    assert isinstance(first, Opened)
    assert first.source.startswith("7cfa5f8f-a2f8-")
    assert (first.name, first.title, first.model) == ("thread-7cfa5f8f", "Trends", "m")
    assert (first.agent, first.time) == ("LangGraph 1.0.6 (lead)", "2026-01-01T00:00:03Z")
    assert first.missing == ("the system prompt", "the tool definitions")


def test_a_reply_that_repeats_a_tools_words_is_the_clients(tmp_path: Path) -> None:
    asks = ai("", "2", tool_calls=[call("ask", "c")], response_metadata={"model_name": "m"})
    events = told(tmp_path, state(A, asks, tool("c", "which?", "3"), ai("which?", "4"), human("x", "5")), "langgraph")

    assert ("assistant", "client", "which?") in found(events)


def test_a_history_is_told_from_its_oldest_state_and_each_message_once(tmp_path: Path) -> None:
    history = [state(A, B, C, step=3), state(A, B, step=2), state(A, step=1)]

    for states in (history, history[::-1]):
        events = told(tmp_path, states, "langgraph")
        assert [text for _, _, text in found(events)] == ["a", "b", "c"]


def test_a_thread_that_goes_on_from_an_earlier_moment_is_a_fork(tmp_path: Path) -> None:
    other = human("another c", "5")
    history = [state(A, B, C, D, step=1), state(A, B, step=2), state(A, B, other, step=3)]

    for states in (history, history[::-1]):
        events = told(tmp_path, states, "langgraph")
        assert [event.after for event in events if isinstance(event, Forked)] == ["2"]
        assert [text for _, _, text in found(events)] == ["a", "b", "c", "d", "another c"]


def test_a_summary_takes_the_place_of_what_it_is_of(tmp_path: Path, store: Store) -> None:
    summary = human("Here is a summary: a and b", "9", lc_source="summarization")
    states = [state(A, B, C, D, step=1), state(summary, C, D, step=2), state(summary, C, D, human("e", "6"), step=3)]

    events = told(tmp_path, states, "langgraph")

    (compacted,) = [event for event in events if isinstance(event, Compacted)]
    assert [message.parts[0].body for message in compacted.summary] == [b"Here is a summary: a and b"]
    assert (compacted.kept, compacted.before) == ({"3", "4"}, "3")
    assert [text for _, _, text in found(events)] == ["a", "b", "c", "d", "e"]
    assert not [event for event in events if isinstance(event, Edited)]
    (outcome,) = import_paths(store, [tmp_path / "it.json"], final=True)
    assert (outcome.error, outcome.warnings) == (None, [])


def test_an_empty_summary_takes_out_what_it_is_of(tmp_path: Path) -> None:
    empty = human("", "9", lc_source="summarization")

    events = told(tmp_path, [state(A, B, C, step=1), state(empty, C, D, step=2)], "langgraph")

    (compacted,) = [event for event in events if isinstance(event, Compacted)]
    assert (compacted.summary, compacted.kept) == ((), {"3"})
    assert [text for _, _, text in found(events)] == ["a", "b", "c", "d"]


def test_a_system_message_at_the_beginning_is_the_system_prompt_in_every_state(tmp_path: Path) -> None:
    system = {"type": "system", "content": "Be brief.", "id": "0"}
    summary = human("Here is a summary", "9", lc_source="summarization")

    events = told(
        tmp_path,
        [state(system, A, B, step=1), state(system, A, B, C, step=2), state(summary, C, D, step=3)],
        "langgraph",
    )

    assert isinstance(events[0], Opened)
    assert events[0].system == "Be brief."
    assert [text for _, _, text in found(events)] == ["a", "b", "c", "d"]


def test_an_edited_result_is_that_of_its_call(tmp_path: Path, store: Store) -> None:
    asks, answer = ai("", "2", tool_calls=[call("ls", "c")]), tool("c", "a long list", "3")
    states = [state(A, asks, answer, step=1), state(A, asks, {**answer, "content": "cleared"}, D, step=2)]

    (edited,) = [event for event in told(tmp_path, states, "langgraph") if isinstance(event, Edited)]

    assert (edited.key, edited.call) == ("", "c")
    assert [(part.kind, part.call, part.body) for part in edited.parts] == [("tool_result", "c", b"cleared")]
    (outcome,) = import_paths(store, [tmp_path / "it.json"], final=True)
    assert outcome.error is None


def test_messages_that_are_taken_out_leave_and_one_that_changes_is_edited(tmp_path: Path) -> None:
    changed = {**B, "content": "B, shorter"}
    events = told(tmp_path, [state(A, B, C, D, step=1), state(A, changed, D, human("e", "6"), step=2)], "langgraph")

    (compacted,) = [event for event in events if isinstance(event, Compacted)]
    assert (compacted.summary, compacted.kept) == ((), {"1", "2", "4"})
    (edited,) = [event for event in events if isinstance(event, Edited)]
    assert (edited.key, edited.parts[0].body) == ("2", b"B, shorter")


def test_sub_graphs_have_scopes_of_their_own(tmp_path: Path, store: Store) -> None:
    inner = state(human("look", "i1"), ai("seen", "i2"))
    task = {"id": "5f3c", "name": "researcher", "state": inner}
    events = told(tmp_path, [state(A, B, step=1, tasks=[task]), state(A, B, C, step=2, tasks=[task])], "langgraph")

    said = [(event.scope, event.message.parts[0].body) for event in events if isinstance(event, Said)]
    assert said[2:] == [("agent-researcher-5f3c", b"look"), ("agent-researcher-5f3c", b"seen"), ("", b"c")]
    (outcome,) = import_paths(store, [tmp_path / "it.json"], final=True)
    assert outcome.error is None
    assert sorted(store.tips("thread-7cfa5f8f")) == ["agent-researcher-5f3c", "main"]


def test_a_thread_that_begins_differently_is_another_session(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "thread.json"
    sessions = []
    for spoken in (
        (A, B),
        (A, B, C, D),
        (human("Here is a summary", "9", lc_source="summarization"), D, human("e", "6")),
    ):
        path.write_text(json.dumps(state(*spoken)))
        (outcome,) = import_paths(store, [path], final=True)
        assert outcome.error is None
        sessions.append((outcome.session, outcome.units))

    assert sessions == [("thread-7cfa5f8f", 1), ("thread-7cfa5f8f", 1), ("thread-7cfa5f8f-2", 2)]
