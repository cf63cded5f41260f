"""Trajectories of SWE-agent and mini-swe-agent: who made a message, what tells runs apart, what a run's end closes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc import importers
from ctxvc.core.ledger.ledger import Window
from ctxvc.core.recording.events import Edited, Event, Opened, Warned
from ctxvc.importers.file import Recording
from ctxvc.recording.files import import_paths
from ctxvc.store.store import Store
from tests.making.events import messages, parts, read

DATA = Path(__file__).parents[1] / "data"


def opened(events: list[Event]) -> Opened:
    first = events[0]
    assert isinstance(first, Opened)
    return first


def origins(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(part.kind, part.origin, part.body.decode()) for part in parts(events)]


# --- SWE-agent


def item(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", "message_type": "observation", **fields}


def call(name: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def trajectory(path: Path, *history: Any, **fields: Any) -> Path:
    path.write_text(json.dumps({"environment": "e", "trajectory": [], "history": list(history), "info": {}, **fields}))
    return path


TASK = (item("system", "Use the shell."), item("user", "Fix the issue."))


def test_what_a_command_printed_is_a_tools_and_the_task_a_persons(tmp_path: Path) -> None:
    path = trajectory(
        tmp_path / "i.traj",
        TASK[0],
        item("user", "Here is a demonstration.", is_demo=True),
        TASK[1],
        item("assistant", "Look.\n```\nls\n```", thought="Look.", action="ls"),
        item("user", "a.py\n$"),
        item("assistant", "Done."),
    )

    events = read(path, "swe-agent")

    assert opened(events).system == "Use the shell."
    assert origins(events) == [
        ("user", "client", "Here is a demonstration."),
        ("user", "human", "Fix the issue."),
        ("assistant", "model", "Look.\n```\nls\n```"),
        ("user", "tool", "a.py\n$"),
        ("assistant", "model", "Done."),
    ]


def test_calls_used_twice_under_one_id_have_each_its_result(tmp_path: Path) -> None:
    path = trajectory(
        tmp_path / "i.traj",
        *TASK,
        item(
            "assistant",
            "",
            tool_calls=[call("submit", "call_submit")],
            thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": "s"}],
        ),
        item("tool", "review first", tool_call_ids=["call_submit"]),
        item("assistant", "", tool_calls=[call("submit", "call_submit")]),
        item("tool", "diff", tool_call_ids=["call_submit"]),
    )

    found = parts(read(path, "swe-agent"))

    assert [(part.kind, part.call, part.tool) for part in found[1:]] == [
        ("thinking", "", ""),
        ("tool_use", "call_submit", "submit"),
        ("tool_result", "call_submit", "submit"),
        ("tool_use", "call_submit~2", "submit"),
        ("tool_result", "call_submit~2", "submit"),
    ]
    assert found[1].extra == {"signature": "s"}


def test_the_configuration_of_a_run_names_model_and_window(tmp_path: Path) -> None:
    model = {"agent": {"model": {"name": "gpt-4o", "max_input_tokens": 64_000}}}
    for config in (model, json.dumps(model)):
        path = trajectory(
            tmp_path / "django-1.traj",
            *TASK,
            item("assistant", "ok"),
            replay_config=config,
            info={"swe_agent_version": "1.1.0", "exit_status": "submitted"},
        )

        first = opened(read(path, "swe-agent"))

        assert (first.model, first.window, first.agent) == (
            "gpt-4o",
            Window(tokens=64_000, by="host"),
            "SWE-agent 1.1.0",
        )
        assert (first.name, first.title, first.grows) == ("django-1", "django-1", False)


def test_each_attempt_of_a_run_is_a_session(tmp_path: Path, store: Store) -> None:
    attempts = [
        {"history": [*TASK, item("assistant", text)], "trajectory": [], "info": {"exit_status": "submitted"}}
        for text in ("one", "two")
    ]
    path = trajectory(tmp_path / "i.traj", *attempts[1]["history"], attempts=attempts)

    outcomes = list(import_paths(store, [path]))

    assert importers.detect(Recording(path)) == "swe-agent"
    assert [(outcome.session, outcome.units, outcome.waiting) for outcome in outcomes] == [
        ("i-attempt-1", 1, 0),
        ("i-attempt-2", 1, 0),
    ]


@pytest.mark.parametrize("format", ["swe-agent", "mini-swe-agent"])
def test_two_runs_of_one_instance_are_two_sessions(format: str, tmp_path: Path, store: Store) -> None:
    paths = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        reply = {"role": "assistant", "content": "Look.", "extra": {"timestamp": float(number)}}
        history = [{"role": "user", "content": "Fix the issue."}, reply]
        path = tmp_path / str(number) / "i.traj.json"
        if format == "swe-agent":
            steps = [{"action": "", "observation": "", "response": "", "execution_time": number + 0.5}]
            paths.append(trajectory(path, *TASK, item("assistant", "Look."), trajectory=steps))
        else:
            path.write_text(json.dumps({"info": {"mini_version": "2"}, "messages": history}))
            paths.append(path)

    outcomes = list(import_paths(store, [*paths, *paths], format=format, final=True))

    assert [(outcome.session, outcome.units) for outcome in outcomes] == [("i", 1), ("i-2", 1), ("i", 0), ("i-2", 0)]


@pytest.mark.parametrize("format", ["swe-agent", "mini-swe-agent"])
def test_a_run_without_a_reply_is_not_imported_yet(format: str, tmp_path: Path, store: Store) -> None:
    path = trajectory(tmp_path / "i.traj", *TASK)
    if format == "mini-swe-agent":
        path.write_text(json.dumps({"info": {}, "messages": [*TASK]}))

    (outcome,) = import_paths(store, [path], format=format)

    assert "no messages" in str(outcome.error)
    assert [event.text for event in read(path, format) if isinstance(event, Warned)] == ["the run has no reply yet"]


@pytest.mark.parametrize("field", ["query", "messages"])
def test_what_history_processors_shortened_is_edited_in_the_prompt_of_that_step(
    field: str, tmp_path: Path, store: Store
) -> None:
    history = [
        *TASK,
        item("assistant", "", tool_calls=[call("ls", "c1")]),
        item("tool", "a long list", tool_call_ids=["c1"]),
        item("assistant", "```\nls\n```"),
        item("user", "another list"),
        item("assistant", "```\ncat a\n```"),
        item("user", "text"),
        item("assistant", "done"),
    ]
    marked = [{"type": "text", "text": "a long list", "cache_control": {"type": "ephemeral"}}]
    shorter = [*history[:3], {**history[3], "content": "(omitted)"}, *history[4:]]
    asked_again = [*shorter[:6], item("assistant", "no action"), item("user", "Give one action.")]
    prompts = [
        history[:2],
        [*history[:3], {**history[3], "content": marked}],
        shorter[:6],
        asked_again,
        [*shorter[:5], {**history[5], "content": "(omitted too)"}, *history[6:8]],
    ]
    steps = [{"action": "", "observation": "", "response": "", field: prompt} for prompt in prompts]
    path = trajectory(tmp_path / "i.traj", *history, trajectory=steps)

    events = read(path, "swe-agent")

    edits = [(event.key, event.call, event.parts[0].body) for event in events if isinstance(event, Edited)]
    assert edits == [("", "c1", b"(omitted)"), ("message:6", "", b"(omitted too)")]
    assert opened(events).missing == ("the tool definitions",)
    (outcome,) = import_paths(store, [path], final=True)
    assert (outcome.error, outcome.units) == (None, 6)


def test_a_folder_of_runs_is_imported(tmp_path: Path, store: Store) -> None:
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        trajectory(tmp_path / "runs" / name / f"{name}.traj", *TASK, item("assistant", "ok"))
        (tmp_path / "runs" / name / "config.yaml").write_text("agent: {}")

    outcomes = list(import_paths(store, [tmp_path / "runs"], final=True))

    assert [(outcome.session, outcome.format, outcome.error) for outcome in outcomes] == [
        ("one", "swe-agent", None),
        ("two", "swe-agent", None),
    ]


def test_an_edited_run_is_refused(tmp_path: Path, store: Store) -> None:
    history = [*TASK, item("assistant", "one"), item("user", "seen"), item("assistant", "two")]
    path = trajectory(tmp_path / "i.traj", *history)
    list(import_paths(store, [path], final=True))
    trajectory(path, *history[:3], item("user", "something else"), *history[4:], item("user", "more"))

    (outcome,) = import_paths(store, [path], final=True)

    assert "not the one that was imported" in str(outcome.error)


# --- mini-swe-agent


def mini(path: Path, *spoken: Any, **info: Any) -> Path:
    path.write_text(json.dumps({"info": info, "messages": list(spoken), "trajectory_format": "mini-swe-agent-1.1"}))
    return path


def says(role: str, content: Any, **extra: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **({"extra": extra} if extra else {})}


def test_extra_tells_who_made_a_message(tmp_path: Path) -> None:
    path = mini(
        tmp_path / "run.traj.json",
        says("system", "Use bash."),
        says("user", "Fix it."),
        says("assistant", "no command"),
        says("user", "Expected one action.", interrupt_type="FormatError"),
        says("assistant", "```bash\nls\n```"),
        says("user", "a.py", returncode=0, raw_output="a.py"),
        says("user", "Interrupted by user: use rg", interrupt_type="UserInterruption"),
        says("user", "User command: ls", actions=[{"command": "ls"}]),
        says("assistant", "thanks"),
        says("exit", "Submitted", exit_status="Submitted"),
        mini_version="2.4.6",
    )

    events = read(path, "mini-swe-agent")

    assert [(origin, text) for _, origin, text in origins(events)] == [
        ("human", "Fix it."),
        ("model", "no command"),
        ("client", "Expected one action."),
        ("model", "```bash\nls\n```"),
        ("tool", "a.py"),
        ("human", "Interrupted by user: use rg"),
        ("human", "User command: ls"),
        ("model", "thanks"),
    ]
    assert (opened(events).agent, opened(events).grows, opened(events).missing) == ("mini-swe-agent 2.4.6", False, ())


def test_older_lists_are_known_by_how_their_messages_begin(tmp_path: Path) -> None:
    path = tmp_path / "run.traj.json"
    spoken = [
        says("system", "Answer with one ```bash block. End: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        says("user", "Fix it."),
        says("assistant", "hm"),
        says("user", "Please always provide EXACTLY ONE action in triple backticks, found 0 actions."),
        says("assistant", "```bash\nls\n```"),
        says("user", "<returncode>0</returncode>\n<output>\na.py</output>"),
        says("user", "and be quick"),
        says("assistant", "```bash\necho COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n```"),
        says("user", "diff --git a/a.py b/a.py"),
    ]
    path.write_text(json.dumps(spoken))

    assert importers.detect(Recording(path)) == "mini-swe-agent"
    assert [origin for _, origin, _ in origins(read(path, "mini-swe-agent"))] == [
        "human", "model", "client", "model", "tool", "human", "model", "tool",
    ]  # fmt: skip


def test_calls_of_both_forms_have_results_tokens_and_times() -> None:
    for name in ("calls", "responses"):
        events = read(DATA / "mini-swe-agent" / f"{name}.traj.json", "mini-swe-agent")

        assert [(part.kind, part.call, part.tool) for part in parts(events)][1:6] == [
            ("assistant", "", ""),
            ("tool_use", "call_1", "bash"),
            ("tool_use", "call_2", "bash"),
            ("tool_result", "call_1", "bash"),
            ("tool_result", "call_2", "bash"),
        ]
        assert messages(events)[1].time.startswith("2026-")
        assert opened(events).missing == ("the tool definition",)
    reply = messages(read(DATA / "mini-swe-agent" / "calls.traj.json", "mini-swe-agent"))[1]
    assert (reply.model, reply.usage["input_tokens"], reply.usage["cache_read_input_tokens"]) == (
        "gpt-4o-mini-2024-07-18",
        56,
        64,
    )


def test_reasoning_of_the_responses_api_stays_as_it_came(tmp_path: Path) -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    output = [item, {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"}]
    response = {
        "object": "response",
        "model": "gpt-5",
        "output": output,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }
    path = mini(tmp_path / "run.traj.json", says("user", "Fix it."), response, mini_version="2.4.6")

    found = parts(read(path, "mini-swe-agent"))

    assert [(part.kind, part.ext) for part in found[1:]] == [("thinking", "json"), ("tool_use", "json")]
    assert json.loads(found[1].body) == item
    assert messages(read(path, "mini-swe-agent"))[1].usage["output_tokens"] == 3
