"""The formats on disk: what a store of one held is read for ever, and written the same way while it is current."""

from __future__ import annotations

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from ctxvc.core.ledger.block import Kind, Origin, State
from ctxvc.store import format as fmt
from ctxvc.store import store as stores
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import result, results
from tests.making.store import complaints, git

GOLDEN = Path(__file__).parent.parent / "stores"
MAKER = runpy.run_path(str(GOLDEN / "make_golden.py"))
HELD: dict[int, dict[str, Any]] = {
    number: json.loads((GOLDEN / f"format-{number}.json").read_text()) for number in (1, 2)
}


@pytest.fixture(params=HELD)
def number(request: pytest.FixtureRequest) -> int:
    """A format."""
    value: int = request.param
    return value


@pytest.fixture
def golden(number: int, tmp_path: Path) -> Store:
    """The golden store of that format as a new clone holds it, with the journal that was beside it."""
    path = tmp_path / ".ctxvc"
    stores.create(path).close()
    subprocess.run(
        [
            "git",
            f"--git-dir={path}",
            "fetch",
            "-q",
            str(GOLDEN / f"format-{number}.bundle"),
            "refs/heads/*:refs/heads/*",
        ],
        check=True,
    )
    (path / "ctxvc" / "journal" / "golden").write_bytes((GOLDEN / f"format-{number}.journal").read_bytes())
    opened = Store(path)
    opened.set_current_scope("golden", "main")
    return opened


def test_the_golden_store_holds_what_it_held(golden: Store, number: int) -> None:
    assert json.loads(json.dumps(MAKER["described"](golden))) == HELD[number]
    assert complaints(golden.path) == ""


def test_the_golden_store_has_every_kind_state_and_origin(number: int) -> None:
    rows = [row for scope in HELD[number].values() for row in scope["rows"]]
    assert {row["kind"] for row in rows} == set(get_args(Kind))
    assert {row.get("state", "visible") for row in rows} == set(get_args(State))
    assert {row["origin"] for row in rows} == set(get_args(Origin))
    assert {row.get("ext", "txt") for row in rows} >= {"txt", "json", "bin", "png", "pdf"}


def test_the_golden_store_can_be_written_on(golden: Store, number: int) -> None:
    with StoredSession.open(golden, "golden", "main") as session:
        assert session.waiting() == HELD[number]["main"]["waiting"] > 0
        newest = HELD[number]["side"]["meta"]["counters"]["block"]
        assert session.append(results(result("open", "slept"))) == [f"B{newest + 3}"]
        session.flush()
        assert session.waiting() == 0
    assert git(golden.path, "log", "-2", "--format=%s", "golden/main").splitlines()[0] == "pin B20"
    assert complaints(golden.path) == ""


@pytest.mark.parametrize("number", [fmt.FORMAT], indirect=True)
def test_today_s_code_writes_the_golden_content_the_same_way(golden: Store, tmp_path: Path) -> None:
    made = MAKER["build"](tmp_path / "today" / ".ctxvc")
    for scope in ("main", "side"):
        ours, theirs = (git(path, "ls-tree", "-r", f"golden/{scope}") for path in (made.path, golden.path))
        assert ours == theirs
    assert made.journal_path("golden").read_bytes() == golden.journal_path("golden").read_bytes()
    made.close()


def test_every_tree_in_the_golden_history_can_be_read(golden: Store) -> None:
    commits = git(golden.path, "rev-list", "--branches").split()
    for commit in commits:
        ledger = golden.reader.ledger(commit)
        for row in ledger.rows():
            assert len(golden.reader.body(commit, row)) == row.bytes
    assert len(commits) > 30
