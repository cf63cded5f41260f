"""Traces of OpenTelemetry as conversations: one that pydantic-ai made, and spans made by hand."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.recording.events import Compacted, Forked, Opened, Said
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording
from tests.importers.growing import assert_grows_into_the_whole
from tests.making.events import messages, read
from tests.making.events import written as written_lines

SPANS = Path(__file__).parents[1] / "data" / "otel-genai" / "spans.jsonl"


def span(parent: str = "p", trace: str = "t", **attributes: Any) -> dict[str, Any]:
    values = [
        {"key": f"gen_ai.{name}", "value": value if isinstance(value, dict) else {"stringValue": json.dumps(value)}}
        for name, value in {"operation.name": {"stringValue": "chat"}, **attributes}.items()
    ]
    return {"traceId": trace, "spanId": "s", "parentSpanId": parent, "attributes": values}


def exchange(question: str, reply: str = "ok", **more: Any) -> dict[str, Any]:
    return span(**{"input.messages": [said("user", question)], "output.messages": [said("assistant", reply)], **more})


def pairs(**values: Any) -> dict[str, Any]:
    return {"kvlistValue": {"values": [{"key": key, "value": value} for key, value in values.items()]}}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def written(path: Path, *spans: dict[str, Any]) -> Path:
    batches = ({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]} for one in spans)
    return written_lines(path, *batches)


def test_the_last_request_and_its_reply_are_what_was_told() -> None:
    """Against a reading of the file that knows nothing of ours."""
    chats = []
    for line in SPANS.read_text().splitlines():
        for one in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            values = {item["key"]: item["value"].get("stringValue") for item in one["attributes"]}
            if values["gen_ai.operation.name"] == "chat":
                chats.append((values["gen_ai.agent.name"], values))
    _, last = [chat for chat in chats if chat[0] == "reader"][-1]
    whole = json.loads(last["gen_ai.input.messages"]) + json.loads(last["gen_ai.output.messages"])
    expected = [
        (message["role"], part.get("content") or part.get("result") or part.get("response") or part.get("name"))
        for message in whole
        if message["role"] != "system"
        for part in message["parts"]
        if part["type"] != "blob"
    ]

    main = [event.message for event in read(SPANS, "otel-genai") if isinstance(event, Said) and not event.scope]
    actual = [
        (message.role, part.tool if part.kind == "tool_use" else part.body.decode())
        for message in main
        for part in message.parts
        if part.kind != "image"
    ]

    assert actual == expected


def test_usage_is_without_what_the_cache_had_and_the_frame_is_told() -> None:
    events = read(SPANS, "otel-genai")
    reply = next(message for message in messages(events) if message.role == "assistant")
    opened = next(event for event in events if isinstance(event, Opened))

    assert reply.usage == {"input_tokens": 96, "output_tokens": 10, "cache_read_input_tokens": 5}
    assert reply.model == "scripted"
    assert [tool["name"] for tool in opened.tools] == ["read", "ask"]
    assert opened.missing == ()


def test_a_sub_agent_is_a_scope_and_what_asked_it_is_no_person() -> None:
    agent = [event for event in read(SPANS, "otel-genai") if isinstance(event, Said) and event.scope]

    assert len({event.scope for event in agent}) == 1
    assert [(part.body, part.origin) for event in agent for part in event.message.parts] == [
        (b"How many?", "client"),
        (b"Three.", "model"),
    ]


def test_conversations_of_several_traces_are_told_apart(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.jsonl",
        exchange("one", trace="t1"),
        exchange("two", trace="t2", **{"conversation.id": {"stringValue": "c"}}),
        exchange("three", trace="t3", **{"conversation.id": {"stringValue": "c"}}),
    )
    streams = [(suffix, list(events)) for suffix, events in importers.conversations(Recording(path), "otel-genai")]

    assert [suffix for suffix, _ in streams] == ["-t1", "-c"]
    assert [len(messages(events)) for _, events in streams] == [2, 4]


def test_attributes_may_be_values_of_the_protocol_in_the_place_of_json(tmp_path: Path) -> None:
    part = pairs(type={"stringValue": "text"}, content={"stringValue": "Hi"})
    message = pairs(role={"stringValue": "user"}, parts={"arrayValue": {"values": [part]}})
    path = written(tmp_path / "x.jsonl", span(**{"input.messages": {"arrayValue": {"values": [message]}}}))

    assert [part.body for message in messages(read(path, "otel-genai")) for part in message.parts] == [b"Hi"]


def test_a_span_that_is_no_inference_says_nothing(tmp_path: Path) -> None:
    agent = exchange("again", **{"operation.name": {"stringValue": "invoke_agent"}})
    path = written(tmp_path / "x.jsonl", exchange("one"), agent, {"traceId": 7, "attributes": [None, {"key": []}]})

    assert len(messages(read(path, "otel-genai"))) == 2


def test_without_content_the_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no inference with its messages") as caught:
        read(written(tmp_path / "x.jsonl", span(**{"usage.input_tokens": {"intValue": "7"}})), "otel-genai")

    assert "include content" in str(caught.value.hint)


# --- compactions


def prompt(*texts: str, reply: str = "ok", **more: Any) -> dict[str, Any]:
    """An inference whose prompt are these texts, in turn a person's and a model's."""
    roles = ["user" if at % 2 == 0 else "assistant" for at in range(len(texts))]
    sent = [said(role, text) for role, text in zip(roles, texts, strict=True)]
    return span(**{"input.messages": sent, "output.messages": [said("assistant", reply)], **more})


COMPACTED = {"conversation.compacted": {"boolValue": True}}


def outcome(path: Path) -> list[tuple[str, Any]]:
    """Each event in short: the texts that were told, what a compaction put in and kept, forks."""
    short: list[tuple[str, Any]] = []
    for event in read(path, "otel-genai"):
        match event:
            case Said(message=message):
                short.append(("said", message.parts[0].body.decode()))
            case Compacted(summary=summary, kept=kept):
                short.append(("compacted", ([one.parts[0].body.decode() for one in summary], sorted(kept))))
            case Forked(after=after):
                short.append(("forked", after))
    return short


def test_a_prompt_that_its_host_calls_compacted_is_a_compaction_and_no_rewind(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.jsonl",
        prompt("a", reply="b"),
        prompt("a", "b", "c", reply="d"),
        prompt("summary of a and b", "b", "c", "d", "e", reply="f", **COMPACTED),
        prompt("summary of a and b", "b", "c", "d", "e", "f", "g", reply="h", **COMPACTED),
    )

    assert outcome(path) == [
        *(("said", text) for text in "abcd"),
        ("compacted", (["summary of a and b"], ["message:2", "message:3", "message:4"])),
        *(("said", text) for text in "efgh"),
    ]


def test_where_nothing_stays_the_first_message_is_the_summary(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", prompt("a", reply="b"), prompt("summary", "so", "c", reply="d", **COMPACTED))

    assert outcome(path)[2:] == [("compacted", (["summary"], [])), ("said", "so"), ("said", "c"), ("said", "d")]


def test_who_says_so_of_every_prompt_from_then_on_may_rewind_later(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.jsonl",
        prompt("a", reply="b"),
        prompt("summary", reply="c", **COMPACTED),
        prompt("summary", "c", "d", reply="e", **COMPACTED),
        prompt("summary", "c", "other", reply="f", **COMPACTED),
    )

    assert outcome(path)[-3:] == [("forked", "message:2~2"), ("said", "other"), ("said", "f")]


def test_a_prompt_with_a_shortened_result_is_beside_the_one_before(tmp_path: Path) -> None:
    def chat(result: str, *more: dict[str, Any], reply: str, **flags: Any) -> dict[str, Any]:
        call = {"type": "tool_call", "id": "c", "name": "read", "arguments": {}}
        answer = {"type": "tool_call_response", "id": "c", "response": result}
        sent = [said("user", "a"), {"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [answer]}, *more]
        return span(**{"input.messages": sent, "output.messages": [said("assistant", reply)], **flags})

    more = [said("assistant", "b"), said("user", "c")]
    path = written(tmp_path / "x.jsonl", chat("long", reply="b"), chat("cut", *more, reply="d", **COMPACTED))

    assert [event for event, _ in outcome(path)].count("compacted") == 0
    assert ("forked", "message:2") in outcome(path)


@pytest.mark.parametrize("summary", ["7", "[[]]", "[-1, 99, true, null]", "{}", "[", '"x"', "[0, 0, 1]"])
def test_places_of_a_summary_that_make_no_sense_break_nothing(tmp_path: Path, summary: str) -> None:
    marked = prompt("other", "b", "c", reply="d")
    marked["attributes"].append({"key": "ctxvc.summary", "value": {"stringValue": summary}})
    events = outcome(written(tmp_path / "x.jsonl", prompt("a", reply="b"), marked))

    assert sorted(text for kind, text in events if kind == "said")[:2] == ["a", "b"]
    assert str(events).count("other") == 1


def test_what_was_added_since_a_reply_goes_on_from_it(tmp_path: Path) -> None:
    first = prompt("a", reply="b")
    second = span(**{"output.messages": [said("assistant", "d")]})
    second["attributes"].append({"key": "ctxvc.input.added", "value": {"stringValue": json.dumps([said("user", "c")])}})
    path = written(tmp_path / "x.jsonl", first, second, prompt("a", "b", "c", "d", "e", reply="f"))

    assert outcome(path) == [("said", text) for text in "abcdef"]


def test_a_file_with_a_compaction_that_is_imported_line_by_line_gives_the_history_of_one_import(tmp_path: Path) -> None:
    lines = written(
        tmp_path / "x.jsonl",
        prompt("a", reply="b"),
        prompt("a", "b", "c", reply="d"),
        prompt("summary", "b", "c", "d", "e", reply="f", **COMPACTED),
        prompt("summary", "b", "c", "d", "e", "f", "g", reply="h"),
    )
    ends = list(accumulate(map(len, lines.read_bytes().splitlines(keepends=True))))

    whole = assert_grows_into_the_whole(tmp_path, "x.jsonl", lines.read_bytes(), ends)

    assert [scope for _, scope in whole] == ["main"]


def test_the_places_of_a_summary_count_where_they_are_told(tmp_path: Path) -> None:
    """Each of two compactions one behind the other, and of the second, whose every message is new, two of three."""
    second, third = prompt("one", "c", reply="d", **COMPACTED), prompt("two", "more", "e", reply="f", **COMPACTED)
    for span_with, places in ((second, "[0]"), (third, "[0, 1]")):
        span_with["attributes"].append({"key": "ctxvc.summary", "value": {"stringValue": places}})

    assert outcome(written(tmp_path / "x.jsonl", prompt("a", reply="b"), second, third))[2:] == [
        ("compacted", (["one"], [])),
        *(("said", text) for text in "cd"),
        ("compacted", (["two", "more"], [])),
        *(("said", text) for text in "ef"),
    ]
