"""Recordings of the Messages API: a request, a log of requests and responses, and whatever else may stand in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Event, Forked, Opened, Said, Warned
from ctxvc.importers import anthropic_messages
from ctxvc.importers.file import Recording
from tests.making.events import written

DATA = Path(__file__).parents[1] / "data" / "anthropic"


def told(path: Path) -> list[Event]:
    return list(anthropic_messages.events(Recording(path)))


def told_of(tmp_path: Path, *values: Any) -> list[Event]:
    """The events of a file with a JSON value a line."""
    return told(written(tmp_path / "log.jsonl", *values))


def said(events: list[Event]) -> list[tuple[str, str]]:
    """Key and text of each message, and `↩ key` for a fork after that key."""
    lines = []
    for event in events:
        if isinstance(event, Said):
            bodies = [part.body.decode() for part in event.message.parts]
            lines.append((event.message.key, " | ".join(bodies)))
        if isinstance(event, Forked):
            lines.append(("↩", event.after))
    return lines


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def request(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 64, "messages": list(messages), **fields}


def test_a_request_opens_with_its_model_system_prompt_and_tools():
    opened = told(DATA / "request.json")[0]

    assert isinstance(opened, Opened)
    assert (opened.format, opened.name, opened.grows) == ("anthropic-messages", "request", False)
    assert opened.model == "claude-sonnet-4-5"
    assert opened.system[0]["text"] == "You are careful."
    assert [tool["name"] for tool in opened.tools] == ["read", "web_search"]
    assert opened.missing == ()


def test_a_bare_list_says_what_it_lacks(tmp_path: Path):
    opened = told_of(tmp_path, [user("Hi")])[0]

    assert isinstance(opened, Opened)
    assert opened.missing == ("system prompt", "tool definitions")


def test_every_block_has_its_kind_and_its_maker():
    parts = [part for event in told(DATA / "request.json") if isinstance(event, Said) for part in event.message.parts]

    assert [(part.kind, part.origin, part.ext) for part in parts] == [
        ("user", "human", "txt"),
        ("image", "human", "png"),
        ("document", "human", "pdf"),
        ("image", "human", "json"),
        ("user", "client", "txt"),
        ("thinking", "model", "txt"),
        ("thinking", "model", "json"),
        ("assistant", "model", "txt"),
        ("tool_use", "model", "json"),
        ("tool_use", "model", "json"),
        ("user", "human", "txt"),
        ("tool_result", "tool", "json"),
        ("tool_result", "tool", "txt"),
        ("system", "client", "txt"),
        ("other", "model", "json"),
        ("other", "tool", "json"),
        ("assistant", "model", "txt"),
        ("tool_use", "model", "json"),
        ("tool_result", "tool", "txt"),
    ]


def test_a_log_tells_each_message_once_and_forks_where_a_request_leaves_the_line():
    assert said(told(DATA / "log.jsonl")) == [
        ("message:1", "Read a.txt"),
        ("message:2", 'Reading. | {"path":"a.txt"}'),
        ("message:3", "one"),
        ("message:4", "It says one."),
        ("↩", ""),
        ("message:1~2", "Title?"),
        ("message:2~2", "Reading a file"),
        ("↩", "message:3"),
        ("message:4~2", "No, b.txt"),
        ("message:5", "There is none."),
    ]


def test_a_response_brings_its_id_model_and_plain_token_counts():
    replies = [
        event.message
        for event in told(DATA / "log.jsonl")
        if isinstance(event, Said) and event.message.reply == "msg_1"
    ]

    assert [(reply.model, reply.usage) for reply in replies] == [
        (
            "claude-sonnet-4-5-20250929",
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100},
        )
    ]


def test_the_order_of_keys_makes_no_other_message(tmp_path: Path):
    first = {"role": "user", "content": [{"type": "text", "text": "a\ud800", "citations": None}]}
    again = {"content": [{"text": "a\ud800", "type": "text"}], "role": "user"}
    plain = {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1, "b": 2}}]}
    turned = {"role": "assistant", "content": [{"input": {"b": 2, "a": 1}, "name": "f", "id": "x", "type": "tool_use"}]}

    events = told_of(tmp_path, request(first, plain), request(again, turned))

    assert len(events) == 3


def test_a_second_answer_to_one_request_is_a_fork(tmp_path: Path):
    answer = {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "text", "text": "b"}]}
    other = {**answer, "id": "msg_2", "content": [{"type": "text", "text": "B"}]}

    events = told_of(tmp_path, request(user("a")), answer, request(user("a")), other)

    assert said(events) == [("message:1", "a"), ("message:2", "b"), ("↩", "message:1"), ("message:2~2", "B")]


def test_what_was_not_known_is_told_later_and_a_change_is_said(tmp_path: Path):
    events = told_of(
        tmp_path,
        request(user("a")),
        request(user("a"), assistant("b"), system="one"),
        request(user("a"), assistant("b"), user("c"), system="two"),
        request(user("a"), assistant("b"), user("c"), user("d"), system="three"),
    )

    assert [event.system for event in events if isinstance(event, Opened)] == [None, "one"]
    assert [event.line for event in events if isinstance(event, Warned)] == [3]


def test_an_empty_message_is_left_out_with_a_warning(tmp_path: Path):
    events = told_of(tmp_path, [user("a"), assistant(""), {"role": "user", "content": []}, user("b")])

    assert said(events) == [("message:1", "a"), ("message:4", "b")]
    assert [event.text for event in events if isinstance(event, Warned)] == [
        "message 2 was skipped: it is empty",
        "message 3 was skipped: it is empty",
    ]


def test_other_fields_of_a_message_are_kept(tmp_path: Path):
    events = told_of(tmp_path, [{"role": "system", "content": "x", "clear_at": "next_user"}, user("a")])

    first = next(event for event in events if isinstance(event, Said))
    assert first.message.parts[0].extra == {"ctxvc": {"message": {"clear_at": "next_user"}}}


@pytest.mark.parametrize("name", ["openai", "ctxvc"])
def test_a_recording_cannot_mark_its_own_blocks_as_we_do(tmp_path: Path, name: str):
    block = {"type": "tool_result", "tool_use_id": "x", "content": "y", name: {"parts": True}}

    (said,) = [event for event in told_of(tmp_path, [{"role": "user", "content": [block]}]) if isinstance(event, Said)]

    (part,) = said.message.parts
    assert (part.kind, part.call, part.body, part.extra) == ("tool_result", "x", b"y", {})


def test_keys_of_a_block_that_are_words_of_ours_are_kept_as_they_are() -> None:
    odd = {"role": "x", "value": 1, "origin": "human", "kind": "image", "call": "c", "extra": {}, "body": "b"}
    for block in ({"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "n", "input": {}}):
        part = wire.part({**block, **odd}, "assistant", "model")

        assert (part.kind, part.origin, part.extra) == ("tool_use" if "input" in block else "assistant", "model", odd)
