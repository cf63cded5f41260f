"""Switches asked for inside a step, and what comes in with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.prompt.outline import outline
from ctxvc.errors import Conflict, Refused
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import human, injected, reply, result, results
from tests.making.store import add_scope, commits
from tests.store.scopes.looking import in_order, notes, parents, texts


def test_a_switch_asked_for_in_a_call_is_made_with_the_last_result(session: StoredSession, path: Path) -> None:
    session.append(human("go"), reply("", "other", "switch"))
    assert session.in_step and session.open_calls == ("other", "switch")
    session.open_scope("fix", "why")
    assert (session.scope, session.switching) == ("main", "fix")
    assert (session.scopes(), session.waiting()) == (["main"], 3), "what was asked for is on the disk, and not made"

    session.append(results(result("switch", "switching")))
    assert (session.scope, session.switching) == ("main", "fix")
    session.append(results(result("other", "out")))

    assert (session.scope, session.switching) == ("fix", "")
    assert not session.open_calls and not session.in_step
    assert texts(session, "main") == ["go", '{"cmd":"other"}', '{"cmd":"switch"}', "switching", "out", "[→ fix] why"]
    assert texts(session) == ["go", "[→ fix] why"]
    assert commits(path) == ["step 1: 5 blocks, 45 B", "note: [→ fix] why"]
    in_order(path)


def test_parallel_note_and_scope_in_one_step(session: StoredSession, path: Path) -> None:
    session.append(human("go"), reply("", "note", "scope"))
    session.note("learned")
    session.open_scope("fix", "why")
    session.append(results(result("note", "noted"), result("scope", "switching")))
    session.append(reply("here now"))

    assert notes(session, "main") == notes(session) == ["learned", "[→ fix] why"]
    assert texts(session) == ["go", "learned", "[→ fix] why", "here now"]
    assert [slot.row.kind for slot in outline(session.ledger("main"))] == [
        "user", "tool_use", "tool_use", "tool_result", "tool_result", "note", "note",
    ]  # fmt: skip
    assert commits(path) == ["step 1: 5 blocks, 45 B", "note: learned", "note: [→ fix] why"]
    in_order(path)


def test_a_goto_inside_a_call_has_the_whole_step_as_its_second_parent(session: StoredSession, path: Path) -> None:
    session.append(human("the task"), reply("", "s"))
    session.open_scope("fix", "why")
    session.append(results(result("s", "ok")))
    session.append(reply("fixed", "g"))
    session.note("it was the clock")
    session.goto("main", "fixed it")
    session.append(results(result("g", "ok")))

    assert session.scope == "main"
    assert texts(session) == ["the task", '{"cmd":"s"}', "ok", "[→ fix] why", "[← fix] fixed it"]
    assert texts(session, "fix") == ["the task", "[→ fix] why", "fixed", '{"cmd":"g"}', "it was the clock", "ok"]
    assert parents(path, "main")[-1] == ["note: [→ fix] why", "note: it was the clock"]
    in_order(path)


def test_a_second_switch_in_one_step_is_refused(session: StoredSession) -> None:
    session.append(human("go"), reply("", "a", "b"))
    session.open_scope("first", "why")
    with pytest.raises(Refused, match="'first' is already pending"):
        session.open_scope("second", "why")
    with pytest.raises(Refused, match="'first' is already pending"):
        session.goto("main", "why")
    session.append(results(result("a", "ok"), result("b", "error: one switch a step")))

    assert session.scopes() == ["main", "first"]
    session.append(reply("", "c"))
    session.goto("main", "now it may")
    session.append(results(result("c", "ok")))
    assert session.scope == "main"


def test_a_step_that_is_finished_without_its_results_makes_the_switch(session: StoredSession, path: Path) -> None:
    session.append(human("go"), reply("", "a"))
    session.open_scope("fix", "why")
    session.finish()

    assert session.scope == "fix"
    rows = list(session.ledger("main").rows())
    assert [row.kind for row in rows] == ["user", "tool_use", "tool_result", "note"]
    assert rows[2].extra == {"ctxvc": {"interrupted": True}}
    in_order(path)


def test_what_a_person_says_instead_of_waiting_is_said_in_the_new_scope(session: StoredSession, path: Path) -> None:
    session.append(human("go"), reply("", "a"))
    session.open_scope("fix", "why")
    assert session.append(human("stop, do this")) == ["B3", "B5"]

    assert texts(session, "main") == ["go", '{"cmd":"a"}', "", "[→ fix] why"]
    assert texts(session) == ["go", "[→ fix] why", "stop, do this"]
    in_order(path)


def test_a_message_of_results_and_words_is_divided_between_the_scopes(session: StoredSession, path: Path) -> None:
    session.append(human("go"), reply("", "a", "b"))
    session.open_scope("fix", "why")
    last = Message(role="user", parts=(result("b", "out b"), *human("and then?").parts, result("a", "out a")))
    session.append(last, reply("in the scope"))

    assert texts(session, "main")[3:] == ["out b", "out a", "[→ fix] why"]
    assert texts(session) == ["go", "[→ fix] why", "and then?", "in the scope"]
    in_order(path)


def test_results_for_a_named_scope_stay_in_it_and_the_writer_moves_on(session: StoredSession) -> None:
    session.append(human("go"), reply("", "a"))
    session.open_scope("fix", "why")
    session.append(results(result("a", "out")), injected("and this"), scope="main")

    assert session.scope == "fix"
    assert texts(session, "main")[2:] == ["out", "[→ fix] why", "and this"]


def test_a_switch_to_a_name_that_was_taken_meanwhile_is_a_conflict_and_adds_nothing(store: Store, path: Path) -> None:
    with (
        StoredSession.open(store, "demo") as session,
        Store(path) as other,
        StoredSession.open(other, "demo", "main") as second,
    ):
        session.append(human("go"), reply("", "a"))
        session.open_scope("fix", "why")
        add_scope(second, "fix")

        with pytest.raises(Conflict, match="nothing was added"):
            session.append(results(result("a", "switching")))
        assert (session.switching, session.open_calls) == ("", ("a",))
        session.append(results(result("a", "error: the name is taken")))
        assert texts(session)[-1] == "error: the name is taken"
        assert session.scope == "main"
    in_order(path)


def test_another_writer_s_end_of_the_step_makes_the_switch_and_the_asker_follows(store: Store, path: Path) -> None:
    with (
        StoredSession.open(store, "demo") as session,
        Store(path) as other,
        StoredSession.open(other, "demo") as second,
    ):
        session.append(human("go"), reply("", "a"))
        session.open_scope("fix", "why")
        second.append(human("no, this"))
        session.append(injected("what next"))

        assert (session.scope, second.scope) == ("fix", "fix")
        assert texts(session) == ["go", "[→ fix] why", "no, this", "what next"]
        assert texts(session, "main") == ["go", '{"cmd":"a"}', "", "[→ fix] why"]
    in_order(path)


def test_an_unanswered_question_does_not_hold_up_a_switch(session: StoredSession, path: Path) -> None:
    session.append(human("fix the login"))
    session.open_scope("fix", "apart")

    assert commits(path) == ["step 1: 1 block, 13 B", "note: [→ fix] apart"]
    assert texts(session) == ["fix the login", "[→ fix] apart"]
    session.append(reply("fixed"))
    assert session.ledger()["B3"].parent == "B1"
    in_order(path)


def test_a_goto_finishes_what_was_left_open_there(store: Store, path: Path) -> None:
    with (
        StoredSession.open(store, "demo") as session,
        Store(path) as other,
        StoredSession.open(other, "demo", "main") as second,
    ):
        second.append(human("go"), reply("", "x"))
        add_scope(session, "side")
        session.append(injected("here"), scope="side")
        with StoredSession.open(store, "demo", "side") as mover:
            mover.goto("main", "I take over")
            assert [row.kind for row in mover.ledger("main").rows()] == ["user", "tool_use", "tool_result", "note"]
        second.append(results(result("x", "late")))
    assert commits(path)[:2] == ["step 1: 3 blocks, 13 B", "goto main"]
    in_order(path)
