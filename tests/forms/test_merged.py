"""What a client gets where the model answered several times, in every form, whole and as a stream."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.forms import merged as product
from ctxvc.forms import sse
from ctxvc.forms.form import Reply
from ctxvc.forms.merged import Calls, MergedAnswer, merged
from tests.forms.answers import FORMS, MORE, OURS, TEXT, THINKING, Answer, call, form_of

each_form = pytest.mark.parametrize("form", FORMS)
each_kind = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

READ, SEARCH, RECOVER = call("read"), call("search"), call("recover")
WRITE = call("write", 2, text='Ünïcode\n"quoted" \U0001f600')

#: The blocks of a model's answers → the calls in each. The client has them all but those of our tools.
ANSWERS: dict[str, tuple[list[list[dict[str, Any]]], list[Calls]]] = {
    "nothing of ours": ([[THINKING, TEXT, READ]], [Calls(0, 1)]),
    "an empty answer": ([[]], [Calls(0, 0)]),
    "ours behind a text": ([[TEXT, SEARCH], [MORE]], [Calls(1, 0), Calls(0, 0)]),
    "ours alone": ([[SEARCH], [MORE]], [Calls(1, 0), Calls(0, 0)]),
    "ours, then a call of the client's": ([[THINKING, SEARCH], [THINKING, READ]], [Calls(1, 0), Calls(0, 1)]),
    "ours twice": ([[TEXT, SEARCH, RECOVER], [READ, WRITE]], [Calls(2, 0), Calls(0, 2)]),
    "ours again": ([[TEXT, SEARCH], [RECOVER], [TEXT]], [Calls(1, 0), Calls(1, 0), Calls(0, 0)]),
    "ours first": ([[SEARCH, READ, WRITE]], [Calls(1, 2)]),
    "ours between": ([[TEXT, READ, SEARCH, WRITE]], [Calls(1, 2)]),
    "ours last": ([[READ, WRITE, SEARCH]], [Calls(1, 2)]),
    "both in a continuation": ([[TEXT, SEARCH], [READ, RECOVER, WRITE]], [Calls(1, 0), Calls(1, 2)]),
    "nothing more": ([[TEXT, SEARCH]], [Calls(1, 0)]),
    "nothing at all": ([[SEARCH]], [Calls(1, 0)]),
    "nothing after all": ([[SEARCH], []], [Calls(1, 0), Calls(0, 0)]),
}
_ITEM_ID = re.compile(rb"\b(?:rs_|gA)[0-9]_[0-9]")
each_answer = pytest.mark.parametrize("name", ANSWERS)


def answers(name: str) -> list[Answer]:
    return [Answer(blocks, number) for number, blocks in enumerate(ANSWERS[name][0], 1)]


def expected(name: str) -> Answer:
    """The client's: the first id, the newest prompt, all that was put out."""
    blocks = [block for own in ANSWERS[name][0] for block in own if block.get("name") not in OURS]
    count = len(ANSWERS[name][0])
    return Answer(blocks, count, 20 * count, id="answer-1")


def encoded(answer: Answer, form: str, *, stream: bool) -> bytes:
    return answer.stream(form) if stream else answer.body(form)


def fed(merging: MergedAnswer, pieces: Iterable[Sequence[bytes]]) -> tuple[bytes, list[Calls]]:
    """What a client gets of answers, each of which comes in pieces, and the calls in each."""
    passed, calls = b"", []
    for own in pieces:
        passed += b"".join([merging.feed(b""), *map(merging.feed, own)])
        calls.append(merging.end())
    return passed + merging.close(), calls


def client_has(name: str, form: str, *, stream: bool) -> tuple[bytes, list[Calls]]:
    return fed(merged(form, stream=stream, ours=OURS), [[encoded(own, form, stream=stream)] for own in answers(name)])


def parts(form: str, reply: Reply) -> list[tuple[str, str, str, bytes]]:
    """What a reply says; items of the Responses API have ids by their answer and place, which are left out."""
    messages = form_of(form).reader().messages(reply.messages, reply)
    said = [part for message in messages for part in message.parts]
    return [(part.kind, part.tool, part.call, _ITEM_ID.sub(b"", part.body)) for part in said]


@each_form
@each_kind
@each_answer
def test_a_client_has_one_answer_without_calls_of_ours(name: str, form: str, stream: bool) -> None:
    passed, calls = client_has(name, form, stream=stream)
    as_one = encoded(expected(name), form, stream=stream)
    reply, whole = form_of(form).reply(passed, stream=stream), form_of(form).reply(as_one, stream=stream)

    assert calls == ANSWERS[name][1]
    assert parts(form, reply) == parts(form, whole)
    assert (reply.id, reply.stop, reply.complete, reply.error) == ("answer-1", whole.stop, True, "")
    assert reply.usage == whole.usage
    assert not any(tool.encode() in passed.replace(b"search_", b"") for tool in ("call_search", "call_recover"))


@each_form
@each_kind
@pytest.mark.parametrize("name", ["nothing of ours", "an empty answer"])
def test_an_answer_without_a_call_of_ours_passes_as_it_is(name: str, form: str, stream: bool) -> None:
    (answer,) = answers(name)

    assert client_has(name, form, stream=stream)[0] == encoded(answer, form, stream=stream)


@each_form
def test_its_events_pass_when_they_are_there(form: str) -> None:
    merging = merged(form, stream=True, ours=OURS)
    (answer,) = answers("nothing of ours")
    for event in answer.events(form):
        assert merging.feed(event[:-1]) == b""
        assert merging.feed(event[-1:]) == event
    assert (merging.end(), merging.close(), merging.broke()) == (Calls(0, 1), b"", b"")


@each_form
def test_what_a_model_says_passes_at_once_before_and_behind_a_call_of_ours(form: str) -> None:
    merging = merged(form, stream=True, ours=OURS)
    for answer, mark in ((Answer([TEXT, SEARCH], 1), b"Reading"), (Answer([MORE, READ], 2), b"It says")):
        events = answer.events(form)
        place = next(number for number, event in enumerate(events) if mark in event)
        for event in events[:place]:
            merging.feed(event)
        assert mark in merging.feed(events[place])
        for event in events[place + 1 :]:
            merging.feed(event)
        merging.end()


VARIANTS = ["\n", "\r\n", "\r", "comments", "bom"]


def varied(data: bytes, variant: str) -> bytes:
    """A stream as another server would spell it."""
    match variant:
        case "comments":
            return b": hello\n\nid: 7\n" + data.replace(b"\n\n", b"\n\n: keep-alive\n\nretry: 1\n\n")
        case "bom":
            return b"\xef\xbb\xbf" + data
    return data.replace(b"\n", variant.encode())


@given(st.sampled_from(FORMS), st.sampled_from(list(ANSWERS)), st.sampled_from(VARIANTS), st.integers(0, 999))
def test_it_is_the_same_however_it_is_cut(form: str, name: str, variant: str, seed: int) -> None:
    streams = [varied(answer.stream(form), variant) for answer in answers(name)]
    whole = fed(merged(form, stream=True, ours=OURS), [[data] for data in streams])
    dice = random.Random(seed)
    pieces = []
    for data in streams:
        places = sorted(dice.choices(range(len(data) + 1), k=dice.choice([1, 5, 50, 500])))
        pieces.append([data[start:end] for start, end in pairwise([0, *places, len(data)])])

    assert fed(merged(form, stream=True, ours=OURS), pieces) == whole
    reply = form_of(form).reply(whole[0], stream=True)
    assert parts(form, reply) == parts(form, form_of(form).reply(expected(name).stream(form), stream=True))


@each_form
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_the_same_byte_by_byte(form: str, variant: str) -> None:
    streams = [varied(answer.stream(form), variant) for answer in answers("both in a continuation")]
    pieces = [[data[place : place + 1] for place in range(len(data))] for data in streams]

    assert fed(merged(form, stream=True, ours=OURS), pieces) == fed(
        merged(form, stream=True, ours=OURS), [[data] for data in streams]
    )


@pytest.mark.parametrize(("form", "name"), [("openai-chat", "id"), ("gemini", "responseId")])
def test_every_piece_has_the_id_of_the_first_answer(form: str, name: str) -> None:
    passed, _ = client_has("ours again", form, stream=True)

    assert {value[name] for _, value in sse.events(passed)} == {"answer-1"}


def test_an_event_has_come_once_its_empty_line_has() -> None:
    for ending, count in ((b"", 0), (b"\n", 0), (b"\r\n\r\n", 1), (b"\r\r", 1), (b"\n\r", 1)):
        assert len(list(sse.events(b"data: {}" + ending))) == count


@given(st.sampled_from(FORMS), st.lists(st.binary(max_size=40), max_size=6), st.booleans())
def test_what_is_no_answer_passes_as_it_is(form: str, pieces: list[bytes], stream: bool) -> None:
    data = b"".join(pieces)

    assert fed(merged(form, stream=stream, ours=OURS), [pieces])[0] == data
    assert fed(merged(form, stream=stream, ours=OURS), [[b"data: {}\n\n", data]])[0] == b"data: {}\n\n" + data


@given(st.lists(st.sampled_from([b"\r", b"\n", b"data", b":", b" ", b'{"a":1}', b"event: x", b"\xef\xbb\xbf", b"x"])))
def test_events_are_those_of_the_whole_stream(pieces: list[bytes]) -> None:
    stream, data = sse.Events(), b"".join(pieces)
    came = [event for piece in pieces for event in stream.feed(piece)]
    tail = stream.tail()

    assert b"".join(event.raw for event in [*came, tail]) == data
    assert [(event.name, event.value) for event in [*came, tail] if event.value] == [
        (name, value) for name, value in sse.events(data + b"\n\n")
    ]


@each_form
@each_kind
def test_a_break_tells_the_client(form: str, stream: bool) -> None:
    """But not behind an ending, which the client may have read already."""
    merging = merged(form, stream=stream, ours=OURS)
    first = encoded(Answer([TEXT, SEARCH]), form, stream=stream)
    passed = merging.feed(first) + merging.feed(b"")
    assert merging.end() == Calls(1, 0)
    passed += merging.feed(encoded(Answer([MORE], 2), form, stream=stream)[:200]) + merging.broke()

    assert b"broke off" in passed
    if not stream:
        assert "error" in json.loads(passed)
    elif form != "gemini":
        reply = form_of(form).reply(passed, stream=True)
        assert (reply.complete, "broke off" in reply.error) == (False, True)
    else:
        assert json.loads(passed.splitlines()[-2])["error"]["code"] == 503


@each_form
def test_a_stream_that_breaks_in_an_event_has_whole_events_and_an_error(form: str) -> None:
    data = Answer([TEXT, READ]).stream(form)
    merging = merged(form, stream=True, ours=OURS)
    passed = merging.feed(data[: data.index(b"Reading") + 4])

    assert passed == b"" or passed.endswith(b"\n\n")
    assert merging.broke()


@each_form
@each_kind
def test_beyond_a_bound_everything_passes_as_it_is(form: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "LARGEST", 100)
    data = encoded(Answer([TEXT, READ, SEARCH]), form, stream=stream)

    assert fed(merged(form, stream=stream, ours=OURS), [[data[:50], data[50:120], data[120:]]]) == (data, [Calls()])


#: How an answer says that it was cut, instead of that it calls.
CUT = {
    "anthropic-messages": (b'"stop_reason": "tool_use"', b'"stop_reason": "max_tokens"'),
    "openai-chat": (b'"finish_reason": "tool_calls"', b'"finish_reason": "length"'),
    "gemini": (b'"finishReason": "STOP"', b'"finishReason": "MAX_TOKENS"'),
}


@pytest.mark.parametrize("form", CUT)
@each_kind
def test_any_other_reason_why_it_ended_stays(form: str, stream: bool) -> None:
    for blocks in ([TEXT, SEARCH], [SEARCH, READ]):
        data = encoded(Answer(blocks), form, stream=stream).replace(*CUT[form])
        passed, _ = fed(merged(form, stream=stream, ours=OURS), [[data]])
        assert form_of(form).reply(passed, stream=stream).stop == "max_tokens"


def test_items_that_came_by_themselves_are_in_the_response() -> None:
    """As some servers send them, with a response that has none."""
    form = "openai-responses"
    streams = []
    for answer in answers("ours, then a call of the client's"):
        *events, last = answer.events(form)
        value = json.loads(last.partition(b"data: ")[2])
        value["response"]["output"] = []
        streams.append([b"".join(events), b"event: response.completed\ndata: " + json.dumps(value).encode() + b"\n\n"])
    passed, _ = fed(merged(form, stream=True, ours=OURS), streams)
    *_, (_, last_value) = sse.events(passed)

    assert [item["type"] for item in last_value["response"]["output"]] == ["reasoning", "reasoning", "function_call"]


def test_an_event_with_other_lines_keeps_them() -> None:
    first, second = Answer([SEARCH]).stream("anthropic-messages"), Answer([TEXT], 2).events("anthropic-messages")
    start = next(event for event in second if b"content_block_start" in event)
    lines = start.replace(b"event: content_block_start\n", b"").replace(b'"index": 0', b'\ndata:"index": 1')
    spelled = b"id: 7\n: hello\n" + lines.replace(b"\n", b"\r\n")
    passed, _ = fed(merged("anthropic-messages", stream=True, ours=OURS), [[first], [spelled]])
    block = b'"content_block":{"type":"text","text":""}'

    assert passed[passed.index(b"id: 7") :] == (
        b'id: 7\n: hello\ndata: {"type":"content_block_start","index":0,%s}\r\n\r\n' % block
    )


def chunk(*pieces: dict[str, Any], finish: str | None = None, **delta: Any) -> bytes:
    """A chunk of Chat Completions."""
    calls = {"tool_calls": list(pieces)} if pieces else {}
    return sse_data({"id": "c", "choices": [{"index": 0, "delta": {**delta, **calls}, "finish_reason": finish}]})


def sse_data(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def piece(index: int | None, name: str = "", arguments: str = "", *, id: str = "") -> dict[str, Any]:
    function = {**({"name": name} if name else {}), "arguments": arguments}
    return {**({} if index is None else {"index": index}), **({"id": id} if id else {}), "function": function}


#: Chunks of Chat Completions as servers send them → the chunks that the client gets.
CHUNKS: dict[str, tuple[list[bytes], list[bytes]]] = {
    "a name in pieces that becomes ours": (
        [chunk(role="assistant"), chunk(piece(0, "sea", id="a")), chunk(piece(0, "rch")), chunk(piece(0, "", "{}")),
         chunk(piece(1, "read", "{}", id="b"))],
        [chunk(role="assistant"), chunk(piece(0, "read", "{}", id="b"))],
    ),
    "a name in pieces that becomes another": (
        [chunk(piece(0, "sea", id="a")), chunk(content="so"), chunk(piece(0, "ls")), chunk(piece(0, "", "{}"))],
        [chunk(piece(0, "sea", id="a")), chunk(content="so"), chunk(piece(0, "ls")), chunk(piece(0, "", "{}"))],
    ),
    "a name that comes late": (
        [chunk(piece(0, "", "{", id="a")), chunk(piece(0, "", "}")), chunk(piece(0, "search"))], []),
    "a name that comes each time": (
        [chunk(piece(0, "search", id="a")), chunk(piece(0, "search", "{")), chunk(piece(0, "search", "}"))], []),
    "a name that never comes": ([chunk(piece(0, "", "{}", id="a"))], [chunk(piece(0, "", "{}", id="a"))]),
    "calls without numbers": (
        [chunk(piece(None, "read", "{}", id="a")), chunk(piece(None, "search", "{", id="b")),
         chunk(piece(None, "", "}")), chunk(piece(None, "write", "{}", id="c"))],
        [chunk(piece(None, "read", "{}", id="a")), chunk(piece(None, "write", "{}", id="c"))],
    ),
    "calls that are all number 0": (
        [chunk(piece(0, "read", "{}", id="a")), chunk(piece(0, "search", "{", id="b")), chunk(piece(0, "", "}")),
         chunk(piece(0, "write", "{", id="c")), chunk(piece(0, "", "}"))],
        [chunk(piece(0, "read", "{}", id="a")), chunk(piece(1, "write", "{", id="c")), chunk(piece(1, "", "}"))],
    ),
    "two calls in a chunk": (
        [chunk(piece(0, "search", "{}", id="a"), piece(1, "read", "{}", id="b"), content="so")],
        [chunk(piece(0, "read", "{}", id="b"), content="so")],
    ),
    "all in one chunk": (
        [chunk(piece(0, "search", "{}", id="a"), content="so", role="assistant", finish="tool_calls")],
        [chunk(content="so", role="assistant"), chunk(finish="stop")],
    ),
    "an error": (
        [chunk(piece(0, "search", "{}", id="a")), sse_data({"error": {"message": "no"}})],
        [sse_data({"error": {"message": "no"}})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_of_chat_completions(name: str) -> None:
    sent, passed = CHUNKS[name]

    assert fed(merged("openai-chat", stream=True, ours=OURS), [sent])[0] == b"".join(passed)


def test_a_last_piece_of_gemini_may_say_something_too() -> None:
    parts_sent = [{"text": "so"}, {"functionCall": {"name": "search", "args": {}}}]
    candidate = {"content": {"role": "model", "parts": parts_sent}, "finishReason": "STOP"}
    passed, _ = fed(merged("gemini", stream=True, ours=OURS), [[sse_data({"candidates": [candidate]})]])
    candidates = [value["candidates"][0] for _, value in sse.events(passed)]

    assert [item["content"]["parts"] for item in candidates] == [[{"text": "so"}], [{"text": ""}]]
    assert [item.get("finishReason") for item in candidates] == [None, "STOP"]


def test_a_tool_of_the_clients_whose_name_is_in_a_namespace_is_not_ours() -> None:
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "search", "arguments": "{}"}
    for namespace, calls in (({}, Calls(1, 0)), ({"namespace": "mcp__docs"}, Calls(0, 1))):
        merging = merged("openai-responses", stream=False, ours=OURS)
        merging.feed(json.dumps({"id": "r", "output": [{**item, **namespace}]}).encode())
        assert merging.end() == calls


def test_the_numbers_of_events_and_items_have_no_gaps() -> None:
    passed, _ = client_has("both in a continuation", "openai-responses", stream=True)
    events = [value for _, value in sse.events(passed)]

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert sorted({event["output_index"] for event in events if "output_index" in event}) == [0, 1, 2]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "function_call", "function_call"]


def test_the_numbers_of_blocks_have_no_gaps() -> None:
    passed, _ = client_has("both in a continuation", "anthropic-messages", stream=True)
    starts = [value["index"] for name, value in sse.events(passed) if name == "content_block_start"]

    assert starts == [0, 1, 2]
    assert passed.count(b"event: ping") == 2


def test_a_body_of_gemini_may_be_an_array() -> None:
    """As `streamGenerateContent` answers where no events are asked for."""
    arrays = [
        [json.loads(event.removeprefix(b"data: ")) for event in answer.events("gemini")]
        for answer in answers("ours, then a call of the client's")
    ]
    passed, calls = fed(merged("gemini", stream=False, ours=OURS), [[json.dumps(array).encode()] for array in arrays])
    reply = form_of("gemini").reply(passed, stream=False)
    whole = form_of("gemini").reply(expected("ours, then a call of the client's").body("gemini"), stream=False)

    assert calls == [Calls(1, 0), Calls(0, 1)]
    assert isinstance(json.loads(passed), list)
    assert (parts("gemini", reply), reply.usage, reply.id) == (parts("gemini", whole), whole.usage, "answer-1")
