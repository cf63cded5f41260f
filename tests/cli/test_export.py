"""`export`: every format on the command line, and what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc import exporters
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
        "left out: 1 × thinking (B2)",
        "left out: 1 × is_error of tool_result (B7.is_error)",
    ]


def test_a_revision_of_another_session_and_scope_can_be_written(run: Run, built: Path) -> None:
    result = run("export", "demo/main~3", "--format", "hf-trace", folder=built)
    assert json.loads(result.stdout.splitlines()[0])["id"] == "demo/main"


def test_options_of_other_formats_are_refused(run: Run, built: Path) -> None:
    for words, reason in (
        (("--file", "a.py"), "requires --format agent-trace"),
        (("--install",), "require --format claude-code"),
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
