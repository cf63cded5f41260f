"""Scopes, HEAD and several writers; one flush or many."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import human, reply
from tests.making.store import afresh, contents, git
from tests.store.scopes.looking import in_order, journey, texts


def test_a_writer_moves_head_unless_it_was_opened_on_a_scope(store: Store) -> None:
    with StoredSession.open(store, "demo") as session:
        session.open_scope("a", "why")
        assert store.current_scope("demo") == "a"
        with StoredSession.open(store, "demo", "main") as agent:
            agent.open_scope("b", "a sub-agent's")
            assert (agent.scope, session.scope) == ("b", "a")
            agent.goto("main", "done")
        assert store.current_scope("demo") == "a"
        with StoredSession.open(store, "demo") as later:
            assert later.scope == "a"
            later.goto("main", "a person's")
        assert store.current_scope("demo") == "main"
        assert session.scope == "a", "a writer keeps its own scope"


def test_a_writer_that_comes_before_the_flush_starts_where_the_journal_says(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredSession, "_flush", lambda _: None)
    session.append(human("go"), reply("yes"))
    session.open_scope("fix", "why")
    session.note("learned")
    with Store(path) as store:
        later = StoredSession.open(store, "demo")
        assert later.scope == "fix"
        assert texts(later) == ["[→ fix] why", "learned"]
        assert later.tip() == store.tips("demo")["main"]
        later.leave()


def test_a_whole_journey_can_wait_for_one_flush(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scopes that begin on scopes that have no commit yet, and merges of what is written in the same stream."""
    with monkeypatch.context() as waiting:
        waiting.setattr(StoredSession, "_flush", lambda _: None)
        journey(session)
        held = {scope: contents(session, scope) for scope in session.scopes()}
    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert {scope: contents(later, scope) for scope in later.scopes()} == held
        later.flush()
        assert store.current_scope("demo") == "main"
    assert {scope: afresh(path, scope=scope) for scope in held} == held
    in_order(path)


def test_one_flush_or_many_make_the_same_commits(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at another time: what is recorded says when, and a commit that is made again is the same one."""
    graphs = []
    moments = iter(range(1_800_000_000, 1_800_100_000))
    monkeypatch.setattr(Store, "new_id", lambda _: "0123456789abcdef")
    monkeypatch.setattr(Store, "now_iso", lambda _: "2027-01-15T08:00:00.000Z")
    for name in ("often", "once"):
        place = tmp_path / name
        shutil.copytree(pristine, place)
        with Store(place) as store, StoredSession.open(store, "demo") as session, monkeypatch.context() as patched:
            patched.setattr(Store, "now", lambda _: 1_800_000_000)
            if name == "once":
                patched.setattr(StoredSession, "_flush", lambda _: None)
            journey(session)
        with Store(place) as store, StoredSession.open(store, "demo") as session, monkeypatch.context() as patched:
            patched.setattr(Store, "now", lambda _: next(moments))
            session.flush()
        graphs.append(git(place, "for-each-ref", "refs/heads"))
    assert graphs[0] == graphs[1]
