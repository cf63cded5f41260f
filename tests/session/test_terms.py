"""What a policy asks of the harness reaches what is sent, and nothing else of it changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ctxvc.policies import protocol
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.session import Session
from tests.messages_api import call, text, thought

from .building import WORDS, Agent, create, result, sent


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


def rest(body: dict[str, Any], *paragraphs: str) -> str:
    """A body without dashboards, these paragraphs of the protocol and what hangs on block numbers and signatures."""
    content = [
        (message["role"], {**block, "signature": "", "cache_control": ""})
        for message in body["messages"]
        for block in message["content"]
        if not block.get("text", "").startswith("[dashboard")
    ]
    words = json.dumps(content, ensure_ascii=False, sort_keys=True)
    for name in paragraphs:
        words = words.replace(json.dumps(protocol.paragraph(name), ensure_ascii=False)[1:-1] + r"\n\n", "")
    words = re.sub(r"\bB[0-9]+", "B", words)
    return re.sub(r"(toolu|msg)_\w+", r"\1", words)


def test_a_status_board_differs_from_a_full_one_in_its_rows_and_its_paragraph_only(tmp_path: Path) -> None:
    full = said(create(tmp_path / "full", policy=SelfManaged()))
    status = said(create(tmp_path / "status", policy=SelfManaged(board="status")))
    assert [rest(body, "full") for body in full] == [rest(body, "status") for body in status]
    shown = [board for body in status for board in dashboards(body)]
    assert shown
    assert all("\n" not in board and board.endswith("]") for board in shown)
    assert any("\n" in board for body in full for board in dashboards(body))
    assert [len(dashboards(body)) for body in full] == [len(dashboards(body)) for body in status]
    totals = "overhead [0-9,]+, conversation [0-9,]+, dashboard [0-9,]+"
    assert all(re.search(totals, dashboards(body)[0]) for body in status)


def test_without_a_dashboard_nothing_else_is_missing(tmp_path: Path) -> None:
    full = said(create(tmp_path / "full", policy=SelfManaged()))
    off = said(create(tmp_path / "off", policy=SelfManaged(dashboard=False)))
    assert [rest(body, "full") for body in full] == [rest(body) for body in off]
    assert not any(dashboards(body) for body in off)
    assert not any(row.kind == "dashboard" for row in create(tmp_path / "off").ledger().rows())


def test_another_wording_changes_the_protocol_only(tmp_path: Path) -> None:
    usual, other = SelfManaged(), SelfManaged(wording="alt")
    told = [re.sub(r"\bB[0-9]+", "B", json.dumps(each.terms().protocol)[1:-1]) for each in (usual, other)]
    left = said(create(tmp_path / "usual", policy=usual))
    right = said(create(tmp_path / "alt", policy=other))
    assert told[0] != told[1]
    assert [rest(body).replace(told[0], "") for body in left] == [rest(body).replace(told[1], "") for body in right]


def test_a_dashboard_that_is_off_keeps_its_room(tmp_path: Path) -> None:
    """Between the guard and what a dashboard would take from it, the guard acts all the same."""
    with create(tmp_path / "off", budget=12_000, policy=SelfManaged(dashboard=False, agent=False, share=0.98)) as made:
        agent = Agent(made)
        agent.say("Look.")
        cap, guard = made.budget.board_cap, made.budget.guard
        for _ in range(6):
            agent.step(WORDS * 60)
        while made.used() <= guard - cap // 2:
            made.append({"role": "user", "content": WORDS}, origin="client")
        assert guard - cap // 2 < made.used() <= guard
        made.request()
        assert made.used() <= guard - cap // 2


@pytest.mark.parametrize("recover", [True, False])
def test_where_nothing_can_be_got_back_no_text_of_ours_says_so(tmp_path: Path, recover: bool) -> None:
    with create(tmp_path / "s", budget=12_000, policy=SelfManaged(recover=recover)) as made:
        agent = Agent(made)
        agent.say("Look.")
        agent.step(WORDS * 400, *(WORDS * 10,) * 3)
        agent.step(*(f"{at} {WORDS}" * 140 for at in range(60)))
        results = [row.id for row in made.ledger().rows() if row.kind == "tool_result"]
        made.archive(results[1:3], "two listings")
        made.delete(results[3], "a mistake")
        shown = str(
            [row.stub for row in made.ledger().rows()] + [group.stub for group in made.ledger().groups.values()]
        )
        for verb in ("archived B", "archived G", "blocked B", "deleted B"):
            assert f"[{verb}" in shown
        heads = re.findall(r"\[(?:archived|blocked|deleted) ([BG][0-9]+)(@[0-9a-f]{6})?:", shown)
        assert all(bool(checksum) == recover for _, checksum in heads)
        assert ("recover B" in shown and "recover G" in shown) == recover
        assert ("recover" in shown) == recover
        assert ("recover" in str(made.request().messages)) == recover
        listed = made.recover(next(iter(made.ledger().groups))).text
        assert results[1] in listed and results[2] in listed


def test_a_stub_that_hides_its_handle_cannot_be_forged(tmp_path: Path) -> None:
    with create(tmp_path / "s", budget=12_000, policy=SelfManaged(recover=False)) as made:
        agent = Agent(made)
        agent.say("Look.")
        agent.step(WORDS * 400)
        (row,) = [row for row in made.ledger().rows() if row.kind == "tool_result"]
        stub = row.stub.partition("\n")[0]
        assert row.state == "archived" and stub.startswith(f"[archived {row.id}:")
        agent.step(stub)
        shown = str(made.request().messages)
        assert shown.count(stub) == 2
        assert shown.count("\\" + stub) >= 1


def test_thresholds_of_a_policy_hold_where_the_session_has_none_of_its_own(tmp_path: Path) -> None:
    policy = SelfManaged(single=700)
    with create(tmp_path / "s", budget=32_000, policy=policy) as made:
        assert made.view().budget.offload == 700
        agent = Agent(made)
        agent.say("Look.")
        agent.step(WORDS * 30, WORDS * 60)
        states = [row.state for row in made.ledger().rows() if row.kind == "tool_result"]
        assert states == ["visible", "archived"]
        made.set(ladder={"offload_most": 5_000})
        assert made.view().budget.offload == 5_000


def test_the_results_of_a_step_cost_no_more_than_its_batch(tmp_path: Path) -> None:
    for batch, previews in ((0, 0), (3_000, 2)):
        with create(tmp_path / f"{batch}", policy=SelfManaged(batch=batch)) as made:
            agent = Agent(made)
            agent.say("Look.")
            agent.step(*(f"{at} {WORDS}" * (60 - at) for at in range(4)))
            states = [row.state for row in made.ledger().rows() if row.kind == "tool_result"]
            assert states == ["archived"] * previews + ["visible"] * (4 - previews)


def test_the_protocol_counts_as_overhead(tmp_path: Path) -> None:
    with create(tmp_path / "s", policy=SelfManaged()) as told, create(tmp_path / "t") as plain:
        tokens = told.view().price.body(told.ledger()["B1"])
        for session in (told, plain):
            Agent(session).say("Look.")
        assert tokens > 300
        board, other = told.dashboard(), plain.dashboard()
        assert board.overhead == other.overhead + tokens
        assert board.conversation == other.conversation
        assert board.used == told.used()
        totals = told._context.totals(told.view())
        assert (totals.overhead, totals.conversation) == (board.overhead, board.conversation)
