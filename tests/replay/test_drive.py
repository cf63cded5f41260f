"""A conversation driven through a session: what goes in is what was recorded, what comes out what would be sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.policies import parse
from ctxvc.replay.conversation import Call, Conversation
from ctxvc.replay.drive import Bare, Driven, Prompts, drive, new_session
from ctxvc.replay.results.result import Options
from ctxvc.replay.run import prepare, run
from ctxvc.replay.standin import ToolCall
from ctxvc.replay.work import Setup
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.store import create
from tests.making.conversation import LONG, human, injected, reply, result, results


def _talk(steps: int, text: str = LONG) -> Conversation:
    """A question, and `steps` replies with a call each, whose results have the same text and their number."""
    calls = [Call((human("fix src/git/store.py"),), reply("look", "c0"))]
    for number in range(1, steps):
        before = results(result(f"c{number - 1}", f"{number - 1}\n{text}"))
        calls.append(Call((before,), reply(f"reply {number}", f"c{number}")))
    return Conversation(id="talk", file="talk.jsonl", sha256="", calls=tuple(calls))


def _driven(conversation: Conversation, policy: str, budget: int, *, managed: bool = False) -> list[Driven]:
    session = new_session(conversation, parse(policy), budget)
    return list(drive(conversation, session, Prompts(session), managed=managed))


def test_a_prompt_has_the_blocks_that_its_call_could_see() -> None:
    talk = _talk(4)
    for call, driven in enumerate(_driven(talk, "keep", 100_000)):
        assert driven.prompt is not None
        assert driven.prompt.complete == {block.number for block in talk.blocks if block.seen <= call}
        assert driven.prompt.parts == driven.prompt.routes == {}
        assert not driven.faults and not driven.over


def test_a_session_knows_of_the_pauses_of_its_recording() -> None:
    talk = _talk(12)

    def at(message: Message, minutes: int) -> Message:
        return msgspec.structs.replace(message, time=f"2026-01-01T10:{minutes:02}:00Z")

    def sizes(pause: int) -> list[int]:
        """The tokens of each prompt, with a pause of so many minutes before the eighth call."""
        minutes = [number + pause * (number >= 7) for number in range(len(talk.calls))]
        calls = [
            Call(tuple(at(message, minute) for message in call.before), at(call.reply, minute))
            for call, minute in zip(talk.calls, minutes, strict=True)
        ]
        return prompt_tokens(msgspec.structs.replace(talk, calls=tuple(calls)))

    def prompt_tokens(conversation: Conversation) -> list[int]:
        driven = _driven(conversation, "default:narrow_low_water=0.6", 9_000)
        return [call.prompt.tokens for call in driven if call.prompt]

    steady, paused = sizes(0), sizes(6)
    assert steady[:7] == paused[:7] and steady[7] > 1.2 * paused[7]
    assert steady == prompt_tokens(talk)

    untimed = (
        *talk.calls[:7],
        *(Call(tuple(at(message, 1) for message in call.before), call.reply) for call in talk.calls[7:]),
    )
    assert steady == prompt_tokens(msgspec.structs.replace(talk, calls=untimed))  # the first time is no pause


def test_what_leaves_is_routed_by_its_stub() -> None:
    talk = _talk(12)
    *_, last = _driven(talk, "window:low_water=0.5", 6_000)
    prompt = last.prompt
    assert prompt is not None and prompt.tokens <= 6_000
    gone = {block.number for block in talk.blocks if block.seen <= prompt.call} - prompt.complete - prompt.parts.keys()

    assert gone and 0 in prompt.complete  # the human's question stays
    assert all("B" in prompt.texts[place] for place in prompt.routes.values())


def test_a_route_leads_to_the_stub_of_its_own_block() -> None:
    talk = _talk(14)
    session = new_session(talk, parse("clear:trigger=0.5"), 8_000)
    prompts = Prompts(session)
    *_, last = drive(talk, session, prompts)
    assert last.prompt is not None and len(last.prompt.routes) > 1
    for block, number in prompts.numbers.items():
        if number in last.prompt.routes:
            assert re.match(rf"\[\w+ {block}\b", last.prompt.texts[last.prompt.routes[number]])


def test_a_call_that_never_had_a_result_moves_no_number() -> None:
    calls = (
        Call((human("q"),), reply("look", "c0")),
        Call((human("stop, do this"),), reply("as you like", "c1")),
        Call((results(result("c1", "out")),), reply("done")),
    )
    talk = Conversation(id="talk", file="talk", sha256="", calls=calls)
    last = _driven(talk, "keep", 100_000)[-1].prompt
    assert last is not None
    assert last.complete == {block.number for block in talk.blocks if block.seen <= 2}


def test_a_mask_shows_both_ends_and_a_preview_the_beginning() -> None:
    talk = _talk(14)
    turn = Call((results(result("c13", LONG)), human("go on")), reply("done"))  # plans wait for a turn's beginning
    talk = Conversation(id="talk", file="talk", sha256="", calls=(*talk.calls, turn))
    masked = _driven(talk, "mask:age=2,batch=1", 100_000)[-1].prompt
    assert masked is not None
    assert [text.splitlines()[0] for text in masked.parts.values()] == [str(number) for number in range(13)]

    previewed = _driven(_talk(3, LONG * 20), "keep", 20_000)[-1].prompt
    assert previewed is not None
    assert [text.splitlines()[0] for text in previewed.parts.values()][:1] == ["0"]
    assert all(text.startswith("[archived B") and "\n" not in text for text in previewed.texts if "archived" in text)


def test_without_tools_no_text_tells_a_way_back() -> None:
    talk = _talk(12)
    session = new_session(talk, Bare(inner=parse("window:low_water=0.5")), 6_000)
    *_, last = drive(talk, session, Prompts(session))
    assert last.prompt is not None
    assert not any("recover" in text or "dashboard" in text for text in last.prompt.texts)


def test_a_prompt_that_cannot_be_made_is_a_failure_and_the_run_goes_on() -> None:
    talk = Conversation(
        id="talk",
        file="talk",
        sha256="",
        calls=(Call((human(LONG * 8),), reply("no")), Call((human("q"),), reply("a"))),
    )
    first, second = _driven(talk, "keep", 2_000)
    assert first.prompt is None and "2,000" in first.failure
    assert second.prompt is None


def test_the_stand_in_makes_room_and_its_calls_are_counted() -> None:
    runs = {managed: _driven(_talk(40), "self_managed", 16_000, managed=managed) for managed in (False, True)}
    assert not any(driven.extra for driven in runs[False])
    # Each call of a stand-in costs a prompt of its own, which was above the mark at which it acts.
    assert any(driven.extra for driven in runs[True])
    assert all(driven.extra > 4_000 for driven in runs[True] if driven.extra)
    assert all(driven.prompt and not driven.faults for driven in runs[True])


def test_in_memory_an_archive_between_a_request_and_its_reply_is_no_failure() -> None:
    talk = _talk(14)
    session = new_session(talk, parse("self_managed"), 100_000)
    for number, call in enumerate(talk.calls):
        for message in call.before:
            session.append(message)
        session.request()
        if number == 6:
            session.archive("B3-B8", "looked at")
        session.append(call.reply)
    assert session.ledger()["B5"].state == "archived"


@pytest.mark.parametrize("policy", ["default", "layered+episodes"])
def test_with_a_store_the_prompts_are_the_same(policy: str, tmp_path: Path) -> None:
    talk = _talk(20)
    talk = Conversation(
        id="talk",
        file="talk",
        sha256="",
        calls=(*talk.calls, Call((results(result("c19", LONG)), injected("note"), human("go on")), reply("ok"))),
    )
    memory = _driven(talk, policy, 8_000)
    with create(tmp_path / ".ctxvc") as store, new_session(talk, parse(policy), 8_000, store=store) as session:
        stored = list(drive(talk, session, Prompts(session)))
    assert [driven.prompt for driven in stored] == [driven.prompt for driven in memory]


def test_what_is_done_in_a_step_that_the_recording_leaves_open_counts_with_a_store_too(tmp_path: Path) -> None:
    end = (Call((results(result("c8", LONG)),), reply("done")), Call((human(f"go on {LONG}"),), reply("more", "c9")))
    talk = Conversation(id="talk", file="talk", sha256="", calls=(*_talk(9).calls, *end))
    prepared, setup = prepare(talk), Setup("mask", 8_000, Options())
    memory = run(prepared, setup, parse("mask"))
    with create(tmp_path / ".ctxvc") as store:
        stored = run(prepared, setup, parse("mask"), store)
    assert memory.events == {"archive": {"guard": 2}} == stored.events
    assert memory.comparable == stored.comparable


def test_what_was_recovered_is_visible_while_its_result_stands_in_the_prompt() -> None:
    """The first result leaves for a stub, `recover` reads it out, and what that gave is archived in its turn."""
    talk = _talk(4)
    session = new_session(talk, parse("keep"), 100_000)
    prompts = Prompts(session)
    list(drive(talk, session, prompts))
    session.append(results(result("c3", "the newest")))
    block, place = next((name, number) for name, number in prompts.numbers.items() if number == 3)
    session.archive(block, "the first")
    gone = prompts.prompt(4, session.view())
    session.append(reply("I need the first one again."))
    prompts.act([ToolCall("recover", block)], "again")
    recovered = prompts.prompt(5, session.view())
    assert "a line of output" in recovered.parts[place] and place in recovered.routes
    assert place not in gone.parts and place in gone.routes

    read_out = next(row.id for row in session.ledger().backwards() if row.kind == "tool_result")
    for message in (reply("Seen."), human("go on"), reply("Going on.")):
        session.append(message)
    session.archive(read_out, "seen")
    assert place not in prompts.prompt(6, session.view()).parts


def test_a_policy_pays_for_the_context_tools_that_it_gives_the_model_and_a_bare_one_has_none() -> None:
    """Beside one recorded tool, `window` gives two; a tool of a recorded one's name gets another name."""
    recorded = {"name": "search", "description": "Search the web.", "input_schema": {"type": "object"}}
    talk = msgspec.structs.replace(_talk(2), tools=[recorded])
    window = parse("window")

    bare, managed = new_session(talk, Bare(inner=window), 8_000), new_session(talk, window, 8_000)
    assert _tools(bare) == [recorded]
    assert [tool["name"] for tool in _tools(managed)] == ["search", "recover", "context_search"]
    assert 200 < managed.view().overhead - bare.view().overhead < 300
    assert prepare(talk).overhead == bare.view().overhead  # that of the oracle, and of what keeps everything


@pytest.mark.parametrize("recorded", [None, "tools in a form that we do not know", ["these too"]])
def test_recorded_tools_of_no_known_form_stay_what_they_are(recorded: object) -> None:
    session = new_session(msgspec.structs.replace(_talk(2), tools=recorded), parse("window"), 8_000)
    tools = _tools(session)
    assert tools == recorded if recorded else [tool["name"] for tool in tools] == ["recover", "search"]


def _tools(session: Session) -> Any:
    return revision.now(session.stored).tools
