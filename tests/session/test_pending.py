"""Plans that wait: where everybody sees them, committed as far as the view has not moved on, dropped when stale."""

from __future__ import annotations

from pathlib import Path

from ctxvc.core.plan import Action, Plan
from ctxvc.session.session import Session
from tests.making.provider import WORDS, create


def filled(session: Session, steps: int = 4) -> None:
    session.append({"role": "user", "content": "go on"})
    for number in range(steps):
        call = {"type": "tool_use", "id": f"t{number}", "name": "sh", "input": {"cmd": str(number)}}
        session.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": WORDS * 20}
        session.append({"role": "user", "content": [result]})


def archive(*blocks: str) -> Plan:
    return Plan(actions=(Action(verb="archive", targets=blocks),), actor="policy:test", reason="old")


def states(session: Session) -> dict[str, str]:
    return {row.id: row.state for row in session.ledger().rows() if row.kind == "tool_result"}


def test_a_plan_changes_nothing_before_a_turn_begins(session: Session) -> None:
    filled(session)
    session.propose(archive("B3"))
    session.request()
    assert states(session)["B3"] == "visible"

    session.append({"role": "assistant", "content": "done"}, {"role": "user", "content": "more"})
    session.request()

    assert states(session) == {"B3": "archived", "B5": "visible", "B7": "visible", "B9": "visible"}
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

    ((_, done),) = session.settle()

    assert not done
    assert session.pending() == ()
    assert "stale" in session.store.message(str(session.store.repository.references["refs/ctxvc/demo/plans"].target))


def test_a_plan_for_another_block_of_the_same_number_is_stale(session: Session) -> None:
    filled(session)
    other = Action(verb="archive", targets=("B3",), checksums={"B3": "0" * 12})
    session.propose(Plan(actions=(other,), actor="policy:test"))

    ((_, done),) = session.settle()

    assert [problem.why for problem in done.problems] == ["stale"]


def test_leaving_the_scope_is_a_good_moment(session: Session) -> None:
    filled(session)
    session.propose(archive("B3"))
    session.open_scope("try", "another way")

    assert session.ledger("main")["B3"].state == "archived"
    assert session.pending() == ()


def test_a_plan_waits_in_its_own_scope(session: Session) -> None:
    filled(session)
    session.open_scope("try", "another way", with_messages=True)
    session.propose(archive("B3"))
    (held,) = session.pending()
    assert held.scope == "try"
    assert session.drop(held.id) == ("P1",)
    assert session.pending() == ()
    assert states(session)["B3"] == "visible"
