"""A result that has run is shown: older blocks make room for it, and what did not fit comes back by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.core.plan.plan import Action, Plan
from ctxvc.core.policy import Policy
from ctxvc.core.view.view import View
from ctxvc.errors import BadPolicy
from ctxvc.policies import parse
from ctxvc.session import room
from ctxvc.session.context import Context
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.provider import Agent, create, damages, result, sent
from tests.messages_api import call, thought
from tests.session.test_budget import output, results, states


def filled(session: Session, *sizes: int) -> Agent:
    agent = Agent(session)
    agent.say("Look.")
    for number, size in enumerate(sizes):
        agent.step(output(number, size))
    return agent


def big(session: Session) -> dict[str, object]:
    """The result of the open call, for which older blocks must leave."""
    (waits,) = session.stored.open_calls
    return {"role": "user", "content": [result({"id": waits}, output(9, 2_900))]}


# --- on arrival


def test_a_result_is_not_withheld_while_older_blocks_can_leave(small: Session) -> None:
    agent = filled(small, 2_500, 2_500, 2_500, 2_500)
    agent.step(output(5, 2_900))
    assert states(small)[-1] == "visible"
    assert not small.overflow
    agent.ask("Seen.")


@pytest.mark.parametrize(("tokens", "state"), [(5_000, "visible"), (7_000, "blocked")])
def test_in_a_narrow_window_a_result_of_nearly_half_of_it_is_shown(place: Path, tokens: int, state: str) -> None:
    """A quarter is less than many a file: what was read came in as a preview, and most of it was read again."""
    with create(place, budget=12_000, policy="default") as session:
        filled(session, 2_500, 2_500, tokens)
        assert states(session)[-1] == state


def test_a_result_is_not_withheld_while_a_plan_that_would_make_room_waits(small: Session) -> None:
    agent = filled(small, 2_500, 2_500, 2_500, 2_500)
    old = results(small)[:2]
    small.propose(Plan(actions=(Action(verb="archive", targets=(old[1].id,)),), actor="planner", reason="read"))
    agent.step(output(5, 1_500))
    assert states(small) == ["visible", "archived", "visible", "visible", "visible"]
    assert small.ledger()[old[1].id].removed_by == "planner"
    assert not small.pending()


def test_the_policy_is_asked_before_the_guard_acts(place: Path) -> None:
    with create(place, budget=12_000, policy="clear:trigger=0.97,keep=1,least=0") as session:
        agent = filled(session, 2_500, 2_500, 2_500, 2_500)
        agent.step(output(5, 2_900))
        assert results(session)[-1].state == "visible"
        assert {row.removed_by for row in session.ledger().rows()} == {"", "policy:clear"}


def test_a_policy_that_asks_a_model_is_not_asked_while_a_call_is_open(place: Path) -> None:
    def ask(view: View, question: str) -> None:
        raise AssertionError("asked in the middle of a step")

    with create(place, budget=12_000) as session:
        agent = filled(session, 2_500, 2_500, 2_500)
        agent.ask(thought("Next."), call("sh", cmd="big"))
        policy = parse("summary")
        session.policy = type(policy)(ask=ask, trigger=0.5)  # type: ignore[call-arg]
        session.append(big(session))
        assert results(session)[-1].state == "visible"


def test_whole_steps_leave_oldest_first_and_not_the_largest_results(place: Path) -> None:
    with create(place, budget=12_000, policy="scoped") as session:
        agent = filled(session, 1_500, 1_500, 1_500, 1_500, 2_800)
        agent.step(output(5, 2_900))
        assert states(session)[-2:] == ["visible", "visible"]
        gone = [row.step for row in session.ledger().rows() if row.kind in ("tool_use", "tool_result") and row.group]
        assert gone
        assert gone == sorted(gone)
        assert min(row.step for row in session.ledger().rows() if row.kind == "tool_use" and row.present) > max(gone)


class Broken(Policy, frozen=True, kw_only=True):
    name = "broken"

    def propose(self, view: View) -> Plan:  # noqa: ARG002
        raise ZeroDivisionError

    def relief(self, view: View, target: int) -> list[Action]:  # noqa: ARG002
        raise ZeroDivisionError


def test_no_result_is_lost_for_a_policy_that_fails(small: Session) -> None:
    agent = filled(small, 2_500, 2_500, 2_500, 2_500)
    small.append(agent.judge.reply(sent(small.request()), [call("sh", cmd="x")]))
    small.policy = Broken()
    small.append(big(small))
    assert small.body(results(small)[-1].id).decode() == output(9, 2_900)
    with pytest.raises(BadPolicy):
        small.request()


def test_a_writer_that_dies_between_the_removal_and_the_append_leaves_a_valid_session(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(place, budget=12_000) as session:
        agent = filled(session, 2_500, 2_500, 2_500, 2_500)
        agent.ask(thought("Next."), call("sh", cmd="big"))
        waits = session.stored.open_calls
        make_room = room.make_room

        def dies(context: Context, policy: Policy | None, incoming: int, spare: int = 0) -> None:
            make_room(context, policy, incoming, spare)
            raise KeyboardInterrupt

        monkeypatch.setattr(room, "make_room", dies)
        with pytest.raises(KeyboardInterrupt):
            session.append(big(session))
        monkeypatch.undo()
    with Session.open(place, "demo") as again:
        assert again.stored.open_calls == waits
        assert "archived" in states(again)
        again.append(big(again))
        assert states(again)[-1] == "visible"
        again.request()
    with Store(place) as store:
        assert not damages(store)
        assert check_prompts(store)[1] == []


def test_another_writer_between_the_removal_and_the_append_loses_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(place, budget=12_000) as session, Session.open(place, "demo", actor="user") as other:
        agent = filled(session, 2_500, 2_500, 2_500, 2_500)
        agent.ask(thought("Next."), call("sh", cmd="big"))
        make_room = room.make_room

        def interrupted(context: Context, policy: Policy | None, incoming: int, spare: int = 0) -> None:
            make_room(context, policy, incoming, spare)
            other.note("A person's note. " * 500)

        monkeypatch.setattr(room, "make_room", interrupted)
        session.append(big(session))
        monkeypatch.undo()
        assert session.used() <= session.budget.guard
        assert len(session.notes()) == 1
        assert session.body(results(session)[-1].id).decode() == output(9, 2_900)
        session.request()


# --- what did not fit comes back


def _together(session: Session) -> Agent:
    """A step whose results do not fit together: some are blocked."""
    agent = Agent(session)
    agent.say("Look.")
    agent.step(*(output(number, 2_900) for number in range(5)))
    assert "blocked" in states(session)
    return agent


def test_what_did_not_fit_comes_back_with_the_first_request_that_has_room(small: Session) -> None:
    agent = _together(small)
    blocked = [row for row in results(small) if row.state == "blocked"]
    agent.step(output(9, 100))
    assert [small.ledger()[row.id].state for row in blocked] == ["blocked"] * len(blocked)
    small.archive([row.id for row in results(small) if row.state == "visible"][:3], "read")
    small.request()
    first, *others = blocked
    assert small.ledger()[first.id].state == "visible"
    assert small.ledger()[first.id].stub == ""
    assert small.used() <= small.budget.guard
    small.append({"role": "assistant", "content": "Seen."})
    assert len(others) > 0


def test_what_has_no_room_is_not_tried_at_each_request(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try went through all rows: 26 ms a call in a session of 4,200."""
    _together(small)
    monkeypatch.setattr(room, "rehearse", lambda *_, **__: pytest.fail("it was tried"))
    small.request()
    assert "blocked" in states(small)


def test_the_newest_results_come_back_up_to_the_guard(place: Path) -> None:
    """They were kept out between the policy's trigger and the guard, though the model had not seen them."""
    with create(place, budget=12_000, policy="default:trigger=0.6,low_water=0.4,narrow_low_water=0.4") as session:
        _together(session)
        first = next(row for row in results(session) if row.state == "blocked")
        session.set(budget=14_000)
        session.request()
        assert session.ledger()[first.id].state == "visible"
        assert session.policy is not None
        assert session.policy.high(session.budget) < session.used() <= session.budget.guard


def test_a_result_over_the_threshold_and_one_that_was_read_stay_out(small: Session) -> None:
    agent = Agent(small)
    agent.say("Look.")
    agent.step(output(1, 4_000), *(output(number, 2_900) for number in range(2, 6)))
    read = next(row for row in results(small)[1:] if row.state == "blocked")
    small.recover(read.id, most=200)
    agent.step("ok")
    small.set(budget=60_000, ladder={"offload_most": 3_000})
    small.request()
    ledger = small.ledger()
    assert ledger[results(small)[0].id].state == "blocked"
    assert ledger[read.id].state == "blocked"
    assert all(row.state == "visible" for row in results(small)[1:] if row.id != read.id)


def test_nothing_comes_back_where_the_broken_prefix_costs_more_than_a_call(place: Path) -> None:
    with create(place, budget=60_000, policy="scoped") as session:
        session.set(budget=12_000)
        agent = _together(session)
        session.set(budget=60_000)
        for number in range(10):
            agent.step(output(20 + number, 2_000), think="")
        assert "blocked" not in states(session), "it paid while little stood behind it"
        row = results(session)[0]
        session.archive([row.id], "old")
        assert session.ledger()[row.id].state == "archived"


# --- a step that is too large by itself


@pytest.fixture
def tiny(place: Path) -> Iterator[Session]:
    with create(place, budget=6_000) as session:
        yield session


@pytest.mark.parametrize("calls", [1, 2])
def test_a_session_whose_newest_step_alone_exceeds_the_budget_goes_on(tiny: Session, calls: int) -> None:
    agent = Agent(tiny)
    agent.say("Write it.")
    agent.step("so", think="First.")
    tiny.request()
    content = [{**call("sh", cmd=output(number, 6_500 // calls)), "id": f"c{number}"} for number in range(calls)]
    tiny.append({"role": "assistant", "content": content})
    waits = tiny.stored.open_calls
    assert len(waits) == calls
    tiny.append({"role": "user", "content": [result({"id": wait}, output(2, 500)) for wait in waits]})
    agent.ask("It is written.")
    assert tiny.used() < tiny.budget.effective
    assert states(tiny)[1:] == ["visible"] * calls, "nobody has seen them yet"
    stubs = [row.stub for row in tiny.ledger().rows()] + [group.stub for group in tiny.ledger().groups.values()]
    assert any("0.0 the quick" in stub for stub in stubs), [stub for stub in stubs if stub]
    assert not any(row.present for row in tiny.ledger().rows() if row.kind == "tool_use" and row.step == 2)
    agent.say("Go on.")
    agent.step("and on")
    agent.ask("Done.")


def test_where_the_results_of_that_step_are_the_larger_part_its_calls_stay(tiny: Session) -> None:
    agent = Agent(tiny)
    agent.say("Write it.")
    agent.ask(thought("All."), *(call("sh", cmd=output(number, 300)) for number in range(8)))
    calls = tiny.stored.open_calls
    tiny.append({"role": "user", "content": [result({"id": call}, output(5, 900)) for call in calls]})
    agent.ask("Seen.")
    assert all(row.present for row in tiny.ledger().rows() if row.kind == "tool_use")
    assert "visible" in states(tiny)
