"""`ctxvc help`: topics and commands, all of it from inside the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ctxvc.cli.command_list import COMMANDS, PAGES, TOPICS
from ctxvc.cli.commands.help import page
from ctxvc.cli.main import cli
from ctxvc.cli.terminal.table import breadth
from ctxvc.phrases import COMMAND_LINE
from tests.cli.conftest import COLOUR, Run

ROOT = Path(__file__).parents[2]


def help_texts() -> Iterator[tuple[str, str]]:
    """(where, text) of all that a command's help and an error's hint may say."""
    root = click.Context(cli, info_name="ctxvc", **cli.context_settings)
    yield "ctxvc", cli.get_help(root)
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        yield name, command.get_help(click.Context(command, info_name=name, parent=root))
    yield from COMMAND_LINE.items()


def test_help_names_only_pages_that_an_installed_wheel_can_show() -> None:
    named = 0
    for where, text in help_texts():
        plain = " ".join(text.split())
        assert not re.search(r"docs/[\w/-]+\.md", plain.replace("'docs/*.md'", "")), where
        for topic in re.findall(r"ctxvc help ([a-z-]+)", plain):
            named += 1
            assert topic in TOPICS or topic in COMMANDS, (where, topic)
    assert named > 10


def test_each_topic_is_in_the_package_or_put_into_the_wheel() -> None:
    included = dict(
        re.findall(r'^"docs/(.+\.md)" = "ctxvc/help/(.+)\.md"$', (ROOT / "pyproject.toml").read_text(), re.M)
    )
    assert {topic: place for place, topic in included.items()} == PAGES
    own = {path.stem for path in (ROOT / "ctxvc" / "help").glob("*.md")}
    assert own | PAGES.keys() == TOPICS.keys() and not own & PAGES.keys()
    assert all(page(topic).startswith(("# ", "<!--")) for topic in TOPICS)


def test_no_page_of_the_documents_says_a_topic_again() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "json.md"]
    for topic in TOPICS.keys() - PAGES.keys():
        rows = [line for line in page(topic).splitlines() if len(line) > 60]
        again = [(path.name, row) for path in pages for row in rows if row in path.read_text()]
        assert not again, topic


def test_help_lists_topics_and_commands(run: Run) -> None:
    told = run("help").stdout
    assert all(f"  {name}" in told for name in (*TOPICS, *COMMANDS))
    assert told == run("--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_its_own(name: str, run: Run) -> None:
    assert run("help", name).stdout.startswith(run(name, "--help").stdout)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_fits_the_terminal(topic: str, width: int, on_screen: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told = COLOUR.sub("", on_screen("help", topic, width=width).stdout)
    lines = [line for line in told.splitlines() if not line.startswith("    ")]  # code is shown as it is
    assert max(map(breadth, lines)) <= width
    assert "**" not in told and "](" not in told and "|---" not in told


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_eighty_columns(name: str, on_screen: Run) -> None:
    told = on_screen(*filter(None, [name, "--help"]), width=80).stdout
    assert max(map(len, told.splitlines())) <= 80


def test_no_cell_of_a_table_is_cut(on_screen: Run) -> None:
    told = on_screen("help", "policies", width=80).stdout
    assert "…\n" not in COLOUR.sub("", told)
    for name in ("default", "oldest_turn", "summary"):
        assert f"`{name}`" in told


def test_a_topic_that_there_is_none_of_names_the_near_ones(run: Run) -> None:
    result = run("help", "budgts")
    assert result.exit_code == 1
    assert "did you mean budgets?" in result.stderr
    assert "revisions" in result.stderr


def test_in_a_pipe_a_topic_is_markdown(run: Run) -> None:
    assert run("help", "budgets").stdout == page("budgets")
