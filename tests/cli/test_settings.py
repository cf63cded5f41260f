"""The person's file of settings, a project's own, and which value counts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.session.session import Session
from ctxvc.store.trust import project_trust
from tests.cli.conftest import COLOUR, Run


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the person's file would be."""
    path = Path(os.environ["HOME"], ".config" if sys.platform != "darwin" else "Library/Application Support", "ctxvc")
    path.mkdir(parents=True)
    for name in ("CTXVC_CONFIG", "CTXVC_POLICY", "CTXVC_BUDGET", "GIT_PAGER", "PAGER", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return path / "config.toml"


def planned(run: Run, project: Path, *arguments: str) -> tuple[str, int]:
    """The policy and the window that `plan` takes."""
    result = run("plan", "--json", *arguments, folder=project)
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    return answer["policy"], answer["window"]


# --- which value counts


def test_each_place_comes_before_the_next(
    person: Path, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(text: str) -> None:
        person.write_text(text)

    assert planned(run, project) == ("default", 200_000)

    write('[defaults]\npolicy = "window"\nbudget = "60k"\n')
    assert planned(run, project) == ("window", 60_000)

    (project / "ctxvc.toml").write_text('policy = "mask"\nbudget = 50_000\n')
    assert planned(run, project) == ("window", 60_000), "nobody has trusted the project"
    assert run("trust", "--yes", folder=project).exit_code == 0
    assert planned(run, project) == ("mask", 50_000)

    write(f'[defaults]\npolicy = "window"\n[project."{project}"]\npolicy = "clear"\n')
    assert planned(run, project) == ("clear", 50_000), "the rest is still the project's own"

    monkeypatch.setenv("CTXVC_POLICY", "skeleton")
    monkeypatch.setenv("CTXVC_BUDGET", "40k")
    assert planned(run, project) == ("skeleton", 40_000)

    assert planned(run, project, "--policy", "keep", "--budget", "30k") == ("keep", 30_000)


def test_a_table_is_for_its_project_and_what_lies_in_it(person: Path, run: Run, project: Path, tmp_path: Path) -> None:
    inner = project / "part"
    inner.mkdir()
    person.write_text(
        f'[project."{tmp_path}/other"]\npolicy = "mask"\n'
        f'[project."{project}"]\npolicy = "window"\n[project."{inner}"]\npolicy = "clear"\n'
    )
    assert planned(run, project)[0] == "window"
    assert planned(run, inner)[0] == "clear", "the innermost counts"


def test_a_run_begins_with_what_is_set(person: Path, tmp_path: Path) -> None:
    person.write_text('[defaults]\npolicy = "layered:keep=4"\nbudget = "60k"\n')
    (tmp_path / "said.json").write_text('[{"content": [{"type": "text", "text": "Done."}]}]')
    result = CliRunner().invoke(
        cli, ["-C", str(tmp_path), "run", "look", "--yes", "--script", str(tmp_path / "said.json")]
    )
    assert result.exit_code == 0, result.stderr
    with Session.open(tmp_path / ".ctxvc", "run-1") as session:
        meta = session.ledger().meta
        assert (meta.policy, session.budget.window) == ("layered:keep=4", 60_000)


def test_what_is_set_to_be_protected_is(person: Path, run: Run, project: Path) -> None:
    person.write_text('[defaults]\nprotect = ["docs/*.md"]\n')
    assert "docs/*.md" in planned(run, project)[0]
    result = run("plan", "--policy", "window", folder=project)
    assert result.exit_code == 0, "an option names another policy, which protects nothing"


def test_doctor_says_which_value_comes_from_where(person: Path, run: Run, project: Path) -> None:
    person.write_text('[defaults]\nbudget = "60k"\n[alias]\nl = "log --oneline"\n')
    (project / "ctxvc.toml").write_text('policy = "mask"\n')

    items = json.loads(run("doctor", "--json", folder=project).stdout)["items"]
    said = {(item["check"], item["level"]): item["found"] for item in items}
    assert said["budget", "ok"] == f"60,000 tokens, from {person}"
    assert said["alias", "ok"] == "l = log --oneline"
    assert said["config", "note"] == f"{project / 'ctxvc.toml'} is not in effect"

    run("trust", "--yes", folder=project)
    items = json.loads(run("doctor", "--json", folder=project).stdout)["items"]
    assert ("policy", f"mask, from {project / 'ctxvc.toml'}") in [(item["check"], item["found"]) for item in items]


# --- a project's own


def test_a_projects_file_counts_only_as_it_was_when_it_was_accepted(person: Path, run: Run, project: Path) -> None:
    file = project / "ctxvc.toml"
    file.write_text('policy = "mask"\n')
    result = run("plan", folder=project)
    assert f"{file} is not in effect: `ctxvc trust` shows and accepts it" in result.stderr

    shown = run("trust", folder=project)
    assert shown.exit_code == 1
    assert "ctxvc.toml: policy = mask" in shown.stdout
    assert run("trust", "--yes", folder=project).exit_code == 0
    assert planned(run, project)[0] == "mask"
    assert str(file) in run("trust", "--list", folder=project).stdout

    file.write_text('policy = "clear"\n')
    assert planned(run, project)[0] == "default", "it is another file now"

    run("trust", "--yes", folder=project)
    assert planned(run, project)[0] == "clear"
    assert run("trust", "--revoke", folder=project).exit_code == 0
    assert planned(run, project)[0] == "default"


def test_a_copy_of_an_accepted_file_is_not_accepted(person: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "a.toml", tmp_path / "b.toml"
    for file in (here, there):
        file.write_text("")
    project_trust.accept(here, b"")
    assert project_trust.is_accepted(here, b"")
    assert not project_trust.is_accepted(here, b"x")
    assert not project_trust.is_accepted(there, b"")


@pytest.mark.parametrize(
    "text",
    ['pager = "rm -rf /"', '[alias]\nlog = "purge"', '[defaults]\npolicy = "mask"', 'policy = "./evil.py:Evil"'],
    ids=["pager", "alias", "table", "code"],
)
def test_a_projects_file_sets_nothing_that_runs_or_hides_something(
    text: str, person: Path, run: Run, project: Path
) -> None:
    (project / "evil.py").write_text("raise SystemExit('it ran')")
    (project / "ctxvc.toml").write_text(text)
    result = run("trust", "--yes", folder=project)
    assert result.exit_code == 2
    assert "ctxvc.toml" in result.stderr and "it ran" not in result.output
    assert planned(run, project)[0] == "default"


def test_a_link_in_the_place_of_a_projects_file_is_refused(person: Path, run: Run, project: Path) -> None:
    (project / "ctxvc.toml").symlink_to(project / "elsewhere.toml")
    (project / "elsewhere.toml").write_text('policy = "mask"')
    assert run("trust", "--yes", folder=project).exit_code == 1
    assert run("status", folder=project).exit_code == 0, "what needs none of it goes on"


def test_no_store_configures_anything(person: Path, run: Run, project: Path) -> None:
    (project / ".ctxvc" / "config.toml").write_text('[defaults]\npolicy = "mask"\n')
    (project / ".ctxvc" / "ctxvc.toml").write_text('policy = "mask"\n')
    assert planned(run, project)[0] == "default"


# --- colours, pager, aliases


def test_colours_are_as_set_unless_the_environment_or_an_option_says_otherwise(
    person: Path, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.write_text('[defaults]\ncolor = "always"\n')
    assert COLOUR.search(run("status", folder=project).stdout)
    assert not COLOUR.search(run("status", "--color", "never", folder=project).stdout)
    assert not COLOUR.search(run("status", "--color", "auto", folder=project).stdout)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(run("status", folder=project).stdout)


@pytest.mark.parametrize(
    ("value", "env", "words", "pager"),
    [
        ('"mine -x"', {"PAGER": "other"}, [], "mine -x"),
        ('"mine -x"', {"CTXVC_PAGER": "other"}, [], "other"),
        ('"mine -x"', {"GIT_PAGER": "cat"}, [], ""),
        ("false", {"PAGER": "other"}, [], ""),
        ("false", {"PAGER": "other"}, ["--pager"], "other"),
        ('"mine"', {}, ["--no-pager"], ""),
    ],
)
def test_the_pager_is_the_one_that_is_set(
    value: str, env: dict[str, str], words: list[str], pager: str, person: Path, run: Run, project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    started: list[str] = []
    person.write_text(f"[defaults]\npager = {value}\n")
    monkeypatch.setattr("ctxvc.cli.output._page", lambda command, _lines, _env: started.append(command))
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    for name, setting in env.items():
        monkeypatch.setenv(name, setting)
    run(*words, "log", folder=project)
    assert started == ([pager] if pager else [])


def test_an_alias_is_what_it_stands_for(person: Path, run: Run, project: Path) -> None:
    person.write_text('[alias]\nl = "log --oneline -n 2"\nfind = "grep -F \'off by one\'"\n')
    assert run("l", folder=project).stdout == run("log", "--oneline", "-n", "2", folder=project).stdout
    assert (
        run("find", "--archived", folder=project).stdout
        == run("grep", "-F", "off by one", "--archived", folder=project).stdout
    )
    assert "there is no command 'll'" in run("ll", folder=project).stderr


@pytest.mark.parametrize(
    ("alias", "problem"),
    [
        ('log = "status"', "log is a command"),
        ('x = "lgo"', "there is no command 'lgo'; did you mean log?"),
        ('x = "run now"', "an alias cannot start"),
        ('x = "log \'"', "no closing quotation"),
        ("x = 3", "x is not a string"),
        ('x = ""', "is empty"),
        ('"A b" = "log"', "is not a valid name"),
    ],
)
def test_an_alias_that_makes_no_sense_is_an_error_with_its_line(
    alias: str, problem: str, person: Path, run: Run, project: Path
) -> None:
    person.write_text(f"[alias]\n# mine\n{alias}\n")
    result = run("status", folder=project)
    assert result.exit_code == 2
    assert f"{person}, line 3: " in result.stderr and problem in result.stderr


# --- a file that is wrong


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[defaults]\nbudget = "60k"\npolcy = "mask"', "line 3: there is no setting 'polcy'; did you mean policy?"),
        ('[defualts]\npolicy = "mask"', "line 1: there is no setting 'defualts'; did you mean defaults?"),
        ('policy = "mask"', "line 1: there is no setting 'policy'"),
        ('[project."/x"]\n\npolic = "mask"', "line 3: there is no setting 'polic'; did you mean policy?"),
        ("[project]\nx = 1", "line 2: 'x' is not a table"),
        ("[defaults]\nbudget = true", "line 2: budget: 'True' is not a number of tokens"),
        ('[defaults]\nbudget = "many"', "line 2: budget: 'many' is not a number of tokens"),
        ('[defaults]\ncolor = "blue"', "line 2: color: 'blue' is not one of auto, always, never"),
        ('[defaults]\nprotect = "x"', "line 2: protect: it is not a list"),
        ('[defaults]\npolicy = "mine.py:Mine"', "line 2: policy: 'mine.py:Mine' needs a full path"),
        ('[defaults]\npolicy = "a', "it is not TOML"),
        ("defaults = 3", "line 1: defaults: it is not a table"),
        (b"[defaults]\n\xff", "it is not TOML"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_that_names_the_line_and_nothing_is_done(
    text: str | bytes, problem: str, person: Path, run: Run, project: Path
) -> None:
    person.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = run("note", "-m", "learned", folder=project)
    assert result.exit_code == 2
    assert str(person) in result.stderr and problem in result.stderr
    person.unlink()
    assert "learned" not in run("notes", folder=project).stdout


def test_a_policy_that_there_is_none_of_names_the_file(person: Path, run: Run, project: Path) -> None:
    person.write_text('[defaults]\npolicy = "layerd"\n')
    result = run("plan", folder=project)
    assert result.exit_code == 2
    assert f"{person}: policy: no policy 'layerd'; did you mean layered" in result.stderr


def test_no_file_of_settings_breaks_what_a_host_starts_or_what_helps(
    person: Path, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.write_text("this is no TOML")
    monkeypatch.chdir(project)
    for arguments in (
        ["hook", "SessionStart"], ["hook", "statusline"], ["hook", "post-commit"], ["help", "config"], ["--help"],
        ["log", "--help"], ["completion", "bash"], [], ["--version"],
    ):  # fmt: skip
        assert run(*arguments).exit_code == 0, arguments
    assert CliRunner().invoke(cli, ["-C", str(project), "hook", "pre-push", "origin"], input="").exit_code == 0
    assert run("log", folder=project).exit_code == 2, "and all else says what is wrong"


def test_another_file_can_be_named_or_none(
    person: Path, run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.write_text('[defaults]\npolicy = "window"\n')
    other = tmp_path / "other.toml"
    other.write_text('[defaults]\npolicy = "clear"\n')
    monkeypatch.setenv("CTXVC_CONFIG", str(other))
    assert planned(run, project)[0] == "clear"
    monkeypatch.setenv("CTXVC_CONFIG", "")
    assert planned(run, project)[0] == "default"
    monkeypatch.setenv("CTXVC_CONFIG", str(tmp_path / "none.toml"))
    assert run("status", folder=project).exit_code == 2


def test_a_file_that_others_can_change_is_refused(person: Path, run: Run, project: Path) -> None:
    person.write_text('[defaults]\npager = "less"\n')
    person.chmod(0o666)
    result = run("status", folder=project)
    assert result.exit_code == 2
    assert "others can change it" in result.stderr


def test_where_there_is_no_home_nothing_is_set(
    person: Path, run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    assert run("status", folder=project).exit_code == 0
