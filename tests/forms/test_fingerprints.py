"""Which spellings are of one message, and which messages are different."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest

from ctxvc.forms import anthropic, chat, gemini, responses

PRINTS = {"anthropic": anthropic.fingerprint, "chat": chat.fingerprint, "responses": responses.fingerprint}
PRINTS |= {"gemini": gemini.fingerprint}

CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1, "b": 2}}
FUNCTION = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": 2}'}}
ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1, "b": 2}'}


def said(*blocks: dict[str, Any], role: str = "assistant", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks), **fields}


def text(value: str = "x", **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def content(*parts: dict[str, Any], role: str = "model") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


#: Each list: a message in several spellings. Between two lists: different messages.
MESSAGES: dict[str, list[list[Any]]] = {
    "anthropic": [
        [
            said(text()),
            {"content": "x", "role": "assistant"},
            said(text(citations=None, cache_control={"type": "ephemeral"})),
            said(text(citations=[{"url": "a"}])),
            said({"type": "thinking", "thinking": "hm", "signature": "s"}, text()),
            said({"type": "redacted_thinking", "data": "d"}, text(""), text()),
            said(text(), id="m", model="y", usage={}, stop_reason="end_turn"),
        ],
        [said(text(), role="user")],
        [said(text("y"))],
        [said(text(), text())],
        [said(CALL), said({**CALL, "caller": {"type": "direct"}, "input": {"b": 2, "a": 1}})],
        [said({**CALL, "input": {"a": 1}})],
        [said({**CALL, "id": "d"})],
        [said({**CALL, "type": "server_tool_use"})],
        [
            said({"type": "tool_result", "tool_use_id": "c", "content": "x"}, role="user"),
            said({"type": "tool_result", "tool_use_id": "c", "content": [text()], "is_error": False}, role="user"),
        ],
        [said({"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": True}, role="user")],
        [said({"type": "tool_result", "tool_use_id": "c", "content": "y"}, role="user")],
        [
            said({"type": "tool_result", "tool_use_id": "c"}, role="user"),
            said({"type": "tool_result", "tool_use_id": "c", "content": []}, role="user"),
        ],
        [
            said({"type": "oracle", "level": 0}),
            said({"type": "oracle", "level": 0, "more": None}),
            said({"type": "oracle", "level": 0, "cache_control": {"type": "ephemeral"}}),
        ],
        [said({"type": "oracle", "level": 1})],
        ["x"],
        [None],
    ],
    "chat": [
        [
            {"role": "assistant", "content": "x"},
            {"content": "x", "role": "assistant", "refusal": None, "tool_calls": None, "annotations": []},
            said(text(cache_control={"type": "ephemeral"})),
            {"role": "assistant", "content": "x", "reasoning_content": "hm"},
        ],
        [{"role": "user", "content": "x"}],
        [{"role": "assistant", "content": "y"}],
        [{"role": "assistant", "refusal": "x"}],
        [{"role": "assistant", "refusal": "y"}],
        [
            {"role": "assistant", "content": None, "tool_calls": [FUNCTION]},
            {"role": "assistant", "content": "", "tool_calls": [{**FUNCTION, "index": 0}]},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"b":2,"a":1}'}}],
            },
        ],
        [{"role": "assistant", "tool_calls": [{**FUNCTION, "function": {"name": "f", "arguments": "{}"}}]}],
        [{"role": "assistant", "tool_calls": [{**FUNCTION, "function": {"name": "f", "arguments": "{"}}]}],
        [{"role": "assistant", "tool_calls": [FUNCTION, FUNCTION]}],
        [{"role": "tool", "tool_call_id": "c", "content": "x"}],
        [{"role": "tool", "tool_call_id": "d", "content": "x"}],
        [
            {"role": "assistant", "audio": {"id": "a", "data": "AA", "transcript": "x"}},
            {"role": "assistant", "audio": {"id": "a"}},
        ],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "b"}}]}],
    ],
    "responses": [
        [
            {"role": "assistant", "content": "x"},
            {"type": "message", "id": "m", "status": "completed", "role": "assistant"}
            | {"content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}]},
        ],
        [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        [{"role": "assistant", "content": "y"}],
        [
            {"role": "user", "content": [{"type": "input_image", "image_url": "a"}]},
            {"role": "user", "content": [{"image_url": "a", "type": "input_image", "detail": None}]},
        ],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "b"}]}],
        [ITEM, {**ITEM, "id": "i", "status": "completed", "arguments": '{"b":2,"a":1}', "namespace": None}],
        [{**ITEM, "call_id": "d"}],
        [{**ITEM, "arguments": "{}"}],
        [
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": "x"}],
                "id": "o",
            },
        ],
        [{"type": "function_call_output", "call_id": "c", "output": "y"}],
        [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}],
        [{"type": "item_reference", "id": "a"}],
        [{"type": "item_reference", "id": "b"}],
        [{"type": "compaction", "encrypted_content": "a"}],
    ],
    "gemini": [
        [
            content({"text": "x"}),
            content({"text": "x", "thoughtSignature": "s"}),
            content({"text": "hm", "thought": True}, {"text": "x"}, {"text": ""}),
        ],
        [content({"text": "x"}, role="user"), {"parts": [{"text": "x"}]}, {"parts": "x"}],
        [content({"text": "xy"}), content({"text": "x"}, {"text": "y"})],
        [content({"text": "x"}, {"text": "y"}, role="user")],
        [content({"text": "xy"}, role="user")],
        [
            content({"functionCall": {"name": "f", "args": {"a": 1, "b": 2}}}),
            content({"functionCall": {"id": "c", "name": "f", "args": {"b": 2, "a": 1}}, "thoughtSignature": "s"}),
            content({"function_call": {"name": "f", "args": {"a": 1, "b": 2}}, "thought_signature": "s"}),
        ],
        [content({"functionCall": {"name": "f"}}), content({"functionCall": {"name": "f", "args": {}}})],
        [content({"functionCall": {"name": "g"}})],
        [content({"functionResponse": {"name": "f", "response": {"output": "x"}}}, role="user")],
        [content({"functionResponse": {"name": "f", "response": {"output": "y"}}}, role="user")],
        [content({"inlineData": {"mimeType": "image/png", "data": "AA"}}, role="user")],
        [content({"inlineData": {"mimeType": "image/png", "data": "AB"}}, role="user")],
    ],
}


@pytest.mark.parametrize("form", MESSAGES)
def test_two_spellings_have_one_fingerprint(form: str) -> None:
    for spellings in MESSAGES[form]:
        prints = {PRINTS[form](message): message for message in spellings}
        assert len(prints) == 1, json.dumps([*prints.values()])


@pytest.mark.parametrize("form", MESSAGES)
def test_two_messages_have_two_fingerprints(form: str) -> None:
    for one, other in combinations([spellings[0] for spellings in MESSAGES[form]], 2):
        assert PRINTS[form](one) != PRINTS[form](other), json.dumps([one, other])


def test_reasoning_of_a_response_has_none_as_clients_may_leave_it_out() -> None:
    reasoning = {"type": "reasoning", "summary": []}

    assert responses.fingerprint(reasoning) == b""
    assert responses.group_fingerprint([reasoning, ITEM]) == responses.group_fingerprint([ITEM])
    assert responses.group_fingerprint([ITEM]) != responses.group_fingerprint([ITEM, ITEM])
