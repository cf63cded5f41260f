"""Requests and replies in every form: whole, cut anywhere, in a client's own spelling, or no such thing at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.forms import anthropic, chat, sse
from tests.forms.dialects import BLOCKS, DIALECTS, Dialect

each_form = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
NAMES = st.sampled_from(sorted(DIALECTS))
REPLY = [
    ("assistant", "", "model", str(BLOCKS[1]["text"]).encode()),
    ("tool_use", "read", "model", b'{"path":"a.txt","lines":[1,2]}'),
    ("tool_use", "read", "model", b"{}"),
]


def blocks(messages: list[Message]) -> list[tuple[str, str, str, bytes]]:
    """What the messages say, without thinking, as all forms share it."""
    parts = [part for message in messages for part in message.parts if part.kind != "thinking"]
    bodies = [wire.compact(wire.parse(part.body)) if part.kind == "tool_use" else part.body for part in parts]
    return [(part.kind, part.tool, part.origin, body) for part, body in zip(parts, bodies, strict=True)]


@each_form
def test_a_reply_is_the_same_as_a_body_and_as_a_stream(dialect: Dialect) -> None:
    body, stream = dialect.form.reply(dialect.body, stream=False), dialect.form.reply(dialect.stream, stream=True)

    assert (body.id, body.model, body.stop, body.complete, body.error) == ("reply-1", "a-model", "tool_use", True, "")
    assert body.usage["cache_read_input_tokens"] == 90 and body.usage["output_tokens"] == 20
    assert (stream.prints, stream.usage, stream.id, stream.stop) == (body.prints, body.usage, body.id, body.stop)
    for reply in (body, stream):
        (message,) = dialect.form.reader().messages(reply.messages, reply)
        assert blocks([message]) == REPLY
        assert (message.reply, message.model, message.usage) == ("reply-1", "a-model", body.usage)
        assert any(part.kind == "thinking" for part in message.parts)


@each_form
def test_a_request_says_what_it_holds_and_repeats_the_reply(dialect: Dialect) -> None:
    prompt = dialect.form.prompt(json.dumps(dialect.request).encode())
    earlier = {**dialect.request, dialect.conversation: dialect.request[dialect.conversation][: dialect.place.start]}
    before = dialect.form.prompt(json.dumps(earlier).encode())
    messages = dialect.form.reader().messages(prompt.messages)

    assert prompt.system in ("Be brief.", [{"type": "text", "text": "Be brief."}])
    assert [(tool["name"], tool["input_schema"]) for tool in prompt.tools] == [("read", {"type": "object"})]
    assert prompt.prints[: len(before.prints)] == before.prints and len(set(prompt.prints)) == len(prompt.prints)
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert blocks(messages[1:2]) == REPLY
    assert messages[2].parts[0].call == messages[1].parts[-2].call, "the result finds the first call"


@given(NAMES, st.integers(0, 1 << 14))
def test_a_stream_that_is_cut_is_no_complete_reply(name: str, place: int) -> None:
    dialect = DIALECTS[name]
    end = dialect.stream.rindex(b"data: ", 0, dialect.stream.rindex(b"data: ") if name == "openai-chat" else None)
    cut = dialect.stream[: min(place, end)]
    try:
        reply = dialect.form.reply(cut, stream=True)
    except BadInput:
        return
    complete = dialect.form.reply(dialect.stream, stream=True)
    parts = [part for message in dialect.form.reader().messages(reply.messages, reply) for part in message.parts]

    assert not reply.complete or name == "openai-chat"
    assert b"".join(part.body for part in parts if part.kind == "assistant") in REPLY[0][3]
    assert [part.tool for part in parts if part.kind == "tool_use"] in ([], ["read"], ["read", "read"])
    assert reply.id in ("", complete.id)


@given(NAMES, st.binary(max_size=200), st.booleans())
def test_what_is_no_reply_and_no_request_is_refused(name: str, data: bytes, stream: bool) -> None:
    form = DIALECTS[name].form
    for read in (lambda: form.prompt(data), lambda: form.reply(data, stream=stream)):
        with pytest.raises(BadInput):
            read()


@each_form
@pytest.mark.parametrize(
    "value", [None, 1, "x", [], {}, [None], [1], ["x"], [[]], [{}], [{"role": 3, "parts": 4, "content": 5}]]
)
def test_a_field_of_any_type_is_read_or_refused(dialect: Dialect, value: Any) -> None:
    for field in dialect.request:
        body = json.dumps({**dialect.request, field: value}).encode()
        try:
            prompt = dialect.form.prompt(body)
        except BadInput:
            continue
        dialect.form.reader().messages(prompt.messages)
        assert len(prompt.prints) == len(prompt.messages)


@each_form
@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
def test_events_do_not_depend_on_how_lines_end(dialect: Dialect, ending: bytes) -> None:
    assert list(sse.events(dialect.stream.replace(b"\n", ending))) == list(sse.events(dialect.stream))


def test_a_result_that_a_client_marks_for_the_cache_is_the_same_without_its_mark() -> None:
    text = {"type": "text", "text": "a line"}
    marked = {"type": "tool_result", "tool_use_id": "t", "content": [text], "cache_control": {"type": "ephemeral"}}
    inside = {**marked, "content": [{**text, "cache_control": {"type": "ephemeral"}}]}
    plain = {"type": "tool_result", "tool_use_id": "t", "content": "a line"}
    prints = {anthropic.fingerprint({"role": "user", "content": [item]}) for item in (marked, inside, plain)}

    assert len(prints) == 1
    assert anthropic.fingerprint({"role": "user", "content": [{**plain, "content": "another"}]}) not in prints


# --- streams as servers write them, with something missing: the values that the forms put together of their events


def test_a_block_is_begun_by_its_first_piece_and_a_number_in_use_begins_another() -> None:
    def piece(index: object, kind: str, **text: str) -> tuple[str, dict[str, Any]]:
        return "content_block_delta", {"index": index, "delta": {"type": kind, **text}}

    events = [
        ("message_start", {"message": {"id": "m"}}),
        piece(0, "text_delta", text="a"),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": "b"}}),
        piece(0, "text_delta", text="c"),
        piece([1], "input_json_delta", partial_json='{"d'),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}}),
        ("message_delta", {"delta": {"stop_reason": None}}),
    ]
    message, complete, error = anthropic.assembled(events)

    assert message["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "bc"},
        {"type": "tool_use", "input": '{"d'},
    ]
    assert (message["stop_reason"], complete, error) == ("end_turn", False, "")


def test_a_piece_of_a_call_is_of_the_newest_of_its_number_or_of_the_newest_of_all() -> None:
    def piece(text: object, **fields: object) -> tuple[str, dict[str, Any]]:
        return "", {"choices": [{"delta": {"tool_calls": [{**fields, "function": {"arguments": text}}]}}]}

    events = [piece("a", index=0, id="1"), piece("b", index=0, id="2"), piece("c", index=0), piece({"d": 1})]
    completion, complete, _ = chat.assembled(events)

    calls = completion["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [("1", "a"), ("2", 'bc{"d":1}')]
    assert not complete
