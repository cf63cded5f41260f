"""What a reply saw is proven by its commit, whatever happened between the call and the reply."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.prompt.request import request
from ctxvc.session.proof import as_sent, check_prompts
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.read.sent_prompt import parse
from tests.making.provider import WORDS, Agent, calls_of, plain, result, sent
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
    record = parse(step.trailers["Ctxvc-Prompt"])
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
