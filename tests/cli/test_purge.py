"""`ctxvc purge` and `ctxvc import --no-redact`, as a person runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.store.project.locate import FOLDER
from tests.cli.conftest import Run
from tests.store.test_redaction import TOKEN, everything, recording


def test_without_yes_it_says_what_would_go_and_exits_with_1(run: Run, project: Path) -> None:
    result = run("purge", "B1", folder=project)
    assert result.exit_code == 1
    assert "would erase" in result.stdout and "demo" in result.stdout
    assert result.stderr == "nothing was done; add --yes to do it\n"
    assert b"Why does tests/test_app.py fail?" in everything(project / FOLDER)


def test_with_yes_it_is_gone_and_told_who_had_it(run: Run, project: Path) -> None:
    result = run("purge", "B1", "--yes", folder=project)
    assert result.exit_code == 0, result.stderr
    assert "searched" in result.stdout and "replace it" in result.stdout
    assert b"Why does tests/test_app.py fail?" not in everything(project / FOLDER)
    assert run("verify", folder=project).exit_code == 0
    assert run("show", "B1", folder=project).exit_code == 0


def test_a_text_may_come_from_stdin_so_that_no_shell_keeps_it(project: Path) -> None:
    arguments = ["-C", str(project), "purge", "--text", "-", "--yes", "--json"]
    result = CliRunner().invoke(cli, arguments, input="tests/test_app.py\n")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["kinds"] == {"purged": 1}
    assert b"tests/test_app.py" not in everything(project / FOLDER)


def test_nothing_to_erase_is_a_mistake(run: Run, project: Path) -> None:
    assert run("purge", folder=project).exit_code == 2
    assert run("purge", "--text", "nobody said this", "--yes", folder=project).exit_code == 1


def test_an_import_has_marks_and_no_redact_has_none(run: Run, tmp_path: Path) -> None:
    path = recording(tmp_path / "a.jsonl", 4)
    for name, options in (("clean", []), ("exact", ["--no-redact"])):
        (tmp_path / name).mkdir()
        result = run("import", path, *options, folder=tmp_path / name)
        assert result.exit_code == 0, result.stderr
        assert (TOKEN.encode() in everything(tmp_path / name / FOLDER)) == (name == "exact")
    assert run("import", path, "--no-redact", folder=tmp_path / "clean").exit_code == 1

    result = run("purge", "--secrets", "--yes", folder=tmp_path / "exact")
    assert result.exit_code == 0, result.stderr
    assert TOKEN.encode() not in everything(tmp_path / "exact" / FOLDER)


def test_it_tells_what_it_looked_for_and_which_transcripts_still_have_it(run: Run, project: Path) -> None:
    folder = Path.home() / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(project))
    folder.mkdir(parents=True)
    line = json.dumps(
        {"type": "user", "cwd": str(project), "message": {"role": "user", "content": "tests/test_app.py"}}
    )
    files = {"one.jsonl": line, "two.jsonl": line.replace("test_app", "test_nothing"), "agent-1.jsonl": line}
    for name, text in files.items():
        (folder / name).write_text(text + "\n")

    dry = run("purge", "--text", "tests/test_app.py", folder=project)
    assert dry.stdout.startswith("would erase\t1 text\n")
    assert f"{folder / 'one.jsonl'} still has it: ctxvc does not change transcripts" in dry.stdout
    assert "in JSON escapes, URL encoding, hexadecimal and Base64" in dry.stdout
    assert "1 transcript of this project: none of it." in dry.stdout
    assert "Exports are not tracked" in dry.stdout
    answer = json.loads(run("purge", "--text", "tests/test_app.py", "--yes", "--json", folder=project).stdout)

    assert answer["forms"] == ["json", "url", "hex", "base64"] and answer["short"] == 0
    states = {Path(copy["place"]).name: copy["state"] for copy in answer["copies"] if copy["kind"] == "transcript"}
    assert states == {"one.jsonl": "has", "two.jsonl": "clean", "agent-1.jsonl": "has"}
    assert {name: (folder / name).read_text() for name in files} == {name: f"{text}\n" for name, text in files.items()}


def test_a_text_that_is_too_short_to_be_encoded_is_told(run: Run, project: Path) -> None:
    result = run("purge", "--text", "test", folder=project)
    assert "1 text of fewer than 6 bytes only exactly and JSON-escaped" in result.stdout
