"""Notes on the disk: commits, blocks, what they fold."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Group
from ctxvc.core.prompt.outline import outline
from ctxvc.errors import BadInput, Conflict
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.revision import entry
from ctxvc.store.store import Store
from tests.making.conversation import exchange, human, injected, reply, result, results
from tests.making.store import afresh, archive, commits, git
from tests.store.scopes.looking import in_order


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
    in_order(path)


def test_a_note_of_one_line_is_a_subject_and_no_more(session: StoredSession) -> None:
    session.note("it was the clock", actor="user")

    said = entry(session.store, session.tip())
    assert (said.subject, said.body, said.actor) == ("note: it was the clock", "", "user")
    assert next(session.ledger().rows()).origin == "human"


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_note_is_refused(session: StoredSession, text: str) -> None:
    with pytest.raises(BadInput, match="needs text"):
        session.note(text)
    assert session.waiting() == 0 and len(session.ledger()) == 0


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
    in_order(path)


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
    in_order(path)


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
    in_order(path)


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
    in_order(path)
