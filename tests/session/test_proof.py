"""What a reply saw is proven by its commit, whatever happened in between and whatever UTF-8 cannot hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxvc.core.prompt.request import request
from ctxvc.errors import Refused
from ctxvc.session.proof import as_sent, check_prompts
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.read.revision import sent_prompt
from tests.making.provider import WORDS, Agent, calls_of, create, plain, result, sent
from tests.messages_api import call, text, thought


def worked(session: Session) -> Agent:
    agent = Agent(session)
    agent.say("Look at the tests.")
    for number in range(3):
        agent.step(f"{number} {WORDS}" * 40)
    return agent


def first_result(session: Session) -> str:
    return next(row.id for row in session.ledger().rows() if row.kind == "tool_result")


@pytest.mark.parametrize("writer", ["the same session", "a second writer"])
@pytest.mark.parametrize("verbs", [1, 3])
@pytest.mark.parametrize("in_step", [False, True])
def test_an_archive_between_a_request_and_its_reply_is_no_damage(
    session: Session, place: Path, writer: str, verbs: int, in_step: bool
) -> None:
    agent = worked(session)
    if in_step:
        session.append({"role": "user", "content": "And then?"})
    requested = session.request()
    other = session if writer == "the same session" else plain(Session.open(place, "demo", actor="user"))
    for verb in ("archive", "pin", "note")[:verbs]:
        if verb == "note":
            other.note("The tests are slow.")
        else:
            block = first_result(other) if verb == "archive" else other.ledger().rows().__next__().id
            other.verb("archive" if verb == "archive" else "unpin", block)
    reply = agent.judge.reply(sent(requested), [thought("Once more."), call("sh", cmd="ls")])
    session.append(reply)
    session.append({"role": "user", "content": [result(calls_of(reply)[0], "done")]})
    session.stored.flush()

    assert check_prompts(session.store) == (4, [])
    step = next(entry for entry in revision.history(session.store, session.stored.tip()) if "Ctxvc-Prompt" in
                entry.trailers)  # fmt: skip
    record = sent_prompt(step.trailers["Ctxvc-Prompt"])
    assert record
    assert record.later == (0 if in_step else -verbs)
    snapshot = as_sent(session.store, revision.at(session.store, session.stored.tip()))
    rendered = request(snapshot.ledger, snapshot.bodies, snapshot.system, snapshot.tools)
    assert rendered.digest == requested.digest
    if other is not session:
        other.close()


def test_a_human_message_between_a_request_and_its_reply_is_no_damage(session: Session, place: Path) -> None:
    """It comes with a cut, which the prompt did not have: no commit renders that, and none says so."""
    agent = worked(session)
    session.append({"role": "user", "content": "a reminder"}, origin="client")
    requested = session.request()
    with plain(Session.open(place, "demo", actor="user")) as other:
        other.append({"role": "user", "content": "Wait: something else."})
        other.verb("archive", first_result(other))
    session.append(agent.judge.reply(sent(requested), [text("Done.")]))
    session.stored.flush()

    assert check_prompts(session.store)[1] == []


# --- deleted blocks, which people alone read; what UTF-8 cannot hold


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


def test_a_person_reads_what_was_deleted_and_an_agent_does_not(session: Session, place: Path) -> None:
    block, body = deleted(session)
    for address in (block, session.ledger()[block].handle, f"main:{block}"):
        for read in (session.recover, session.recover_bytes):
            with pytest.raises(Refused, match=f"{block} was deleted"):
                read(address)
    assert session.ledger()[block].reads == 0
    with Session.open(place, "demo", actor="user") as person:
        assert person.recover(block).content.strip() == body.decode().strip()
        assert [data for _, data in person.recover_bytes(block)] == [body]


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
