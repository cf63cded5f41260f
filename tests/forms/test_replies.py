"""Replies and their streams in every form: whole, cut anywhere, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxvc.forms
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.forms.form import Prompt, Reply
from tests.forms.dialects import BLOCKS, DIALECTS, Dialect, events

NAMES = st.sampled_from(sorted(DIALECTS))

each_form = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def prompt(dialect: Dialect, **fields: Any) -> Prompt:
    return dialect.form.prompt(json.dumps({**dialect.request, **fields}).encode(), dialect.path)


def spoken(prints: tuple[bytes, ...]) -> list[bytes]:
    """The fingerprints of what every client repeats."""
    return [one for one in prints if one]


def blocks(messages: list[Message]) -> list[tuple[str, str, str, bytes]]:
    """What the messages say, without thinking, in a form that all APIs share."""
    parts = [part for message in messages for part in message.parts if part.kind != "thinking"]
    bodies = [wire.compact(wire.parse(part.body)) if part.kind == "tool_use" else part.body for part in parts]
    return [(part.kind, part.tool, part.origin, body) for part, body in zip(parts, bodies, strict=True)]


LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
SAID = [
    ("assistant", "", "model", str(BLOCKS[1]["text"]).encode()),
    ("tool_use", "read", "model", b'{"path":"a.txt","lines":[1,2]}'),
    ("tool_use", "read", "model", b"{}"),
]


@each_form
def test_a_reply_is_the_same_whether_it_came_as_a_body_or_as_a_stream(dialect: Dialect) -> None:
    body, stream = (
        dialect.form.reply(answer, stream=is_stream)
        for answer, is_stream in ((dialect.body, False), (dialect.stream, True))
    )

    assert (body.id, body.model, body.stop, body.whole, body.error) == ("reply-1", "a-model", "tool_use", True, "")
    assert body.usage["input_tokens"] in (10, 15) and body.usage["output_tokens"] == 20
    assert body.usage["cache_read_input_tokens"] == 90
    assert stream.prints == body.prints and stream.usage == body.usage
    assert (stream.id, stream.model, stream.stop, stream.whole) == (body.id, body.model, body.stop, True)
    read = [dialect.form.reader().messages(reply.messages, reply.prints, reply) for reply in (body, stream)]
    assert [blocks(messages) for messages in read] == [SAID, SAID]
    assert any(part.kind == "thinking" for message in read[1] for part in message.parts)


@each_form
def test_a_reply_is_known_again_in_the_next_request(dialect: Dialect) -> None:
    reply = dialect.form.reply(dialect.stream, stream=True)
    asked = prompt(dialect)
    repeated = dialect.repeated()
    offset = len(dialect.request[dialect.conversation]) - len(asked.messages)
    place = slice(dialect.place.start - offset, dialect.place.stop - offset)

    assert list(asked.messages[place]) == repeated
    assert spoken(reply.prints) == list(asked.prints[place])
    read = dialect.form.reader().messages(asked.messages, asked.prints)
    assert [message.role for message in read] == ["user", "assistant", "user"]
    assert blocks(read[1:2]) == SAID
    assert [part.call for part in read[2].parts] == [read[1].parts[-2].call], "the result finds the first call"
    assert [message.key for message in read] == [asked.prints[at].hex() for at in (0, place.start, place.stop)]


@each_form
def test_a_request_says_what_it_asks_for(dialect: Dialect) -> None:
    asked = prompt(dialect)

    assert (asked.model, asked.system, asked.stream, asked.max_tokens) == ("a-model", "Be brief.", True, 100)
    assert prompt(dialect, **dict.fromkeys(LIMITS, True), generationConfig={"maxOutputTokens": "5"}).max_tokens == 0
    (tool,) = asked.tools
    assert (tool["name"], tool["input_schema"]) == ("read", {"type": "object"})
    assert len(asked.prints) == len(asked.messages) and len(set(asked.prints)) == len(asked.prints)
    assert not asked.continues


@each_form
def test_a_message_has_the_facts_of_its_reply(dialect: Dialect) -> None:
    reply = dialect.form.reply(dialect.body, stream=False)
    (message,) = dialect.form.reader().messages(reply.messages, reply.prints, reply)
    assert (message.reply, message.model, message.usage) == ("reply-1", "a-model", reply.usage)


def test_items_of_the_providers_in_a_reply_are_not_the_models() -> None:
    dialect = DIALECTS["openai-responses"]
    spoken = {"type": "message", "role": "assistant", "content": "x"}
    output = [spoken, {"type": "mcp_list_tools", "tools": []}, spoken, {"type": "mcp_list_tools", "tools": []}]
    answer = json.dumps({"id": "r", "output": output, "usage": {"input_tokens": 1, "output_tokens": 2}}).encode()
    reply = dialect.form.reply(answer, stream=False)
    messages = dialect.form.reader().messages(reply.messages, reply.prints, reply)

    assert [message.reply for message in messages] == ["r", "", "r", ""]
    assert [bool(message.usage) for message in messages] == [False, False, True, False]


@given(NAMES, st.data())
def test_a_stream_may_be_cut_anywhere(name: str, data: st.DataObject) -> None:
    dialect = DIALECTS[name]
    whole = dialect.form.reply(dialect.stream, stream=True)
    at = data.draw(st.integers(0, len(dialect.stream)))
    try:
        cut = dialect.form.reply(dialect.stream[:at], stream=True)
    except BadInput:
        return

    assert cut.whole == bool(cut.stop)
    if cut.whole:
        assert cut.prints == whole.prints
    for kind in ("thinking", "assistant"):
        assert text(dialect, whole, kind).startswith(text(dialect, cut, kind))


def text(dialect: Dialect, reply: Reply, kind: str) -> bytes:
    """What the parts of this kind say."""
    messages = dialect.form.reader().messages(reply.messages, reply.prints, reply)
    return b"".join(part.body for message in messages for part in message.parts if part.kind == kind)


@each_form
def test_most_of_a_stream_is_an_interrupted_reply(dialect: Dialect) -> None:
    """A cut in the middle loses nothing that came: half of the text is there."""
    half = dialect.stream.index(b"Reading") + 20
    end = dialect.stream.index(b"\n\n", half) + 2
    cut = dialect.form.reply(dialect.stream[:end], stream=True)

    assert not cut.whole and cut.stop == ""
    (message,) = dialect.form.reader().messages(cut.messages, cut.prints, cut)
    said = [part.body for part in message.parts if part.kind == "assistant"]
    assert said and SAID[0][3].startswith(said[0]) and said[0].startswith(b"Reading")


@given(NAMES, st.data())
def test_nothing_in_a_stream_is_trusted(name: str, data: st.DataObject) -> None:
    """Any JSON in the place of any value of an event."""
    dialect = DIALECTS[name]
    values = [json.loads(line[6:]) for line in dialect.stream.split(b"\n") if line.startswith(b"data: {")]
    junk = st.recursive(st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3), _nested, max_leaves=4)
    for _ in range(data.draw(st.integers(1, 4))):
        container = data.draw(st.sampled_from([*_containers(values)]))
        place = data.draw(st.sampled_from([*(container if isinstance(container, dict) else range(len(container)))]))
        container[place] = data.draw(junk)
    for stream in (True, False):
        answer = events(values) if stream else json.dumps(values[-1]).encode()
        try:
            reply = dialect.form.reply(answer, stream=stream)
        except BadInput:
            continue
        assert len(reply.prints) == len(reply.messages) and type(reply.whole) is bool
        dialect.form.reader().messages(reply.messages, reply.prints, reply)


@given(NAMES, st.data())
def test_nothing_in_a_request_is_trusted(name: str, data: st.DataObject) -> None:
    dialect = DIALECTS[name]
    request = json.loads(json.dumps(dialect.request))
    junk = st.recursive(st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3), _nested, max_leaves=4)
    container = data.draw(st.sampled_from([*_containers(request)]))
    place = data.draw(st.sampled_from([*(container if isinstance(container, dict) else range(len(container)))]))
    container[place] = data.draw(junk)
    try:
        asked = dialect.form.prompt(json.dumps(request).encode(), dialect.path)
    except BadInput:
        return
    assert len(asked.prints) == len(asked.messages)
    dialect.form.reader().messages(asked.messages, asked.prints)


def _nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["type", "text", "content", "id", "index", "role", "parts"])
    return st.lists(values, max_size=2) | st.dictionaries(names, values, max_size=2)


def _containers(value: Any) -> Any:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


OVERLOADED = {
    "anthropic-messages": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "openai-chat": {"error": {"type": "overloaded_error", "message": "Overloaded", "code": None}},
    "openai-responses": {"type": "error", "code": "overloaded_error", "message": "Overloaded", "param": None},
    "gemini": {"error": {"code": 503, "status": "overloaded_error", "message": "Overloaded"}},
}


@pytest.mark.parametrize("form", DIALECTS)
def test_an_error_in_a_stream_is_told_with_what_came_before_it(form: str) -> None:
    dialect = DIALECTS[form]
    begun = dialect.stream[: dialect.stream.index(b"\n\n", dialect.stream.index(b"Reading")) + 2]
    reply = dialect.form.reply(begun + events([OVERLOADED[form]]), stream=True)

    assert (reply.error, reply.whole, reply.stop) == ("overloaded_error: Overloaded", False, "")
    assert reply.messages


@pytest.mark.parametrize("form", DIALECTS)
def test_an_error_instead_of_an_answer_is_a_reply_without_messages(form: str) -> None:
    error = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
    for body in (error, [error]) if form == "gemini" else (error,):
        reply = DIALECTS[form].form.reply(json.dumps(body).encode(), stream=False)
        assert (reply.messages, reply.error, reply.whole) == ((), "overloaded_error: Overloaded", False)


@each_form
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", b"[]", b"null", b'{"a": [', b"data: 1\n\n", b": ping\n\n"])
def test_what_is_no_answer_is_refused(dialect: Dialect, answer: bytes, *, stream: bool) -> None:
    with pytest.raises(BadInput):
        dialect.form.reply(answer, stream=stream)


@each_form
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages": 1, "input": 1, "contents": 1}', b"\xff"])
def test_what_is_no_request_is_refused(dialect: Dialect, body: bytes) -> None:
    with pytest.raises(BadInput):
        dialect.form.prompt(body, dialect.path)


@each_form
def test_a_body_is_taken_for_what_it_is_whatever_its_header_says(dialect: Dialect) -> None:
    assert dialect.form.reply(dialect.body, stream=True).prints == dialect.form.reply(dialect.body, stream=False).prints
    stream = b": a comment\n\n" + dialect.stream
    assert dialect.form.reply(stream, stream=False).prints == dialect.form.reply(stream, stream=True).prints


# --- what only one form has


def anthropic(*values: dict[str, Any]) -> Reply:
    return DIALECTS["anthropic-messages"].form.reply(events(values), stream=True)


def test_blocks_and_deltas_that_nobody_knows_yet_are_kept() -> None:
    reply = anthropic(
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "oracle", "level": 1}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "oracle_delta", "saying": "yes", "level": 2}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "oracle_delta", "saying": " and no"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "cited"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "a"}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "b"}}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "server_tool_use", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"q":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    )

    assert reply.messages[0]["content"] == [
        {"type": "oracle", "level": 2, "saying": "yes and no"},
        {"type": "text", "text": "cited", "citations": [{"url": "a"}, {"url": "b"}]},
        {"type": "server_tool_use", "input": {"q": 1}},
    ]
    assert (reply.usage, reply.stop, reply.whole) == ({"input_tokens": 1, "output_tokens": 3}, "end_turn", True)


def test_a_call_that_was_cut_off_keeps_the_text_of_its_arguments() -> None:
    begin = {"type": "content_block_start", "index": 0, "content_block": dict(BLOCKS[2], input={})}
    delta = {"type": "input_json_delta", "partial_json": '{"path": "a'}
    reply = anthropic(begin, {"type": "content_block_delta", "index": 0, "delta": delta})
    ((message,),) = [DIALECTS["anthropic-messages"].form.reader().messages(reply.messages, reply.prints, reply)]

    assert not reply.whole
    assert [(part.kind, part.call, part.body) for part in message.parts] == [("tool_use", "c1", b'{"path": "a')]


def chat(*deltas: dict[str, Any], **end: Any) -> dict[str, Any]:
    chunks = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    reply = DIALECTS["openai-chat"].form.reply(events([*chunks, end] if end else chunks), stream=True)
    (message,) = reply.messages
    return dict(message)


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, "a", "f", ""), (0, "", "", "{}"), (1, "b", "g", ""), (1, "", "", "1")],
        [(None, "a", "f", ""), (None, "", "", "{}"), (None, "b", "g", ""), (None, "", "", "1")],
        [(0, "a", "f", "{}"), (0, "b", "g", "1")],
        [(0, "a", "f", ""), (1, "b", "g", ""), (0, "", "", "{"), (1, "", "", "1"), (0, "", "", "}")],
    ],
    ids=["by number", "without numbers", "one number for all", "in turns"],
)
def test_calls_in_a_stream_go_on_by_number_or_id(pieces: list[tuple[int | None, str, str, str]]) -> None:
    deltas = []
    for number, call, name, arguments in pieces:
        piece = {"index": number, "id": call, "function": {"name": name, "arguments": arguments}}
        deltas.append({"tool_calls": [{key: value for key, value in piece.items() if value not in (None, "")}]})

    assert chat(*deltas)["tool_calls"] == [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "function": {"name": "g", "arguments": "1"}},
    ]


def test_a_completion_may_end_without_a_reason() -> None:
    chunk = {"id": "r", "choices": [{"delta": {"content": "x"}}]}
    reply = DIALECTS["openai-chat"].form.reply(events([chunk], done=True), stream=True)

    assert (reply.whole, reply.stop) == (True, "end_turn")
    assert not DIALECTS["openai-chat"].form.reply(events([chunk]), stream=True).whole


def test_a_completion_keeps_what_servers_add_and_only_its_first_choice() -> None:
    second = {"id": "r", "choices": [{"index": 1, "delta": {"content": "other"}}]}
    deltas = [
        {"role": "assistant", "reasoning_content": "hm"},
        {"reasoning_content": "m", "reasoning_details": [{"index": 0, "type": "text", "text": "a"}]},
        {"content": "no", "refusal": "I ca", "reasoning_details": [{"index": 0, "text": "b"}], "audio": {"id": "au"}},
        {"role": "assistant", "refusal": "nnot", "audio": {"data": "AA"}, "annotations": [{"x": 1}]},
        {"audio": {"data": "BB"}, "annotations": [{"x": 1}]},
    ]

    assert chat(*deltas, **second) == {
        "role": "assistant",
        "reasoning_content": "hmm",
        "reasoning_details": [{"index": 0, "type": "text", "text": "ab"}],
        "content": "no",
        "refusal": "I cannot",
        "audio": {"id": "au", "data": "AABB"},
        "annotations": [{"x": 1}, {"x": 1}],
    }


def test_a_response_without_its_last_event_is_what_its_items_were() -> None:
    dialect = DIALECTS["openai-responses"]
    full = dialect.form.reply(dialect.stream, stream=True)
    cut = dialect.form.reply(dialect.stream[: dialect.stream.index(b'{"type": "response.completed"')], stream=True)
    assert (cut.prints, cut.whole, cut.stop) == (full.prints, False, "")

    deltas = [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "So"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "On"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "e"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 1, "delta": "Two"},
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a'},
        {"type": "response.refusal.delta", "output_index": 3, "content_index": 0, "delta": "N"},
        {"type": "response.output_item.done", "output_index": 3, "item": {"type": "message", "content": "No."}},
    ]
    cut = dialect.form.reply(events(deltas), stream=True)
    assert cut.messages == (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "One"}, {"type": "output_text", "text": "Two"}],
        },
        {"type": "function_call", "arguments": '{"a'},
        {"type": "message", "content": "No."},
    )


def test_a_responses_reply_may_be_incomplete_failed_or_a_compaction() -> None:
    dialect = DIALECTS["openai-responses"]
    output = [{"type": "message", "role": "assistant", "content": []}]

    def reply(**fields: Any) -> Reply:
        return dialect.form.reply(json.dumps({"output": output, **fields}).encode(), stream=False)

    assert reply(status="incomplete", incomplete_details={"reason": "max_output_tokens"}).stop == "max_tokens"
    assert reply(object="response.compaction").stop == "compaction"
    assert not reply(status="in_progress").whole
    failed = {"status": "failed", "error": {"code": "server_error", "message": "no"}, "output": []}
    for answer in (
        dialect.form.reply(json.dumps(failed).encode(), stream=False),
        dialect.form.reply(events([{"type": "response.failed", "response": failed}]), stream=True),
    ):
        assert (answer.error, answer.whole) == ("server_error: no", False)


@pytest.mark.parametrize(
    "fields",
    [{"previous_response_id": "r1"}, {"conversation": "r1"}, {"conversation": {"id": "r1"}}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_request_may_go_on_from_what_the_provider_has(fields: dict[str, Any]) -> None:
    assert prompt(DIALECTS["openai-responses"], input="And then?", **fields).continues == "r1"


def test_gemini_streams_a_list_where_no_events_are_asked_for() -> None:
    dialect = DIALECTS["gemini"]
    values = [json.loads(line[6:]) for line in dialect.stream.split(b"\n") if line.startswith(b"data: ")]
    answer = json.dumps(values, indent=1).encode()
    full = dialect.form.reply(dialect.stream, stream=True)

    assert dialect.form.reply(answer, stream=True).prints == full.prints
    cut = dialect.form.reply(answer[: answer.index(b'"finishReason"')], stream=False)
    assert (cut.prints, cut.whole) == (full.prints, False)


def test_gemini_takes_other_spellings_and_the_form_within_another() -> None:
    dialect = DIALECTS["gemini"]
    snake = {"system_instruction": "Be brief.", "contents": dialect.request["contents"], "tools": []}
    inner = {"function_declarations": [{"name": "read", "parameters": {"type": "object"}}]}
    body = {"model": "other", "request": {**snake, "tools": [inner, {"google_search": {}}]}}
    asked = dialect.form.prompt(json.dumps(body).encode(), "/v1internal:generateContent")

    assert (asked.model, asked.system, asked.stream) == ("other", "Be brief.", False)
    assert asked.tools == ({"name": "read", "input_schema": {"type": "object"}}, {"googleSearch": {}})
    assert asked.prints == prompt(dialect).prints
    answer = events([{"response": json.loads(dialect.body)}])
    assert dialect.form.reply(answer, stream=True).prints == dialect.form.reply(dialect.body, stream=False).prints


def test_geminis_signatures_and_odd_parts_stay_where_they_came() -> None:
    dialect = DIALECTS["gemini"]
    parts = [
        {"text": "a", "thoughtSignature": "s1"},
        {"text": "b"},
        {"functionCall": {"id": "x", "name": "f", "args": {}}, "thoughtSignature": "s2"},
        {"executableCode": {"code": "1"}},
    ]
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    reply = dialect.form.reply(events(chunks), stream=True)
    (message,) = dialect.form.reader().messages(reply.messages, reply.prints, reply)

    assert reply.messages[0]["parts"] == parts
    assert [part.extra.get("gemini") for part in message.parts] == [
        {"thoughtSignature": "s1"},
        None,
        {"thoughtSignature": "s2"},
        None,
    ]
    assert [part.kind for part in message.parts] == ["assistant", "assistant", "tool_use", "other"]
    assert message.parts[2].call == "x"
    assert "gemini" not in wire.block(kind="tool_use", body=b"{}", call="x", tool="f", extra=message.parts[2].extra)


def test_geminis_results_find_their_calls_and_have_the_pictures_behind_them() -> None:
    reader = DIALECTS["gemini"].form.reader()
    picture = {"mimeType": "image/png", "data": "AAAA"}
    unanswered = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    contents = [
        unanswered,
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"n": n}}} for n in (1, 2)]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "one"}}},
                {"inlineData": picture},
                {"functionResponse": {"name": "f", "response": {"error": "no"}, "parts": [{"inline_data": picture}]}},
                {"text": "<session_context>here"},
                {"text": "and now?"},
            ],
        },
    ]
    _, calls, results = reader.messages(contents, (b"1", b"2", b"3"))

    assert len({part.call for part in calls.parts}) == 2
    assert [(part.kind, part.call, part.tool, part.error, part.origin, len(part.files)) for part in results.parts] == [
        ("tool_result", calls.parts[0].call, "f", False, "tool", 1),
        ("tool_result", calls.parts[1].call, "f", True, "tool", 1),
        ("user", "", "", False, "client", 0),
        ("user", "", "", False, "human", 0),
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/messages", "anthropic-messages"),
        ("/anthropic/v1/messages/", "anthropic-messages"),
        ("/v1/messages/count_tokens", ""),
        ("/v1/messages/batches", ""),
        ("/v1/chat/completions", "openai-chat"),
        ("/openai/deployments/x/chat/completions", "openai-chat"),
        ("/v1/responses", "openai-responses"),
        ("/backend-api/codex/responses", "openai-responses"),
        ("/v1/responses/compact", "openai-responses"),
        ("/v1/responses/resp_1", ""),
        ("/v1beta/models/x:generateContent", "gemini"),
        ("/v1beta/models/x:streamGenerateContent", "gemini"),
        ("/v1beta/models/x:countTokens", ""),
        ("/v1/models", ""),
        ("", ""),
    ],
)
def test_a_path_names_its_form(path: str, name: str) -> None:
    form = ctxvc.forms.of(path)
    assert (form.NAME if form else "") == name
