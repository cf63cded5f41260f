"""The window of a session, as each host's recording and files show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Compacted, Opened
from ctxvc.importers.file import Recording
from tests.importers.claude_code.lines import between, line, prompt, reply, text

UNKNOWN = Window()
LARGE = {"tokens": 1_000_000, "compacts": 967_000}


def windows(format: str, path: Path, *lines: object) -> list[Window]:
    """The windows that a recording with these lines tells, in order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in lines))
    streams = [stream for _, stream in importers.conversations(Recording(path), format)]
    events = [event for stream in streams for event in stream]
    return [event.window for event in events if isinstance(event, Opened | Compacted) and event.window is not None]


# --- Claude Code


def answered(uuid: str, parent: str, tokens: int, model: str = "claude-opus-4-6", **more: Any) -> dict[str, Any]:
    made = reply(uuid, parent, text("yes"), model=model, **more)
    made["message"]["usage"] = {"input_tokens": tokens - 7, "output_tokens": 7}
    return made


def boundary(trigger: str, tokens: object) -> dict[str, Any]:
    metadata = {"trigger": trigger, "preTokens": tokens}
    return between("system", "b1", None, subtype="compact_boundary", compactMetadata=metadata)


def set_model(name: str) -> dict[str, Any]:
    return line("c1", None, f"<local-command-stdout>Set model to {name}</local-command-stdout>")


def claude_code(path: Path, *lines: object) -> list[Window]:
    return windows("claude-code", path / "s.jsonl", prompt("u1", None, "hi"), *lines)


#: What the lines of a session tell of its window, each with the reason.
TOLD: dict[str, tuple[list[dict[str, Any]], list[Window]]] = {
    "nothing by itself": ([answered("a1", "u1", 50_000)], []),
    "a name with the suffix has a million": (
        [answered("a1", "u1", 50_000, "claude-opus-4-6[1m]")],
        [Window(by="name", **LARGE)],
    ),
    "a count above 200k shows the large window": (
        [answered("a1", "u1", 199_000), answered("a2", "a1", 200_001), answered("a3", "a2", 300_000)],
        [Window(by="count", **LARGE)],
    ),
    "a compaction of its own below 200k shows the usual window": (
        [answered("a1", "u1", 168_112), boundary("auto", 171_646), answered("a2", "b1", 20_000)],
        [Window(tokens=200_000, by="compaction", compacts=167_000)],
    ),
    "an early compaction in a large window shows where it compacts": (
        [answered("a1", "u1", 250_000), boundary("auto", 460_000), answered("a2", "b1", 20_000)],
        [Window(by="count", **LARGE), Window(tokens=1_000_000, by="count", compacts=460_000)],
    ),
    **{
        f"another compaction shows nothing: {trigger} {tokens}": (
            [answered("a1", "u1", 90_000), boundary(trigger, tokens), answered("a2", "b1", 20_000)],
            [],
        )
        for trigger, tokens in (("manual", 90_000), ("auto", "many"), ("auto", -1))
    },
    **{
        f"the model command can set the large window: {name!r}": (
            [answered("a1", "u1", 9_000), set_model(name), answered("a2", "c1", 10_000)],
            [Window(by="command", **LARGE)],
        )
        for name in ("\x1b[1mopus[1m] (claude-opus-4-6[1m])\x1b[22m", "Opus 4.6 (1M context)")
    },
    "bold text is not taken for the suffix": (
        [set_model("\x1b[1mopus (claude-opus-4-6)\x1b[22m"), answered("a2", "c1", 10_000)],
        [],
    ),
    "another model does not keep the window": (
        [answered("a1", "u1", 250_000), answered("a2", "a1", 90_000, "claude-haiku-4-5")],
        [Window(by="count", **LARGE), UNKNOWN],
    ),
    "a sub-agent's counts are not the session's": ([answered("a1", "u1", 250_000, isSidechain=True)], []),
}


@pytest.mark.parametrize(("lines", "expected"), TOLD.values(), ids=TOLD.keys())
def test_what_a_session_shows_of_its_window(
    tmp_path: Path, lines: list[dict[str, Any]], expected: list[Window]
) -> None:
    assert claude_code(tmp_path, *lines) == expected


SETTINGS: list[tuple[dict[str, Any], list[Window]]] = [
    ({}, []),
    ({"model": "opus"}, []),
    ({"model": "opus[1m]"}, [Window(by="settings", **LARGE)]),
    ({"model": "sonnet[1m]"}, []),
    ({"env": {"ANTHROPIC_MODEL": "claude-opus-4-6[1m]"}}, [Window(by="settings", **LARGE)]),
    ({"model": "opus[1m]", "env": {"CLAUDE_CODE_DISABLE_1M_CONTEXT": "1"}}, []),
    ({"autoCompactWindow": 150_000}, [Window(tokens=150_000, by="settings", compacts=117_000)]),
    (
        {"model": "opus[1m]", "modelSettings": {"claude-opus-4-6": {"autoCompactWindow": 400_000}}},
        [Window(tokens=400_000, by="settings", compacts=367_000)],
    ),
    (
        {"autoCompactWindow": 150_000, "env": {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "160000"}},
        [Window(tokens=160_000, by="settings", compacts=127_000)],
    ),
    ({"autoCompactWindow": "many", "env": [], "model": 5}, []),
]


@pytest.mark.parametrize(("settings", "expected"), SETTINGS)
def test_the_settings_beside_the_transcripts_come_after_what_they_show(
    tmp_path: Path, settings: dict[str, Any], expected: list[Window]
) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    path = tmp_path / "projects" / "-work-app"

    assert claude_code(path, answered("a1", "u1", 90_000)) == expected
    assert claude_code(path, answered("a1", "u1", 500_000))[-1].tokens == 1_000_000


def test_settings_that_are_no_json_are_no_settings(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(b"\xff{")
    assert claude_code(tmp_path / "projects" / "p", answered("a1", "u1", 90_000)) == []


# --- Codex


def codex(path: Path, *payloads: dict[str, Any]) -> list[Window]:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    lines = [
        {"timestamp": "2026-03-02T09:00:00Z", "type": kind, "payload": payload}
        for kind, payload in (
            ("session_meta", {"id": "0199a213-81c0-7800-8aa1-bbab2a035a53", "cwd": "/srv"}),
            ("response_item", item),
            *((payload.pop("line", "event_msg"), payload) for payload in payloads),
        )
    ]
    return windows("codex", path / "rollout.jsonl", *lines)


def test_codex_records_its_window_with_every_count(tmp_path: Path) -> None:
    payloads = [
        {"type": "task_started", "model_context_window": 258_400},
        {"type": "token_count", "info": {"model_context_window": 258_400}},
        {"type": "token_count", "info": None},
        {"type": "token_count", "info": {"model_context_window": 121_600}},
        {"type": "task_started", "model_context_window": "large"},
        {"type": "task_started", "model_context_window": 0},
    ]
    assert codex(tmp_path, *payloads) == [Window(tokens=258_400, by="host"), Window(tokens=121_600, by="host")]


def test_a_rollout_without_a_window_has_that_of_codexs_own_table(tmp_path: Path) -> None:
    models = [
        {"slug": "gpt-5.4", "context_window": 272_000, "effective_context_window_percent": 95},
        {"slug": "gpt-5.5", "context_window": 400_000},
        {"slug": 7, "context_window": 1},
    ]
    (tmp_path / "models_cache.json").write_text(json.dumps({"models": models}))
    path = tmp_path / "sessions" / "2026" / "06" / "18"
    first, second = ({"line": "turn_context", "model": model} for model in ("gpt-5.4", "gpt-5.5"))

    assert codex(path, first, second) == [Window(tokens=258_400, by="models"), Window(tokens=400_000, by="models")]


def test_what_the_rollout_records_comes_before_the_table(tmp_path: Path) -> None:
    (tmp_path / "models_cache.json").write_text(json.dumps({"models": [{"slug": "gpt-5.4", "context_window": 9_000}]}))
    recorded = {"type": "task_started", "model_context_window": 258_400}
    model = {"line": "turn_context", "model": "gpt-5.4"}

    assert codex(tmp_path / "sessions", recorded, model) == [Window(tokens=258_400, by="host")]


# --- pi, and logs of requests


def test_pi_has_the_windows_that_a_person_defined_for_its_models(tmp_path: Path) -> None:
    models = {"local": {"models": [{"id": "llama", "contextWindow": 32_768}, {"id": "x"}]}, "other": 7}
    (tmp_path / "models.json").write_text(json.dumps({"providers": models}))
    header = {"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/w", "modelId": "llama"}
    change = {"type": "model_change", "id": "m1", "parentId": None, "modelId": "claude-opus-4-5"}

    path = tmp_path / "sessions" / "--w--" / "s.jsonl"
    assert windows("pi", path, header, change) == [Window(tokens=32_768, by="models"), UNKNOWN]


def test_a_log_of_requests_may_name_the_window(tmp_path: Path) -> None:
    exchange = {"messages": [{"role": "user", "content": "hi"}], "context_window": 65_536}
    assert windows("openai-chat", tmp_path / "log.jsonl", exchange) == [Window(tokens=65_536, by="host")]
