"""What a transcript has beside its messages: attachments, and what was typed while the agent worked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.importers.claude_code.lines import Line, between, call, forks, prompt, queue, reply, result, text
from tests.making.events import messages, parts


def test_an_attachment_is_a_message_if_it_tells_how_the_model_was_shown_it(parsed: Any) -> None:
    reminder = "<system-reminder>\nToday is Monday.\n</system-reminder>"
    events = parsed(
        prompt("u1", None, "hi"),
        between(
            "attachment",
            "x1",
            "u1",
            attachment={"type": "date"},
            rendered=[{"content": reminder}],
            renderedRole="system",
        ),
        between(
            "attachment",
            "x2",
            "x1",
            attachment={"type": "skills"},
            rendered=[{"content": [text("a")]}],
            renderedRole="user",
        ),
        between("attachment", "x3", "x2", attachment={"type": "hook_success", "content": "never shown"}),
        reply("a1", "x3", text("hello")),
    )

    assert [
        (message.role, part.kind, part.origin, part.body) for message in messages(events) for part in message.parts
    ] == [
        ("user", "user", "human", b"hi"),
        ("system", "system", "client", reminder.encode()),
        ("user", "user", "client", b"a"),
        ("assistant", "assistant", "model", b"hello"),
    ]
    assert not forks(events)


@pytest.mark.parametrize("rendered", [None, "<system-reminder>The user sent: and the tests</system-reminder>"])
def test_what_was_typed_while_the_agent_worked_is_told_once_and_is_human(parsed: Any, rendered: str | None) -> None:
    brought_in = between("attachment", "x1", "r1", attachment={"type": "queued_command", "prompt": "and the tests"})
    if rendered:
        brought_in |= {"rendered": [{"content": rendered}], "renderedRole": "system"}
    events = parsed(
        prompt("u1", None, "fix it"),
        reply("a1", "u1", call("t1")),
        queue("enqueue", "and the tests"),
        result("r1", "a1", "t1"),
        brought_in,
        queue("remove"),
        reply("a2", "x1", text("Yes.")),
    )

    human = [part.body.decode() for part in parts(events) if part.origin == "human"]
    assert human == ["fix it", rendered or "and the tests"]
    assert not forks(events)


def test_a_version_that_writes_no_attachment_tells_it_in_its_queue_only(parsed: Any) -> None:
    events = parsed(
        prompt("u1", None, "fix it"),
        reply("a1", "u1", call("t1")),
        queue("enqueue", "and the tests"),
        queue("remove"),
        result("r1", "a1", "t1"),
        reply("a2", "r1", text("Yes.")),
    )

    assert [(message.key, message.parts[0].origin) for message in messages(events)][2] == ("line:4", "human")
    assert not forks(events)


def test_what_an_attachment_brought_in_leaves_its_place_in_the_queue(parsed: Any) -> None:
    second = between("attachment", "x1", "u1", attachment={"type": "queued_command", "prompt": "second"})
    events = parsed(
        prompt("u1", None, "fix it"),
        *(queue("enqueue", text) for text in ("first", "second", "third")),
        second,
        queue("remove"),
        queue("remove"),
    )

    assert [part.body for part in parts(events)] == [b"fix it", b"second", b"first"]


@pytest.mark.parametrize(
    "flags",
    [{"isMeta": True}, {"commandMode": "task-notification"}, {"origin": {"kind": "peer"}}],
)
def test_what_others_put_in_the_queue_is_the_clients(parsed: Any, flags: Line) -> None:
    queued = between("attachment", "x1", "u1", attachment={"type": "queued_command", "prompt": "x", **flags})

    assert len(parts(parsed(prompt("u1", None, "hi"), queued))) == 1
    assert parts(parsed(prompt("u1", None, "hi"), queued | {"rendered": [{"content": "x"}]}))[1].origin == "client"


@pytest.mark.parametrize("operation", ["dequeue", "popAll"])
def test_what_left_the_queue_otherwise_is_no_message(parsed: Any, operation: str) -> None:
    events = parsed(queue("enqueue", "later"), queue(operation), queue("remove"), prompt("u1", None, "later"))

    assert [message.key for message in messages(events)] == ["u1"]
