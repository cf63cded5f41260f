"""From the journal into commits: what becomes one, what waits, and that stock git agrees with what we read."""

from __future__ import annotations

import os
import shutil
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.display import one_line
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Counters, Ledger, Meta
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.ledger.wire import part as part_of
from ctxvc.core.ledger.wire import text_part
from ctxvc.errors import CtxvcError
from ctxvc.store import format as fmt
from ctxvc.store.format import message, trailers_of
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.log import stored_session as writers
from ctxvc.store.log.commits import PendingChange, apply_change, covered, plan
from ctxvc.store.log.journal import Change, Record
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import exchange, human, injected, raw, reply, result, results
from tests.making.store import (
    acknowledge,
    add_scope,
    afresh,
    archive,
    commits,
    complaints,
    contents,
    git,
    git_bytes,
    never_due,
    opened,
)

# --- what becomes a commit


def test_turns_of_a_burst_are_flushed_together_within_the_second(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "TURN_SECONDS", 0.4)
    for number in range(8):
        session.append(human(f"question {number}"), reply("answer"))
    assert len(commits(path)) < 4, "most wait"

    until = time.monotonic() + 20
    while len(commits(path)) < 8 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(commits(path)) == 8, "nobody called the session again"
    session.append(human("more"), reply("answer"))
    session.append(human("and more"), reply("answer"))
    while len(commits(path)) < 10 and time.monotonic() < until:
        time.sleep(0.05)
    assert commits(path)[-1] == "step 10: 2 blocks, 14 B"
    assert session.waiting() == 2, "this one has not looked yet"
    session.close()
    assert len(afresh(path)) == 20


@pytest.mark.parametrize("end", ["close", "leave", "gone"])
def test_no_timer_outlives_its_session_or_minds_that_the_store_is_gone(
    store: Store, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "TURN_SECONDS", 0.2)
    store.create_session("short")
    session = StoredSession.open(store, "short")
    others = {*threading.enumerate()}
    session.append(human("one"), reply("two"))
    session.append(human("three"), reply("four"))
    (timer,) = (thread for thread in {*threading.enumerate()} - others if isinstance(thread, threading.Timer))
    if end == "gone":
        shutil.rmtree(store.path)
    else:
        getattr(session, end)()
    timer.join(20)
    assert not timer.is_alive()


def test_a_step_is_one_commit_however_many_appends_it_took(session: StoredSession, path: Path) -> None:
    session.append(human("look"))
    session.append(reply("", "a", "b"))
    session.append(results(result("b", "second")))
    session.append(injected("do not forget"))
    session.append(results(result("a", "first")))
    session.flush()

    assert [subject.split(",")[0] for subject in commits(path)] == ["step 1: 6 blocks"]
    assert [session.ledger()[name].call for name in ("B4", "B6")] == ["b", "a"]


def test_an_open_step_of_a_scope_that_nobody_uses_survives_the_flushes_of_another(path: Path) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(*exchange(1))
        add_scope(session, "side")
        session.append(human("a side job"), reply("", "s"), scope="side")
        for number in range(2, 5):
            session.append(*exchange(number))
            session.flush()
        assert session.waiting() == 2
    with Store(path) as store, StoredSession.open(store, "demo", "side") as session:
        session.append(results(result("s", "done")))
        session.flush()
        assert session.waiting() == 0

    assert commits(path, scope="side")[-1] == "step 1: 3 blocks, 25 B"
    assert [*afresh(path, scope="side").values()] == [b"a side job", b'{"cmd":"s"}', b"done"]
    assert len(afresh(path)) == 4 * 4


def test_a_verb_made_inside_an_open_step_is_committed_right_after_it(session: StoredSession, path: Path) -> None:
    session.append(*exchange(1))
    session.append(human("next"), reply("", "x"))
    archive(session, "B1")
    assert commits(path)[-1].startswith("step 1")
    assert session.ledger()["B1"].state == "archived"

    session.append(results(result("x", "done")))
    session.flush()

    assert commits(path)[1:] == ["step 2: 3 blocks, 19 B", "archive B1"]
    assert session.waiting() == 0


def test_without_a_turn_s_end_a_flush_comes_with_time_or_with_enough_steps(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_due(monkeypatch)
    for number in range(3):
        session.append(*exchange(number))
    assert commits(path) == []

    monkeypatch.setattr(writers, "FLUSH_STEPS", 4)
    session.append(*exchange(3))
    assert len(commits(path)) == 4

    session.append(*exchange(4))
    assert len(commits(path)) == 4
    monkeypatch.setattr(writers, "FLUSH_SECONDS", 0.0)
    session.append(*exchange(5))
    assert len(commits(path)) == 6


def test_finishing_marks_open_calls_interrupted_and_commits_a_question_that_nobody_answered(
    session: StoredSession, path: Path
) -> None:
    session.append(human("run both"), reply("", "a", "b"), results(result("a", "ran")))

    session.finish()

    last = session.ledger()["B5"]
    assert (last.call, last.error, last.bytes, last.extra) == ("b", True, 0, {"ctxvc": {"interrupted": True}})
    assert (session.waiting(), len(commits(path))) == (0, 1)

    session.append(human("anybody there?"))
    session.finish()
    assert (session.waiting(), commits(path)[1:]) == (0, ["step 2: 1 block, 14 B"])
    session.finish()
    assert len(commits(path)) == 2, "there is nothing more to finish"


def test_every_commit_counts_what_it_holds_and_no_more(session: StoredSession, store: Store) -> None:
    """Also where one append held several steps: a branch from any of them goes on with its own numbers."""
    session.append(*exchange(1), *exchange(2), human("go"), reply("", "x"), human("stop"), reply("yes"))

    tips = git(store.path, "rev-list", "--first-parent", "--reverse", "demo/main").split()[1:]
    for number, tip in enumerate(tips, 1):
        ledger = store.reader.ledger(tip)
        last = ledger.last()
        assert last is not None
        counters = ledger.meta.counters
        assert (counters.step, counters.block) == (number, last.number)
        assert (counters.msg, counters.turn) == (last.msg, last.turn)
    assert len(tips) == 4


# --- the plan, as a pure function


@st.composite
def recorded(draw: st.DrawFn) -> list[PendingChange]:
    """The records of one scope, as messages of all kinds and verbs between them leave them."""
    numbering = Numbering(block=0)
    changes: list[Change] = []
    words = st.sampled_from(["human", "reply", "calls", "results", "reminder", "verb"])
    for at, word in enumerate(draw(st.lists(words, max_size=14))):
        match word:
            case "human":
                said = human(f"h{at}")
            case "reply":
                said = reply(f"r{at}")
            case "calls":
                said = reply(f"r{at}", *(f"{at}.{number}" for number in range(draw(st.integers(1, 3)))))
            case "results":
                answered = draw(
                    st.lists(st.sampled_from(sorted(numbering.calls) or ["stray"]), min_size=1, unique=True)
                )
                said = results(*(result(call, f"out of {call}") for call in answered))
            case "reminder":
                said = injected(f"m{at}")
            case _:
                rows = [row for change in changes if change.op == "step" for row in change.rows]
                chosen = draw(st.sampled_from(rows)) if rows else None
                rows = [msgspec.structs.replace(chosen, state="archived")] if chosen else []
                counters = numbering.counters(0)
                changes.append(Change("main", "archive", "user", counters, rows=tuple(rows), subject=f"verb {at}"))
                continue
        for new in numbering.add(said):
            parts = {"step": new.step, "done": new.done, "rows": new.rows, "bodies": new.bodies}
            changes.append(Change("main", "step", "agent", numbering.counters(0), **parts))  # type: ignore[arg-type]
    return [PendingChange(seq, change) for seq, change in enumerate(changes, 1)]


EMPTY = Ledger(meta=Meta(format=1, session="demo", scope="main"))


def replayed(ledger: Ledger, pending: list[PendingChange]) -> Ledger:
    for item in pending:
        ledger = apply_change(ledger, item.change)
    return ledger


@given(recorded())
def test_commits_and_what_stays_are_together_what_was_recorded(pending: list[PendingChange]) -> None:
    planned, rest = plan(EMPTY, pending, "j")

    committed = planned[-1].after if planned else EMPTY
    assert list(replayed(committed, rest).rows()) == list(replayed(EMPTY, pending).rows())
    assert [body for item in planned for body in item.bodies] + [
        body for item in rest for body in item.change.bodies
    ] == [body for item in pending for body in item.change.bodies]


@given(recorded())
def test_only_what_waits_for_an_open_step_stays(pending: list[PendingChange]) -> None:
    planned, rest = plan(EMPTY, pending, "j")

    steps = [item.change for item in pending if item.change.op == "step"]
    is_open = bool(steps) and not steps[-1].done
    assert bool(rest) == is_open
    if rest:
        assert rest[0].change.op == "step", "a verb waits for a step only"
        assert {item.change.step for item in rest if item.change.op == "step"} == {steps[-1].step}
    numbers = {change.step for change in steps if not is_open or change.step != steps[-1].step}
    assert sum("Ctxvc-Op: step" in item.message for item in planned) == len(numbers)


@given(recorded(), st.integers(0, 14))
def test_a_replay_after_a_crash_changes_nothing(pending: list[PendingChange], flushed: int) -> None:
    """A flush of the first records, whose journal was not cleared: what its tip covers is not applied again."""
    planned, _ = plan(EMPTY, pending[:flushed], "j")
    tip = planned[-1] if planned else None
    newest = covered(tip.message, "j") if tip else 0

    left = [item for item in pending if item.seq > newest]

    assert list(replayed(tip.after if tip else EMPTY, left).rows()) == list(replayed(EMPTY, pending).rows())
    assert all(item.seq <= newest for item in pending if tip and item.change.bodies and _known(tip.after, item))


def _known(ledger: Ledger, item: PendingChange) -> bool:
    return all(ledger.get(block) is not None for block, _, _ in item.change.bodies)


# --- coming back after a crash


def test_a_journal_that_was_flushed_but_not_cleared_is_not_committed_twice(path: Path) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(human("why?"), reply("", "a"))
        session.append(results(result("a", "out")))
        archive(session, "B1")
        session.append(human("half"))
        file = store.journal_path("demo")
        content = file.read_bytes()
        session.append(reply("whole"))
        before, expected = commits(path), contents(session)
        uncleared = file.read_bytes()
    assert content != uncleared
    file.write_bytes(content)

    assert afresh(path) == expected
    assert commits(path) == before
    assert git(path, "ls-tree", "-r", "--name-only", "demo/main").count("B1.txt") == 1


def test_text_in_a_commit_message_cannot_pass_for_what_the_commit_covers(session: StoredSession, store: Store) -> None:
    session.append(human("one"), reply("two"))
    journal = git(store.path, "log", "-1", "--format=%(trailers:key=Ctxvc-Seq,valueonly)", "demo/main").split("/")[0]
    forged = f"Ctxvc-Seq: {journal}/999999"
    session.change(
        subject=f"note: seen in the log:\n\n{forged}", op="note", actor="agent", trailers={"Ctxvc-Note": forged}
    )

    session.append(human("acknowledged"))

    assert list(afresh(store.path).values()) == [b"one", b"two", b"acknowledged"]


def test_a_verb_on_two_scopes_is_completed_after_a_crash_and_moves_head_last(
    session: StoredSession, store: Store
) -> None:
    session.append(*exchange(1))
    add_scope(session, "side")
    counters = session.ledger().meta.counters
    here, there = (Change(name, "goto", "agent", counters, subject="goto side", time="") for name in ("main", "side"))

    acknowledge(store, Record(changes=(here, there), head="side"))
    with opened(store.path) as later:
        later.flush()

    assert commits(store.path)[-1] == commits(store.path, scope="side")[-1] == "goto side"
    assert git(store.path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/side"
    assert store.current_scope("demo") == "side"


def test_a_switch_that_waits_for_an_open_step_does_not_come_back_after_a_later_one(
    session: StoredSession, store: Store
) -> None:
    session.append(*exchange(1))
    add_scope(session, "side")
    add_scope(session, "other")
    session.append(human("open"), reply("", "x"))
    counters = session.ledger().meta.counters
    go = [Change(name, "goto", "agent", counters, subject="goto") for name in ("main", "side", "other")]
    acknowledge(store, Record(changes=(go[0], go[1]), head="side"))
    with opened(store.path) as later:
        later.flush()
        assert store.current_scope("demo") == "side"
    acknowledge(store, Record(changes=(go[2],), head="other"))
    with opened(store.path) as later:
        later.flush()
    assert store.current_scope("demo") == "other"

    with opened(store.path, "main") as later:
        later.append(results(result("x", "done")))
        later.flush()

    assert store.current_scope("demo") == "other"
    assert commits(store.path)[-1] == "goto"


def test_a_new_scope_can_be_read_and_written_before_its_first_commit(session: StoredSession, store: Store) -> None:
    session.append(human("keep me"), reply("not me"))
    meta = {"scope": "fix", "parent": "main"}
    begun = {"meta": meta, "subject": "scope fix", "origin": session.tip(), "inherit": ("B1",)}
    change = Change("fix", "scope", "agent", Counters(block=2), **begun)  # type: ignore[arg-type]
    acknowledge(store, Record(changes=(change,), head="fix"))

    with opened(store.path, "fix") as later:
        assert contents(later, "fix") == {"B1": b"keep me"}
        later.append(human("here"), reply("there"))
        assert contents(later) == {"B1": b"keep me", "B3": b"here", "B4": b"there"}

    files = git(store.path, "ls-tree", "-r", "--name-only", "demo/fix", "blocks", "archive").split()
    assert files == ["blocks/00/00/B1.txt", "blocks/00/00/B3.txt", "blocks/00/00/B4.txt"]
    assert git(store.path, "merge-base", "demo/fix", "demo/main").strip() == session.tip("main")


def test_a_scope_that_begins_in_an_empty_one_is_empty_too(session: StoredSession, store: Store) -> None:
    session.append(human("not me"), reply("nor me"))
    session.flush()

    def begun(name: str, parent: str, origin: str, inherit: tuple[str, ...] | None) -> Change:
        meta = {"scope": name, "parent": parent}
        return Change(
            name, "scope", "agent", Counters(block=2), meta=meta, subject=name, origin=origin, inherit=inherit
        )

    seq = session._state.seq
    acknowledge(store, Record(changes=(begun("empty", "main", session.tip(), ()),), head="empty"))
    acknowledge(store, Record(changes=(begun("next", "empty", f"empty/{seq + 1}", None),), head="next"))

    with opened(store.path, "next") as later:
        assert contents(later, "next") == {}
        later.append(human("here"), reply("there"))
        later.flush()
    with opened(store.path, "next") as later:
        assert contents(later, "next") == {"B3": b"here", "B4": b"there"}


# --- bytes

BODIES = {
    "empty": b"", "no newline at the end": b"one\ntwo", "newlines of all kinds": b"a\r\nb\rc\nd\n\n\r\n",
    "only newlines": b"\n\n", "zero": b"a\0b\0", "every byte": bytes(range(256)), "invalid UTF-8": b"\xff\xfe\xc3(",
    "a lone surrogate": "\ud800 and \udfff".encode("utf-8", "surrogatepass"),
    "a byte order mark": "\ufefftext".encode(),
    "what fast-import reads": b"done\ndata 5\nM 100644 :1 x\nblob\nmark :4294967297\ndata 0\n\n",
    "ident and conflict marks": b"$Id$\n<<<<<<< ours\n=======\n>>>>>>> theirs\n",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_comes_back_byte_for_byte_from_us_and_from_git(path: Path, body: bytes) -> None:
    ext = "bin" if b"\0" in body else "txt"
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(raw(body, ext=ext))
        assert session.body(session.ledger()["B1"]) == body
        session.append(reply("ok"))
        assert session.body(session.ledger()["B1"]) == body
        archive(session, "B1")
        assert session.body(session.ledger()["B1"]) == body

    assert afresh(path)["B1"] == body
    assert git_bytes(path, "show", f"demo/main:archive/00/00/B1.{ext}") == body
    assert git_bytes(path, "show", f"demo/main~1:blocks/00/00/B1.{ext}") == body


def test_images_and_results_with_images_keep_their_files(path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(40)
    extra = {"source": {"media_type": "image/png"}}
    image = Part(kind="image", role="user", origin="human", body=png, ext="png", extra=extra)
    files = (("1.png", png), ("2.pdf", b"%PDF-1.4\r\n\0"))
    body = b'[{"type":"text","text":"a page"},{"type":"image"}]'
    mixed = Part(kind="tool_result", role="user", origin="tool", body=body, ext="json", call="x", files=files)
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(Message(role="user", parts=(image,)), reply("", "x"), results(mixed))
        assert session.file(session.ledger()["B3"], "2.pdf") == b"%PDF-1.4\r\n\0"
        session.flush()
        archive(session, "B3")

    with Store(path) as store, StoredSession.open(store, "demo") as session:
        row = session.ledger()["B3"]
        assert session.body(session.ledger()["B1"]) == png
        assert session.file(row, "1.png") == png
    assert git_bytes(path, "show", "demo/main:archive/00/00/B3-2.pdf") == b"%PDF-1.4\r\n\0"
    assert git_bytes(path, "show", "demo/main:blocks/00/00/B1.png") == png


@pytest.mark.parametrize("value", ["\ud800", 10**40], ids=["surrogate", "huge number"])
def test_what_a_block_has_besides_its_body_is_kept_or_refused_in_words(session: StoredSession, value: object) -> None:
    session.append(human("before"))
    part = part_of({"type": "text", "text": "hello", "odd": value}, "user", "human")
    try:
        session.append(Message(role="user", parts=(part,)))
    except CtxvcError as error:
        assert "cannot be recorded" in str(error)
        assert list(contents(session).values()) == [b"before"]
    session.append(human("after"), reply("yes"))
    assert list(contents(session).values())[-1] == b"yes"


# --- stock git


def test_an_archived_block_is_a_pure_rename_for_git(session: StoredSession, path: Path) -> None:
    session.append(human("same"), human("same"), human(""), human("line\n" * 50), human("other"), reply("ok"))
    archive(session, "B1", "B2", "B3", "B4", "B5")
    shown = git(path, "show", "--name-status", "--format=", "-M100%", "demo/main", "--", "blocks", "archive")

    changes = [line.split("\t") for line in shown.split("\n") if line]
    assert {change[0] for change in changes} == {"R100"}
    assert sorted(change[2] for change in changes) == [f"archive/00/00/B{n}.txt" for n in range(1, 6)]
    assert complaints(path) == ""


def test_the_tree_of_a_scope_is_its_ledger_and_the_bodies_at_their_places(session: StoredSession, path: Path) -> None:
    for number in range(40):
        session.append(*exchange(number))
    session.flush()
    archive(session, "B1", "B64", "B70")

    with Store(path) as store:
        tip = store.tips("demo")["main"]
        ledger = store.reader.ledger(tip)
        places = sorted(place for row in ledger.rows() for place in fmt.paths(row))
    texts = git(path, "ls-tree", "-r", "--name-only", "demo/main", "blocks", "archive").split()
    assert sorted(texts) == places
    assert len(ledger) == 40 * 4
    assert list(ledger.rows()) == list(session.ledger().rows())
    assert complaints(path) == ""


def test_a_message_says_what_happened_in_trailers_that_git_understands(session: StoredSession, path: Path) -> None:
    parts, usage = (text_part("seven", "assistant", "model"),), {"input_tokens": 12, "output_tokens": 3}
    session.append(human("how many?"), Message(role="assistant", parts=parts, model="m-1", usage=usage))
    said = git(path, "log", "-1", "--format=%B", "demo/main")
    lines = git(path, "log", "-1", "--format=%(trailers:only)", "demo/main").split("\n")
    by_git = dict(line.split(": ", 1) for line in lines if line)
    assert by_git == trailers_of(said)
    assert by_git["Ctxvc-Model"] == "m-1"
    assert by_git["Ctxvc-Usage"] == "input_tokens=12 output_tokens=3"


@given(
    st.text(max_size=60),
    st.dictionaries(st.sampled_from(["Ctxvc-A", "Ctxvc-B"]), st.text(min_size=1, max_size=40).filter(str.strip)),
)
def test_trailers_are_read_back_as_written_whatever_the_text_says(subject: str, values: dict[str, str]) -> None:
    written = {"Ctxvc-Op": "note", **values}
    said = message(subject, written, body=subject)

    assert trailers_of(said) == {name: line for name, value in written.items() if (line := one_line(value, 100))}
    assert not set(said) & set(map(chr, [*range(9), *range(11, 32), 127]))


# --- time


def test_a_clock_that_goes_backwards_changes_no_order_and_no_number(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2030, 1, 1, tzinfo=timezone.utc)
    seen: list[int] = []

    def backwards(store: Store) -> int:
        seen.append(1)
        return int((moment - timedelta(days=len(seen))).timestamp())

    monkeypatch.setattr(Store, "now", backwards)
    monkeypatch.setattr(
        Store, "now_iso", lambda store: datetime.fromtimestamp(backwards(store), timezone.utc).isoformat()
    )
    for number in range(4):
        with Store(path) as store, StoredSession.open(store, "demo") as session:
            session.append(*exchange(number))
            archive(session, f"B{4 * number + 1}")

    subjects = [subject.split(",")[0] for subject in commits(path)]
    assert subjects == [each for n in range(4) for each in (f"step {n + 1}: 4 blocks", f"archive B{4 * n + 1}")]
    assert [*afresh(path)] == [f"B{number}" for number in range(1, 17)]
    assert complaints(path) == ""


@given(
    st.text(max_size=30)
    | st.datetimes().map(str)
    | st.datetimes(timezones=st.just(timezone.utc)).map(lambda d: d.isoformat())
)
def test_any_text_for_a_time_gives_seconds_that_git_can_hold(text: str) -> None:
    assert 0 <= epoch(text, 7) < 1 << 34


@pytest.mark.slow
def test_a_body_of_100_megabytes_comes_back(path: Path) -> None:
    body = os.urandom(1 << 20) * 100
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(raw(body))
        session.append(reply("ok"))
        assert session.waiting() == 0
    assert afresh(path)["B1"] == body
    assert git_bytes(path, "show", "demo/main:blocks/00/00/B1.bin") == body
    assert complaints(path) == ""
