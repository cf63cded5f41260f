"""`archive`, `restore`, `delete`, `pin`, `unpin`, `undo`: what is done, what is not and why, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.cli.answers import shared as answers
from ctxvc.cli.verb import left_out
from ctxvc.core.ledger.ledger import Group
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import STEERING, Run, answer
from tests.making.project import HOSTILE


def states(run: Run, project: Path, *blocks: str) -> list[str]:
    return [answer(run, project, "show", block)["row"].get("state", "visible") for block in blocks]


@pytest.mark.parametrize(
    "words",
    [["archive", "B1-B100000"], ["archive", *(f"B{n}" for n in range(100, 9_000))], ["pin", "x" * 90_000]],
    ids=["range", "ids", "a word"],
)
def test_whatever_is_asked_for_the_reasons_are_short(words: list[str], run: Run, project: Path) -> None:
    result = run(*words, "--actor", "agent", folder=project)
    assert 0 < len(result.stderr) < 1_000


def test_one_reason_is_one_line_however_many_blocks_it_holds_for() -> None:
    problems = [
        answers.LeftOut(target=f"B{n}", why="gone", text=f"cannot archive B{n}: it is already in G{n % 20}")
        for n in range(2, 4_000)
    ]
    lines = list(left_out("archive", problems))

    assert len(lines) == 9
    assert lines[0].startswith("skipped B2, B22, ")
    assert lines[0].endswith(" and 188 more: it is already in G2")
    assert lines[-1] == "skipped others, for 12 other reasons; --json lists them"
    assert list(left_out("archive", problems[:1])) == ["skipped B2: it is already in G2"]


def test_undo_takes_back_one_change_after_the_other(run: Run, project: Path) -> None:
    arguments = ["--session", "branched"]
    run(*arguments, "pin", "B1", folder=project)
    run(*arguments, "pin", "B2", folder=project)
    run(*arguments, "note", "-m", "a note is no change of the prompt's blocks", folder=project)

    for subject in ("note: a note is no change of the prompt's blocks", "pin B2", "pin B1"):
        assert answer(run, project, *arguments, "undo")["undone"] == [subject]
    for block in ("B1", "B2"):
        run(*arguments, "pin", block, folder=project)
    assert "2 of 5 undone: there were no more" in run(*arguments, "undo", "5", folder=project).stderr
    result = run(*arguments, "undo", folder=project)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing to undo" in result.stderr
    assert "2 of 9 redone: there were no more" in run(*arguments, "redo", "9", folder=project).stderr


def test_what_another_writer_changed_meanwhile_ends_with_4(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gets in between, twice: once is tried again."""
    from ctxvc.session import session as module

    tries = 0

    def rehearse(view: Any, plan: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        tried = original(view, plan, **more)
        with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as other:
            row = other.ledger()["B7"]
            row = msgspec.structs.replace(row, reads=row.reads + 1)
            other.change(subject="recover B7", op="recover", actor="agent", rows=[row])
        return tried

    original = module.rehearse
    monkeypatch.setattr(module, "rehearse", rehearse)

    result = run("pin", "B7", folder=project)

    assert (result.exit_code, result.stdout, tries) == (4, "", 2)
    assert "another writer has changed B7" in result.stderr
    assert states(run, project, "B7") == ["visible"]


@pytest.mark.parametrize(
    "words",
    [
        ["archive", "B2,B3", "-m", "\x1b[2J\u202e"],
        ["archive", "B1,B2,B3,B4", "--allow-user", "-m", "all"],
        ["delete", "B3", "-m", "\x1b]0;owned\x07"],
        ["delete", "B1", "-m", "x", "--allow-user"],
        ["pin", "B1", "B2", "B3", "B4"],
        ["archive", "\x1b[2J"],
        ["restore", "B1"],
    ],
    ids=" ".join,
)
def test_nothing_recorded_or_given_can_steer_a_terminal(
    words: list[str], run: Run, on_screen: Run, project: Path
) -> None:
    told = on_screen("--color", "never", "--session", "hostile", *words, folder=project).output
    told += run("--session", "hostile", *words, folder=project).output
    told += run("--session", "hostile", "restore", "B2,B3", folder=project).output
    told += run("--session", "hostile", "status", "--all", folder=project).output
    told += run("--session", "hostile", "log", folder=project).output
    assert not STEERING.search(told)


def test_what_is_told_of_the_prompt_is_what_stands_then(run: Run, project: Path) -> None:
    """The cut that comes with a change takes earlier thinking away, which the change alone does not."""
    told = answer(run, project, "restore", "G1")
    status = answer(run, project, "status")
    assert status["used"] == told["tokens_after"]
    assert "Look at the test first." not in run("prompt", folder=project).stdout


def test_words_that_came_with_a_store_from_elsewhere_cannot_steer_a_terminal(run: Run, project: Path) -> None:
    """Nothing of ours writes such a stub or subject; another program may have."""
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "branched") as writer:
        rows = [
            msgspec.structs.replace(writer.ledger()[block], state="archived", level=1, group="G1")
            for block in ("B2", "B7")
        ]
        stub = f"[archived G1@a1b2c3: 2 blocks; recover G1]\n{HOSTILE}"
        group = Group(id="G1", members=("B2", "B7"), stub=stub, removed_by="agent")
        writer.change(subject=f"archive {HOSTILE}", op="archive", actor="agent", rows=rows, groups=[group])

    told = run("--session", "branched", "restore", "B2", folder=project).output
    assert "[archived G1@" in told
    told += run("--session", "branched", "undo", folder=project).output
    undone = run("--session", "branched", "undo", folder=project).output
    assert "undone: archive" in undone
    assert not STEERING.search(told + undone)
