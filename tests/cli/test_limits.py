"""Commands on stores that are made to take time: many scopes, a pattern without end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.commit_reader import Reader
from ctxvc.store.store import Store, create
from tests.benchmarks.limits import SESSION, store_of_scopes
from tests.cli.conftest import Run

SCOPES = 70  # more notes than one segment of the ledger holds


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("many")
    store_of_scopes(project, SCOPES).close()
    return project


def test_scopes_are_listed_without_reading_a_ledger_or_a_body(
    many: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(many / ".ctxvc") as store, StoredSession.open(store, SESSION) as session:
        expected = {
            name: (
                len(session.ledger(name)),
                session.ledger(name).meta.counters.step,
                sum(row.kind == "note" for row in session.ledger(name).rows()),
            )
            for name in session.scopes()
        }

    def unwanted(*_: object) -> None:
        raise AssertionError("this is read for each scope")

    monkeypatch.setattr(Reader, "ledger", unwanted)
    monkeypatch.setattr(Reader, "body", unwanted)
    result = run("scopes", "--json", folder=many)

    items = {item["name"]: item for item in json.loads(result.stdout)["items"]}
    assert {name: (item["blocks"], item["steps"], item["notes"]) for name, item in items.items()} == expected
    assert expected["main"] == (2 * SCOPES + 2, 1, 2 * SCOPES)
    assert [name for name, item in items.items() if item["current"]] == ["main"]


def test_opening_a_session_reads_the_ledger_of_one_scope(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    ledger = Reader.ledger
    monkeypatch.setattr(Reader, "ledger", lambda self, commit: read.append(commit) or ledger(self, commit))
    with Store(many / ".ctxvc") as store, StoredSession.open(store, SESSION) as session:
        session.note("found it")
        session.flush()
        assert session.ledger("s3").meta.scope == "s3"
        assert session.next_group == 1
    assert len(read) == 2  # main's, and that of s3


# --- a pattern


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of blocks that take a catastrophic pattern about 30 ms each: a sixth of what one look may last, and
    six times as long in all as the search of the test below may."""
    project = tmp_path_factory.mktemp("slow")
    with create(project / ".ctxvc") as store:
        store.create_session("slow")
        with StoredSession.open(store, "slow") as session:
            session.append(
                *(
                    Message(role="user", parts=(text_part(f"{number} needle\n{'a' * 17}", "user", "human"),))
                    for number in range(200)
                )
            )
    return project


CATASTROPHE = r"needle|(?:a|a)+b(?=x)"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_search_that_takes_too_long_lists_what_it_found_and_how_far_it_came(
    slow: Path, run: Run, as_json: bool
) -> None:
    result = run("grep", CATASTROPHE, "--timeout", "1", *(["--json"] if as_json else []), folder=slow)
    assert result.exit_code == 1
    assert "the search was stopped after 1 s" in result.stderr and "of 200 bodies were searched" in result.stderr
    if as_json:
        answer = json.loads(result.stdout)
        assert answer["bodies"] == 200 and 0 < answer["searched"] < 200
        assert len(answer["items"]) in (answer["searched"], answer["searched"] + 1)
    else:
        assert "needle" in result.stdout


def test_a_search_that_has_the_time_comes_to_the_end(slow: Path, run: Run) -> None:
    result = run("grep", "needle", "--json", folder=slow)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["searched"] == json.loads(result.stdout)["bodies"] == 200


@pytest.mark.parametrize("as_json", [False, True])
def test_a_line_that_takes_too_long_costs_its_block_alone(tmp_path: Path, run: Run, as_json: bool) -> None:
    with create(tmp_path / ".ctxvc") as store:
        store.create_session("slow")
        with StoredSession.open(store, "slow") as session:
            for words in ("a" * 40, "the needle", "b" * 40):
                session.append(Message(role="user", parts=(text_part(words, "user", "human"),)))

    result = run("grep", CATASTROPHE, "--timeout", "30", *(["--json"] if as_json else []), folder=tmp_path)

    assert result.exit_code == 1 and "the needle" in result.stdout
    assert "1 body abandoned" in result.stderr and "--timeout" not in result.stderr
    if as_json:
        answer = json.loads(result.stdout)
        assert (answer["bodies"], answer["searched"], answer["skipped"]) == (3, 2, 1)


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_time_that_is_none_is_refused(slow: Path, run: Run, value: str) -> None:
    for arguments in (("grep", "needle"), ("recover", "B1", "--grep", "needle")):
        result = run(*arguments, "--timeout", value, folder=slow)
        assert result.exit_code == 2 and "--timeout" in result.stderr


def test_reading_out_by_a_pattern_has_an_end_too(tmp_path: Path, run: Run) -> None:
    with create(tmp_path / ".ctxvc") as store:
        store.create_session("slow")
        with StoredSession.open(store, "slow") as session:
            lines = "\n".join("a" * 16 for _ in range(200))
            session.append(Message(role="user", parts=(text_part(lines, "user", "human"),)))
    result = run("recover", "B1", "--grep", CATASTROPHE, "--timeout", "0.3", folder=tmp_path)
    assert result.exit_code == 1 and "the search was stopped after 0.3 s" in result.stderr
