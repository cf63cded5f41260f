"""A session under a policy: its plans are made true at once, or wait for a moment when that costs less."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from ctxvc.core.plan import Action, Plan, Rehearsal, View
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import Answer, Policy, Terms
from ctxvc.policies import asking, parse
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry
from tests.making.provider import WORDS, called, create


class Oldest(Policy, frozen=True, kw_only=True):
    """Archives the oldest result that stands, and says when as it was told to."""

    name = "oldest"

    patient: bool = False
    protocol: str = ""

    def propose(self, view: View) -> Plan:
        results = [row.id for row in view.ledger.rows() if row.kind == "tool_result" and row.present]
        actions = tuple(Action(verb="archive", targets=(block,)) for block in results[:1] if len(results) > 2)
        return Plan(actions=actions, actor=self.actor, reason=f"{len(results)} results stand")

    def terms(self) -> Terms:
        return Terms(protocol=self.protocol, ladder={"clear": 0.5})

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:
        return CommitDecision(not self.patient or view.idle > 100, f"idle {view.idle:.0f} s" if rehearsal else "")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


def opened(place: Path, clock: list[float], steps: int = 3, **knobs: bool) -> Session:
    """A session of so many steps under `Oldest`, which was asked when there were none."""
    create(place).close()
    held = Session.open(place, "demo")
    session = Session(held.stored, policy=Oldest(**knobs), now=lambda: clock[0])  # type: ignore[arg-type]
    session.append({"role": "user", "content": "go on"})
    session.request()
    for number in range(steps):
        called(session, number)
    return session


def archived(session: Session) -> list[str]:
    return [row.id for row in session.ledger().rows() if row.state == "archived"]


def commits(session: Session, op: str) -> list[Entry]:
    session.stored.flush()
    entries = revision.history(session.store, session.stored.tip())
    return [entry for entry in entries if entry.trailers.get("Ctxvc-Op") == op]


@pytest.mark.parametrize(("seconds", "leaves"), [(10, False), (-400, False), (400, True)])
def test_a_session_that_is_opened_again_knows_how_long_it_paused(
    place: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, leaves: bool
) -> None:
    """A clock that went back (-400) is no pause."""
    create(place).close()
    with Session.open(place, "demo", policy="default", budget=18_000) as session:
        session.append({"role": "user", "content": "go on"})
        while session.view().used < 0.7 * 18_000:
            called(session, session.ledger().meta.counters.step)
            session.request()
        assert session.view().idle < 60 and not archived(session)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)
    with Session.open(place, "demo") as session:
        session.append({"role": "user", "content": "and now?"})
        session.request()
        assert bool(archived(session)) == leaves
        called(session, 999)
        session.stored.flush()
        history = revision.history(session.store, session.stored.tip())
        reasons = [e.trailers["Ctxvc-Reason"] for e in history if e.trailers.get("Ctxvc-Actor") == "policy:default"]
    assert all("so the cache (300 s) has expired" in reason for reason in reasons) and bool(reasons) == leaves


def test_a_policy_is_asked_before_each_request_and_says_why_in_the_commit(place: Path, clock: list[float]) -> None:
    session = opened(place, clock)
    session.request()

    assert archived(session) == ["B4"]
    (commit,) = commits(session, "archive")
    assert commit.trailers["Ctxvc-Actor"] == "policy:oldest"
    assert commit.trailers["Ctxvc-Reason"] == "3 results stand; now: idle 0 s"


def test_a_plan_that_waits_is_not_made_anew_and_is_judged_again_on_each_view(place: Path, clock: list[float]) -> None:
    session = opened(place, clock, patient=True)
    session.request()
    called(session, 3)
    session.request()

    assert archived(session) == []
    (held,) = session.pending()
    assert held.plan.reason == "3 results stand; waits: idle 0 s"

    clock[0] = 200.0
    session.request()
    assert archived(session) == ["B4"]
    assert session.pending() == ()
    assert commits(session, "archive")[0].trailers["Ctxvc-Reason"] == "3 results stand; now: idle 200 s"


def test_at_a_turns_start_nothing_waits(place: Path, clock: list[float]) -> None:
    session = opened(place, clock, patient=True)
    session.append({"role": "assistant", "content": "done"}, {"role": "user", "content": "more"})
    session.request()

    assert archived(session) == ["B4"]
    session.append({"role": "assistant", "content": "done"})
    assert "a turn begins" in commits(session, "archive")[0].trailers["Ctxvc-Reason"]


class Patient(Oldest, frozen=True, kw_only=True):
    """Archives one small result at first, all old ones later; waits until the hard budget is at stake."""

    name = "patient"

    def propose(self, view: View) -> Plan:
        results = [row.id for row in view.ledger.rows() if row.kind == "tool_result" and row.present]
        targets = results[:1] if len(results) < 6 else results[:-2]
        return Plan(actions=tuple(Action(verb="archive", targets=(block,)) for block in targets), actor=self.actor)

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:  # noqa: ARG002
        return CommitDecision(
            rehearsal.plan.pressure, "the hard budget" if rehearsal.plan.pressure else "it is cheap to wait"
        )


def test_a_small_pending_plan_does_not_block_a_needed_one(place: Path) -> None:
    create(place).close()
    with Session.open(place, "demo", budget=20_000, policy="keep") as session:
        session.policy = Patient()
        session.set(calibration=(1_000, 0))
        session.append({"role": "user", "content": "go on"})
        for number in range(6):
            called(session, number, WORDS * (20 if number else 3))
            session.request()
        ((small,), before) = session.pending(), archived(session)
        assert len(small.plan.actions) == 1 and not before

        while session.used() <= session.budget.guard + 300:
            session.append({"role": "user", "content": "word " * 400}, origin="client")
        session.request()
        assert session.used() <= session.budget.guard

        (removed_by,) = {row.removed_by for row in session.ledger().rows() if row.state == "archived"}
        assert removed_by == "policy:patient"  # and not the guard
        assert len(archived(session)) == 4
        assert session.pending() == ()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("planned:trigger=0.3,target=0.2,least=2000", "<gc_plan></gc_plan>"),
        ("layered:summarise=0.65", ""),
        ("summary:trigger=0.5", "I do not know."),
    ],
)
def test_a_model_that_says_nothing_of_use_is_not_asked_at_every_request(place: Path, policy: str, said: str) -> None:
    asked: list[int] = []
    spoken = 0

    def ask(view: View, _: str) -> Answer:
        asked.append(spoken)
        return Answer(said, 100)

    create(place).close()
    with Session.open(place, "demo", budget=40_000, policy=policy) as session:
        session.policy = asking(parse(policy), ask)
        for turn in range(50):
            session.append({"role": "user", "content": f"turn {turn}"})
            session.request()
            words = f"{turn}: " + "what was found out " * 200
            session.append({"role": "assistant", "content": words})
            spoken += session.view().price.text(words)
        rounds = commits(session, "ask")

    least = {"planned": 2_000, "layered": 2_000, "summary": 4_000}[policy.partition(":")[0]]
    calm = [at for at in asked if at < 36_000]  # above the guard it is asked all the same
    assert len(calm) >= 2
    assert all(later - earlier >= 0.9 * least for earlier, later in pairwise(calm))
    assert [each.subject for each in rounds] == [f"asked by {session.policy.actor}"] * len(asked)


def test_the_protocol_stands_pinned_at_the_beginning_once(place: Path) -> None:
    policy = Oldest(protocol="Archive what you no longer need.")
    for _ in range(2):
        with Session.open(place, "demo", policy=policy, budget=9_000) as session:
            rows = list(session.ledger().rows())
            assert [(row.state, row.origin) for row in rows] == [("pinned", "client")]
            assert session.body("B1") == b"Archive what you no longer need.\n\nThe budget is 9,000 tokens."
            assert session.terms.ladder == {"clear": 0.5}
            assert session.view().budget.clear == 4_500
    session = Session.open(place, "demo", policy=policy)
    session.append({"role": "user", "content": "the task"})
    session.open_scope("fix", "to look")
    assert [row.id for row in session.ledger().rows()][:2] == ["B1", "B2"]
    assert session.ledger().meta.policy == "test_policy.py:Oldest:protocol=Archive what you no longer need."
    session.close()


# --- plans that wait: seen by everybody, committed as far as the view has not moved on, dropped when stale


def filled(session: Session) -> None:
    session.append({"role": "user", "content": "go on"})
    for number in range(4):
        called(session, number)


def archive(*blocks: str) -> Plan:
    return Plan(actions=(Action(verb="archive", targets=blocks),), actor="policy:test", reason="old")


def results_of(session: Session) -> dict[str, str]:
    return {row.id: row.state for row in session.ledger().rows() if row.kind == "tool_result"}


def test_a_plan_changes_nothing_before_a_turn_begins(session: Session) -> None:
    filled(session)
    session.propose(archive("B3"))
    session.request()
    assert results_of(session)["B3"] == "visible"

    session.append({"role": "assistant", "content": "done"}, {"role": "user", "content": "more"})
    session.request()

    assert results_of(session) == {"B3": "archived", "B5": "visible", "B7": "visible", "B9": "visible"}
    assert session.pending() == ()


def test_a_plan_survives_its_process_and_is_seen_by_others(place: Path) -> None:
    with create(place) as session:
        filled(session)
        session.propose(archive("B3"))
    with Session.open(place, "demo") as again:
        (held,) = again.pending()
        assert (held.id, held.plan.actor, held.plan.reason) == ("P1", "policy:test", "old")
        ((_, done),) = again.settle()
    assert [row.id for row in done.rows] == ["B3"]


def test_of_a_plan_that_the_view_has_passed_the_rest_is_done(session: Session) -> None:
    filled(session)
    plan = Plan(actions=tuple(Action(verb="archive", targets=(block,)) for block in ("B3", "B5")), actor="policy:test")
    session.propose(plan)
    session.archive("B3")

    ((_, done),) = session.settle()

    assert [row.id for row in done.rows] == ["B5"]
    assert [(problem.target, problem.why) for problem in done.problems] == [("B3", "gone")]


def test_a_stale_plan_is_dropped(session: Session) -> None:
    filled(session)
    session.propose(archive("B3"))
    session.archive("B3")
    other = Action(verb="archive", targets=("B5",), checksums={"B5": "0" * 12})  # another block of the same number
    session.propose(Plan(actions=(other,), actor="policy:test"))

    ((_, first), (_, second)) = session.settle()

    assert not first and [problem.why for problem in second.problems] == ["stale"]
    assert session.pending() == ()
    assert "stale" in session.store.message(str(session.store.repository.references["refs/ctxvc/demo/plans"].target))


def test_a_plan_waits_in_its_own_scope_and_leaving_that_is_a_good_moment(session: Session) -> None:
    filled(session)
    session.open_scope("try", "another way", with_messages=True)
    session.stored.flush()  # a plan is for a commit
    session.propose(archive("B3"))
    (held,) = session.pending()
    assert held.scope == "try" and session.drop(held.id) == ("P1",)
    assert session.pending() == () and results_of(session)["B3"] == "visible"
    session.propose(archive("B5"))
    session.open_scope("again", "a third way")

    assert session.ledger("try")["B5"].state == "archived"
    assert session.pending() == ()
