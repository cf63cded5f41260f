"""The tutorial's commands, run as they stand; `...` in what they print stands for anything."""

from __future__ import annotations

from pathlib import Path

from tests.docs.console import matches, play

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_every_command_does_what_the_tutorial_says(tmp_path: Path) -> None:
    assert play(TUTORIAL, tmp_path, may_fail="ctxvc import") > 12


def test_the_comparison_can_fail() -> None:
    assert matches("a\n...\nb...\n", "a\nx\ny\nbeta\n")
    assert not matches("a\n...\nb\n", "a\nx\n")
    assert not matches("a\n", "b\n")
