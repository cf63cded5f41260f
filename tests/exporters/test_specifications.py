"""What is exported is what the specifications ask for: the SDK's own types, and schemas written after the texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from ctxvc.exporters import hf_trace, openai_chat, openai_responses, otel_genai
from ctxvc.exporters.conversation import Conversation
from ctxvc.store.store import Store, create
from tests.exporters.trips import conversation, imported
from tests.making.project import build
from tests.recording.test_files import call, line, result, take, text, write

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
SMALL = (
    "recorded/claude-code.jsonl",
    "recorded/codex.jsonl",
    "anthropic/request.json",
    "openai-chat/request.json",
    "openai-responses/request.json",
)
#: What the SDK's types know of a request; it has more.
_CHAT: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)
_RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)
_OTLP = json.loads((HERE / "otlp.schema.json").read_text())
_IN_OTLP = Draft202012Validator(_OTLP)
_IN_MESSAGES = Draft202012Validator({"$defs": _OTLP["$defs"], "$ref": "#/$defs/messages"})


@pytest.fixture(scope="module")
def _sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Conversation]]:
    """Small recordings of every kind, and sessions with everything in them."""
    folder = tmp_path_factory.mktemp("sessions")
    build(folder / "project")
    with create(folder / "store") as recorded, Store(folder / "project" / ".ctxvc") as made:
        yield [
            *(imported(recorded, DATA / name) for name in SMALL),
            *(conversation(made, session) for session in made.sessions()),
        ]


def everything(value: Any) -> Any:
    """A value with all that is lazy in it read: pydantic looks at an iterable only when somebody takes from it."""
    if isinstance(value, dict):
        return {name: everything(item) for name, item in value.items()}
    if isinstance(value, (str, bytes, int, float, type(None))):
        return value
    return [everything(item) for item in value]


def with_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items with an id for reasoning, which the types require; the API itself does not where it keeps nothing."""
    return [{"id": "rs_0", **item} if item.get("type") == "reasoning" else item for item in items]


def test_the_sdks_types_take_every_chat_request(_sessions: list[Conversation]) -> None:
    for recorded in _sessions:
        source = recorded.ledger.meta.source
        if source and source.format == "openai-chat":
            continue  # written as it came, valid or not
        request = json.loads(openai_chat.export(recorded).data)
        everything(_CHAT.validate_python({"model": "m", **request}))


def test_the_sdks_types_take_every_request_of_the_responses_api(_sessions: list[Conversation]) -> None:
    for recorded in _sessions:
        request = json.loads(openai_responses.export(recorded).data)
        request["input"] = with_ids(request["input"])
        everything(_RESPONSES.validate_python({"model": "m", **request}))


def test_the_types_refuse_what_is_no_request() -> None:
    with pytest.raises(ValueError, match="tool_call_id"):
        everything(_CHAT.validate_python({"model": "m", "messages": [{"role": "tool", "content": "x"}]}))
    with pytest.raises(ValueError, match="call_id"):
        everything(_RESPONSES.validate_python({"model": "m", "input": [{"type": "function_call_output"}]}))


def test_a_session_trace_has_the_fields_of_its_format(_sessions: list[Conversation]) -> None:
    for recorded in _sessions:
        header, *lines = map(json.loads, hf_trace.export(recorded).data.splitlines())
        assert (header["type"], header["harness"]) == ("session", "ctxvc")
        assert header["id"]
        calls = set()
        for value in lines:
            message = value["message"]
            assert value["type"] == "message"
            assert message["role"] in ("user", "assistant", "system", "tool")
            assert isinstance(message["content"], str)
            assert message.keys() <= {
                *("role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model")
            }
            calls |= {one["id"] for one in message.get("toolCalls", [])}
            assert all(isinstance(one["function"]["arguments"], str) for one in message.get("toolCalls", []))
            assert message["role"] != "tool" or message["toolCallId"] in calls


# --- spans


def spans(recorded: Conversation) -> list[dict[str, Any]]:
    lines = list(map(json.loads, otel_genai.export(recorded).data.splitlines()))
    for value in lines:
        _IN_OTLP.validate(value)
    return [
        span
        for value in lines
        for resource in value["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


def test_spans_are_as_otlp_and_the_conventions_have_them(_sessions: list[Conversation]) -> None:
    for recorded in _sessions:
        ids = set()
        for span in spans(recorded):
            told = attributes(span)
            assert "parentSpanId" not in span or span["parentSpanId"] in ids
            assert span["spanId"] not in ids
            ids.add(span["spanId"])
            assert span["name"].split(" ")[0] == told["gen_ai.operation.name"]
            assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
            for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
                if name in told:
                    _IN_MESSAGES.validate(json.loads(told[name]))


def test_each_chat_has_the_prompt_that_its_reply_saw(store: Store) -> None:
    recorded = imported(store, DATA / "recorded" / "claude-code.jsonl")
    chats = [attributes(span) for span in spans(recorded) if span["name"].startswith("chat ")]
    histories = [json.loads(chat["gen_ai.input.messages"]) for chat in chats]
    replies = [json.loads(chat["gen_ai.output.messages"]) for chat in chats]

    assert len(chats) > 3
    for (history, reply), later in zip(zip(histories, replies, strict=True), histories[1:], strict=False):
        assert later[: len(history) + 1] == [*history, *reply]


def test_the_spans_of_a_sub_agent_are_below_the_call_that_started_it(store: Store, tmp_path: Path) -> None:
    session = take(store, subagents(tmp_path), final=True, redact=False).session
    recorded = conversation(store, session)

    by_name: dict[str, list[dict[str, Any]]] = {}
    for span in spans(recorded):
        by_name.setdefault(span["name"].split(" ")[0], []).append(span)

    main, below = by_name["invoke_agent"]
    (task,) = (span for span in by_name["execute_tool"] if attributes(span)["gen_ai.tool.name"] == "Task")
    assert below["parentSpanId"] == task["spanId"]
    assert main["traceId"] == below["traceId"]
    assert [loss.path for loss in hf_trace.export(recorded).losses if loss.path.startswith("scopes.")] == [
        f"scopes.{name}" for name in recorded.subagents
    ]


def subagents(folder: Path) -> Path:
    """A transcript of Claude Code in which a call starts a sub-agent."""
    aside = {"isSidechain": True}
    return write(
        folder / "s.jsonl",
        line("user", "u1", None, "look into it"),
        line("assistant", "a1", "u1", [{"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "find"}}]),
        line("user", "s1", None, "find", **aside),
        line("assistant", "s2", "s1", call("grep"), **aside),
        line("user", "s3", "s2", result("grep", "there"), **aside),
        line("assistant", "s4", "s3", text("It is there."), **aside),
        line("user", "r1", "a1", [{"type": "tool_result", "tool_use_id": "t1", "content": "It is there."}]),
        line("assistant", "a2", "r1", text("Found.")),
    )


def test_old_prompts_are_left_out_where_all_of_them_are_too_much(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came in for each reply is there all the same."""
    recorded = imported(store, DATA / "recorded" / "claude-code.jsonl")
    whole = [attributes(span) for span in spans(recorded) if span["name"].startswith("chat ")]
    monkeypatch.setattr(otel_genai, "_MOST_INPUT", 30_000)

    chats = [attributes(span) for span in spans(recorded) if span["name"].startswith("chat ")]
    has_input = ["gen_ai.input.messages" in chat for chat in chats]

    assert has_input[1:] == sorted(has_input[1:]), "the first goes on from nothing"
    assert 0 < has_input.count(False) < len(chats)
    for chat, before, here in zip(chats[1:], whole, whole[1:], strict=False):
        if added := chat.get("ctxvc.input.added"):
            told = [json.loads(before[f"gen_ai.{name}.messages"]) for name in ("input", "output")]
            assert json.loads(here["gen_ai.input.messages"]) == [*told[0], *told[1], *json.loads(added)]
    assert not [loss.path for loss in otel_genai.export(recorded).losses if loss.path.endswith(".input")]


def test_a_prompt_that_is_left_out_and_does_not_go_on_from_the_one_before_is_a_loss(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = imported(store, DATA / "claude-code" / "builtin-compaction-2.1.330.jsonl")
    monkeypatch.setattr(otel_genai, "_MOST_INPUT", 0)

    losses = [loss.path for loss in otel_genai.export(recorded).losses]
    assert [path for path in losses if path.endswith(".input")] == ["steps[1].input", "steps[6].input"]
    assert {"B19", "B24"} <= {*losses}, "what only that prompt had"


def test_the_first_prompt_after_a_compaction_says_which_of_its_messages_are_the_summary(store: Store) -> None:
    recorded = imported(store, DATA / "claude-code" / "builtin-compaction-2.1.330.jsonl")
    chats = [attributes(span) for span in spans(recorded) if span["name"].startswith("chat ")]
    places = [json.loads(chat["ctxvc.summary"]) for chat in chats if "ctxvc.summary" in chat]

    assert ["ctxvc.summary" in chat for chat in chats].index(True) == 5
    (own,) = places
    told = [json.loads(chats[5]["gen_ai.input.messages"])[at]["parts"] for at in own]
    assert any("This session is being continued" in part["content"] for parts in told for part in parts)
