"""Calls of agents' own tools: equal by what they say, and back again."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.hosts.tools import Call, equal

AGENTS = ("claude-code", "codex", "opencode", "pi", "gemini", "qwen", "copilot", "openhands", "mini-swe-agent")
RISK = {"security_risk": "LOW"}
TODOS = [{"content": "greet", "status": "in_progress", "activeForm": "greet", "priority": "medium"}]
CASES: tuple[tuple[Call, str, Call | None], ...] = (
    (Call("Bash", {"command": "ls", "description": "lists"}), "codex", Call("exec_command", {"cmd": "ls"})),
    (Call("Bash", {"command": "ls", "timeout": 60_000}), "pi", Call("bash", {"command": "ls", "timeout": 60})),
    (
        Call("exec_command", {"cmd": "ls", "workdir": "/w"}),
        "opencode",
        Call("bash", {"command": "ls", "workdir": "/w"}),
    ),
    (Call("exec_command", {"cmd": "ls", "workdir": "/w"}), "claude-code", None),  # it has no folder
    (Call("Bash", {"command": "ls", "run_in_background": True}), "codex", None),
    (Call("Bash", {"command": "ls", "run_in_background": False}), "codex", Call("exec_command", {"cmd": "ls"})),
    (
        Call("Read", {"file_path": "a", "offset": 10, "limit": 5}),
        "gemini",
        Call("read_file", {"file_path": "a", "start_line": 10, "end_line": 14}),
    ),
    (
        Call("Read", {"file_path": "a", "offset": 10, "limit": 5}),
        "copilot",
        Call("view", {"path": "a", "view_range": [10, 14]}),
    ),
    (
        Call("view", {"path": "a", "view_range": [10, -1]}),
        "claude-code",
        Call("Read", {"file_path": "a", "offset": 10}),
    ),
    (Call("Read", {"file_path": "a"}), "codex", None),
    (
        Call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
        "pi",
        Call("edit", {"path": "a", "edits": [{"oldText": "x", "newText": "y"}]}),
    ),
    (Call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True}), "pi", None),
    (
        Call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
        "openhands",
        Call("file_editor", {"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y", **RISK}),
    ),
    (
        Call("TodoWrite", {"todos": TODOS}),
        "codex",
        Call("update_plan", {"plan": [{"step": "greet", "status": "in_progress"}]}),
    ),
    (
        Call("update_plan", {"plan": [{"step": "greet", "status": "completed"}]}),
        "openhands",
        Call(
            "task_tracker",
            {"command": "plan", "task_list": [{"title": "greet", "notes": "", "status": "done"}], **RISK},
        ),
    ),
    (Call("Bash", {"command": ["ls"]}), "codex", None),
    (Call("mcp__db__query", {"sql": "select 1"}), "codex", None),
    (Call("Bash", {"command": "ls"}), "claude-code", None),  # it is one already
)


@pytest.mark.parametrize(("call", "agent", "expected"), CASES)
def test_a_call_becomes_one_that_says_the_same_or_none(call: Call, agent: str, expected: Call | None) -> None:
    became = equal(call, agent)

    assert (became and Call(became.tool, dict(became.arguments))) == expected


texts = st.text(min_size=1, max_size=20)
lines = st.integers(1, 10_000)
CALLS = st.one_of(
    st.builds(lambda command: Call("Bash", {"command": command}), texts),
    st.builds(
        lambda path, first, count: Call("Read", {"file_path": path, "offset": first, "limit": count}),
        texts, lines, lines,
    ),
    st.builds(lambda path: Call("Read", {"file_path": path}), texts),
    st.builds(lambda path, content: Call("Write", {"file_path": path, "content": content}), texts, texts),
    st.builds(
        lambda path, old, new: Call("Edit", {"file_path": path, "old_string": old, "new_string": new}),
        texts, texts, texts,
    ),
    st.builds(lambda pattern, path: Call("Grep", {"pattern": pattern, "path": path}), texts, texts),
    st.builds(lambda pattern: Call("Glob", {"pattern": pattern}), texts),
    st.builds(lambda url: Call("WebFetch", {"url": url}), texts),
)  # fmt: skip


@given(CALLS)
def test_a_call_comes_back_from_every_agent_as_it_was(call: Call) -> None:
    for agent, other in product(AGENTS, AGENTS):
        became = equal(call, agent)
        there = equal(became, other) or became if became else None
        if there is None:
            continue
        back = equal(there, "claude-code") or there
        assert (back.tool, dict(back.arguments)) == (call.tool, dict(call.arguments)), (agent, other)


@given(
    st.text(max_size=10) | st.sampled_from(["Bash", "read", "edit", "view", "file_editor", "update_plan"]), st.data()
)
def test_whatever_a_call_says_it_is_an_equal_or_none(tool: str, data: st.DataObject) -> None:
    values: Any = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)
    names = st.sampled_from(["command", "path", "file_path", "view_range", "edits", "plan", "todos", "limit", "other"])
    arguments = data.draw(st.dictionaries(names, values, max_size=4))
    for agent in AGENTS:
        became = equal(Call(tool, arguments), agent)
        assert became is None or equal(became, agent) is None
