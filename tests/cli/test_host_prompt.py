"""A change of a session that Claude Code goes on with: whoever makes it reads when the model is sent it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.claude_code import recorder, requests, settings
from ctxvc.claude_code.requests import Request
from tests.cli.conftest import Run
from tests.making.played_host import PlayedHost


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedHost:
    """A client with a compaction of ours in its prompt, recorded by hooks."""
    monkeypatch.setenv("HOME", str(tmp_path))
    played_host = PlayedHost(tmp_path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(played_host.config))
    played_host.reads_two_files()
    return played_host


def hooked(host: PlayedHost) -> None:
    requests.post(host.store, Request("Stop", str(host.transcript)))
    recorder.work(host.store, linger=0)


def undone(run: Run, host: PlayedHost, *arguments: str) -> tuple[Any, str]:
    """What `undo` answers, and what it says to a person who does it once more."""
    answer = json.loads(run(*arguments, "--json", folder=host.project).stdout)
    run("redo", folder=host.project)
    return answer, run(*arguments, folder=host.project).stderr


def test_an_undone_compaction_or_a_restored_block_is_in_the_hosts_prompt_after_its_next_one(
    run: Run, host: PlayedHost
) -> None:
    host.installs(host.asks()["messages"])
    hooked(host)
    answer, said = undone(run, host, "undo")
    assert answer["effect"] == "next-compaction" and answer["tokens_after"] > answer["tokens_before"]
    assert "in Claude Code's prompt after its next compaction" in said and "ctxvc export" in said
    run("redo", folder=host.project)
    assert "policy:default" in run("ops", folder=host.project).stdout, "a look at the session has it too"
    assert "after its next compaction" in run("restore", "B3", folder=host.project).stderr


def test_a_compaction_is_undone_at_once_though_the_boundary_came_after_the_last_hook(
    run: Run, host: PlayedHost
) -> None:
    messages = host.asks()["messages"]
    hooked(host)
    host.installs(messages)
    host.line(type="user", isMeta=True, message={"role": "user", "content": "<local-command-caveat>It ran."})
    assert "undone: archive" in run("undo", folder=host.project).stdout
    host.says("Go on.")
    host.replies("I do.")
    hooked(host)
    assert set(host.states().values()) == {"visible"}


@pytest.mark.parametrize("words", [("note", "-m", "The fixture is too old."), ("compact",)], ids=lambda words: words[0])
def test_so_is_a_note_and_a_compaction_by_hand(run: Run, host: PlayedHost, words: tuple[str, ...]) -> None:
    hooked(host)
    result = run(*words, folder=host.project)
    assert result.exit_code == 0, result.output
    assert "after its next compaction" in result.stderr
    run("undo", folder=host.project)
    assert json.loads(run(*words, "--json", folder=host.project).stdout)["effect"] == "next-compaction"
    if words[0] == "note":
        assert "The fixture is too old." in json.dumps(host.asks()["messages"])


def test_a_block_that_is_added_is_in_no_prompt_of_the_hosts(run: Run, host: PlayedHost) -> None:
    hooked(host)
    arguments = ("recover", "B3", "--lines", "3001:3001", "--add")
    assert "Claude Code's own prompt stays as it was" in run(*arguments, folder=host.project).stderr
    assert json.loads(run(*arguments, "--json", folder=host.project).stdout)["effect"] == "export"
    assert "lines 3001-3001 of" not in json.dumps(host.asks()["messages"])


def test_what_changes_nothing_says_nothing_of_it(run: Run, host: PlayedHost) -> None:
    host.installs(host.asks()["messages"])
    hooked(host)
    read = run("recover", "B3", "--lines", "1:2", "--json", folder=host.project)
    assert (json.loads(read.stdout)["effect"], read.stderr) == (None, "")
    tried = run("compact", "--dry-run", folder=host.project)
    assert tried.exit_code == 0 and "Claude Code" not in tried.stderr


def test_where_the_plugin_does_not_compact_the_hosts_prompt_stays_and_the_way_out_is_an_export(
    run: Run, host: PlayedHost
) -> None:
    host.config.joinpath("settings.json").write_text(json.dumps(settings.installed({}, "ctxvc")))
    hooked(host)
    result = run("archive", "B3", "--json", folder=host.project)
    assert json.loads(result.stdout)["effect"] == "export"
    assert "Claude Code's own prompt stays as it was" in run("restore", "B3", folder=host.project).stderr


def test_so_it_is_where_a_person_switched_our_compaction_off(
    run: Run, host: PlayedHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text("[claude-code]\noff = true\n")
    monkeypatch.setenv("CTXVC_CONFIG", str(tmp_path / "config.toml"))
    hooked(host)
    assert json.loads(run("archive", "B3", "--json", folder=host.project).stdout)["effect"] == "export"


def test_nothing_is_said_of_a_session_that_no_hook_records_or_of_a_pin(run: Run, host: PlayedHost) -> None:
    host.records()
    result = run("archive", "B3", "--json", folder=host.project)
    assert (json.loads(result.stdout)["effect"], result.stderr) == ("next-request", "")
    hooked(host)
    result = run("pin", "B1", folder=host.project)
    assert result.exit_code == 0 and "Claude Code" not in result.stderr


def test_an_import_before_the_recorder_has_settled_leaves_the_blocks_to_the_policy(run: Run, host: PlayedHost) -> None:
    host.installs(host.asks()["messages"])
    host.says("Go on.")
    host.replies("I do.")
    assert run("import", str(host.transcript), folder=host.project).exit_code == 0
    assert host.plans() == 0
    with host.stored() as stored:
        rows = [row for row in stored.ledger().rows() if row.kind == "tool_result"]
        assert [(row.state, row.removed_by) for row in rows] == [("archived", "policy:default")] * 2
    hooked(host)
    assert host.plans() == 0
    assert "policy:default" in run("ops", folder=host.project).stdout


def test_another_stores_import_knows_our_plugin_by_its_stubs(run: Run, host: PlayedHost, tmp_path: Path) -> None:
    host.installs(host.asks()["messages"])
    host.says("Go on.")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run("init", folder=elsewhere).exit_code == 0
    assert run("import", "--final", str(host.transcript), folder=elsewhere).exit_code == 0
    assert "compaction by plugin:ctxvc" in run("log", folder=elsewhere).stdout
