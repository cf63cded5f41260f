"""What a session is, and its lines as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Closed, Opened, Said
from ctxvc.forms.origins import is_by_client
from tests.importers.claude_code.lines import (
    SESSION,
    Line,
    between,
    call,
    forks,
    line,
    of,
    prompt,
    queue,
    reply,
    result,
    text,
)
from tests.making.events import messages, parts


def test_the_first_event_says_what_the_session_is_and_later_ones_only_what_is_new(parsed: Any) -> None:
    events = parsed(
        prompt("u1", None, "hi"), reply("a1", "u1", text("hello")), {"type": "ai-title", "aiTitle": "A title"}
    )

    first, model, title = of(Opened, events)
    assert events[0] is first
    assert (first.source, first.name) == (SESSION, "claude-0f0e0d0c")
    assert (first.cwd, first.branch, first.agent) == ("/work/app", "main", "Claude Code 2.1.32")
    assert first.time == "2026-02-04T11:00:00.000Z"
    assert first.grows
    assert "the system prompt" in first.missing
    assert model == Opened(format="claude-code", model="claude-x")
    assert title == Opened(format="claude-code", title="A title")


def test_a_title_given_by_hand_stays(parsed: Any) -> None:
    by_hand, by_itself = {"type": "custom-title", "customTitle": "mine"}, {"type": "ai-title", "aiTitle": "its"}

    events = parsed(by_hand, prompt("u1", None, "hi"), by_itself)

    assert [event.title for event in of(Opened, events)] == ["mine"]


def test_a_summary_of_another_session_is_no_title(parsed: Any) -> None:
    strange = {"type": "summary", "summary": "another", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "this one", "leafUuid": "u1"}

    assert [event.title for event in of(Opened, parsed(strange, prompt("u1", None, "hi"), own))] == ["", "this one"]


def test_a_copy_of_the_system_prompt_is_told(parsed: Any) -> None:
    snapshot = between(
        "attachment", "x1", "u1", attachment={"type": "prompt_snapshot", "systemPrompt": ["Be brief.", ""]}
    )

    events = parsed(prompt("u1", None, "hi"), snapshot, {**snapshot, "uuid": "x2"})

    _, opened = of(Opened, events)
    assert opened.system == [text("Be brief.")]
    assert "the system prompt" not in opened.missing


def test_lines_of_one_reply_share_its_id_and_each_has_its_own_key(parsed: Any) -> None:
    events = parsed(
        prompt("u1", None, "list"),
        reply("a1", "u1", {"type": "thinking", "thinking": "", "signature": "s"}, id="msg_1"),
        reply("a2", "a1", text("I will."), id="msg_1"),
        reply("a3", "a2", call("t1", command="ls"), id="msg_1"),
        result("r1", "a3", "t1"),
    )

    assert [(message.key, message.reply) for message in messages(events)] == [
        ("u1", ""),
        ("a1", "msg_1"),
        ("a2", "msg_1"),
        ("a3", "msg_1"),
        ("r1", ""),
    ]
    assert [part.kind for part in parts(events)] == ["user", "thinking", "assistant", "tool_use", "tool_result"]
    assert parts(events)[1].extra == {"signature": "s"}
    assert not forks(events)


def test_the_arguments_of_a_call_are_the_bytes_that_were_received(parsed: Any) -> None:
    odd = b'{"b": 1.50, "a":"\\u0041" }'
    made = json.dumps(reply("a1", None, call("t1", odd=1))).encode().replace(b'{"odd": 1}', odd)

    (part,) = parts(parsed(made))

    assert (part.body, part.ext, part.call, part.tool) == (odd, "json", "t1", "Bash")


def test_a_call_that_lacks_its_name_is_kept_verbatim(parsed: Any) -> None:
    broken = {"type": "tool_use", "input": {"a": 1}, "id": "t1"}

    (part,) = parts(parsed(reply("a1", None, broken)))

    assert (part.kind, wire.parse(part.body)) == ("other", broken)


@pytest.mark.parametrize("block", ["tool_use", ["tool_use"], {"type": "x", "of": {"type": "tool_use", "input": 1}}, 7])
def test_what_only_resembles_a_call_is_kept_verbatim(parsed: Any, block: Any) -> None:
    (part,) = parts(parsed(reply("a1", None, block)))

    assert (part.body.decode() if part.kind == "assistant" else wire.parse(part.body)) == block


def test_what_only_the_screen_showed_is_not_kept(parsed: Any) -> None:
    events = parsed(reply("a1", None, call("t1")), result("r1", "a1", "t1", "the model saw this"))

    assert parts(events)[1].body == b"the model saw this"
    assert "only the screen" not in repr(events)


def test_usage_is_only_counts(parsed: Any) -> None:
    made = reply("a1", None, text("hi"))
    made["message"]["usage"] = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 7,
        "service_tier": "standard",
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 3},
    }

    (message,) = messages(parsed(made))

    counted = {"input_tokens": 10, "cache_creation_input_tokens": 7, "ephemeral_1h_input_tokens": 3}
    assert message.usage == counted


@pytest.mark.parametrize("wrong", [True, 1.5, "7", []])
def test_usage_of_which_a_count_is_no_number_is_none(parsed: Any, wrong: Any) -> None:
    made = reply("a1", None, text("hi"))
    made["message"]["usage"] = {"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": wrong}

    (message,) = messages(parsed(made))

    assert message.usage == {}, "what is left would be taken for all of the prompt"


def test_a_line_that_stands_twice_is_told_once(parsed: Any) -> None:
    first = prompt("u1", None, "hi")

    assert [message.key for message in messages(parsed(first, first))] == ["u1"]


def test_messages_without_an_id_are_named_by_their_line(parsed: Any) -> None:
    first, second = prompt("", None, "hi"), prompt("", None, "hi")
    del first["uuid"], second["uuid"]

    assert [message.key for message in messages(parsed(first, second))] == ["line:1", "line:2"]


def test_an_unknown_line_that_holds_a_message_and_an_unknown_block_are_kept(parsed: Any) -> None:
    block = {"type": "hologram", "depth": 3}

    (part,) = parts(parsed(line("x1", None, [block], type="projection", role="assistant")))

    assert (part.kind, part.role, wire.parse(part.body)) == ("other", "assistant", block)


def test_an_answer_that_the_client_made_up_is_the_clients(parsed: Any) -> None:
    made_up = reply("a1", "u1", text("No response requested."), model="<synthetic>", isApiErrorMessage=False)
    error = reply("a2", "a1", text("API Error: overloaded"), isApiErrorMessage=True)

    events = parsed(prompt("u1", None, "hi"), made_up, error)

    assert [(part.role, part.origin) for part in parts(events)[1:]] == [("assistant", "client")] * 2
    assert [(message.reply, message.model, message.usage) for message in messages(events)[1:]] == [
        ("msg_a1", "", {}),
        ("msg_a2", "", {}),
    ]
    assert all(not event.model for event in of(Opened, events))


def test_a_line_of_the_users_is_of_no_reply_though_it_has_the_request_of_one(parsed: Any) -> None:
    lines = [prompt("u1", None, "hi"), reply("a1", "u1", call("t1"), id="msg_1"), result("r1", "a1", "t1")]
    events = parsed(*(one | {"requestId": "req_1"} for one in lines))

    assert [event.message.reply for event in events if isinstance(event, Said)] == ["", "msg_1", ""]


def test_a_turns_end_closes_the_reply_once(parsed: Any) -> None:
    events = parsed(
        prompt("u1", None, "hi"),
        reply("a1", "u1", text("hello")),
        between("system", "s1", "a1", subtype="stop_hook_summary"),
        between("system", "s2", "s1", subtype="turn_duration"),
    )

    assert [type(event) for event in events[-2:]] == [Said, Closed]


# --- what a transcript has beside its messages: attachments, and what was typed while the agent worked


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


# --- whose words a text of a transcript is


CLIENT = [
    "<system-reminder>\nThe date changed.\n</system-reminder>",
    "<command-name>/cost</command-name>\n  <command-message>cost</command-message>\n<command-args></command-args>",
    "<local-command-stdout>Bye!</local-command-stdout>",
    "<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>",
    "<task-notification>\n<task-id>b1</task-id></task-notification>\n",
    "<task-notification>b2</task-notification>\nFull transcript available at: /tmp/b2.output",
    '<teammate-message teammate_id="x">done</teammate-message>',
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
    "Caveat: The messages below were generated by the user while running local commands. DO NOT respond",
    "This session is being continued from a previous conversation that ran out of context. The conversation …",
]
HUMAN = [
    "fix it",
    "",
    "fix it\n<system-reminder>Be careful.</system-reminder>",
    "<system-reminder>Be careful.</system-reminder> fix it",
    "<command-name>/review</command-name><command-args>the new parser</command-args>",
    "<bash-input>git pull</bash-input>",
    "<div>why is this not centred?</div>",
    "<system-reminder>never closed",
    "[Request interrupted by user] means what?",
    "<task-notification>b2</task-notification>\nFull transcript available at: /tmp/b2.output\nread it",
]


@pytest.mark.parametrize(("words", "client"), [(words, True) for words in CLIENT] + [(words, False) for words in HUMAN])
def test_a_text_is_the_clients_only_if_nothing_in_it_stands_outside_its_marks(words: str, client: bool) -> None:
    assert is_by_client(words) is client


@pytest.mark.parametrize(
    "piece", ["<system-reminder>", "<system-reminder></system-reminder>", "<a ", " ", "<a b=", "[R"]
)
def test_telling_whose_words_a_text_is_takes_linear_time(piece: str) -> None:
    assert is_by_client(piece * 200_000 + "x") is False  # the suite's timeout judges


@pytest.mark.parametrize(
    ("flags", "origin"),
    [
        ({}, "human"),
        ({"isMeta": True}, "client"),
        ({"isVisibleInTranscriptOnly": True}, "client"),
        ({"origin": {"kind": "auto-continuation"}}, "client"),
        ({"origin": {"kind": "something new"}}, "human"),
        ({"promptSource": "system"}, "client"),
        ({"promptSource": "sdk"}, "human"),
    ],
)
def test_flags_of_a_line_tell_who_wrote_it(parsed: Any, flags: Line, origin: str) -> None:
    (part,) = parts(parsed(prompt("u1", None, "go on", **flags)))

    assert part.origin == origin


def test_a_person_may_paste_what_looks_like_the_clients(parsed: Any) -> None:
    (part,) = parts(parsed(prompt("u1", None, CLIENT[0], origin={"kind": "human"})))

    assert part.origin == "human"


def test_the_output_of_a_slash_command_is_the_clients_whatever_line_it_stands_in(parsed: Any) -> None:
    output = between(
        "system", "s1", "u1", subtype="local_command", content="<local-command-stdout>x</local-command-stdout>"
    )

    events = parsed(prompt("u1", None, "hi"), output)

    assert [(part.role, part.origin) for part in parts(events)] == [("user", "human"), ("user", "client")]
