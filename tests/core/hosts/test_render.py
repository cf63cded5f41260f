"""What a host is given back is valid, verbatim where it stands, and known again block for block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxvc.core import display
from ctxvc.core.hosts.match import match
from ctxvc.core.hosts.message import HostMessage, ToolResult, ToolUse
from ctxvc.core.hosts.render import hosted, render
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.prompt.outline import outline
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import View
from tests.core.hosts.test_match import Recorded, answers, asks, call, replies, reply, result, says, user
from tests.making.generated import arranged, bodies_of, conversations, numbered, plans, prices
from tests.messages_api import MODELS
from tests.messages_api.rules import message_problems

Sizes = Mapping[tuple[str, str], bytes]


def as_hosted(ledger: Ledger, bodies: Sizes) -> list[HostMessage]:
    """The conversation as a host has it before anything left: its texts, calls and results, a message each."""
    messages = []
    for row in ledger.rows():
        body = bodies[row.id, ""]
        match row.kind:
            case "tool_use":
                use = ToolUse(id=row.call, tool=row.tool, input=wire.arguments(body, row.ext))
                messages.append(HostMessage(role="assistant", tool_uses=(use,)))
            case "tool_result" if wire.items(body, row.extra) is None:
                messages.append(HostMessage(role="user", tool_results=(ToolResult(id=row.call, text=text_of(body)),)))
            case "user" | "assistant":
                messages.append(
                    HostMessage(role="assistant" if row.role == "assistant" else "user", text=text_of(body))
                )
    return messages


def text_of(body: bytes) -> str:
    return display.decode(body)


def wired(messages: list[HostMessage]) -> list[dict[str, Any]]:
    """The messages as a client sends them: neighbours of one role together, results first."""
    sent: list[dict[str, Any]] = []
    for message in messages:
        content: list[dict[str, Any]] = [
            {
                "type": "tool_result",
                "tool_use_id": result.id,
                **({"content": result.text} if result.text.strip() else {"content": "(none)"}),
                **({"is_error": True} if result.error else {}),
            }
            for result in message.tool_results
        ]
        content += [{"type": "text", "text": message.text}] if message.text.strip() else []
        content += [
            {"type": "tool_use", "id": use.id, "name": use.tool or "unnamed", "input": use.input}
            for use in message.tool_uses
        ]
        if not content:
            continue
        if sent and sent[-1]["role"] == message.role:
            sent[-1]["content"] = [*sent[-1]["content"], *content]
        else:
            sent.append({"role": message.role, "content": content})
    return sent


@st.composite
def scopes(draw: st.DrawFn) -> tuple[Ledger, Ledger, Sizes]:
    """A conversation as it was recorded, and the same with blocks that left in any way."""
    ledger, bodies = numbered(draw(conversations()))
    return ledger, draw(arranged(ledger)), bodies


@st.composite
def planned(draw: st.DrawFn) -> tuple[Ledger, Ledger, Sizes]:
    """A conversation as it was recorded, and the same after a plan."""
    ledger, bodies = numbered(draw(conversations(unique_calls=True, odd=False)))
    ledger = ledger.with_meta(msgspec.structs.replace(ledger.meta, render=2))
    view = View(ledger=ledger, price=draw(prices), budget=Budget(window=10**6))
    return ledger, rehearse(view, draw(plans(ledger)), roll_up=draw(st.booleans())).after, bodies


@given(scopes())
def test_whatever_left_every_call_has_its_answer_and_the_user_begins(scope: tuple[Ledger, Ledger, Sizes]) -> None:
    before, after, bodies = scope
    messages = as_hosted(before, bodies)
    shown = match(messages, after, lambda row: bodies[row.id, ""])
    given_back = render(hosted(after, shown), bodies_of(bodies), messages, shown)
    sent = wired([*given_back, says("Go on.")])
    structural = [
        problem
        for problem in message_problems(sent, MODELS["claude-opus-5-5"])
        if "tool_use" in problem or "tool_result" in problem or "role" in problem
    ]
    ids = [use.id for message in messages for use in message.tool_uses]
    if all(name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() for name in ids):
        assert not structural


@given(planned())
def test_what_was_given_back_is_known_again_and_given_back_the_same(scope: tuple[Ledger, Ledger, Sizes]) -> None:
    before, after, bodies = scope
    messages = as_hosted(before, bodies)
    assume(in_pairs(before))
    shown = match(messages, after, lambda row: bodies[row.id, ""])
    ledger = hosted(after, shown)
    once = render(ledger, bodies_of(bodies), messages, shown)
    again = match(once, ledger, lambda row: bodies[row.id, ""])
    assert render(hosted(ledger, again), bodies_of(bodies), once, again) == once


def in_pairs(ledger: Ledger) -> bool:
    """Whether each result comes behind its call, once, as in any host."""
    open_calls: set[str] = set()
    for row in ledger.rows():
        if row.kind == "tool_use":
            open_calls.add(row.call)
        elif row.kind == "tool_result":
            if row.call not in open_calls:
                return False
            open_calls.remove(row.call)
    return True


def recorded_work() -> Recorded:
    return Recorded(
        user("Print it."),
        reply(call("t1"), call("t2")),
        result("t1", "long\noutput"),
        result("t2", "short"),
        reply("Done."),
        user("And now?"),
    )


HOST = [
    says("Print it."),
    asks("t1"),
    asks("t2"),
    answers("t1", "long\noutput"),
    answers("t2", "short"),
    replies("Done."),
    says("And now?"),
]


def given_back(recorded: Recorded, messages: list[HostMessage], restored: tuple[str, ...] = ()) -> list[HostMessage]:
    shown = match(messages, recorded.ledger, recorded.body)
    bodies = bodies_of({(block, ""): body for block, body in recorded.bodies.items()})
    return render(hosted(recorded.ledger, shown, restored), bodies, messages, shown)


def test_a_stub_stands_in_the_place_of_the_result_and_all_else_is_verbatim() -> None:
    recorded = recorded_work()
    recorded.change("B4", state="archived", stub="[archived B4@0, 2 tokens]")
    messages = given_back(recorded, HOST)
    assert [message.text for message in messages if message.text] == ["Print it.", "Done.", "And now?"]
    assert [use.id for use in messages[1].tool_uses] == ["t1", "t2"]
    assert [result.text for result in messages[2].tool_results] == ["[archived B4@0, 2 tokens]", "short"]


def test_what_stays_of_texts_that_the_host_joined_is_there() -> None:
    recorded = Recorded(user("One.", "Two."), reply("Done."))
    host = [says("One.\nTwo."), replies("Done.")]
    joined = match(host, recorded.ledger, recorded.body)
    ledger = hosted(recorded.ledger, joined)
    left = msgspec.structs.replace(ledger["B1"], state="archived", stub="[archived B1]")
    bodies = bodies_of({(block, ""): body for block, body in recorded.bodies.items()})
    messages = render(ledger.with_rows([left]), bodies, host, joined)
    assert [message.text for message in messages] == ["[archived B1]", "Two.", "Done."]


def test_what_was_restored_comes_back_from_the_store_at_its_place() -> None:
    recorded = recorded_work()
    row = recorded.ledger["B4"]
    stub = f"[archived {row.handle}, 2 tokens]"
    host = [*HOST[:3], answers("t1", stub), *HOST[4:]]
    assert given_back(recorded, host, ("B4",))[2].tool_results[0].text == "long\noutput"


def test_what_the_store_lacks_stays_where_the_host_has_it() -> None:
    recorded = recorded_work()
    host = [*HOST, asks("t9"), answers("t9", "unrecorded"), says("A last word.")]
    messages = given_back(recorded, host)
    assert messages[-3].tool_uses[0].id == "t9"
    assert messages[-2].tool_results == (ToolResult(id="t9", text="unrecorded"),)
    assert messages[-1].text == "A last word."


def test_an_image_that_a_host_cannot_take_back_leaves_its_name() -> None:
    part = wire.part(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}, "user", "human"
    )
    recorded = Recorded(user("Look."), reply("I see."))
    with_image = Recorded(with_part(part), reply("I see."))
    messages = given_back(with_image, [says("Look."), replies("I see.")])
    assert messages[0].text == "Look."
    assert messages[1].text.startswith("[masked B2@") and "image" in messages[1].text
    assert len(given_back(recorded, [says("Look."), replies("I see.")])) == 2


def with_part(part: Any) -> Any:
    message = user("Look.")
    return type(message)(role="user", parts=(*message.parts, part))


def test_a_group_that_begins_the_conversation_stands_as_the_users_text() -> None:
    recorded = recorded_work()
    rows: list[Row] = [recorded.ledger[f"B{number}"] for number in (2, 3, 4, 5)]
    for row in rows:
        recorded.change(row.id, state="archived", group="G1")
    group = Group(id="G1", members=tuple(row.id for row in rows), stub="[archived G1@0: 4 blocks]")
    recorded.ledger = recorded.ledger.with_groups([group])
    messages = given_back(recorded, HOST)
    assert [(message.role, message.text) for message in messages] == [
        ("user", "Print it."),
        ("user", "[archived G1@0: 4 blocks]"),
        ("assistant", "Done."),
        ("user", "And now?"),
    ]
    assert len(outline(recorded.ledger)) == 4
