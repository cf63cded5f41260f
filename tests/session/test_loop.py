"""An agent's whole life under a small budget, with a provider that checks everything it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxvc.policies.default import Default
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.provider import (
    WORDS,
    Agent,
    addresses,
    boards_are_bounded,
    calls_of,
    create,
    damages,
    groups_fit,
    humans_gone,
    inside_budget,
    rendered,
    result,
    sent,
)
from tests.making.store import complaints
from tests.messages_api import call, text, thought


def output(number: int, lines: int = 100) -> str:
    """What a tool says: about 18 tokens a line, no two the same."""
    return "".join(f"{number}.{line} {WORDS}" for line in range(lines))


def test_a_loop_of_fifty_steps_with_everything_in_it(session: Session, place: Path) -> None:
    agent = Agent(session)
    agent.say("Make the tests pass.")
    remembered: dict[str, bytes] = {}
    for number in range(50):
        agent.step(output(number), words=f"Step {number}.")
        match number:
            case 7:
                assert session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][:4])
            case 12:
                group = next(iter(session.ledger().groups))
                assert "fox" in session.recover(group).text or session.recover(group).total
            case 14:
                gone = next(row for row in session.ledger().rows() if row.kind == "tool_result" and not row.present)
                assert "quick" in session.recover(gone.id, most=200).text
                session.restore(gone.id)
            case 20:
                session.note("The parser is wrong in line 40.")
            case 26:
                session.note("Steps 20 to 26 led nowhere.", fold=True)
            case 32:
                session.open_scope("parser", "Mend the parser.")
            case 40:
                session.goto("main", "The parser is mended.")
            case 46:
                kept = session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][-3:])
                undone, _ = session.undo()
                assert [row.id for row in undone.rows] == [row.id for row in kept.rows]
        if number % 2:
            continue
        session.stored.flush()
        tip = session.stored.tip()
        if not session.stored.waiting():
            remembered[tip] = rendered(session.store, tip)
    assert agent.requests == 50
    assert any(row.removed_by == "guard" for row in session.ledger("main").rows())
    assert not humans_gone(session.ledger())
    groups_fit(session.ledger())
    session.close()
    with Store(place) as store:
        for commit, words in remembered.items():
            assert rendered(store, commit) == words
        assert not damages(store)
    assert not complaints(place)


def test_a_reminder_or_a_human_who_breaks_in_does_not_part_a_reply_from_its_thinking(session: Session) -> None:
    agent = Agent(session)
    agent.say("Begin.")
    for number in range(6):
        agent.step(output(number))
        session.add("Remember to be brief.")
        if number % 2:
            session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][number - 1])
    agent.ask(thought("Both."), call("sh", cmd="1"), call("sh", cmd="2"))
    agent.say("Stop!")
    agent.ask(thought("Stopped."), text("I did."))
    agent.say("Go on.")
    agent.step("ok")
    assert agent.requests == 9
    assert not session.stored.open_calls


def test_a_switch_in_a_step_and_what_follows_it_come_in_together(session: Session) -> None:
    agent = Agent(session)
    agent.say("Begin.")
    agent.step(output(1))
    for name in ("one", "main", "one", "main"):
        reply = agent.ask(thought("Elsewhere."), call("scope", to=name), call("sh", cmd="ls"))
        if name in session.scopes():
            session.goto(name, f"to {name}")
        else:
            session.open_scope(name, f"to {name}")
        asked = calls_of(reply)
        session.append(
            {"role": "user", "content": [result(asked[0], "done"), result(asked[1], output(2, 500)), text("Well?")]},
            {"role": "user", "content": output(3)},
        )
        assert session.scope == name
        agent.step(output(4))
    assert not damages(session.store)


def test_another_model_is_sent_what_it_takes(session: Session) -> None:
    agent = Agent(session)
    agent.say("Begin.")
    agent.step(output(1))
    session.set(model="claude-sonnet-5-5")
    agent.step(output(2))
    agent.say("Go on.")
    session.set(model="claude-opus-5-5")
    agent.step(output(3))
    assert session.ledger().meta.cuts


def test_the_board_of_each_call_takes_the_place_of_the_one_before(place: Path) -> None:
    with create(place, policy=SelfManaged(board="each")) as session:
        agent = Agent(session)
        agent.say("Begin.")
        cuts = set()
        for number in range(10):
            agent.step(output(number, 20))
            cuts.add(session.ledger().meta.cuts)
            assert len(_boards(session.request().body())) == 1
        assert len(cuts) > 5


def test_boards_that_would_cost_too_much_wait_for_a_cut(place: Path) -> None:
    """They are no reason for one, except where they say that it is time to make room."""
    with create(place, budget=20_000, policy=SelfManaged()) as session:
        agent = Agent(session)
        agent.say("Begin.")
        while session.used() < session.budget.effective * 0.87:
            agent.step(output(len(session.ledger()), 20))
            session.pin([row.id for row in session.ledger().rows()][-1])  # a change that a board would tell
        rows = list(session.ledger().rows())
        boards = [session.body(row.id).decode() for row in rows if row.kind == "dashboard"]
        assert agent.requests > len(boards) + 5
        assert "past 85 %: make room with" in boards[-1]
        assert len(session.ledger().meta.cuts) <= 2
        assert len([row for row in rows if row.kind == "tool_result" and row.present]) == agent.requests


def test_in_a_narrow_window_default_breaks_no_prefix_to_say_that_it_is_time_to_make_room(place: Path) -> None:
    """Its rule makes the room, at 95 %: a cut at 85 % for a board came before each batch."""
    with create(place, budget=12_000, policy=Default()) as session:
        agent = Agent(session)
        agent.say("Begin.")
        agent.step(output(0, 20))
        cuts = session.ledger().meta.cuts
        while session.used() < session.budget.effective * 0.9:
            agent.step(output(len(session.ledger()), 20))
            session.pin([row.id for row in session.ledger().rows()][-1])  # a change that a board would tell
        boards = [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "dashboard"]
        assert boards and not any("make room" in board for board in boards)
        assert session.ledger().meta.cuts == cuts


@pytest.mark.parametrize("calibration", [(1500, 0), (3000, 2_000)])
def test_dashboards_cost_no_more_where_the_provider_counts_otherwise(
    session: Session, calibration: tuple[int, int]
) -> None:
    """The cap is a share of the budget, which is in the provider's tokens; the agent checks it at each call."""
    session.set(calibration=calibration)
    agent = Agent(session)
    agent.say("Begin.")
    for number in range(18):  # fewer calls than calibrate anew
        agent.step(output(number, 20))
        session.pin([row.id for row in session.ledger().rows()][-1])
    assert session.ledger().meta.calibration == calibration
    boards = _boards(session.request().body())
    tokens = sum(map(session._context.meter.count, boards)) * calibration[0]
    # The agent sees at each call that they do not cost more; here that there was no room for another.
    assert len(boards) > 1 and tokens > session.budget.dashboard_cap * 1000 // 2


@pytest.mark.parametrize("replied", [False, True])
def test_a_dashboard_does_not_go_on_naming_a_group_that_a_person_took_back(
    session: Session, place: Path, replied: bool
) -> None:
    """While a call waits for its reply, its dashboard stands behind every cut; the next request takes it away."""
    agent = Agent(session)
    agent.say("Begin.")
    for number in range(5):
        agent.step(output(number))
    session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][:2])
    waiting = session.request()
    assert "G1" in addresses(waiting)

    with Session.open(place, "demo", actor="user") as person:
        assert person.restore("G1")
    if replied:  # to what was sent
        session.append(agent.judge.reply(sent(waiting), [thought("And now?"), call("sh", cmd="ls")]))
        session.append({"role": "user", "content": [result({"id": session.stored.open_calls[0]}, "ok")]})
    request = session.request()

    assert "G1" not in addresses(request)
    assert len(_boards(request.body())) == 1  # a full one in its place
    inside_budget(session, request)
    boards_are_bounded(session, request)
    session.append(agent.judge.reply(sent(request), [text("Done.")]))
    session.stored.flush()
    assert not check_prompts(session.store)[1]
    assert not damages(session.store)


def _boards(body: Mapping[str, Any]) -> list[str]:
    texts = [block.get("text", "") for message in body["messages"] for block in message["content"]]
    return [text for text in texts if text.startswith("[dashboard")]


def test_not_even_a_person_takes_the_thinking_of_a_round_that_goes_on(place: Path) -> None:
    """The provider refuses a latest reply that was modified; a turn's start takes the thinking away."""
    with create(place) as session:
        session.append({"role": "user", "content": "go"})
        Agent(session).step(WORDS)
    with Session.open(place, "demo", actor="user") as person:
        (thinking,) = (row.id for row in person.ledger().rows() if row.kind == "thinking")
        done = person.archive(thinking)
        assert [problem.why for problem in done.problems] == ["open"]
        person.append({"role": "user", "content": "never mind"})
        assert [problem.why for problem in person.archive(thinking).problems] == ["open"]  # the results go out with it
        person.append({"role": "assistant", "content": "Well."})
        assert "open" not in [problem.why for problem in person.archive(thinking).problems]
