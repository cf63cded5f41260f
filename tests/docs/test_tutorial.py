"""The tutorial's commands, run as they stand; `...` in what they print stands for anything."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.cli.terminal.table import breadth
from tests.cli.conftest import COLOUR
from tests.docs.console import matches, play, steps

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_every_command_does_what_the_tutorial_says(tmp_path: Path) -> None:
    assert play(TUTORIAL, tmp_path, may_fail="ctxvc import") > 12


#: What prints recorded text as it is: its lines are as long as they were.
AS_RECORDED = ("ctxvc prompt", "ctxvc show B11", "ctxvc export")


@pytest.mark.parametrize("width", [80, 120])
def test_no_command_of_the_tutorial_fills_more_than_the_width_of_a_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("CTXVC_PAGER", "cat")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    looked_at = 0
    for command, _ in steps(TUTORIAL):
        program, *words = shlex.split(command)
        if program == "cd":
            monkeypatch.chdir(words[0])
        if program != "ctxvc":
            continue
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0 or command == "ctxvc import", (command, result.output)
        if command.startswith(AS_RECORDED):
            continue
        looked_at += 1
        lines = [line for line in COLOUR.sub("", result.output).splitlines() if len(line.split()) > 1]
        assert not [line for line in lines if breadth(line) > width], command
    assert looked_at > 7


def test_the_comparison_can_fail() -> None:
    assert matches("a\n...\nb...\n", "a\nx\ny\nbeta\n")
    assert not matches("a\n...\nb\n", "a\nx\n")
    assert not matches("a\n", "b\n")
