"""What a session is, and its lines as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctxvc.core.ledger import wire
from ctxvc.core.recording.events import Closed, Opened, Said
from tests.importers.claude_code.lines import SESSION, between, call, forks, line, of, prompt, reply, result, text
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
