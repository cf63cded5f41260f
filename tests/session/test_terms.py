"""What a policy asks of the harness reaches what is sent, and nothing else of it changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ctxvc.agent import definitions
from ctxvc.policies import parse
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.session.session import Session
from tests.making.provider import MODEL, SYSTEM, WORDS, Agent, create, result, sent
from tests.messages_api import call, text, thought


def said(session: Session, steps: int = 6) -> list[dict[str, Any]]:
    """What is sent in a session of some steps, an archive and a second turn."""
    bodies = []
    agent = Agent(session)
    for turn in range(2):
        session.append({"role": "user", "content": f"Task {turn}"})
        for at in range(steps):
            bodies.append(sent(session.request()))
            reply = agent.judge.reply(bodies[-1], [thought("Hm."), call("sh", cmd=f"{turn}.{at}")])
            session.append(reply)
            asked = next(block for block in reply["content"] if block["type"] == "tool_use")
            session.append({"role": "user", "content": [result(asked, f"{turn}.{at} {WORDS}" * 30)]})
            if at == 3:
                session.archive([row.id for row in session.ledger().rows() if row.kind == "tool_result"][1], "old")
        bodies.append(sent(session.request()))
        session.append(agent.judge.reply(bodies[-1], [text("Done.")]))
    return bodies


def dashboards(body: dict[str, Any]) -> list[str]:
    return [
        block["text"]
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "text" and block["text"].startswith("[dashboard")
    ]


SH = {"name": "sh", "description": "Run a command.", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    "words", ["", "dashboard=off", "board=status", "archive=off", "recover=off", "agent=off", "wording=alt"]
)
def test_a_variant_sends_its_own_tools_protocol_board_and_stubs(tmp_path: Path, words: str) -> None:
    policy = SelfManaged() if not words else parse(f"self_managed:{words}")
    terms = policy.terms()
    tools = definitions(terms, own=[SH])
    session = Session.open(
        tmp_path / "s", "demo", model=MODEL, budget=200_000, system=SYSTEM, tools=tools, policy=policy
    )
    session.set(calibration=(1000, 0))
    bodies = said(session)

    boards = [board for body in bodies for board in dashboards(body)]
    for body in bodies:
        names = [tool["name"] for tool in body["tools"]]
        assert names == [tool["name"] for tool in tools] and {"sh", *terms.tools} == set(names)
        assert body["messages"][0]["content"][0]["text"].startswith(terms.protocol)
    assert bool(boards) == (terms.board != "off")
    assert any("\n" in board for board in boards) == (terms.board == "full")
    totals = "overhead [0-9,]+, conversation [0-9,]+, dashboard [0-9,]+"
    assert all(re.search(totals, board) and board.endswith("]") for board in boards if "\n" not in board)
    handles = re.search(r"\[archived B[0-9]+(@[0-9a-f]{6})?, ", str(bodies[-1]["messages"]))
    assert handles and bool(handles[1]) == terms.handles


NUDGE = r"past [0-9]+ %: make room with [a-z, ]+ when you can"


@pytest.mark.parametrize(
    ("spec", "ways"),
    [("default:protect=sh", "archive, note with fold or scope"), ("self_managed", "archive or note with fold"),
     ("self_managed:board=status", "archive or note with fold"), ("self_managed:archive=off", "delete"),
     ("self_managed:agent=off", ""), ("keep", "")],
)  # fmt: skip
def test_a_threshold_that_is_crossed_is_told_with_the_tools_to_act(tmp_path: Path, spec: str, ways: str) -> None:
    with create(tmp_path / "s", budget=16_000, policy=parse(spec)) as session:
        session.append({"role": "user", "content": "Look."})
        while session.used() < session.budget.effective * 0.9:
            session.request()
            asked = {"type": "tool_use", "id": f"toolu_{len(session.ledger())}", "name": "sh", "input": {}}
            session.append({"role": "assistant", "content": [asked]})  # says nothing of what it took
            session.append({"role": "user", "content": [result(asked, WORDS * 25)]})
        stands = re.findall(NUDGE, str(session.request().messages))
        assert len(stands) == len(set(stands))
        told = [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "dashboard"]
        # Again where a cut took away the board that said it.
        nudges = list(dict.fromkeys(found for board in told for found in re.findall(NUDGE, board)))
        assert nudges == ([f"past {mark} %: make room with {ways} when you can" for mark in (60, 85)] if ways else [])


def test_who_has_noted_nothing_in_a_scope_is_told_to_before_leaving_it(tmp_path: Path) -> None:
    reminder = "nothing noted in 3 steps: note what you learned before you goto another scope"
    for spec, reminds in (("scoped", True), ("default", True), ("self_managed", False)):
        with create(tmp_path / spec, policy=parse(spec)) as session:
            agent = Agent(session)
            agent.say("Look.")

            def reminded(steps: int, agent: Agent = agent) -> list[int]:
                """The steps after which the next request reminds."""
                found = []
                for at in range(steps):
                    agent.step("one line")
                    before = len(agent.session.ledger())
                    agent.session.request()
                    new = list(agent.session.ledger().rows())[before:]
                    found += [at + 1 for row in new if reminder in agent.session.body(row.id).decode()]
                return found

            assert reminded(5) == []  # nobody leaves main for good
            session.open_scope("side", "look at it")
            assert reminded(6) == ([3] if reminds else [])
            session.note("it is so")
            assert reminded(6) == ([3] if reminds else [])
            session.goto("main", "it is so")
            assert reminded(4) == []


def test_a_dashboard_that_is_off_keeps_its_room(tmp_path: Path) -> None:
    """Between the guard and what a dashboard would take from it, the guard acts all the same."""
    with create(
        tmp_path / "off", budget=12_000, policy=SelfManaged(dashboard=False, agent=False, share=0.98)
    ) as session:
        agent = Agent(session)
        agent.say("Look.")
        cap, guard = session.budget.dashboard_cap, session.budget.guard
        for _ in range(6):
            agent.step(WORDS * 60)
        while session.used() <= guard - cap // 2:
            session.append({"role": "user", "content": WORDS}, origin="client")
        assert guard - cap // 2 < session.used() <= guard
        session.request()
        assert session.used() <= guard - cap // 2


@pytest.mark.parametrize("recover", [True, False])
def test_where_nothing_can_be_got_back_no_text_of_ours_says_so(tmp_path: Path, recover: bool) -> None:
    with create(tmp_path / "s", budget=12_000, policy=SelfManaged(recover=recover)) as session:
        agent = Agent(session)
        agent.say("Look.")
        agent.step(WORDS * 400, *(WORDS * 10,) * 3)
        agent.step(*(f"{at} {WORDS}" * 140 for at in range(60)))
        agent.step(WORDS * 30)
        agent.step("seen")
        results = [row.id for row in session.ledger().rows() if row.kind == "tool_result"]
        session.archive(results[4:6], "two listings")
        session.delete(results[-2], "a mistake")
        shown = str(
            [row.stub for row in session.ledger().rows()] + [group.stub for group in session.ledger().groups.values()]
        )
        for verb in ("archived B", "archived G", "blocked B", "deleted B"):
            assert f"[{verb}" in shown
        heads = re.findall(r"\[(?:archived|blocked|deleted) ([BG][0-9]+)(@[0-9a-f]{6})?[,:]", shown)
        assert len(heads) == shown.count("[archived") + shown.count("[blocked") + shown.count("[deleted")
        assert all(bool(checksum) == recover for _, checksum in heads)
        assert "recover" not in shown  # the tools' definitions say how
        assert ("recover" in str(session.request().messages)) == recover
        group = next(group.id for group in session.ledger().groups.values() if results[4] in group.members)
        listed = session.recover(group).text
        assert results[4] in listed and results[5] in listed


def test_a_stub_that_hides_its_handle_cannot_be_forged(tmp_path: Path) -> None:
    with create(tmp_path / "s", budget=12_000, policy=SelfManaged(recover=False)) as session:
        agent = Agent(session)
        agent.say("Look.")
        agent.step(WORDS * 400)
        (row,) = [row for row in session.ledger().rows() if row.kind == "tool_result"]
        stub = row.stub.partition("\n")[0]
        assert row.state == "blocked" and stub.startswith(f"[blocked {row.id}, ")
        agent.step(stub)
        shown = str(session.request().messages)
        assert shown.count(stub) == 2
        assert shown.count("\\" + stub) >= 1


def test_thresholds_of_a_policy_hold_where_the_session_has_none_of_its_own(tmp_path: Path) -> None:
    policy = SelfManaged(theta=700)
    with create(tmp_path / "s", budget=32_000, policy=policy) as session:
        assert session.view().budget.offload == 700
        agent = Agent(session)
        agent.say("Look.")
        agent.step(WORDS * 30, WORDS * 60)
        states = [row.state for row in session.ledger().rows() if row.kind == "tool_result"]
        assert states == ["visible", "blocked"]
        session.set(ladder={"offload_most": 5_000})
        assert session.view().budget.offload == 5_000


def test_the_results_of_a_step_cost_no_more_than_its_batch(tmp_path: Path) -> None:
    for batch, previews in ((0, 0), (3_000, 2)):
        with create(tmp_path / f"{batch}", policy=SelfManaged(batch=batch)) as session:
            agent = Agent(session)
            agent.say("Look.")
            agent.step(*(f"{at} {WORDS}" * (60 - at) for at in range(4)))
            states = [row.state for row in session.ledger().rows() if row.kind == "tool_result"]
            assert states == ["archived"] * previews + ["visible"] * (4 - previews)


def test_the_protocol_counts_as_overhead(tmp_path: Path) -> None:
    with create(tmp_path / "s", policy=SelfManaged()) as told, create(tmp_path / "t") as plain:
        tokens = told.view().price.body(told.ledger()["B1"])
        for session in (told, plain):
            Agent(session).say("Look.")
        assert tokens > 250
        board, other = told.dashboard(), plain.dashboard()
        assert board.overhead == other.overhead + tokens
        assert board.conversation == other.conversation
        assert board.used == told.used()
        totals = told._context.totals(told.view())
        assert (totals.overhead, totals.conversation) == (board.overhead, board.conversation)


def test_a_reminder_makes_no_cut(tmp_path: Path) -> None:
    """It came on a board that no longer fitted beside the others, with a cut for that: twice the broken prefixes."""
    with create(tmp_path / "s", budget=24_000, policy="default") as session:
        agent = Agent(session)
        while session.used() < 0.62 * session.budget.effective:
            agent.say("Look.")
            agent.step(WORDS * 60)
            agent.step(WORDS * 60)
        session.request()
        boards = [session.body(row.id).decode() for row in session.ledger().rows() if row.kind == "dashboard"]
        assert session.ledger().meta.cuts == ()
        (reminder,) = [board for board in boards if "past 60 %" in board]
        assert "\n" not in reminder
