"""A session in memory makes what a stored one makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.core.plan.plan import Action, Plan
from ctxvc.errors import NotFound, Refused
from ctxvc.policies import parse
from ctxvc.session.session import Session
from ctxvc.store.log.memory import MemorySession
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import create
from ctxvc.tokens.meter import Meter
from tests.making.conversation import LONG, human, reply, result, results


def _filled(stored: StoredSession) -> Session:
    """A session with messages, verbs, a note, and a scope that was left again."""
    session = Session(stored, policy=parse("scoped"), now=lambda: 0.0, meter=Meter(None))
    session.set(budget=20_000, calibration=(1000, 0))
    session.begin()
    session.append(human("question"))
    for number in range(4):
        session.request()
        session.append(reply(f"look {number}", f"c{number}"), results(result(f"c{number}", f"{number}\n{LONG}")))
    session.archive("B4", "the first result")
    session.note("it is the third", fold=True)
    session.propose(Plan(actions=(Action(verb="archive", targets=("B8",)),), actor="planner"))
    session.open_scope("aside", "look elsewhere")
    session.append(human("and there?"))
    session.request()
    session.append(reply("nothing"))
    session.goto("main", "nothing there")
    session.append(human("go on"))
    session.request()
    return session


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Session, Session]]:
    with create(tmp_path / ".ctxvc") as store:
        store.redaction.keep_exact("session")
        store.create_session("session", system="be brief")
        with _filled(StoredSession.open(store, "session")) as stored:
            yield stored, _filled(MemorySession(system="be brief"))


def test_prompts_rows_and_numbers_are_those_of_a_stored_session(both: tuple[Session, Session]) -> None:
    stored, memory = both

    assert memory.scopes() == stored.scopes() == ["main", "aside"]
    for scope in stored.scopes():
        assert list(memory.ledger(scope).rows()) == list(stored.ledger(scope).rows())
        assert memory.ledger(scope).groups == stored.ledger(scope).groups
        assert memory.ledger(scope).meta.counters == stored.ledger(scope).meta.counters
    assert memory.prompt().digest == stored.prompt().digest
    assert memory.notes() == stored.notes()
    assert memory.body("B4") == stored.body("B4")


def test_plans_wait_as_in_a_store(both: tuple[Session, Session]) -> None:
    plan = Plan(actions=(Action(verb="mask", targets=("B6",)),), actor="planner")
    for session in both:
        first = session.propose(plan)
        assert session.propose(plan).id == first.id
        assert [pending.id for pending in session.pending()] == [first.id]
        assert session.drop(first.id) == (first.id,)
        assert session.pending() == ()


def test_an_error_leaves_no_trace() -> None:
    with Session(MemorySession(), meter=Meter(None)) as session:
        session.append(human("question"))
        before = session.ledger()
        with pytest.raises(NotFound):
            session.goto("nowhere", "try")
        with pytest.raises(ZeroDivisionError), session.stored.writing() as transaction:
            transaction.verb("main", op="note", actor="agent", subject="lost")
            raise ZeroDivisionError
        assert session.ledger() == before
        session.open_scope("aside", "look")
        with pytest.raises(Refused):
            session.open_scope("main", "again")


def test_operations_are_counted_by_actor() -> None:
    with Session(MemorySession(), meter=Meter(None)) as session:
        session.append(human("question"), reply("look", "c"), results(result("c", LONG)), reply("and", "d"))
        session.archive("B3-B4", "a result")
        assert isinstance(session.stored, MemorySession)
        assert session.stored.operations["archive", "agent"] == 1
        assert session.stored.operations["step", "agent"] > 0
