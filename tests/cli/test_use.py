"""Which session a command takes: the one that is named, chosen, or recorded last."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.recording.events import Opened, Said
from ctxvc.errors import NotFound
from ctxvc.store.ingest import ingest
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read.session_name import Ambiguous, resolve
from ctxvc.store.store import Store, create
from tests.cli.conftest import Run
from tests.conftest import Copied
from tests.making.conversation import human

NAMES = ("claude-aa", "claude-ab", "codex-1", "pi")


def add(store: Store, name: str, day: int) -> None:
    message = msgspec.structs.replace(human("hi", key="1"), time=f"2026-03-{day:02}T12:00:00Z")
    ingest(store, [Opened(format="pi", source=name, name=name), Said(message=message, end=1)], final=True)


@pytest.fixture
def folder(tmp_path: Path, copied: Copied) -> Path:
    """A project with four sessions; `codex-1` was recorded last, `pi` imported last."""
    return copied(_four, tmp_path)


def _four(folder: Path) -> None:
    with create(folder / FOLDER) as store:
        for name, day in zip(NAMES, (3, 2, 9, 1), strict=True):
            add(store, name, day)


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(folder / FOLDER)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("codex-1", "codex-1"),
        ("co", "codex-1"),
        ("p", "pi"),
        ("claude-ab", "claude-ab"),
        ("-0", "codex-1"),
        ("-1", "claude-aa"),
        ("-3", "pi"),
    ],
)
def test_a_session_is_named_by_a_beginning_or_its_place(store: Store, text: str, name: str) -> None:
    assert resolve(store, text) == name


def test_a_beginning_of_several_lists_them_the_newest_first(store: Store) -> None:
    with pytest.raises(Ambiguous, match="2 sessions start with 'cl': claude-aa, claude-ab"):
        resolve(store, "cl")


@pytest.mark.parametrize(("text", "hint"), [("codez-1", "available: codex-1"), ("x", "available: claude-aa"), ("", "")])
def test_an_unknown_name_says_which_are_near(store: Store, text: str, hint: str) -> None:
    with pytest.raises(NotFound) as failed:
        resolve(store, text)
    assert hint in str(failed.value.hint)


def test_a_place_before_the_first_session_is_none(store: Store) -> None:
    with pytest.raises(NotFound, match="there are 4 sessions"):
        resolve(store, "-4")


def current(run: Run, folder: Path, *arguments: str) -> tuple[str, str]:
    """The session that `status` shows, and why."""
    answer = json.loads(run(*arguments, "status", "--json", folder=folder).stdout)
    return answer["session"], answer["chosen_by"]


def test_a_session_in_use_stays_whatever_is_recorded_meanwhile(run: Run, folder: Path) -> None:
    assert current(run, folder) == ("pi", "last")

    assert run("use", "claude-aa", folder=folder).stdout.startswith("claude-aa: chosen with `ctxvc use`")
    with Store(folder / FOLDER) as store:
        add(store, "later", 20)
    assert current(run, folder) == ("claude-aa", "use")
    assert "session\tclaude-aa/main, chosen with `ctxvc use`\n" in run("status", folder=folder).stdout

    run("use", "--auto", folder=folder)
    assert current(run, folder) == ("later", "last")
    assert json.loads(run("use", "-2", "--json", folder=folder).stdout)["session"] == "claude-aa"
    assert (folder / FOLDER / "HEAD").read_text() == "ref: refs/heads/claude-aa/main\n"


def test_the_option_comes_before_the_variable_and_both_before_use(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("use", "pi", folder=folder)
    monkeypatch.setenv("CTXVC_SESSION", "codex")
    assert current(run, folder) == ("codex-1", "variable")
    assert current(run, folder, "--session", "-1") == ("claude-aa", "option")


def test_a_variable_that_names_no_session_is_an_error(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXVC_SESSION", "gone")
    result = run("status", folder=folder)
    assert (result.exit_code, "no session 'gone'" in result.stderr) == (1, True)
    assert run("sessions", folder=folder).exit_code == 0


@pytest.mark.parametrize("left", [b"", b"gone\n", b"../x\n", b"\xff\n"])
def test_a_chosen_session_that_is_none_chooses_nothing(run: Run, folder: Path, left: bytes) -> None:
    (folder / FOLDER / "ctxvc" / "use").write_bytes(left)
    assert current(run, folder) == ("pi", "last")


@pytest.mark.parametrize(
    ("text", "name"),
    [("co/main", "codex-1"), ("-1/main", "claude-aa"), ("-2/main~1", "claude-ab"), ("claude-ab/main", "claude-ab")],
)
def test_a_revision_and_an_address_name_a_session_in_the_same_ways(
    run: Run, folder: Path, text: str, name: str
) -> None:
    assert json.loads(run("prompt", "--json", text, folder=folder).stdout)["session"] == name
    assert f"session {name}" in run("log", text, "--oneline", folder=folder).stdout
    address = text.partition("~")[0] + ":B1"
    assert json.loads(run("show", address, "--json", folder=folder).stdout)["session"] == name
    assert run("show", "--raw", address, folder=folder).stdout == "hi"


def test_a_beginning_of_several_is_an_error_in_a_revision_and_an_address(run: Run, folder: Path) -> None:
    for arguments in (("show", "cl/main"), ("show", "cl/main:B1"), ("status", "cl/main~1"), ("log", "HEAD..cl/main")):
        result = run(*arguments, folder=folder)
        assert result.exit_code == 1
        assert "2 sessions start with 'cl': claude-aa, claude-ab" in result.stderr


@pytest.mark.parametrize("words", [("status", "-x"), ("log", "--nope"), ("use", "--aut"), ("show", "-x/main")])
def test_an_option_that_there_is_not_is_no_session(run: Run, folder: Path, words: tuple[str, str]) -> None:
    result = run(*words, folder=folder)
    assert (result.exit_code, "there is no option" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("replay", "SESSION", "--jobs", "1"), "no model reply in codex-1"),
        (("ask", "SESSION", "why?", "--script", "empty.json"), "the script has no more replies"),
        (("run", "go on", "--resume", "SESSION"), "`ctxvc run` did not start session codex-1"),
    ],
)
def test_other_commands_take_a_session_by_a_beginning_or_its_place(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], end: str
) -> None:
    (folder / "empty.json").write_text("[]")
    monkeypatch.chdir(folder)
    for name, expected in (("co", end), ("-0", end), ("cl", "2 sessions start with 'cl': claude-aa, claude-ab")):
        result = run(*(name if word == "SESSION" else word for word in words))
        assert (result.exit_code, expected in result.stderr) == (1, True), result.stderr


def test_use_without_a_name_says_which_is_current(run: Run, folder: Path) -> None:
    assert run("use", folder=folder).stdout == "pi: the session recorded or imported last\n"
    assert run("use", "pi", "--auto", folder=folder).exit_code == 2
