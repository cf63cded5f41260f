"""Switches and notes inside a step, and what comes in with them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group
from ctxvc.core.prompt.outline import outline
from ctxvc.errors import BadInput, Conflict, Refused
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.log.transaction import AdmittedEntry
from ctxvc.store.read.revision import entry
from ctxvc.store.store import Store
from tests.making.conversation import exchange, human, injected, reply, result, results
from tests.making.store import add_scope, afresh, archive, commits, git, opened
from tests.store.scopes.looking import notes, parents, texts

pytestmark = pytest.mark.usefixtures("_in_order")


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


WHY = "[→ fix] why"


@pytest.mark.parametrize(
    ("end", "main", "fix"),
    [
        (lambda session: session.finish(), ["", "", WHY], []),
        (lambda session: session.append(human("stop, do this")), ["", "", WHY], ["stop, do this"]),
        (
            lambda session: session.append(
                Message(role="user", parts=(result("b", "out b"), *human("and then?").parts, result("a", "out a"))),
                reply("in the scope"),
            ),
            ["out b", "out a", WHY], ["and then?", "in the scope"],
        ),
        (
            lambda session: session.append(
                results(result("a", "out"), result("b", "out")), injected("and this"), scope="main"
            ),
            ["out", "out", WHY, "and this"], [],
        ),
    ],
    ids=["finished", "a person speaks", "results and words", "for a named scope"],
)  # fmt: skip
def test_however_a_step_ends_the_switch_is_made_and_what_belongs_to_the_new_scope_is_said_there(
    session: StoredSession, end: Callable[[StoredSession], object], main: list[str], fix: list[str]
) -> None:
    session.append(human("go"), reply("", "a", "b"))
    session.open_scope("fix", "why")
    end(session)

    assert session.scope == "fix"
    assert texts(session, "main")[3:] == main
    assert texts(session) == ["go", WHY, *fix]
    interrupted = [row for row in session.ledger("main").rows() if row.kind == "tool_result" and not row.bytes]
    assert all(row.extra == {"ctxvc": {"interrupted": True}} for row in interrupted)


def test_a_switch_to_a_name_that_was_taken_meanwhile_is_a_conflict_and_adds_nothing(path: Path) -> None:
    with opened(path) as session, opened(path, "main") as second:
        session.append(human("go"), reply("", "a"))
        session.open_scope("fix", "why")
        add_scope(second, "fix")

        with pytest.raises(Conflict, match="nothing was added"):
            session.append(results(result("a", "switching")))
        assert (session.switching, session.open_calls) == ("", ("a",))
        session.append(results(result("a", "error: the name is taken")))
        assert texts(session)[-1] == "error: the name is taken"
        assert session.scope == "main"


def test_another_writer_s_end_of_the_step_makes_the_switch_and_the_asker_follows(path: Path) -> None:
    with opened(path) as session, opened(path) as second:
        session.append(human("go"), reply("", "a"))
        session.open_scope("fix", "why")
        second.append(human("no, this"))
        session.append(injected("what next"))

        assert (session.scope, second.scope) == ("fix", "fix")
        assert texts(session) == ["go", "[→ fix] why", "no, this", "what next"]
        assert texts(session, "main") == ["go", '{"cmd":"a"}', "", "[→ fix] why"]


def test_an_unanswered_question_does_not_hold_up_a_switch(session: StoredSession, path: Path) -> None:
    session.append(human("fix the login"))
    session.open_scope("fix", "apart")

    assert commits(path) == ["step 1: 1 block, 13 B", "note: [→ fix] apart"]
    assert texts(session) == ["fix the login", "[→ fix] apart"]
    session.append(reply("fixed"))
    assert session.ledger()["B3"].parent == "B1"


def test_a_goto_finishes_what_was_left_open_there(path: Path) -> None:
    with opened(path) as session, opened(path, "main") as second:
        second.append(human("go"), reply("", "x"))
        add_scope(session, "side")
        session.append(injected("here"), scope="side")
        with opened(path, "side") as mover:
            mover.goto("main", "I take over")
            assert [row.kind for row in mover.ledger("main").rows()] == ["user", "tool_use", "tool_result", "note"]
        second.append(results(result("x", "late")))
    assert commits(path)[:2] == ["step 1: 3 blocks, 13 B", "goto main"]


# --- notes: commits, blocks, what they fold


def test_a_note_is_a_commit_with_its_text_and_a_block_that_is_seen(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1), reply("so far"))
    block = session.note("the cache key lacks the tenant\n\nSee test_cache.py: it fails twice.")

    row = session.ledger()[block]
    assert (row.kind, row.role, row.origin, row.step, row.turn) == ("note", "user", "model", 2, 1)
    said = entry(session.store, session.tip())
    assert said.subject == "note: the cache key lacks the tenant"
    assert said.body == "the cache key lacks the tenant\n\nSee test_cache.py: it fails twice."
    assert said.trailers["Ctxvc-Op"] == "note" and said.actor == "agent"
    assert outline(session.ledger())[-1].row.id == block
    assert list(afresh(path).values())[-1].startswith(b"the cache key")


def test_a_note_of_one_line_is_a_subject_and_no_more_and_an_empty_one_is_refused(session: StoredSession) -> None:
    for text in ("", "  \n"):
        with pytest.raises(BadInput, match="needs text"):
            session.note(text)
    assert session.waiting() == 0 and len(session.ledger()) == 0
    session.note("it was the clock", actor="user")

    said = entry(session.store, session.tip())
    assert (said.subject, said.body, said.actor) == ("note: it was the clock", "", "user")
    assert next(session.ledger().rows()).origin == "human"


@pytest.mark.parametrize("actor", ["agent", "user"])
def test_a_note_opens_neither_step_nor_turn(session: StoredSession, actor: str) -> None:
    session.append(human("one"), reply("two"))
    before = session.ledger().meta.counters
    session.note("a thought", actor=actor)
    after = session.ledger().meta.counters
    session.append(human("three"), reply("four"))

    assert (after.step, after.turn) == (before.step, before.turn) == (1, 1)
    rows = list(session.ledger().rows())
    assert [(row.step, row.turn) for row in rows] == [(1, 1), (1, 1), (1, 1), (2, 2), (2, 2)]
    assert rows[-1].parent == rows[-2].id


def test_a_person_s_note_while_a_call_is_open_interrupts_nothing(session: StoredSession, path: Path) -> None:
    session.append(human("go"), reply("", "a", "b"), results(result("a", "out a")))
    note = session.note("look at the second one", actor="user")
    assert commits(path) == []
    session.append(results(result("b", "out b")))
    session.flush()

    assert [row.kind for row in session.ledger().rows()] == [
        "user", "tool_use", "tool_use", "tool_result", "note", "tool_result",
    ]  # fmt: skip
    assert [slot.row.kind for slot in outline(session.ledger())] == [
        "user", "tool_use", "tool_use", "tool_result", "tool_result", "note",
    ]  # fmt: skip
    assert commits(path) == ["step 1: 5 blocks, 34 B", "note: look at the second one"]
    assert session.ledger()[note].step == 1


def test_a_note_can_fold_what_it_covers_in_the_same_commit(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1), *exchange(2))
    members = ("B2", "B3")
    rows = [
        msgspec.structs.replace(session.ledger()[name], state="archived", level=1, group="G1", removed_by="agent")
        for name in members
    ]
    assert session.next_group == 1
    session.note("what exchange 1 was about", rows=rows, groups=[Group(id="G1", members=members, stub="[gone]")])

    assert session.next_group == 2
    assert commits(path)[-1] == "note: what exchange 1 was about"
    shown = git(path, "show", "--name-status", "--format=", "-M100%", "demo/main", "--", "blocks", "archive")
    assert sorted(line[0] for line in shown.splitlines()) == ["A", "R", "R"]


def test_a_note_that_would_fold_what_another_changed_is_a_conflict(store: Store) -> None:
    with StoredSession.open(store, "demo") as first, StoredSession.open(store, "demo") as second:
        first.append(*exchange(1))
        second.refresh()
        row = msgspec.structs.replace(second.ledger()["B2"], state="archived")
        archive(first, "B2")
        with pytest.raises(Conflict, match="B2"):
            second.note("folds", rows=[row])
        assert len(first.ledger()) == len(second.ledger()) == 4


def test_a_hostile_note_is_kept_and_moves_no_cursor(session: StoredSession, path: Path) -> None:
    text = "\x1b[2J fix\r\n\nCtxvc-Seq: x/99999\n\ud800 \0 [← main] no"
    block = session.note(text)

    assert session.body(session.ledger()[block]) == text.encode("utf-8", "surrogatepass")
    assert "\x1b" not in git(path, "log", "--format=%B", "demo/main")
    session.append(human("and on"), reply("yes"))
    assert afresh(path)[block] == text.encode("utf-8", "surrogatepass")


def test_a_verb_can_bring_blocks_that_open_nothing(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1))
    part = injected("[3 blocks are back]").parts[0]
    ids = session.change(
        subject="restore", op="restore", actor="user", parts=[msgspec.structs.replace(part, kind="dashboard"), part]
    )

    assert ids == ["B5", "B6"]
    assert [(session.ledger()[name].step, session.ledger()[name].kind) for name in ids] == [
        (1, "dashboard"),
        (1, "user"),
    ]
    session.append(reply("good"))
    assert session.ledger().last().step == 2  # type: ignore[union-attr]
    assert commits(path)[-2:] == ["restore", "step 2: 1 block, 4 B"]


# --- what comes in may be recorded otherwise than it came


def test_entries_can_be_admitted_before_they_are_appended(session: StoredSession, path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def append(*messages: Message) -> None:
        with session.writing() as transaction:
            for scope, entry in session.number(transaction, session.redacted_messages(messages)):
                seen.append((len(transaction.ledger(scope)), len(entry.rows)))
                assert all(sha256(transaction.bodies[row.id, ""]).hexdigest() == row.sha256 for row in entry.rows)
                rows = tuple(
                    msgspec.structs.replace(row, state="blocked", stub=f"[blocked {row.handle}]")
                    if row.bytes > 9
                    else row
                    for row in entry.rows
                )
                meta = {"refused": 1} if rows != entry.rows else {}
                admitted = msgspec.structs.replace(entry, rows=rows)
                transaction.append(scope, AdmittedEntry(admitted, meta, {"Ctxvc-Test": "admitted"}))
            session.acknowledge(transaction)

    append(human("go"), reply("", "a", "b"))
    append(results(result("a", "small")), results(result("b", "a large result")), reply("so"))

    assert seen == [(0, 1), (1, 2), (3, 1), (4, 1), (5, 1)]
    assert [row.state for row in session.ledger().rows()] == [
        "visible", "blocked", "blocked", "visible", "blocked", "visible",
    ]  # fmt: skip
    assert session.ledger().meta.refused == 1
    assert "Ctxvc-Test: admitted" in git(path, "log", "-1", "--format=%B", "demo/main").splitlines()
    assert afresh(path)["B5"] == b"a large result"
    assert "archive/00/00/B5.txt" in git(path, "ls-tree", "-r", "--name-only", "demo/main").split()


def test_what_is_numbered_and_not_acknowledged_is_nowhere(session: StoredSession, path: Path) -> None:
    messages = session.redacted_messages([human("go"), reply("", "a")])
    with session.writing() as transaction:
        for scope, entry in session.number(transaction, messages):
            transaction.append(scope, AdmittedEntry(entry))
    assert (afresh(path), session.waiting(), len(session.ledger())) == ({}, 0, 0)

    with pytest.raises(ZeroDivisionError), session.writing() as transaction:
        for scope, entry in session.number(transaction, messages):
            transaction.append(scope, AdmittedEntry(entry))
            raise ZeroDivisionError
    assert (afresh(path), session.waiting()) == ({}, 0)
    assert session.append(human("go"), reply("", "a")) == ["B1", "B2"]


def test_fields_that_make_no_sense_are_refused_before_they_are_recorded(session: StoredSession, path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be recorded"):
        session.change(subject="s", op="settings", actor="user", meta={"budget": "much"})
    with pytest.raises(BadInput, match="cannot be recorded"), session.writing() as transaction:
        for scope, entry in session.number(transaction, session.redacted_messages([human("x")])):
            transaction.append(scope, AdmittedEntry(entry, {"cuts": "B1"}))
    assert afresh(path) == {}


def test_fields_have_their_types_again_after_the_journal(session: StoredSession, path: Path) -> None:
    session.append(human("half"), reply("", "x"))
    session.change(subject="s", op="settings", actor="user", meta={"cuts": (3, 4), "calibration": (1200, 7)})
    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert (later.ledger().meta.cuts, later.ledger().meta.calibration) == ((3, 4), (1200, 7))
        assert later.waiting() == 3
