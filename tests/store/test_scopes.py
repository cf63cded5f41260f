"""Scopes and notes on the disk: who gets what, in which commit, and that nothing of it can be half done."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Group
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, Piece, outline, pieces, sendable
from ctxvc.errors import BadInput, BadName, Conflict, CtxvcError, NotFound, Refused
from ctxvc.store.log.journal import Journal
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.log.transaction import AdmittedEntry
from ctxvc.store.read.revision import entry
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.core.checker import problems
from tests.making.conversation import exchange, human, injected, reply, result, results
from tests.making.store import add_scope, afresh, archive, commits, complaints, contents, git, start

from .test_crash import settle


def texts(session: StoredSession, scope: str = "") -> list[str]:
    """The bodies of a scope, in order."""
    return [body.decode() for body in contents(session, scope).values()]


def notes(session: StoredSession, scope: str = "") -> list[str]:
    rows = [row for row in session.ledger(scope).rows() if row.kind == "note"]
    return [session.body(row, scope).decode() for row in rows]


def in_order(path: Path) -> None:
    """Nothing waits, git and we find no fault, and what is read anew is what its commits say."""
    assert complaints(path) == ""
    with Store(path) as store:
        report = verify(store)
        assert [str(finding) for finding in report.findings] == []
        for name in store.sessions():
            with StoredSession.open(store, name) as session:
                for scope in session.scopes():
                    assert problems(sent(session, scope)) == []


def sent(session: StoredSession, scope: str) -> list[dict[str, object]]:
    """What the next call would be sent, were a person to say something more."""
    bodies = Bodies(lambda row: session.body(row, scope), lambda row, suffix: session.file(row, suffix, scope))
    held = sendable(pieces(outline(session.ledger(scope)), bodies))
    piece = Piece(message=1 << 40, role="user", kind="user", body=b"and now?")
    messages: list[dict[str, object]] = formats.anthropic(formats.Prompt(pieces=[*held, piece]))["messages"]
    return messages


def parents(path: Path, scope: str) -> list[list[str]]:
    """Of each commit of a scope, oldest first, the subjects of its parents."""
    lines = git(path, "log", "--first-parent", "--reverse", "--format=%P", f"demo/{scope}").splitlines()
    return [[git(path, "log", "-1", "--format=%s", parent).strip() for parent in line.split()] for line in lines]


# --- notes


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


# --- what a scope is


def test_the_walk_from_main_to_a_step_and_back(session: StoredSession, path: Path) -> None:
    session.open_scope("step-1", "A")
    assert session.scope == "step-1"
    session.note("B")
    session.goto("main", "C")

    assert session.scope == "main"
    assert notes(session, "main") == ["[→ step-1] A", "[← step-1] C"]
    assert notes(session, "step-1") == ["[→ step-1] A", "B"]
    assert commits(path) == ["note: [→ step-1] A", "goto main"]
    assert commits(path, scope="step-1")[-3:] == ["note: [→ step-1] A", "scope step-1", "note: B"]
    assert parents(path, "main")[-1] == ["note: [→ step-1] A", "note: B"]
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/main"
    in_order(path)


def test_git_draws_the_journey(session: StoredSession, path: Path) -> None:
    session.append(human("fix it"), reply("looking"))
    session.open_scope("look", "into the tokens")
    session.append(human("well?"), reply("found"))
    session.goto("main", "it was the clock")

    drawn = git(path, "log", "--graph", "--all", "--format=%s").splitlines()
    assert [line.rstrip() for line in drawn] == [
        "*   goto main",
        "|\\",
        "| * “well?” · found",
        "| * scope look",
        "|/",
        "* note: [→ look] into the tokens",
        "* “fix it” · looking",
        "* session demo",
    ]
    said = entry(session.store, session.tip())
    assert (said.body, said.trailers["Ctxvc-Op"]) == ("it was the clock", "goto")


def test_a_new_scope_inherits_what_is_pinned_with_its_pair_the_notes_and_the_question(
    session: StoredSession, path: Path
) -> None:
    session.append(*exchange(1), reply("done"))
    session.note("learned before")
    pinned = msgspec.structs.replace(session.ledger()["B4"], state="pinned")
    session.change(subject="pin B4", op="pin", actor="agent", rows=[pinned])
    session.append(human("and now this"), reply("I open a scope", "s"))
    session.append(results(result("s", "done")))
    session.open_scope("fix", "why")

    rows = list(session.ledger().rows())
    assert [(row.id, row.kind, row.state) for row in rows] == [
        ("B3", "tool_use", "visible"),
        ("B4", "tool_result", "pinned"),
        ("B6", "note", "visible"),
        ("B7", "user", "visible"),
        ("B11", "note", "visible"),
    ]
    assert texts(session) == ['{"cmd":"c1"}', "out 1", "learned before", "and now this", "[→ fix] why"]
    meta = session.ledger().meta
    assert (meta.scope, meta.parent, meta.counters.step, meta.counters.turn) == ("fix", "main", 4, 2)
    session.append(reply("in the scope"))
    assert (session.ledger()["B12"].step, session.ledger()["B12"].turn) == (4, 2)
    assert session.ledger()["B12"].parent == "B7"
    in_order(path)


def test_between_two_turns_no_question_is_inherited_and_a_turn_of_its_own_begins(session: StoredSession) -> None:
    session.append(human("one"), reply("answered"))
    session.open_scope("next", "something else", actor="user")

    assert notes(session) == texts(session) == ["[→ next] something else"]
    session.append(human("two"))
    assert (session.ledger()["B4"].step, session.ledger()["B4"].turn) == (2, 2)


def test_a_scope_with_messages_has_all_of_them(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1), reply("done"))
    archive(session, "B4")
    session.open_scope("copy", "to try something", with_messages=True)

    main, copy = session.ledger("main"), session.ledger("copy")
    assert list(main.rows()) == list(copy.rows())
    assert main.meta.counters == copy.meta.counters
    session.append(human("and on"), reply("yes"))
    assert (session.ledger()["B7"].step, session.ledger()["B7"].turn) == (3, 2)
    in_order(path)


def test_a_scope_from_an_earlier_commit_has_what_stood_there_and_says_why(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1), reply("first way"))
    earlier = session.tip()
    session.append(human("no"), reply("second way"))
    session.open_scope("again", "the second way fails", from_commit=earlier)

    assert texts(session)[:5] == ["question 1", "thinking about 1", '{"cmd":"c1"}', "out 1", "first way"]
    assert texts(session)[5:] == ["[→ again] the second way fails"] == notes(session, "main")
    assert parents(path, "again")[-1] == ["first way"]
    rows = {scope: session.ledger(scope)["B8"] for scope in ("main", "again")}
    assert [(row.msg, row.step, row.turn) for row in rows.values()] == [(7, 3, 2), (5, 2, 1)]
    assert rows["main"].sha256 == rows["again"].sha256
    assert session.append(human("third"), reply("way")) == ["B9", "B10"]
    in_order(path)


def test_a_scope_from_another_session_s_commit_is_refused(session: StoredSession, store: Store) -> None:
    store.create_session("other")
    with pytest.raises(NotFound, match="not in session"):
        session.open_scope("again", "why", from_commit=store.tips("other")["main"])
    assert session.scopes() == ["main"] and len(session.ledger()) == 0


def test_groups_are_inherited_whole_or_their_blocks_alone(session: StoredSession, path: Path) -> None:
    first, second = session.note("one"), session.note("two")
    session.append(human("q"), reply("a"))
    rows = [
        msgspec.structs.replace(session.ledger()[name], state="archived", level=level, group=group, stub=f"[{name}]")
        for name, level, group in ((first, 1, "G1"), (second, 2, "G2"), ("B3", 2, "G2"))
    ]
    inner = Group(id="G1", members=(first,), level=1, group="G2", stub="[G1]")
    outer = Group(id="G2", members=("G1", second, "B3"), level=2, stub="[G2]")
    session.change(subject="group", op="archive", actor="user", rows=rows, groups=[inner, outer])
    session.open_scope("x", "why")

    ledger = session.ledger()
    assert list(ledger.groups) == ["G1"] and ledger.groups["G1"].group == ""
    assert [(row.id, row.group, row.level) for row in ledger.rows()] == [
        (first, "G1", 1), (second, "", 1), ("B5", "", 0),
    ]  # fmt: skip
    in_order(path)


def test_verify_finds_nothing_wrong_with_a_scope_that_waits_in_the_journal(
    session: StoredSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(human("go"))
    (block,) = session.append(reply("so"))

    def full(*_: object) -> dict[str, str]:
        raise CtxvcError("no room")

    with monkeypatch.context() as failing:
        failing.setattr(Store, "write", full)
        session.open_scope("fix", "why", with_messages=True)
        row = session.ledger()[block]
        session.change(subject="pin", op="pin", actor="user", rows=[msgspec.structs.replace(row, state="pinned")])
        assert session.waiting()
        assert [finding for finding in verify(store).findings if finding.level == "damage"] == []
    session.flush()
    assert session.ledger("fix")[block].state == "pinned"


def test_going_back_shows_everything_as_it_was(session: StoredSession, path: Path) -> None:
    session.append(human("the task"), reply("I look", "a"), results(result("a", "found")))
    session.open_scope("look", "deeper")
    session.append(human("inside"), reply("yes"))
    before = outline(session.ledger("main"))
    session.goto("main", "nothing there")

    assert outline(session.ledger())[: len(before)] == before
    assert [slot.row.kind for slot in outline(session.ledger())][len(before) :] == ["note", "user"]
    assert texts(session)[-2:] == ["[← look] nothing there", "inside"]
    session.goto("look", "once more")
    assert texts(session)[-3:] == ["inside", "yes", "[← main] once more"]
    in_order(path)


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("fix", "", BadInput, "needs a note"),
        ("fix", " \n", BadInput, "needs a note"),
        ("main", "why", Refused, "already exists"),
        ("Side", "why", BadName, "differ only in case"),
        ("../x", "why", BadName, "bad scope name"),
        ("a b", "why", BadName, "bad scope name"),
        ("-m", "why", BadName, "bad scope name"),
        ("fix.lock", "why", BadName, "bad scope name"),
        ("HEAD", "why", BadName, "HEAD"),
        ("", "why", BadName, "empty"),
    ],
)
def test_a_scope_that_cannot_be_opened_leaves_every_byte_as_it_was(
    path: Path, name: str, text: str, error: type[CtxvcError], words: str
) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        add_scope(session, "side")
        session.append(human("half"))
    before = {found: found.read_bytes() for found in path.rglob("*") if found.is_file()}
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        with pytest.raises(error, match=words) as failure:
            session.open_scope(name, text)
        assert failure.value.hint
        if words == "already exists":
            assert "goto" in failure.value.hint
        assert (session.scope, session.switching) == ("main", "")
        session.leave()
        assert before == {found: found.read_bytes() for found in path.rglob("*") if found.is_file()}


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("main", "why", Refused, "already"),
        ("nowhere", "why", NotFound, "no scope"),
        ("x" * 100_000, "why", NotFound, "no scope"),
        ("side", "", BadInput, "needs a note"),
    ],
)
def test_a_goto_that_cannot_be_done_writes_nothing(
    session: StoredSession, name: str, text: str, error: type[CtxvcError], words: str
) -> None:
    add_scope(session, "side")
    with pytest.raises(error, match=words) as failure:
        session.goto(name, text)
    assert len(str(failure.value)) + len(failure.value.hint) < 400
    assert session.waiting() == 0 and len(session.ledger()) == len(session.ledger("side")) == 0


def test_a_name_that_says_error_is_a_name(session: StoredSession) -> None:
    session.open_scope("fix-error", "error: nothing failed")
    session.goto("main", "error")
    assert notes(session) == ["[→ fix-error] error: nothing failed", "[← fix-error] error"]


def test_a_scope_of_an_imported_session_does_not_pass_for_a_part_of_the_recording(session: StoredSession) -> None:
    source = {"format": "claude-code", "id": "x", "units": 7, "offset": 99, "finals": [3], "title": "t"}
    session.change(subject="s", op="settings", actor="host", meta={"source": source, "refused": 3, "cuts": (1, 2)})
    session.open_scope("rewind-1", "why")

    meta = session.ledger().meta
    assert meta.source is not None and (meta.source.units, meta.source.offset, meta.source.finals) == (0, 0, ())
    assert (meta.source.title, meta.refused, meta.cuts) == ("t", 0, (1, 2))
    assert session.store.source_of("demo", "x").units == 7  # type: ignore[union-attr]


# --- inside a step


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


# --- what comes in may be recorded otherwise


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
    in_order(path)


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
    in_order(path)


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


# --- HEAD, and several writers


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


def journey(session: StoredSession) -> None:
    """main → a → b → main → a, with work in each and a switch inside a call."""
    session.append(*exchange(1))
    session.open_scope("a", "first")
    session.append(human("in a"), reply("", "n", "s"))
    session.note("noted in a call")
    session.open_scope("b", "second")
    session.append(results(result("n", "noted"), result("s", "ok")))
    session.append(reply("in b"))
    session.goto("main", "back")
    session.append(human("in main"), reply("yes"))
    session.goto("a", "once more")
    session.append(reply("end", "g"))
    session.note("the end")
    session.goto("main", "for good")
    session.append(results(result("g", "ok")))


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


# --- kills


REFS = ("main", "a", "b")


@pytest.fixture(scope="module")
def flushed(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """A store with a journey in its journal, the same after its flush, and what each ref is then."""
    folder = tmp_path_factory.mktemp("journey")
    before, after = folder / "before", folder / "after"
    shutil.copytree(pristine, before)
    with pytest.MonkeyPatch.context() as patched, Store(before) as store, StoredSession.open(store, "demo") as session:
        patched.setattr(StoredSession, "_flush", lambda _: None)
        journey(session)
    shutil.copytree(before, after)
    with Store(after) as store, StoredSession.open(store, "demo") as session:
        session.flush()
    yield before, after, Store(after).tips("demo")


@pytest.mark.parametrize(
    "moved", [combination for count in range(4) for combination in combinations(REFS, count)], ids="+".join
)
@pytest.mark.parametrize("more", [False, True], ids=["", "and more"])
def test_a_flush_killed_between_any_two_refs_is_completed_to_the_same_graph(
    flushed: tuple[Path, Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moved: tuple[str, ...],
    more: bool,
) -> None:
    """The pack is there and some of the branches have moved; HEAD has not, and the journal still has everything."""
    before, after, tips = flushed
    monkeypatch.setattr(Store, "now", lambda _: 1_900_000_000)
    place = tmp_path / ".ctxvc"
    shutil.copytree(before, place)
    shutil.copytree(after / "objects", place / "objects", dirs_exist_ok=True)
    for scope in moved:
        git(place, "update-ref", f"refs/heads/demo/{scope}", tips[scope])
    with Store(place) as store, StoredSession.open(store, "demo") as session:
        assert session.scope == "main"
        if more:
            session.append(human("after the crash"))
            session.append(reply("and on"))
            assert session.flush_failure is None
        session.flush()
        assert session.waiting() == 0

    found = Store(place).tips("demo")
    if more:
        assert git(place, "rev-parse", "demo/main~1").strip() == tips["main"]
        found["main"] = tips["main"]
    assert found == tips
    assert git(place, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/main"
    in_order(place)


WALK: tuple[Callable[[StoredSession], object], ...] = (
    lambda session: session.append(human("the task"), reply("", "s")),
    lambda session: session.open_scope("step-1", "A"),
    lambda session: session.append(results(result("s", "ok"))),
    lambda session: session.append(human("mind the clock")),
    lambda session: session.append(reply("looked")),
    lambda session: session.note("B"),
    lambda session: session.append(human("and the zone"), reply("", "g")),
    lambda session: session.goto("main", "C"),
    lambda session: session.append(results(result("g", "ok"))),
    lambda session: session.append(reply("done")),
    lambda session: session.open_scope("step-2", "D"),
    lambda session: session.append(human("once more"), reply("yes")),
    lambda session: session.goto("step-1", "E"),
    lambda session: session.goto("main", "F"),
)


@pytest.fixture(scope="module")
def walked(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], list[bytes], Path]:
    """What the scopes hold after the walk, its journal after each step of it, and the store before it."""
    place = tmp_path_factory.mktemp("walk") / ".ctxvc"
    shutil.copytree(pristine, place)
    journals = []
    with pytest.MonkeyPatch.context() as patched, Store(place) as store, StoredSession.open(store, "demo") as session:
        patched.setattr(StoredSession, "_flush", lambda _: None)
        for step in WALK:
            step(session)
            journals.append(store.journal_path("demo").read_bytes())
        return {scope: texts(session, scope) for scope in session.scopes()}, journals, pristine


def test_what_a_human_said_in_a_scope_is_in_main_once_after_the_walk(
    walked: tuple[dict[str, list[str]], Any, Any],
) -> None:
    scopes, _, _ = walked
    call = '{"cmd":"s"}'
    said = ["mind the clock", "and the zone"]
    assert scopes["main"] == [
        *("the task", call, "ok", "[→ step-1] A", "[← step-1] C", *said, "done", "[→ step-2] D", "[← step-1] F"),
        "once more",
    ]


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
@pytest.mark.parametrize("at", range(len(WALK)))
def test_the_walk_of_the_explicit_scopes_with_human_words_in_a_scope_killed_at_every_record(
    at: int, torn: bool, walked: tuple[dict[str, list[str]], list[bytes], Path], tmp_path: Path
) -> None:
    """The process is gone after a record, or in the middle of the next one; another goes on where it was."""
    scopes, journals, pristine = walked
    place = tmp_path / ".ctxvc"
    shutil.copytree(pristine, place)
    following = journals[at + 1] if torn and at + 1 < len(WALK) else b""
    with Store(place) as store:
        tail = following[len(journals[at]) :][:9]
        store.journal_path("demo").write_bytes(journals[at] + tail)
    for step in WALK[at + 1 :]:
        with Store(place) as store, StoredSession.open(store, "demo") as session:
            step(session)
    with Store(place) as store, StoredSession.open(store, "demo") as session:
        session.flush()
        assert {scope: texts(session, scope) for scope in session.scopes()} == scopes
        assert session.scope == "main"
    in_order(place)


def test_after_a_kill_before_head_moves_head_follows(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(Store, "set_current_scope", killed)
        with pytest.raises(KeyboardInterrupt):
            session.open_scope("fix", "why")
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/main"
    assert sorted(Store(path).tips("demo")) == ["fix", "main"]

    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert later.scope == "fix"
        later.flush()
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/fix"
    assert commits(path, scope="fix") == ["note: [→ fix] why", "scope fix"]
    in_order(path)


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_after_a_kill_before_the_journal_is_cleared_nothing_is_made_twice(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(human("go"), reply("", "s"))
    session.open_scope("fix", "why")
    with monkeypatch.context() as dying:
        dying.setattr(Journal, "rewrite", killed)
        with pytest.raises(KeyboardInterrupt):
            session.append(results(result("s", "ok")))
    tips = Store(path).tips("demo")

    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert (later.scope, later.waiting()) == ("fix", 0)
        later.flush()
    assert Store(path).tips("demo") == tips
    in_order(path)


def test_the_last_result_and_its_switch_are_there_together_or_not_at_all(session: StoredSession, path: Path) -> None:
    never = session.store.journal_path("demo")
    session.append(human("go"), reply("", "s"))
    session.open_scope("fix", "why")
    before = never.read_bytes()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StoredSession, "_flush", lambda _: None)
        session.append(results(result("s", "ok")))
        whole = never.read_bytes()
    for cut in range(len(before), len(whole) + 1, 7):
        never.write_bytes(whole[:cut])
        with Store(path) as store:
            later = StoredSession.open(store, "demo")
            assert (later.scopes(), len(later.ledger("main"))) == (["main"], 2)
            later.leave()
    never.write_bytes(whole)
    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert (later.scopes(), len(later.ledger("main")), len(later.ledger("fix"))) == (["main", "fix"], 4, 2)


@pytest.mark.parametrize("new", [True, False])
def test_a_switch_that_was_asked_for_and_not_made_survives_kill_9(new: bool, path: Path) -> None:
    with Store(path) as store:
        session = StoredSession.open(store, "demo")
        add_scope(session, "side")
        session.append(human("go"), reply("", "s", "t"))
        session.open_scope("fix", "why\x1b", with_messages=True) if new else session.goto("side", "why\x1b")
        session.append(results(result("s", "ok")))
        session.leave()
    name, arrow = ("fix", "→") if new else ("side", "← main")
    with Store(path) as store, StoredSession.open(store, "demo") as later:
        assert (later.scope, later.switching, later.open_calls) == ("main", name, ("t",))
        later.append(results(result("t", "ok")))
        assert (later.scope, later.switching) == (name, "")
        assert notes(later) == ([f"[{arrow} fix] why\x1b"] if new else [f"[{arrow}] why\x1b"])
        assert len(later.ledger()) == (6 if new else 1)
    in_order(path)


def test_a_switch_that_cannot_be_made_any_more_is_not_asked_for_again_after_a_kill(store: Store, path: Path) -> None:
    session = StoredSession.open(store, "demo")
    session.append(human("go"), reply("", "a"))
    session.open_scope("fix", "why")
    add_scope(session, "fix")
    with pytest.raises(Conflict):
        session.append(results(result("a", "switching")))
    session.leave()
    with Store(path) as again, StoredSession.open(again, "demo") as later:
        assert (later.switching, later.open_calls) == ("", ("a",))
        later.append(results(result("a", "the name is taken")))
        assert later.scope == "main"
    in_order(path)


def test_who_comes_to_a_scope_and_finishes_its_step_takes_over_from_a_switch_asked_for_there(
    store: Store, path: Path
) -> None:
    with StoredSession.open(store, "demo") as session, Store(path) as other:
        session.append(human("go"))
        add_scope(session, "side")
        session.append(reply("", "a"))
        session.open_scope("fix", "why")
        with StoredSession.open(other, "demo", "side") as second:
            second.goto("main", "mine now")
        session.refresh()
        assert (session.scope, session.switching, session.scopes()) == ("main", "", ["main", "side"])
    in_order(path)


# --- many at once


@pytest.mark.slow
def test_four_processes_that_switch_lose_nothing_of_each_other(path: Path) -> None:
    running = [start("switching.py", path, f"w{number}", 6) for number in range(4)]
    for process in running:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said: dict[str, str] = {}
    for process in running:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        heard(said, out)
    assert_held(path, said)
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        assert session.waiting() == 0
        assert len(session.scopes()) == 1 + 4 * 6
        assert len([text for text in notes(session, "main") if text.startswith("[→ ")]) == 4 * 6
        assert len([text for text in notes(session, "main") if text.startswith("[← ")]) == 4 * 6
    in_order(path)


@pytest.mark.slow
def test_processes_killed_while_they_switch_lose_nothing_acknowledged(path: Path) -> None:
    chance = random.Random(3)
    said: dict[str, str] = {}
    for number in range(6):
        with start("switching.py", path, f"w{number}", 1 << 20) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.stdin.write(b"go\n")
            process.stdin.flush()
            first = process.stdout.readline() if number % 2 else b""  # on a slow machine it may come late
            killer = threading.Timer(chance.uniform(0.02, 0.2), process.kill)
            killer.start()
            out = first + process.stdout.read()
            killer.join()
        heard(said, out[: out.rfind(b"\n") + 1])
        assert_held(path, said)
    assert said
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        for scope in session.scopes():
            session.finish(scope)
        assert session.waiting() == 0
    settle(path)
    with Store(path) as store:
        store.clean_up()
    in_order(path)


def heard(said: dict[str, str], out: bytes) -> None:
    for line in out.decode().splitlines():
        block, text = line.split(" ", 1)
        assert block not in said, "a number was given twice"
        said[block] = text


def assert_held(path: Path, said: dict[str, str]) -> None:
    """All that was acknowledged is in some scope, and one number is one body in all of them."""
    held: dict[str, str] = {}
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        for scope in session.scopes():
            for block, body in contents(session, scope).items():
                assert held.setdefault(block, body.decode()) == body.decode()
    assert {block: held.get(block, "(lost)") for block in said} == said
