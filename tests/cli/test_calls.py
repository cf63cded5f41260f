"""A call's id is an address of what the call gave, wherever one is taken, and of nothing that has another name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.core.plan import selection
from ctxvc.errors import NotFound
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.store import Store
from tests.cli.conftest import Run
from tests.conftest import Copied

LONG = "toolu_01AbCdEfGhIjKlMnOpQr"


def answered(session: Session, call: str, output: str | None) -> None:
    """A step in which one call is made and answered; not answered with None."""
    made = {"type": "tool_use", "id": call, "name": "sh", "input": {"cmd": output or "sleep"}}
    session.append({"role": "assistant", "content": [made]})
    if output is not None:
        given = {"type": "tool_result", "tool_use_id": call, "content": output}
        session.append({"role": "user", "content": [given]})


@pytest.fixture
def project(tmp_path: Path, copied: Copied) -> Path:
    """A session whose calls have odd ids, and are B2 to B15; another one with calls of its own."""
    return copied(_with_calls, tmp_path)


def _with_calls(folder: Path) -> None:
    with Session.open(folder / ".ctxvc", "other") as session:
        session.append({"role": "user", "content": "Go."})
        answered(session, f"{LONG}x", "of the other session\n")
        answered(session, "short", "short, of the other session\n")
    with Session.open(folder / ".ctxvc", "demo", actor="user") as session:
        session.append({"role": "user", "content": "Go."})
        for number, call in enumerate((LONG, "B2", "main", "step:1", "functions.sh:0", "c-1")):
            answered(session, call, f"{number} came out\n" * 20)
        answered(session, LONG, "again\n" * 20)
        answered(session, "interrupted", None)
        session.append({"role": "user", "content": "Stop."})
        answered(session, "open", None)


@pytest.mark.parametrize(
    ("address", "block"),
    [
        (LONG, "B15"),  # the newest result
        (f"main:{LONG}", "B15"),
        (f"demo/main:{LONG}", "B15"),
        ("functions.sh:0", "B11"),
        ("main:functions.sh:0", "B11"),
        ("c-1", "B13"),
        ("interrupted", "B16"),  # the call itself: there is no result
        ("open", "B19"),
        ("B2", "B2"),  # never what a recording calls so
    ],
)
def test_a_calls_id_is_its_results(run: Run, project: Path, address: str, block: str) -> None:
    for command in ("show", "blame"):
        assert _id(run, project, command, address) == block
    whole = run("show", "--raw", block, folder=project).stdout_bytes
    assert run("recover", address, folder=project).stdout_bytes == whole
    assert json.loads(run("bisect", address, "--json", folder=project).stdout)["items"][0]["block"] == block


def _id(run: Run, project: Path, command: str, address: str) -> str:
    answer = json.loads(run(command, address, "--json", folder=project).stdout)
    return str(answer["row"]["id"] if command == "show" else answer["id"])


def test_a_revision_is_never_taken_for_a_call(run: Run, project: Path) -> None:
    for revision in ("main", "step:1"):
        assert "commit" in json.loads(run("show", revision, "--json", folder=project).stdout)
    assert run("recover", "main", folder=project).stdout_bytes == b"2 came out\n" * 20


def test_a_long_id_is_found_in_other_sessions_and_a_short_one_is_not(run: Run, project: Path) -> None:
    assert run("recover", f"{LONG}x", folder=project).stdout == "of the other session\n"
    result = run("recover", "short", folder=project)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not an address or the id of a recorded call" in result.stderr
    assert run("recover", "other/main:short", folder=project).stdout == "short, of the other session\n"


def test_an_unknown_one_is_told(run: Run, project: Path) -> None:
    for command in ("show", "recover", "blame"):
        for text in ("toolu_nowhere", "nowhere/main:toolu", "main:", "nowhere:x", "\x1b[2J"):
            result = run(command, text, folder=project)
            assert (result.exit_code, result.stdout) == (1, ""), (command, text)
            assert "hint: " in result.stderr and "\x1b" not in result.stderr
    assert run("bisect", "toolu_nowhere", folder=project).exit_code == 1  # no text of any prompt


def test_verbs_take_it_and_name_the_block(run: Run, project: Path) -> None:
    answer = json.loads(run("archive", "c-1,B3", "functions.sh:0", "--json", folder=project).stdout)
    assert {item["id"] for item in answer["items"]} >= {"B3", "B11", "B13"}
    assert run("restore", LONG, "c-1", folder=project).exit_code == 0
    result = run("pin", "toolu_nowhere", folder=project)
    assert "not an id: toolu_nowhere" in result.stderr + result.stdout


def test_a_range_is_never_a_call(project: Path) -> None:
    with Session.open(project / ".ctxvc", "demo") as session:
        session.append({"role": "user", "content": "Go on."})
        answered(session, "B2-B5", "no range\n")
        answered(session, "to", "no word\n")
        answered(session, "b3@abcd", "no handle\n")
        ledger = session.ledger()
        assert selection.expand("B2-B5", ledger)[0] == ("B2", "B3", "B4", "B5")
        assert selection.expand("B2 to B5", ledger)[0] == ("B2", "B3", "B4", "B5")
        assert selection.expand("b3@abcd", ledger)[0] == ()


def test_of_the_same_id_in_two_scopes_the_scope_must_be_named(project: Path) -> None:
    with Store(project / ".ctxvc") as store:
        with Session(StoredSession.open(store, "demo")) as session:
            for scope in ("one", "two"):
                session.open_scope(scope, "try it")
                answered(session, "c-9", f"in {scope}\n")
                session.goto("main", "tried")
        with Session(StoredSession.open(store, "demo")) as session:
            with pytest.raises(NotFound, match="several calls have the id") as told:
                session.recover_bytes("c-9")
            assert "demo/one:B" in told.value.hint and "demo/two:B" in told.value.hint
            ((_, data),) = session.recover_bytes("two:c-9")
            assert data == b"in two\n"
        found = addresses.target(StoredSession.open(store, "demo"), "one:c-9")
        assert found is not None and found.snapshot.scope == "one"
