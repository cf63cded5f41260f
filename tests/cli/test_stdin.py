"""`-` stands for stdin wherever a text or a file is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli

CHAT = b'{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}'


def given(stdin: str | bytes, *arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(cli, ["-C", str(folder), *arguments], input=stdin)


@pytest.mark.parametrize(
    ("words", "look", "shown"),
    [
        (["note", "-m", "-"], ["notes"], "  learned on stdin\n  in two lines\n"),
        (["scope", "fix", "-m", "-"], ["notes"], "[→ fix] learned on stdin"),
        (["archive", "B6", "-m", "-"], ["show", "B6"], "learned on stdin"),
        (["delete", "B12", "-m", "-"], ["show", "B12"], "learned on stdin"),
    ],
    ids=["note", "scope", "archive", "delete"],
)
def test_a_text_is_read_from_stdin(words: list[str], look: list[str], shown: str, project: Path) -> None:
    given("", "restore", "B6", folder=project)
    done = given("learned on stdin\nin two lines\n", *words, folder=project)
    assert (done.exit_code, done.stderr) == (0, "")
    assert shown in given("", *look, folder=project).stdout


def test_a_recording_is_imported_from_stdin_and_known_again(tmp_path: Path) -> None:
    first = given(CHAT, "import", "-", "--json", folder=tmp_path)
    again = given(CHAT, "import", "-", "--json", folder=tmp_path)
    other = given(CHAT.replace(b"hi", b"ho"), "import", "-", "--json", folder=tmp_path)
    items = [json.loads(done.stdout)["items"][0] for done in (first, again, other)]
    assert [item["path"] for item in items] == ["-", "-", "-"]
    assert [item["created"] for item in items] == [True, False, True]
    assert items[0]["session"] == items[1]["session"] != items[2]["session"]


def test_what_is_no_recording_on_stdin_is_named_so(tmp_path: Path) -> None:
    done = given("nonsense", "import", "-", folder=tmp_path)
    assert done.exit_code == 1
    assert "failed: stdin: not a transcript in a known format" in done.stderr
    assert "ctxvc-stdin-" not in done.stderr


def test_an_export_to_dash_goes_to_stdout(project: Path) -> None:
    done = given("", "export", "-o", "-", folder=project)
    assert json.loads(done.stdout)["messages"]
    assert not (project / "-").exists()


def test_bytes_that_are_no_text_are_refused_and_nothing_is_written(project: Path) -> None:
    before = given("", "notes", folder=project).stdout
    done = given(b"caf\xe9", "note", "-m", "-", folder=project)
    assert done.exit_code == 1
    assert "stdin is not UTF-8" in done.stderr
    assert given("", "notes", folder=project).stdout == before


def test_stdin_stands_for_one_thing_only(project: Path) -> None:
    done = given("x", "purge", "--text", "-", "--text", "-", folder=project)
    assert done.exit_code == 1
    assert "only once" in done.stderr
