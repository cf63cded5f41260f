"""Nothing of a switch can be half done, wherever a process is killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from ctxvc.errors import Conflict
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import human, reply, result, results
from tests.making.store import add_scope, commits, contents, git, opened, start, together, unflushed
from tests.store.scopes.looking import in_order, journey, notes, texts

REFS = ("main", "a", "b")
Flushed = tuple[Path, Path, dict[str, str]]
Walked = tuple[dict[str, list[str]], list[bytes], Path]


@pytest.fixture(scope="module")
def flushed(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Flushed:
    """A store with a journey in its journal, the same after its flush, and what each ref is then."""
    folder = tmp_path_factory.mktemp("journey")
    before, after = folder / "before", folder / "after"
    shutil.copytree(pristine, before)
    with unflushed(), opened(before) as session:
        journey(session)
    shutil.copytree(before, after)
    with opened(after) as session:
        session.flush()
    return before, after, Store(after).tips("demo")


@pytest.mark.parametrize(
    "moved", [combination for count in range(4) for combination in combinations(REFS, count)], ids="+".join
)
@pytest.mark.parametrize("more", [False, True], ids=["", "and more"])
def test_a_flush_killed_between_any_two_refs_is_completed_to_the_same_graph(
    flushed: Flushed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: tuple[str, ...], more: bool
) -> None:
    """The pack is there and some of the branches have moved; HEAD has not, and the journal still has everything."""
    before, after, tips = flushed
    monkeypatch.setattr(Store, "now", lambda _: 1_900_000_000)
    place = tmp_path / ".ctxvc"
    shutil.copytree(before, place)
    shutil.copytree(after / "objects", place / "objects", dirs_exist_ok=True)
    for scope in moved:
        git(place, "update-ref", f"refs/heads/demo/{scope}", tips[scope])
    with opened(place) as session:
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
def walked(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """What the scopes hold after the walk, its journal after each step of it, and the store before it."""
    place = tmp_path_factory.mktemp("walk") / ".ctxvc"
    shutil.copytree(pristine, place)
    journals = []
    with unflushed(), opened(place) as session:
        for step in WALK:
            step(session)
            journals.append(session.store.journal_path("demo").read_bytes())
        return {scope: texts(session, scope) for scope in session.scopes()}, journals, pristine


def test_what_a_human_said_in_a_scope_is_in_main_once_after_the_walk(walked: Walked) -> None:
    scopes, _, _ = walked
    call = '{"cmd":"s"}'
    said = ["mind the clock", "and the zone"]
    assert scopes["main"] == [
        *("the task", call, "ok", "[→ step-1] A", "[← step-1] C", *said, "done", "[→ step-2] D", "[← step-1] F"),
        "once more",
    ]


@pytest.mark.parametrize(
    ("at", "torn"), [*((at, False) for at in range(len(WALK))), *((at, True) for at in range(0, len(WALK), 2))]
)
def test_the_walk_of_the_explicit_scopes_with_human_words_in_a_scope_killed_at_every_record(
    at: int, torn: bool, walked: Walked, tmp_path: Path
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
        with opened(place) as session:
            step(session)
    with opened(place) as session:
        session.flush()
        assert {scope: texts(session, scope) for scope in session.scopes()} == scopes
        assert session.scope == "main"
    in_order(place)


def test_after_a_kill_before_head_moves_head_follows(
    session: StoredSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(Store, "set_current_scope", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.open_scope("fix", "why")
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/main"
    assert sorted(Store(path).tips("demo")) == ["fix", "main"]

    with opened(path) as later:
        assert later.scope == "fix"
        later.flush()
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/demo/fix"
    assert commits(path, scope="fix") == ["note: [→ fix] why", "scope fix"]
    in_order(path)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_the_last_result_and_its_switch_are_there_together_or_not_at_all(session: StoredSession, path: Path) -> None:
    never = session.store.journal_path("demo")
    session.append(human("go"), reply("", "s"))
    session.open_scope("fix", "why")
    before = never.read_bytes()
    with unflushed():
        session.append(results(result("s", "ok")))
        whole = never.read_bytes()
    for cut in range(len(before), len(whole) + 1, 7):
        never.write_bytes(whole[:cut])
        with Store(path) as store:
            later = StoredSession.open(store, "demo")
            assert (later.scopes(), len(later.ledger("main"))) == (["main"], 2)
            later.leave()
    never.write_bytes(whole)
    with opened(path) as later:
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
    with opened(path) as later:
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


# --- processes that switch beside each other


@pytest.mark.slow
def test_four_processes_that_switch_lose_nothing_of_each_other(path: Path) -> None:
    """Acknowledged blocks are in some scope, and one number is one body in all of them."""
    spoken = together(*(start("acting.py", path, "scopes", f"w{number}", 6) for number in range(4)))
    said = [line.split(" ", 1) for lines in spoken for line in lines]
    held: dict[str, str] = {}
    with opened(path) as session:
        for scope in session.scopes():
            for block, body in contents(session, scope).items():
                assert held.setdefault(block, body.decode()) == body.decode()
        assert session.waiting() == 0
        assert len(session.scopes()) == 1 + 4 * 6
        assert [text[:3] for text in notes(session, "main")].count("[→ ") == 4 * 6
        assert [text[:3] for text in notes(session, "main")].count("[← ") == 4 * 6
    assert len({block for block, _ in said}) == len(said), "no number is given twice"
    assert {block: held.get(block, "(lost)") for block, _ in said} == dict(said)
    in_order(path)
