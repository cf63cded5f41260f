"""What a format has no place for is listed, by the block and with what stands in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc import exporters
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part, Role
from ctxvc.exporters.exported import Exported, losses_in_words
from ctxvc.forms.losses import Loss
from ctxvc.store import timestamp
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.exporters.test_specifications import attributes, spans, subagents
from tests.exporters.trips import conversation, imported
from tests.making.conversation import human, reply
from tests.making.events import written
from tests.recording.test_files import take

DATA = Path(__file__).parents[1] / "data"
PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
COMPACTED = [
    {"format": "ctxvc-trajectory/1", "id": "long", "model": "claude-opus-4-5"},
    {"role": "user", "content": [{"type": "text", "text": "begin"}], "meta": {"ts": "2026-01-01T10:00:00Z"}},
    {"role": "assistant", "content": [{"type": "text", "text": "begun"}],
     "meta": {"ts": "2026-01-01T10:00:01Z", "usage": {
         "input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 500, "output_tokens": 7}}},
    {"role": "user", "content": [{"type": "text", "text": "a summary"}],
     "meta": {"compact_boundary": True, "compact_summary": True, "ts": "2026-01-01T10:00:02Z"}},
    {"role": "user", "content": [{"type": "text", "text": "a reminder"}], "meta": {"injected": True}},
    {"role": "user", "content": [{"type": "text", "text": "go on"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "gone on"}, {"type": "tool_use", "id": "c1", "name": "f",
     "input": {}}], "meta": {"ts": "2026-01-01T10:00:03Z"}},
]  # fmt: skip


def export(store: Store, format: str, *messages: Message, **request: Any) -> Exported:
    store.create_session("demo", **request)
    with StoredSession.open(store, "demo") as session:
        session.append(*messages)
    return exporters.exporter(format).export(conversation(store, "demo"))


def with_picture(store: Store, format: str) -> Exported:
    content = [{"type": "text", "text": "a map"}, {"type": "image", "source": PIXEL}, {"type": "odd"}]
    result = wire.part(
        {"type": "tool_result", "tool_use_id": "c1", "content": content, "is_error": True}, "user", "tool"
    )
    return export(store, format, human("look"), reply("", "c1"), Message(role="user", parts=(result,)))


def test_in_chat_a_picture_in_a_result_follows_in_a_message_of_the_user(store: Store) -> None:
    exported = with_picture(store, "openai-chat")

    *_, result, pictures = json.loads(exported.data)["messages"]
    assert (result["role"], result["content"]) == ("tool", "a map")
    assert pictures["role"] == "user"
    assert [part["type"] for part in pictures["content"]] == ["text", "image_url"]
    assert pictures["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert exported.losses == (
        Loss("B3.is_error"),
        Loss("B3.content[1]", "it follows in a message of the user"),
        Loss("B3.content[2]"),
    )


TEXT_FILE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
URL = "https://example.org/a.png"
LINKED = {"type": "image", "source": {"type": "url", "url": URL}, "context": "a map"}
REASONED = {"type": "thinking", "thinking": "hm", "signature": "openai.chat:reasoning"}


@pytest.mark.parametrize(
    ("format", "block", "expected", "losses"),
    [
        ("openai-chat", TEXT_FILE, "words", [Loss("B1", "text")]),
        ("openai-responses", TEXT_FILE, [{"type": "input_text", "text": "words"}], [Loss("B1", "text")]),
        (
            "openai-chat",
            LINKED,
            [{"type": "image_url", "image_url": {"url": URL}}],
            [Loss("B1.context")],
        ),
        (
            "openai-responses",
            LINKED,
            [{"type": "input_image", "image_url": URL, "detail": "auto"}],
            [Loss("B1.context")],
        ),
        ("openai-chat", REASONED, "hm", []),
        ("openai-responses", REASONED, None, [Loss("B1")]),
    ],
)
def test_what_has_no_place_is_written_otherwise_or_named(
    store: Store, format: str, block: dict[str, Any], expected: Any, losses: list[Loss]
) -> None:
    role: Role = "assistant" if block["type"] == "thinking" else "user"
    exported = export(store, format, Message(role=role, parts=(wire.part(block, role, "client"),)))

    request = json.loads(exported.data)
    (message,) = request.get("messages", request.get("input")) or [{}]
    content = message.get("content", message.get("reasoning"))
    assert content == expected
    assert list(exported.losses) == losses


def test_in_responses_it_stays(store: Store) -> None:
    exported = with_picture(store, "openai-responses")

    *_, result = json.loads(exported.data)["input"]
    assert [part["type"] for part in result["output"]] == ["input_text", "input_image"]
    assert exported.losses == (Loss("B3.is_error"), Loss("B3.content[2]"))


def test_a_trace_has_text_only(store: Store) -> None:
    exported = with_picture(store, "hf-trace")

    assert json.loads(exported.data.splitlines()[-1])["message"]["content"] == "a map"
    assert [loss.path for loss in exported.losses] == ["B3.content[1]", "B3.content[2]"]


def test_losses_of_a_kind_are_told_together(store: Store) -> None:
    exported = with_picture(store, "openai-chat")

    assert [*losses_in_words(exported, conversation(store, "demo").ledger)] == [
        "left out: the error mark of 1 result (B3)",
        "changed: content of 1 result (B3): it follows in a message of the user",
        "left out: content of 1 result (B3)",
    ]


@pytest.mark.parametrize(
    ("format", "source", "lost"),
    [
        ("openai-chat", "anthropic/request.json", {"tools[1]"}),
        ("openai-responses", "anthropic/request.json", {"tools[1]"}),
        ("anthropic-messages", "openai-chat/request.json", {"tools[1]", "B4", "B7.input"}),
        ("anthropic-messages", "openai-responses/request.json", {"tools[1]", "B4", "B10"}),
    ],
)
def test_what_only_one_api_has_is_listed(store: Store, format: str, source: str, lost: set[str]) -> None:
    made = exporters.exporter(format).export(imported(store, DATA / source))

    assert lost <= {loss.path for loss in made.losses}


@pytest.mark.parametrize("format", ["ctxvc-trajectory", "hf-trace", "otel-genai"])
def test_our_own_dashboards_are_in_no_recording(store: Store, format: str) -> None:
    board = Part(kind="dashboard", role="user", origin="client", body=b"the board")
    made = export(store, format, human("a"), Message(role="user", parts=(board,)), reply("b"))

    assert b"the board" not in made.data
    assert "B2" in {loss.path for loss in made.losses}


def test_a_sub_agent_that_had_not_begun_is_in_no_export(store: Store, tmp_path: Path) -> None:
    session = take(store, subagents(tmp_path), final=True, redact=False).session
    recorded = conversation(store, session)
    beginning = recorded.entries[-1].commit

    assert len(recorded.subagents) == 1
    assert not conversation(store, session, beginning).subagents


# --- what a trajectory and spans keep


def test_a_trajectory_keeps_compactions_what_a_client_put_in_and_what_has_no_result(
    store: Store, tmp_path: Path
) -> None:
    made = exporters.exporter("ctxvc-trajectory").export(imported(store, written(tmp_path / "a.jsonl", *COMPACTED)))

    header, *lines = map(json.loads, made.data.splitlines())
    assert header["model"] == "claude-opus-4-5"
    assert [[name for name, value in line["meta"].items() if value is True] for line in lines] == [
        [], [], ["compact_boundary", "compact_summary"], ["injected"], [], [], [],
    ]  # fmt: skip
    assert lines[1]["meta"]["usage"] == COMPACTED[2]["meta"]["usage"]  # type: ignore[index]
    assert lines[-1]["content"][0]["synthetic"] is True


def test_a_span_has_the_roles_counts_and_compactions_of_the_conventions(store: Store, tmp_path: Path) -> None:
    recorded = imported(store, written(tmp_path / "a.jsonl", *COMPACTED))
    first, second = (attributes(span) for span in spans(recorded) if span["name"].startswith("chat "))

    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == ("543", "7")
    assert first["gen_ai.provider.name"] == "anthropic"
    assert "gen_ai.conversation.compacted" not in first
    assert second["gen_ai.conversation.compacted"] is True
    history = json.loads(second["gen_ai.input.messages"])
    assert [part["content"] for message in history for part in message["parts"]] == ["a summary", "a reminder", "go on"]


def test_results_have_a_role_of_their_own_in_spans(store: Store) -> None:
    recorded = imported(store, DATA / "recorded" / "claude-code.jsonl")
    *_, last = (attributes(span) for span in spans(recorded) if span["name"].startswith("chat "))

    for message in json.loads(last["gen_ai.input.messages"]):
        kinds = {part["type"] for part in message["parts"]}
        assert (message["role"] == "tool") == (kinds == {"tool_call_response"})


def test_a_reply_in_several_lines_of_a_trace_is_one(store: Store) -> None:
    texts = tuple(wire.text_part(text, "assistant", "model") for text in ("one", "two"))
    made = export(store, "hf-trace", human("a"), Message(role="assistant", parts=texts), reply("three"))

    lines = [json.loads(line) for line in made.data.splitlines()[2:]]
    assert [line.get("ctxvc") for line in lines] == [None, {"continues": True}, None]


@pytest.mark.parametrize(("seconds", "text"), [(-5, "1970-01-01T00:00:00Z"), (10**15, "9999-12-31T23:59:59Z")])
def test_any_time_can_be_written(seconds: int, text: str) -> None:
    assert timestamp.iso(seconds) == text


def test_an_item_of_a_result_that_only_openai_has_is_listed(store: Store, tmp_path: Path) -> None:
    made_of = [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}]
    called = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": made_of},
    ]}))  # fmt: skip

    made = exporters.exporter("anthropic-messages").export(imported(store, path))

    assert made.losses == (Loss("B3.content"),)
