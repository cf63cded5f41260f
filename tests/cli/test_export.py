"""`export`: every format on the command line, and what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc import exporters
from ctxvc.exporters.native import AGENTS
from tests.cli.conftest import Run


@pytest.mark.parametrize("format", [*exporters.FORMATS, "claude-code"])
def test_every_format_goes_to_the_output_to_a_file_and_into_the_answer(run: Run, project: Path, format: str) -> None:
    printed = run("export", "--format", format, folder=project)
    written = run("export", "--format", format, "-o", "out.txt", folder=project)
    answered = run("export", "--format", format, "--json", folder=project)
    kept = run("export", "--format", format, "--json", "-o", "other.txt", folder=project)

    assert [done.exit_code for done in (printed, written, answered, kept)] == [0, 0, 0, 0]
    data = (project / "out.txt").read_bytes()
    assert data == printed.stdout_bytes == (project / "other.txt").read_bytes()
    answer, other = json.loads(answered.stdout), json.loads(kept.stdout)
    assert (answer["format"], answer["content"], answer["file"]) == (format, data.decode(), "")
    assert (other["content"], other["file"], other["bytes"]) == ("", str(project / "other.txt"), len(data))
    assert written.stdout == ""
    assert ("left out" in printed.stderr or "changed" in printed.stderr) == bool(answer["losses"])


def test_the_former_names_of_formats_are_taken(run: Run, built: Path) -> None:
    for former, name in (("anthropic", "anthropic-messages"), ("openai", "openai-chat")):
        assert (
            run("export", "--format", former, folder=built).stdout
            == run("export", "--format", name, folder=built).stdout
        )


def test_losses_are_counted_by_kind(run: Run, built: Path) -> None:
    result = run("export", "step:1", "--format", "openai-chat", folder=built)
    assert result.stderr.splitlines() == [
        "left out: 1 thinking block (B2)",
        "left out: the error mark of 1 result (B7)",
    ]


def test_a_revision_of_another_session_and_scope_can_be_written(run: Run, built: Path) -> None:
    result = run("export", "demo/main~3", "--format", "hf-trace", folder=built)
    assert json.loads(result.stdout.splitlines()[0])["id"] == "demo/main"


def test_options_of_other_formats_are_refused(run: Run, built: Path) -> None:
    for words, reason in (
        (("--file", "a.py"), "requires --format agent-trace"),
        (("--install",), "requires the format of an agent"),
        (("--format", "nonsense"), "nonsense"),
    ):
        result = run("export", *words, folder=built)
        assert (result.exit_code, reason in result.stderr) == (2, True), result.stderr


def test_lines_are_of_a_git_repository(run: Run, project: Path) -> None:
    result = run("export", "--format", "agent-trace", folder=project)
    assert result.exit_code == 1
    assert "is in no git repository with a commit" in result.stderr
    assert "hint: " in result.stderr


def test_an_export_comes_back_as_the_session_it_is(run: Run, project: Path) -> None:
    run("export", "--format", "hf-trace", "-o", "trace.jsonl", folder=project)
    result = run("import", "trace.jsonl", "--json", folder=project)
    (item,) = json.loads(result.stdout)["items"]
    assert (item["session"], item["created"], item["units"]) == ("demo", False, 0)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_is_written_where_its_agent_finds_it(run: Run, project: Path, agent: str) -> None:
    before = files(Path.home())
    result = run("export", "--format", agent, "--install", folder=project)
    if agent == "opencode":
        assert (result.exit_code, "opencode imports sessions itself" in result.stderr) == (2, True)
        return

    again = run("export", "--format", agent, "--install", "--json", folder=project)

    new = files(Path.home()) - before
    assert (result.exit_code, again.exit_code) == (0, 0), result.stderr
    assert result.stdout.startswith(f"cd {project} && {agent} ") or agent == "mini-swe-agent"
    assert json.loads(again.stdout)["file"] in new
    assert len(new) > 1 or agent == "mini-swe-agent"  # whose runs have no time, so that the second is the first
    assert not [path for path in new if path.endswith(".new")]


def test_the_agents_own_command_takes_a_file_in(run: Run, project: Path) -> None:
    result = run("export", "--format", "opencode", "-o", "session.json", folder=project)

    identifier = json.loads((project / "session.json").read_bytes())["info"]["id"]
    line = f"cd {project} && opencode import {project / 'session.json'} && opencode --session {identifier}\n"
    assert result.stdout == line


def test_a_session_that_is_a_folder_is_no_output(run: Run, project: Path) -> None:
    result = run("export", "--format", "openhands", folder=project)

    assert (result.exit_code, "use --install" in result.stderr) == (2, True)


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}
