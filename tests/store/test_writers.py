"""Several writers: nobody's work is lost, no number is given twice, and everyone sees what the others did."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.block import block_number
from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row
from ctxvc.errors import Conflict, CtxvcError
from ctxvc.store import files
from ctxvc.store.files import locked
from ctxvc.store.format import message
from ctxvc.store.git.fast_import import Commit, PackWriter
from ctxvc.store.log import stored_session as writers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.store.upkeep import leftovers
from tests.making.conversation import exchange, human, reply, result, results
from tests.making.store import (
    add_scope,
    afresh,
    archive,
    commits,
    complaints,
    contents,
    git,
    littered,
    never_due,
    opened,
    start,
    together,
)

from .writer import beginning


def heads(bodies: dict[str, bytes]) -> dict[str, str]:
    """Block id → the beginning of its body, as `writer.py` prints it."""
    return {block: beginning(body) for block, body in bodies.items()}


def test_processes_on_one_scope_lose_nothing_and_share_no_number(path: Path) -> None:
    spoken = together(*(start("writer.py", path, "demo", "main", f"w{n}", 12, 3) for n in range(3)))

    acknowledged = [(block, text) for lines in spoken for line in lines for block, text in [line.split(" ", 1)]]
    numbers = [block for block, _ in acknowledged]
    assert len(numbers) == len(set(numbers)) == 4 * 12 * 3
    held = heads(afresh(path))
    assert dict(acknowledged) == {block: held[block] for block in numbers}
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.finish()
        rows = list(session.ledger().rows())
    unknown = [row for row in rows if row.id not in set(numbers)]
    assert all(row.extra == {"ctxvc": {"interrupted": True}} for row in unknown), "one writer cuts off the other's step"
    assert complaints(path) == ""


@pytest.mark.parametrize(
    "places",
    [
        ["demo/main", "other/main", "third/main"],
        pytest.param(["demo/main", "demo/a", "demo/b"], marks=pytest.mark.slow),
    ],
)
def test_processes_on_scopes_or_sessions_of_their_own_lose_nothing(path: Path, places: list[str]) -> None:
    names = [place.split("/") for place in places]
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        for name, scope in names[1:]:
            if name == "demo":
                add_scope(session, scope)
            else:
                store.create_session(name)

    spoken = together(*(start("writer.py", path, name, scope, f"{name}-{scope}", 12, 3) for name, scope in names))

    numbers = [line.split(" ")[0] for lines in spoken for line in lines]
    if names[1][0] == "demo":
        assert sorted(numbers, key=block_number) == [f"B{n}" for n in range(1, 4 * 12 * 3 + 1)]
    for (name, scope), lines in zip(names, spoken, strict=True):
        assert heads(afresh(path, name, scope)) == dict(line.split(" ", 1) for line in lines)
        assert sum(subject.startswith("step") for subject in commits(path, name, scope)) == 12
    assert complaints(path) == ""
    assert littered(path) == []


def test_of_processes_that_make_the_same_session_one_does_and_the_others_are_told(path: Path) -> None:
    names = ["new"] * 2 + ["another"]
    answers = [lines[0] for lines in together(*(start("acting.py", path, "session", name, 1) for name in names))]

    assert sorted(answers) == ["Refused: session 'new' already exists"] + ["made"] * 2
    assert commits(path, "new") == commits(path, "another") == []
    with Store(path) as store:
        assert store.current_session() in store.sessions() == ["another", "demo", "new"]
    assert complaints(path) == ""
    assert littered(path) == []


def first_commit(ref: str, subject: str, store: Store) -> Commit:
    return Commit(
        ref=ref, before=None, after=Ledger(meta=Meta(format=1, session="demo", scope=subject)),
        message=message(subject, {"Ctxvc-Op": "session"}), actor="user", time=0, now=store.now(),
    )  # fmt: skip


def test_of_two_writers_that_race_for_a_branch_exactly_one_wins(store: Store) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def race(name: str) -> None:
        try:
            with PackWriter(store.path) as writer:
                writer.commit(first_commit("refs/heads/demo/raced", name, store))
                barrier.wait()
        except CtxvcError as error:
            assert error.hint
            outcomes.append(type(error).__name__)
        else:
            outcomes.append(name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, [f"w{n}" for n in range(4)]))

    winners = [outcome for outcome in outcomes if outcome.startswith("w")]
    assert outcomes.count("Conflict") == 3 and len(winners) == 1, outcomes
    assert git(store.path, "log", "--format=%s", "demo/raced").split() == winners


# --- sessions that stay open


def test_an_open_session_sees_what_another_appended_flushed_and_changed(session: StoredSession, path: Path) -> None:
    with opened(path) as other:
        other.append(human("yours"))
        session.refresh()
        assert contents(session) == {"B1": b"yours"}
        other.append(reply("flushed"))
        session.refresh()
        assert contents(session) == {"B1": b"yours", "B2": b"flushed"}
        archive(other, "B1")
        session.refresh()
        assert session.ledger()["B1"].state == "archived"
        assert session.tip() == other.tip()
        other.append(human("open"))

    assert session.append(human("mine")) == ["B4"], "also where it did not look"
    assert list(contents(session).values()) == [b"yours", b"flushed", b"open", b"mine"]


def test_an_open_session_completes_the_step_that_another_began(session: StoredSession, path: Path) -> None:
    with opened(path) as other:
        other.append(human("run it"), reply("", "a", "b"))
        session.append(results(result("a", "A")))
        other.append(results(result("b", "B")))
        other.flush()

    assert commits(path) == ["step 1: 5 blocks, 30 B"]
    assert session.append(human("next")) == ["B6"]


def test_an_open_session_notices_an_import_that_went_past_the_journal(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_due(monkeypatch)
    session.append(*exchange(1))
    session.flush()
    with opened(path) as other:
        imported(other, "from the recording")

    assert session.append(human("mine"), reply("too")) == ["B6", "B7"]
    assert list(afresh(path).values())[4:] == [b"from the recording", b"mine", b"too"]


def test_an_import_that_was_killed_after_its_refs_moved_is_noticed_too(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(human("mine"), reply("first"))

    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    def looked_at() -> None:
        session.refresh()
        monkeypatch.setattr(files, "replace", dying)

    with Store(path) as store, pytest.raises(KeyboardInterrupt):
        imported(StoredSession.open(store, "demo"), "from the recording", during=looked_at)
    monkeypatch.undo()

    assert session.append(human("mine"), reply("too")) == ["B4", "B5"]
    assert list(afresh(path).values()) == [b"mine", b"first", b"from the recording", b"mine", b"too"]


def test_an_import_leaves_an_open_step_open(session: StoredSession, path: Path) -> None:
    session.append(human("run it"), reply("", "a"))
    add_scope(session, "side")
    with Store(path) as store, StoredSession.open(store, "demo", "side") as other:
        imported(other, "beside it")

    session.append(results(result("a", "out")))
    session.flush()

    assert list(afresh(path).values()) == [b"run it", b'{"cmd":"a"}', b"out"]
    assert list(afresh(path, scope="side").values()) == [b"beside it"]


def imported(session: StoredSession, text: str, during: Callable[[], None] = lambda: None) -> None:
    """One more block in the session's scope, by a commit that no record of the journal stands for."""
    with session.bulk() as (writer, counters):
        during()
        body = text.encode()
        row = Row(
            id=f"B{counters.block + 1}", kind="user", role="user", origin="human", msg=90, step=90, turn=90,
            bytes=len(body), sha256=hashlib.sha256(body).hexdigest(),
        )  # fmt: skip
        before = session.ledger()
        at = msgspec.structs.replace(before.meta.counters, block=row.number, step=90, msg=90, turn=90)
        writer.commit(
            Commit(
                ref=f"refs/heads/{session.name}/{session.scope}",
                before=before,
                after=before.with_rows([row]).with_meta(msgspec.structs.replace(before.meta, counters=at)),
                bodies=((row.id, "", body),),
                message=message("imported", {"Ctxvc-Op": "step"}),
                actor="agent",
                time=0,
                now=0,
                parent=session.tip(),
            )
        )


def test_threads_share_a_session(session: StoredSession, path: Path) -> None:
    def write(name: str) -> None:
        for number in range(10):
            session.append(human(f"{name} {number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [f"t{n}" for n in range(4)]))

    texts = [body.decode() for body in contents(session).values()]
    assert sorted(texts) == sorted(f"t{n} {number}" for n in range(4) for number in range(10))
    assert [text for text in texts if text.startswith("t0")] == [f"t0 {number}" for number in range(10)]


# --- locks


def test_a_writer_that_waits_too_long_is_told_who_to_wait_for(path: Path) -> None:
    with locked(path / "ctxvc" / "lock" / "demo"):
        with pytest.raises(Conflict, match="another process holds demo") as conflict:
            with locked(path / "ctxvc" / "lock" / "demo", timeout=0.05):
                pass
    assert conflict.value.hint


def test_flushes_share_the_store_s_lock_and_a_clean_up_waits_for_them(store: Store) -> None:
    with store.pack_writer(0), store.pack_writer(0):
        with pytest.raises(Conflict):
            with locked(store.path / "ctxvc" / "store.lock", timeout=0.05):
                pass
    with store.exclusive():
        assert leftovers.leftovers(store.path) == []


def test_packs_stay_few_and_an_open_reader_keeps_reading(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "FLUSH_STEPS", 1)
    with Store(path) as store, StoredSession.open(store, "demo") as reader:
        session.append(human("first"), reply("one"))
        reader.refresh()
        for number in range(40):
            session.append(*exchange(number))
        session.flush()
        packs = list((path / "objects" / "pack").glob("*.pack"))
        assert len(packs) <= 33
        assert reader.body(reader.ledger()["B1"]) == b"first"
        reader.refresh()
        assert contents(reader) == contents(session)
    assert complaints(path) == ""


def test_two_verbs_on_one_block_are_not_both_done_and_two_groups_do_not_get_one_number(store: Store) -> None:
    with StoredSession.open(store, "demo") as first, StoredSession.open(store, "demo") as second:
        ids = first.append(*exchange(1))
        second.refresh()
        rows = [session.ledger()[ids[1]] for session in (first, second)]
        first.change(subject="pin", op="pin", actor="user", rows=[msgspec.structs.replace(rows[0], state="pinned")])

        with pytest.raises(Conflict, match=f"changed {ids[1]} meanwhile"):
            gone = [msgspec.structs.replace(rows[1], state="pruned")]
            second.change(subject="prune", op="prune", actor="agent", rows=gone)

        assert second.ledger()[ids[1]].state == "pinned"
        back = [msgspec.structs.replace(second.ledger()[ids[1]], state="visible")]
        second.change(subject="unpin", op="unpin", actor="user", rows=back)
        first.refresh()
        assert first.ledger()[ids[1]].state == "visible"

        groups = [Group(id="G1", members=(member,), label=member) for member in ids]
        first.change(subject="group", op="archive", actor="user", groups=groups[:1])
        with pytest.raises(Conflict, match="G1"):
            second.change(subject="group", op="archive", actor="user", groups=groups[1:])
        assert second.ledger().groups["G1"].label == ids[0]


def test_looking_at_another_session_by_its_name_writes_nothing(store: Store) -> None:
    store.create_session("other")
    with StoredSession.open(store, "other") as writer:
        writer.append(human("not answered yet"))
        writer.append(reply("a reply"))
        before = writer.tip()
        writer.append(human("and again"))
        with StoredSession.open(store, "demo") as session:
            moment = revision.resolve(store, session, "other/main")
            assert revision.resolve(store, session, "other").commit == moment.commit
            texts = [moment.bodies.body(row) for row in moment.ledger.rows()]

        assert texts == [b"not answered yet", b"a reply", b"and again"]
        assert store.tips("other")["main"] == before
