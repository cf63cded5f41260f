"""Pending plans: on the disk, never lost, never twice, readable with stock git, and no burden to anything else."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.plan import Action, Plan
from ctxvc.errors import BadInput, Conflict, CtxvcError, Damaged, NotFound, Refused
from ctxvc.store import pending_plans
from ctxvc.store.files import locked
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.upkeep import gc
from ctxvc.store.verify.verify import verify
from tests.making.conversation import exchange
from tests.making.store import complaints, git, killed, littered, start, together

from .test_faults import settle

REF = "refs/ctxvc/demo/plans"
BASE = "0123456789abcdef0123456789abcdef01234567"


def a_plan(*targets: str, actor: str = "policy:window", **fields: object) -> Plan:
    action = Action(verb="archive", targets=targets or ("B1", "B2"), index="what it says", checksums={"B1": "3fa9c1"})
    return msgspec.structs.replace(Plan(actions=(action,), actor=actor, reason="old"), **fields)


def put(store: Store, plan: Plan, *, scope: str = "main") -> pending_plans.PendingPlan:
    return pending_plans.put(store, "demo", scope, plan, base_commit=BASE, time="2026-03-01T12:00:00Z")


def subjects(path: Path) -> list[str]:
    return git(path, "log", "--format=%s", REF).splitlines()


def test_a_plan_waits_as_it_was_put_for_every_process(store: Store) -> None:
    assert pending_plans.pending(store, "demo") == pending_plans.drop(store, "demo", ["P1"], "stale") == ()
    assert git(store.path, "for-each-ref", REF) == ""
    tips, plan = store.all_tips(), a_plan("B1", "G2", allow_user=True, pressure=True)

    held = put(store, plan)

    at = "2026-03-01T12:00:00Z"
    assert held == pending_plans.PendingPlan(id="P1", scope="main", time=at, base_commit=BASE, plan=plan)
    assert pending_plans.pending(store, "demo") == (held,)
    with Store(store.path) as other:
        assert pending_plans.pending(other, "demo") == (held,)
    assert held.plan.actions[0].checksums == {"B1": "3fa9c1"}
    assert (store.all_tips(), store.sessions()) == (tips, ["demo"]), "they are no scope and no session"


def test_plans_come_back_oldest_first_also_beyond_the_ninth_and_no_number_is_given_twice(store: Store) -> None:
    for number in range(1, 12):
        put(store, a_plan(f"B{number}"))

    assert [held.id for held in pending_plans.pending(store, "demo")] == [f"P{number}" for number in range(1, 12)]
    assert pending_plans.drop(store, "demo", {"P11", "P1"}, "committed") == ("P1", "P11")
    assert put(store, a_plan("B1")).id == "P12"


def test_the_same_plan_waits_once_in_each_scope(store: Store) -> None:
    with StoredSession.open(store, "demo") as session:
        session.open_scope("side", "look aside")
    first = put(store, a_plan())
    commits = subjects(store.path)

    assert put(store, a_plan()) == first
    assert subjects(store.path) == commits
    assert put(store, a_plan(reason="another")).id == "P2"
    assert put(store, a_plan(), scope="side").id == "P3"
    assert [held.scope for held in pending_plans.pending(store, "demo")] == ["main", "main", "side"]


def test_stock_git_shows_the_plans_and_what_became_of_them(store: Store) -> None:
    put(store, a_plan("B1", actions=(a_plan().actions * 3)))
    put(store, a_plan("B9", actor="planner"))
    put(store, a_plan("B10", actor="agent"))
    pending_plans.drop(store, "demo", ["P1"], "stale")
    pending_plans.drop(store, "demo", ["P2", "P3", "P9"], "committed", actor="guard")

    assert subjects(store.path) == [
        "plans P2, P3 dropped: committed",
        "plan P1 dropped: stale",
        "plan P3 by agent: 1 action",
        "plan P2 by planner: 1 action",
        "plan P1 by policy:window: 3 actions",
    ]
    answer = json.loads(git(store.path, "show", f"{REF}~2:plans/P2.json"))
    assert answer["plan"]["actions"][0]["targets"] == ["B9"] and answer["base_commit"] == BASE
    assert git(store.path, "log", "-5", "--format=%an", REF).splitlines() == [
        "guard", "policy:window", "agent", "planner", "policy:window",
    ]  # fmt: skip
    assert git(store.path, "ls-tree", "-r", "--name-only", REF).split() == ["plans.json"]


def test_verify_fsck_and_gc_take_them_as_they_are(store: Store) -> None:
    with StoredSession.open(store, "demo") as session:
        session.append(*exchange(1))
    held = [put(store, a_plan("B1")), put(store, a_plan("B2"))]
    pending_plans.drop(store, "demo", ["P1"], "stale")

    assert verify(store).findings == ()
    assert complaints(store.path) == ""
    gc.gc(store)
    with Store(store.path) as after:
        assert pending_plans.pending(after, "demo") == (held[1],)
        assert put(after, a_plan("B3")).id == "P3"
        assert verify(after).findings == ()
    assert littered(store.path) == []


# --- what is refused


def test_a_scope_that_is_not_there_has_no_plans(store: Store) -> None:
    for session, scope in (("demo", "none"), ("none", "main")):
        with pytest.raises(NotFound, match=f"no (scope|session).*{session}"):
            pending_plans.put(store, session, scope, a_plan(), base_commit=BASE, time="")
    assert pending_plans.pending(store, "none") == pending_plans.drop(store, "none", ["P1"], "stale") == ()


def test_no_more_than_so_many_wait_and_none_is_pushed_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_plans, "MOST", 3)
    held = [put(store, a_plan(f"B{number}")) for number in range(1, 4)]

    with pytest.raises(Refused, match="3 plans of session demo are already pending"):
        put(store, a_plan("B4"))

    assert pending_plans.pending(store, "demo") == tuple(held)
    pending_plans.drop(store, "demo", ["P2"], "stale")
    assert put(store, a_plan("B4")).id == "P4"


def test_a_plan_has_a_size_and_is_unicode_and_its_controls_move_no_cursor(store: Store) -> None:
    with pytest.raises(Refused, match="bytes; at most 1,048,576 are allowed"):
        put(store, a_plan(reason="x" * pending_plans.LARGEST))
    with pytest.raises(BadInput):
        put(store, a_plan(reason="\ud800"))
    assert pending_plans.pending(store, "demo") == ()
    put(store, a_plan(*(f"B{number}" for number in range(1, 50_001))))
    assert len(pending_plans.pending(store, "demo")[0].plan.actions[0].targets) == 50_000

    put(store, a_plan("B1", actor="policy:\x1b[2J", reason="\x1b[2J\0"))
    pending_plans.drop(store, "demo", ["P1", "P2"], "\x1b[2J\nCtxvc-Op: step")
    assert pending_plans.pending(store, "demo") == ()
    assert "\x1b" not in git(store.path, "log", "--format=%B", REF)
    assert complaints(store.path) == ""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plans/P1.json", b"{}"),
        ("plans/P1.json", b"[" * 100_000),
        ("plans/P2.json", b'{"id":"P1","scope":"main","time":"","base_commit":"","plan":{"actions":[],"actor":"x"}}'),
        ("plans/P9.json", b'{"id":"P9","scope":"main","time":"","base_commit":"","plan":{"actions":[],"actor":"x"}}'),
        ("plans/x", b""),
        ("plans.json", b'{"format":1,"last":"many"}'),
        ("plans.json", b'{"format":2,"last":1}'),
        ("plans", b"a file"),
    ],
)
def test_what_somebody_else_wrote_there_is_told_and_not_taken(store: Store, name: str, data: bytes) -> None:
    put(store, a_plan())
    tree = {"plans.json": b'{"format":1,"last":1}', name: data}
    stream = b"feature done\ncommit %s\ncommitter x <x@x> 0 +0000\ndata 1\nx\nfrom %s^0\n" % (
        REF.encode(),
        REF.encode(),
    )
    for path, held in tree.items():
        stream += b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(held), held)
    program.run(store.path, "fast-import", "--quiet", data=stream + b"done\n")

    with pytest.raises(CtxvcError) as told:
        pending_plans.pending(store, "demo")
    assert isinstance(told.value, (Damaged, Refused)) and told.value.hint
    with pytest.raises(CtxvcError):
        put(store, a_plan("B7"))
    (finding,) = verify(store).findings
    assert (finding.level, finding.where.session, finding.where.path) == ("damage", "demo", REF)


def test_a_ref_that_cannot_be_read_is_told(store: Store) -> None:
    put(store, a_plan())
    (store.path / REF).write_text("garbage\n")

    with pytest.raises(Damaged) as told:
        pending_plans.pending(store, "demo")
    assert "update-ref -d" in told.value.hint


# --- other writers


def test_nothing_is_written_while_another_holds_the_session(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_plans, "locked", lambda path: locked(path, timeout=0.05))
    with locked(store.lock_path("demo")):
        with pytest.raises(Conflict):
            put(store, a_plan())

    assert pending_plans.pending(store, "demo") == ()


def test_a_ref_that_moved_meanwhile_is_not_overwritten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that knows no lock of ours, such as a person's git, was there first."""
    put(store, a_plan("B1"))
    old = git(store.path, "rev-parse", REF).strip()
    put(store, a_plan("B2"))
    newest, state = git(store.path, "rev-parse", REF), pending_plans._state(store, "demo")
    monkeypatch.setattr(pending_plans, "_state", lambda *_: pending_plans._State(old, state.last, state.plans[:1]))

    with pytest.raises(Conflict):
        put(store, a_plan("B3"))

    assert git(store.path, "rev-parse", REF) == newest


@pytest.mark.slow
def test_two_processes_lose_none_of_each_other_s_plans(path: Path) -> None:
    spoken = together(*(start("acting.py", path, "plans", name, 12) for name in ("a", "b")))

    lines = [line.split() for output in spoken for line in output]
    given = [line[1] for line in lines if line[0] == "put"]
    dropped = {line[1] for line in lines if line[0] == "dropped"}
    assert sorted(given, key=lambda name: int(name[1:])) == [f"P{number}" for number in range(1, 25)]
    with Store(path) as store:
        assert {held.id for held in pending_plans.pending(store, "demo")} == set(given) - dropped
    assert len(subjects(path)) == 24 + 12


@pytest.mark.slow
def test_a_killed_writer_leaves_what_was_acknowledged(path: Path) -> None:
    chance = random.Random(5)
    for number in range(6):
        names: set[str] = set()
        unsure: set[str] = set()
        process = start("acting.py", path, "plans", f"w{number}", 0)
        for line in killed(process, chance.uniform(0.02, 0.25), late=False):
            match line.split():
                case ["put", name, *_]:
                    names.add(name)
                case ["drop", name]:
                    names.discard(name)
                    unsure.add(name)
        settle(path)
        with Store(path) as store:
            found = {each.id for each in pending_plans.pending(store, "demo")}
            assert names <= found
            assert len(found - names - unsure) <= 1  # written, and killed before it could be told
            pending_plans.drop(store, "demo", found, "done")
            assert pending_plans.pending(store, "demo") == ()
    assert complaints(path) == ""
    with Store(path) as store:
        assert [finding for finding in verify(store).findings if finding.level == "damage"] == []
