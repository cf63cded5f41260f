"""`install pi` and `install opencode`: files of ours where the agent looks, and what is another's stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc import __version__
from tests.cli.conftest import Run

ENTRIES = {"pi": ".pi/agent/extensions/ctxvc/index.js", "opencode": ".config/opencode/plugins/ctxvc.js"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PI_CODING_AGENT_DIR", "OPENCODE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def install(run: Run, agent: str, *arguments: str) -> list[dict[str, Any]]:
    result = run("install", agent, "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    items: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return items


@pytest.mark.parametrize("agent", ENTRIES)
def test_its_files_are_put_in_place_once_and_taken_away_again(run: Run, home: Path, agent: str) -> None:
    before = sorted(home.rglob("*"))
    assert all(item["changed"] for item in install(run, agent, "--dry-run"))
    assert sorted(home.rglob("*")) == before
    items = install(run, agent)
    assert all(item["changed"] for item in items)
    assert (home / ENTRIES[agent]).is_file()
    assert not any(item["changed"] for item in install(run, agent))
    assert all(item["changed"] for item in install(run, agent, "--uninstall"))
    assert not list(home.rglob("*.js"))
    assert not any(item["changed"] for item in install(run, agent, "--uninstall"))


@pytest.mark.parametrize("agent", ENTRIES)
def test_all_that_its_entry_imports_is_there_with_the_program_and_its_version(run: Run, home: Path, agent: str) -> None:
    install(run, agent)
    entry = home / ENTRIES[agent]
    (client,) = [line.split('"')[1] for line in entry.read_text().splitlines() if line.startswith("import")]
    path = entry.parent / client
    assert path.is_file()
    program = path.with_name("program.js").read_text()
    assert json.dumps(__version__) in program
    assert 'PROGRAM = ["' in program


@pytest.mark.parametrize("agent", ENTRIES)
def test_an_older_version_is_replaced(run: Run, home: Path, agent: str) -> None:
    items = install(run, agent)
    for item in items:
        Path(item["path"]).write_text("// ctxvc as it was\n")
    assert all(item["changed"] for item in install(run, agent))


@pytest.mark.parametrize("agent", ENTRIES)
@pytest.mark.parametrize("words", [(), ("--uninstall",)])
def test_a_file_of_somebody_elses_stays_and_nothing_is_changed(
    run: Run, home: Path, agent: str, words: tuple[str, ...]
) -> None:
    other = home / ENTRIES[agent]
    other.parent.mkdir(parents=True)
    other.write_text("export default 7\n")
    result = run("install", agent, *words)
    assert result.exit_code == 1
    assert f"{other} is not ours" in result.stderr
    assert list(home.rglob("*.js")) == [other]


def test_each_agent_is_told_where_to_look_by_its_own_variable(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(home / "here"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "there"))
    install(run, "pi")
    install(run, "opencode")
    assert (home / "here/extensions/ctxvc/index.js").is_file()
    assert (home / "there/opencode/plugins/ctxvc.js").is_file()


@pytest.mark.parametrize("agent", ENTRIES)
def test_an_extension_is_the_persons_and_of_no_project(run: Run, home: Path, agent: str) -> None:
    assert all(item["changed"] for item in install(run, agent, "--user"))
    assert (home / ENTRIES[agent]).is_file()
    result = run("install", agent, "--project")
    assert result.exit_code == 2
    assert f"an extension of {agent} is for all projects" in result.stderr and "leave --project out" in result.stderr
    result = run("install", "post-commit", "--user")
    assert result.exit_code == 2 and "post-commit is of one project: leave --user out" in result.stderr


def looked_at(run: Run, agent: str) -> list[tuple[str, str, str]]:
    """What `doctor` finds of an agent's extension."""
    items = json.loads(run("doctor", "--json").stdout)["items"]
    return [(item["level"], item["found"], item["mend"]) for item in items if item["check"] == agent]


@pytest.mark.parametrize("agent", ENTRIES)
def test_doctor_looks_at_an_extension_that_is_installed(
    run: Run, home: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = home / "bin" / "ctxvc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("ctxvc.cli.commands.install._program", lambda: str(program))
    assert looked_at(run, agent) == []
    files = [Path(item["path"]) for item in install(run, agent)]
    (started,) = [path for path in files if path.name == "program.js"]
    entry = home / ENTRIES[agent]
    assert looked_at(run, agent) == [("ok", f"{entry} starts {program}", "")]

    def found(path: Path, content: str | None) -> str:
        """The problem, if a file had this content, or were not there."""
        before = path.read_text()
        path.unlink() if content is None else path.write_text(content)
        ((level, text, mend),) = looked_at(run, agent)
        path.write_text(before)
        assert mend == f"ctxvc install {agent}"
        return f"{level}: {text}"

    text = started.read_text()
    assert found(started, None).startswith(f"problem: the extension lacks {started}")
    assert found(entry, None).startswith(f"problem: the extension lacks {entry}")
    assert "is of ctxvc 0.0.0, this is" in found(started, text.replace(__version__, "0.0.0"))
    assert "is of ctxvc no version" in found(started, "// ctxvc\nexport const VERSION = [[[\n")
    assert "starts no program" in found(started, text.replace(f'["{program}"]', "[7]"))
    assert found(entry, entry.read_text() + "//\n") == f"note: {entry} is not as this version has it"
    program.unlink()
    ((level, told, _),) = looked_at(run, agent)
    assert (level, told) == ("problem", f"the extension starts {program}, which does not exist: it does nothing")
    started.write_text("not of ours\n")
    assert "lacks" in looked_at(run, agent)[0][1]


@pytest.mark.parametrize("agent", ["codex", "gemini", "copilot"])
def test_an_agent_that_allows_nothing_is_said_so_with_what_there_is(run: Run, home: Path, agent: str) -> None:
    result = run("install", agent)
    assert result.exit_code == 1
    assert "lets no extension change its prompt" in result.stderr
    assert "ctxvc " in result.stderr.partition("hint:")[2]
    assert not list(home.rglob("*.js"))
