"""The Responses API: requests, responses, logs of both; the items of a reply are one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Event, Forked, Opened, Said, Warned
from ctxvc.importers import openai_chat, openai_responses
from ctxvc.importers.file import Recording
from ctxvc.store.store import Store
from tests.exporters.trips import imported
from tests.making.events import messages, written

DATA = Path(__file__).parents[1] / "data" / "openai-responses"


def read(path: Path, *values: Any) -> list[Event]:
    return list(openai_responses.events(Recording(written(path, *values))))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(name: str, number: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": "{}"}


def output(number: int, value: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": value}


def test_a_request_is_read_whole() -> None:
    source = json.loads((DATA / "request.json").read_text())
    events = list(openai_responses.events(Recording(DATA / "request.json")))
    (opened,) = (event for event in events if isinstance(event, Opened))

    assert (opened.model, opened.system) == ("gpt-5.1", "Answer briefly.")
    assert opened.tools[0] == {
        "name": "weather",
        "description": "the weather",
        "input_schema": source["tools"][0]["parameters"],
    }
    assert opened.tools[1] == {"type": "web_search"}
    assert [[(part.kind, part.origin) for part in message.parts] for message in messages(events)] == [
        [("system", "client")],
        [("user", "human"), ("image", "human")],
        [("thinking", "model"), ("assistant", "model"), ("tool_use", "model"), ("tool_use", "model")],
        [("tool_result", "tool")],
        [("tool_result", "tool")],
        [("thinking", "model"), ("tool_use", "model")],
        [("tool_result", "tool")],
        [("other", "model"), ("assistant", "model")],
        [("user", "human")],
    ]
    calls = [part for message in messages(events) for part in message.parts if part.kind == "tool_use"]
    assert [part.body for part in calls] == [b'{"city": "Lyon"}', b'{"city": "Ly', b"cold in Lyon"]


def test_of_a_log_each_message_is_read_once_with_the_counts_of_its_response() -> None:
    events = list(openai_responses.events(Recording(DATA / "log.jsonl")))

    assert [message.parts[-1].body.decode() for message in messages(events)] == [
        "The weather in Lyon?", '{"city":"Lyon"}', "4 degrees", "4 degrees.", "Thanks.", "You are welcome.",
    ]  # fmt: skip
    replies = [message for message in messages(events) if message.role == "assistant"]
    assert [message.reply for message in replies] == ["resp_1", "resp_2", "resp_3"]
    assert [message.usage["cache_read_input_tokens"] for message in replies] == [20, 30, 40]
    assert [message.usage["input_tokens"] for message in replies] == [20, 30, 40]
    assert replies[0].time == "2026-02-25T06:13:21Z"
    assert not [event for event in events if isinstance(event, (Forked, Warned))]


def test_a_log_has_a_step_for_each_reply(store: Store) -> None:
    ledger = imported(store, DATA / "log.jsonl").ledger

    assert [(row.kind, row.step) for row in ledger.rows()] == [
        ("user", 1), ("thinking", 1), ("tool_use", 1), ("tool_result", 1),
        ("assistant", 2), ("user", 3), ("assistant", 3),
    ]  # fmt: skip


def test_a_request_that_leaves_the_newest_branch_is_a_rewind(tmp_path: Path) -> None:
    first = {"model": "m", "input": [user("a"), call("f", 1), output(1, "x"), user("b")]}
    second = {"model": "m", "input": [user("a"), call("f", 1), output(1, "x"), user("other")]}

    events = read(tmp_path / "log.jsonl", first, first, second)

    assert [type(event) for event in events] == [Opened, Said, Said, Said, Said, Forked, Said]


def test_a_call_with_a_text_for_its_input_is_one_question(tmp_path: Path) -> None:
    events = read(tmp_path / "one.json", {"model": "m", "input": "why?"})

    assert [(part.kind, part.body) for message in messages(events) for part in message.parts] == [("user", b"why?")]


def test_what_the_server_kept_is_said_to_be_missing(tmp_path: Path) -> None:
    events = read(tmp_path / "one.json", {"model": "m", "input": [user("go on")], "previous_response_id": "resp_0"})

    assert isinstance(events[0], Opened)
    assert events[0].missing == ("what the server kept of earlier calls",)


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        ({"model": "m", "input": "a"}, True),
        ({"input": [user("a")], "instructions": "b"}, True),
        ({"object": "response", "output": []}, True),
        ([user("a"), call("f", 1)], True),
        ({"type": "reasoning", "summary": []}, True),
        ({"model": "text-embedding-3", "input": ["a", "b"]}, False),
        ({"model": "m", "messages": [user("a")]}, False),
        ([user("a")], False),
        ({"type": "function_call", "name": "f"}, False),
        ({"input": [], "model": "m"}, False),
    ],
)
def test_what_is_of_this_api(value: Any, ours: bool) -> None:
    head = json.dumps(value).encode()

    assert openai_responses.sniff(head) is ours
    assert not (ours and openai_chat.sniff(head))
