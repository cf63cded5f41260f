"""Deleted blocks are read by people only; what UTF-8 cannot hold is sent, and proved, in the form that it can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.errors import Refused
from ctxvc.session.proof import check_prompts
from ctxvc.session.session import Session
from tests.making.provider import Agent, calls_of, create, result, sent

HALF = "half \ud83d of a pair, \udcff \\ud800 and \U0001f600"
WHOLE = "half \ufffd of a pair, \ufffd \\ud800 and \U0001f600"


def deleted(session: Session) -> tuple[str, bytes]:
    agent = Agent(session)
    agent.say("Look.")
    agent.step("wrong " * 200)
    agent.step("right " * 200)
    block = next(row.id for row in session.ledger().rows() if row.kind == "tool_result")
    body = session.body(block)
    assert session.delete(block, "it was wrong")
    return block, body


def test_an_agent_does_not_read_what_was_deleted(session: Session) -> None:
    block, _ = deleted(session)
    for address in (block, session.ledger()[block].handle, f"main:{block}"):
        with pytest.raises(Refused, match=f"{block} was deleted"):
            session.recover(address)
        with pytest.raises(Refused, match=f"{block} was deleted"):
            session.recover_bytes(address)
    assert session.ledger()[block].reads == 0


def test_a_person_reads_what_was_deleted(place: Path) -> None:
    with create(place, actor="user") as session:
        block, body = deleted(session)
        assert session.recover(block).content.strip() == body.decode().strip()
        assert [read for _, read in session.recover_bytes(block)] == [body]


def test_what_the_provider_counts_besides_ours_makes_no_reading_smaller(place: Path) -> None:
    with create(place) as session:
        agent = Agent(session)
        agent.say("Look.")
        agent.step("right " * 200)
        session.set(budget=60_000, calibration=(1000, 20_000))
        assert session.budget.offload < 20_000
        block = next(row.id for row in session.ledger().rows() if row.kind == "tool_result")
        assert "right" in session.recover(block).content


def test_what_is_sent_can_be_encoded_and_its_hash_is_that_of_what_was_sent(place: Path) -> None:
    tools = [{"name": "sh", "description": HALF, "input_schema": {"type": "object"}}]
    with Session.open(place, "demo", system=HALF, tools=tools, budget=32_000) as session:
        agent = Agent(session)
        agent.say(HALF)
        reply = agent.ask({"type": "tool_use", "id": "c1", "name": "sh", "input": {HALF: [HALF]}})
        session.append({"role": "user", "content": [result(calls_of(reply)[0], HALF)]})
        request = session.request()
        body = sent(request)
        assert json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8")) == body
        content = json.dumps(body, ensure_ascii=False)
        assert content.count(json.dumps(WHOLE, ensure_ascii=False)[1:-1]) == 6
        assert request.digest == type(request)(model="", **request.body()).digest
        assert session.prompt().digest == request.digest
        agent.ask("Seen.")
        kept = [session.body(row.id) for row in session.ledger().rows() if row.kind in ("user", "tool_result")]
        assert [each.decode("utf-8", "surrogatepass") for each in kept] == [HALF, HALF]
    with Session.open(place, "demo") as session:
        count, wrong = check_prompts(session.store)
        assert (count, wrong) == (2, [])
