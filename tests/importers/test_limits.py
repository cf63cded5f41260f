"""Values that no recorder writes: nested without end, numbers of thousands of digits. All around them is read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.cli.commands.demo import SESSION
from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Warned
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import create
from tests.making.events import messages, parts, read

DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = {
    "lists": DEEP,
    "objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "lists, not closed": "[" * 100_000,
    "just too deep": "[" * (wire.DEEPEST + 1) + "]" * (wire.DEEPEST + 1),
    "deep, where half a surrogate pair stands": '["\\ud800",' + DEEP + "]",
    "digits": "1" * 5_000,
    "digits, below zero": "-" + "9" * 5_000,
    "digits behind a dot": "0." + "3" * 5_000,
    "a large exponent": "1e999999999",
    "2^64": str(2**64),
}


def _claude_code(hostile: str) -> list[str]:
    lines = gzip.decompress(SESSION.read_bytes()).decode().splitlines()[:40]
    broken = next(line for line in map(json.loads, reversed(lines)) if "message" in line)
    return [*lines, hostile, json.dumps({**broken, "uuid": "x", "x": "HERE"}), *_in_message(broken)]


def _in_message(line: dict[str, Any]) -> list[str]:
    blocks = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"x": "HERE"}}, {"type": "x", "x": "HERE"}]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    return [json.dumps({**line, "uuid": "y", "type": "assistant", "message": message})]


def _codex(hostile: str) -> list[str]:
    def item(payload: dict[str, Any], kind: str = "response_item") -> str:
        return json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload})

    def said(role: str, text: str) -> dict[str, Any]:
        kind = "input_text" if role == "user" else "output_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    return [
        item({"id": "s", "cwd": "/project", "timestamp": "2026-01-01T00:00:00Z"}, "session_meta"),
        item(said("user", "first")),
        hostile,
        item({"type": "function_call", "name": "shell", "call_id": "c", "arguments": "HERE"}),
        item({"type": "x", "x": "HERE"}),
        item(said("assistant", "last")),
    ]


def _pi(hostile: str) -> list[str]:
    def entry(role: str, content: list[Any]) -> str:
        message = {"role": role, "content": content, "timestamp": 1}
        return json.dumps({"type": "message", "timestamp": "2026-01-01T00:00:00Z", "message": message})

    return [
        json.dumps({"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/project"}),
        entry("user", [{"type": "text", "text": "first"}]),
        hostile,
        entry("assistant", [{"type": "toolCall", "id": "c", "name": "x", "arguments": {"x": "HERE"}}]),
        entry("user", [{"type": "text", "text": "last"}]),
    ]


def _copilot(hostile: str) -> list[str]:
    def event(kind: str, **data: Any) -> str:
        return json.dumps({"type": kind, "data": data, "timestamp": "2026-01-01T00:00:00Z", "parentId": None})

    return [
        event("session.start", sessionId="s", context={"cwd": "/project"}),
        event("user.message", content="first"),
        hostile,
        event("assistant.message", toolRequests=[{"toolCallId": "c", "name": "x", "arguments": {"x": "HERE"}}]),
        event("user.message", content="last"),
    ]


def _gemini(hostile: str) -> list[str]:
    def message(kind: str, **fields: Any) -> str:
        return json.dumps({"id": kind + str(fields), "timestamp": "2026-01-01T00:00:00Z", "type": kind, **fields})

    return [
        json.dumps({"sessionId": "s", "projectHash": "0" * 64}, separators=(",", ":")),
        message("user", content=[{"text": "first"}]),
        hostile,
        message("gemini", content="", toolCalls=[{"id": "c", "name": "x", "args": {"x": "HERE"}}]),
        message("user", content=[{"text": "last"}]),
    ]


def _qwen(hostile: str) -> list[str]:
    def record(parent: str | None, name: str, kind: str, *parts: Any) -> str:
        message = {"role": "model" if kind == "assistant" else "user", "parts": [*parts]}
        base = {"uuid": name, "parentUuid": parent, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "type": kind}
        return json.dumps({**base, "cwd": "/project", "message": message}, separators=(",", ":"))

    return [
        record(None, "a", "user", {"text": "first"}),
        hostile,
        record("a", "b", "assistant", {"functionCall": {"id": "c", "name": "x", "args": {"x": "HERE"}}}),
        record("b", "c", "user", {"text": "last"}),
    ]


def _trajectory(hostile: str) -> list[str]:
    return [
        json.dumps({"format": "ctxvc-trajectory/1", "id": "t"}),
        json.dumps({"role": "user", "content": [{"type": "text", "text": "first"}]}),
        hostile,
        json.dumps({"role": "user", "content": [{"type": "x", "x": "HERE"}]}),
        json.dumps({"role": "assistant", "content": [{"type": "text", "text": "last"}]}),
    ]


def _openai(hostile: str) -> list[str]:
    return [
        json.dumps({"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "first"}]}),
        hostile,
        json.dumps(
            {
                "messages": [
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": "first"},
                    {"role": "assistant", "content": "last"},
                ]
            }
        ),
    ]


def _langchain(hostile: str) -> list[str]:
    reply = {"type": "ai", "content": "", "tool_calls": [{"name": "x", "id": "c", "args": {"x": "HERE"}}]}
    return [
        json.dumps({"type": "human", "content": "first"}),
        hostile,
        json.dumps({**reply, "x": "HERE"}),
        json.dumps({"type": "human", "content": "last"}),
    ]


FORMATS = {
    "claude-code": _claude_code,
    "codex": _codex,
    "pi": _pi,
    "copilot-cli": _copilot,
    "gemini-cli": _gemini,
    "qwen-code": _qwen,
    "ctxvc-trajectory": _trajectory,
    "openai-chat": _openai,
    "langchain": _langchain,
}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("format", FORMATS)
def test_a_value_that_no_recorder_writes_costs_its_line_at_most(format: str, hostile: str, tmp_path: Path) -> None:
    value = HOSTILE[hostile]
    path = tmp_path / "it.jsonl"
    lines = FORMATS[format](value)
    path.write_text("\n".join(line.replace('"HERE"', value) for line in lines) + "\n")

    events = read(path, format)
    words = b" ".join(part.body for part in parts(events))

    if format == "claude-code":
        assert len(messages(events)) >= 3
    else:
        assert b"first" in words and b"last" in words
    if "deep" in hostile or hostile in ("lists", "objects", "digits"):
        assert any(isinstance(event, Warned) for event in events) or format == "pi"
    if format not in ("claude-code", "codex"):  # a store takes what is read, whatever it was read from
        return
    with create(tmp_path / ".ctxvc") as store:
        imported = list(import_paths(store, [path], final=True, format=format))
        assert [outcome.error for outcome in imported] == [None]
        with StoredSession.open(store) as session:
            assert len(session.ledger()) >= 2


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_document_of_one_value_is_read_or_refused_with_a_word(hostile: str, tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": [{"type": "x", "x": "HERE"}]}]}))
    path.write_text(path.read_text().replace('"HERE"', HOSTILE[hostile]))

    with create(tmp_path / ".ctxvc") as store:
        imported = list(import_paths(store, [path], final=True, format="anthropic-messages"))

    assert len(imported) == 1
