"""README.md: its screens are what the demo's session looks like, and its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ctxvc.cli.app import App
from ctxvc.cli.main import cli
from tests.docs import screens
from tests.docs.console import steps


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return screens.make_demo(tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("command", sorted(screens.shown()))
def test_a_screen_is_what_a_terminal_shows(command: str, project: Path) -> None:
    """But for the ids of commits. `python -m tests.docs.screens` writes the screens anew."""
    terminal = screens.drawn(command, project)

    assert screens.COMMIT.sub("·", screens.shown()[command]) == screens.COMMIT.sub("·", terminal)


def test_the_screens_are_a_status_a_log_and_stock_git() -> None:
    assert [command.split()[0] for command in screens.shown()] == ["ctxvc", "ctxvc", "git"]


def test_every_command_of_readme_and_answers_can_be_parsed() -> None:
    """Nothing is run: they need sessions of the reader's own, or a key. A command alone may lack its arguments."""
    answers = (screens.README.parent / "docs" / "faq.md").read_text()
    commands = [command for command, _ in steps(screens.README)]
    commands += [f"ctxvc {words}" for words in re.findall(r"`ctxvc ([^`]+)`", answers)]
    parsed = [shlex.split(command, comments=True) for command in commands]
    assert len(parsed) > 25
    for program, name, *words in parsed:
        command = cli.get_command(None, name)
        assert (program, command is None) == ("ctxvc", False), name
        command.make_context(name, words, obj=App(), resilient_parsing=not words)
