"""Claude Code transcripts as events: each rule on a few hand-made lines, the whole on real recordings."""

from __future__ import annotations

import gzip
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.importers.claude_code import read
from ctxvc.importers.file import Recording
from ctxvc.importers.origins import is_by_client
from tests.making.conversation import block_of
from tests.making.events import messages, parts

REAL = Path(__file__).parents[1] / "data" / "claude-code" / "20-02395c1048-0.jsonl"
SESSION = "0f0e0d0c-1111-4222-8333-444455556666"

Line = dict[str, Any]


def line(uuid: str, parent: str | None, content: Any, *, type: str = "user", role: str = "", **more: Any) -> Line:
    """A conversation line. A parent of None is a root."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "sessionId": SESSION,
        "cwd": "/work/app",
        "gitBranch": "main",
        "version": "2.1.32",
        "type": type,
        "uuid": uuid,
        "timestamp": "2026-02-04T11:00:00.000Z",
        "message": {"role": role or type, "content": content},
        **more,
    }


def prompt(uuid: str, parent: str | None, words: str, **more: Any) -> Line:
    return line(uuid, parent, words, **more)


def reply(uuid: str, parent: str | None, *blocks: Any, id: str = "", model: str = "claude-x", **more: Any) -> Line:
    """One line of a model reply; `id` names the reply, by default this line alone."""
    made = line(uuid, parent, list(blocks), type="assistant", **more)
    made["message"] |= {"id": id or f"msg_{uuid}", "model": model, "usage": {"input_tokens": 3, "output_tokens": 5}}
    return made


def text(words: str) -> Line:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Bash", **arguments: Any) -> Line:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(uuid: str, parent: str | None, id: str, content: Any = "ok", **more: Any) -> Line:
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    return line(uuid, parent, [block], toolUseResult={"stdout": "what only the screen showed"}, **more)


def between(type: str, uuid: str, parent: str | None, **more: Any) -> Line:
    """A line that is no message."""
    made = line(uuid, parent, "", type=type) | more
    del made["message"]
    return made


def written(path: Path, *lines: Line | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines))
    return path


@pytest.fixture
def told(tmp_path: Path) -> Any:
    """The events of a session that consists of these lines."""

    def tell(*lines: Line | bytes) -> list[Event]:
        return list(read.events(Recording(written(tmp_path / f"{SESSION}.jsonl", *lines))))

    return tell


def of(kind: type[Any], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def forks(events: list[Event]) -> list[tuple[str, str]]:
    """Each fork as (the message to go on from, the first message that does)."""
    found = []
    for event, following in pairwise(events):
        if isinstance(event, Forked):
            assert isinstance(following, Said)
            found.append((event.after, following.message.key))
    return found


# -- what a session is ------------------------------------------------------------------------------------------------


def test_the_first_event_says_what_the_session_is_and_later_ones_only_what_is_new(told: Any) -> None:
    events = told(
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


def test_a_title_given_by_hand_stays(told: Any) -> None:
    by_hand, by_itself = {"type": "custom-title", "customTitle": "mine"}, {"type": "ai-title", "aiTitle": "its"}

    events = told(by_hand, prompt("u1", None, "hi"), by_itself)

    assert [event.title for event in of(Opened, events)] == ["mine"]


def test_a_summary_of_another_session_is_no_title(told: Any) -> None:
    strange = {"type": "summary", "summary": "another", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "this one", "leafUuid": "u1"}

    assert [event.title for event in of(Opened, told(strange, prompt("u1", None, "hi"), own))] == ["", "this one"]


def test_a_copy_of_the_system_prompt_is_told(told: Any) -> None:
    snapshot = between(
        "attachment", "x1", "u1", attachment={"type": "prompt_snapshot", "systemPrompt": ["Be brief.", ""]}
    )

    events = told(prompt("u1", None, "hi"), snapshot, {**snapshot, "uuid": "x2"})

    _, opened = of(Opened, events)
    assert opened.system == [text("Be brief.")]
    assert "the system prompt" not in opened.missing


# -- messages ---------------------------------------------------------------------------------------------------------


def test_lines_of_one_reply_share_its_id_and_each_has_its_own_key(told: Any) -> None:
    events = told(
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


def test_the_arguments_of_a_call_are_the_bytes_that_were_received(told: Any) -> None:
    odd = b'{"b": 1.50, "a":"\\u0041" }'
    made = json.dumps(reply("a1", None, call("t1", odd=1))).encode().replace(b'{"odd": 1}', odd)

    (part,) = parts(told(made))

    assert (part.body, part.ext, part.call, part.tool) == (odd, "json", "t1", "Bash")


def test_a_call_that_lacks_its_name_is_kept_verbatim(told: Any) -> None:
    broken = {"type": "tool_use", "input": {"a": 1}, "id": "t1"}

    (part,) = parts(told(reply("a1", None, broken)))

    assert (part.kind, wire.parse(part.body)) == ("other", broken)


@pytest.mark.parametrize("block", ["tool_use", ["tool_use"], {"type": "x", "of": {"type": "tool_use", "input": 1}}, 7])
def test_what_only_resembles_a_call_is_kept_verbatim(told: Any, block: Any) -> None:
    (part,) = parts(told(reply("a1", None, block)))

    assert (part.body.decode() if part.kind == "assistant" else wire.parse(part.body)) == block


def test_what_only_the_screen_showed_is_not_kept(told: Any) -> None:
    events = told(reply("a1", None, call("t1")), result("r1", "a1", "t1", "the model saw this"))

    assert parts(events)[1].body == b"the model saw this"
    assert "only the screen" not in repr(events)


def test_usage_is_only_counts(told: Any) -> None:
    made = reply("a1", None, text("hi"))
    made["message"]["usage"] = {
        "input_tokens": 10,
        "output_tokens": True,
        "cache_read_input_tokens": 1.5,
        "cache_creation_input_tokens": 7,
        "service_tier": "standard",
        "cache_creation": {"ephemeral_5m_input_tokens": 7},
    }

    (message,) = messages(told(made))

    assert message.usage == {"input_tokens": 10, "cache_creation_input_tokens": 7}


def test_a_line_that_stands_twice_is_told_once(told: Any) -> None:
    first = prompt("u1", None, "hi")

    assert [message.key for message in messages(told(first, first))] == ["u1"]


def test_messages_without_an_id_are_named_by_their_line(told: Any) -> None:
    first, second = prompt("", None, "hi"), prompt("", None, "hi")
    del first["uuid"], second["uuid"]

    assert [message.key for message in messages(told(first, second))] == ["line:1", "line:2"]


def test_an_unknown_line_that_holds_a_message_and_an_unknown_block_are_kept(told: Any) -> None:
    block = {"type": "hologram", "depth": 3}

    (part,) = parts(told(line("x1", None, [block], type="projection", role="assistant")))

    assert (part.kind, part.role, wire.parse(part.body)) == ("other", "assistant", block)


def test_an_answer_that_the_client_made_up_is_the_clients(told: Any) -> None:
    made_up = reply("a1", "u1", text("No response requested."), model="<synthetic>", isApiErrorMessage=False)
    error = reply("a2", "a1", text("API Error: overloaded"), isApiErrorMessage=True)

    events = told(prompt("u1", None, "hi"), made_up, error)

    assert [(part.role, part.origin) for part in parts(events)[1:]] == [("assistant", "client")] * 2
    assert [(message.reply, message.model, message.usage) for message in messages(events)[1:]] == [
        ("msg_a1", "", {}),
        ("msg_a2", "", {}),
    ]
    assert all(not event.model for event in of(Opened, events))


def test_a_line_of_the_users_is_of_no_reply_though_it_has_the_request_of_one(told: Any) -> None:
    lines = [prompt("u1", None, "hi"), reply("a1", "u1", call("t1"), id="msg_1"), result("r1", "a1", "t1")]
    events = told(*(one | {"requestId": "req_1"} for one in lines))

    assert [event.message.reply for event in events if isinstance(event, Said)] == ["", "msg_1", ""]


def test_a_turns_end_closes_the_reply_once(told: Any) -> None:
    events = told(
        prompt("u1", None, "hi"),
        reply("a1", "u1", text("hello")),
        between("system", "s1", "a1", subtype="stop_hook_summary"),
        between("system", "s2", "s1", subtype="turn_duration"),
    )

    assert [type(event) for event in events[-2:]] == [Said, Closed]


# -- whose words ------------------------------------------------------------------------------------------------------

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
def test_flags_of_a_line_tell_who_wrote_it(told: Any, flags: Line, origin: str) -> None:
    (part,) = parts(told(prompt("u1", None, "go on", **flags)))

    assert part.origin == origin


def test_a_person_may_paste_what_looks_like_the_clients(told: Any) -> None:
    (part,) = parts(told(prompt("u1", None, CLIENT[0], origin={"kind": "human"})))

    assert part.origin == "human"


def test_the_output_of_a_slash_command_is_the_clients_whatever_line_it_stands_in(told: Any) -> None:
    output = between(
        "system", "s1", "u1", subtype="local_command", content="<local-command-stdout>x</local-command-stdout>"
    )

    events = told(prompt("u1", None, "hi"), output)

    assert [(part.role, part.origin) for part in parts(events)] == [("user", "human"), ("user", "client")]


def test_an_attachment_is_a_message_if_it_tells_how_the_model_was_shown_it(told: Any) -> None:
    reminder = "<system-reminder>\nToday is Monday.\n</system-reminder>"
    events = told(
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


def queue(operation: str, content: str | None = None) -> Line:
    more = {} if content is None else {"content": content}
    return {"type": "queue-operation", "operation": operation, "sessionId": SESSION, **more}


@pytest.mark.parametrize("rendered", [None, "<system-reminder>The user sent: and the tests</system-reminder>"])
def test_what_was_typed_while_the_agent_worked_is_told_once_and_is_human(told: Any, rendered: str | None) -> None:
    brought_in = between("attachment", "x1", "r1", attachment={"type": "queued_command", "prompt": "and the tests"})
    if rendered:
        brought_in |= {"rendered": [{"content": rendered}], "renderedRole": "system"}
    events = told(
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


def test_a_version_that_writes_no_attachment_tells_it_in_its_queue_only(told: Any) -> None:
    events = told(
        prompt("u1", None, "fix it"),
        reply("a1", "u1", call("t1")),
        queue("enqueue", "and the tests"),
        queue("remove"),
        result("r1", "a1", "t1"),
        reply("a2", "r1", text("Yes.")),
    )

    assert [(message.key, message.parts[0].origin) for message in messages(events)][2] == ("line:4", "human")
    assert not forks(events)


def test_what_an_attachment_brought_in_leaves_its_place_in_the_queue(told: Any) -> None:
    second = between("attachment", "x1", "u1", attachment={"type": "queued_command", "prompt": "second"})
    events = told(
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
def test_what_others_put_in_the_queue_is_the_clients(told: Any, flags: Line) -> None:
    queued = between("attachment", "x1", "u1", attachment={"type": "queued_command", "prompt": "x", **flags})

    assert len(parts(told(prompt("u1", None, "hi"), queued))) == 1
    assert parts(told(prompt("u1", None, "hi"), queued | {"rendered": [{"content": "x"}]}))[1].origin == "client"


@pytest.mark.parametrize("operation", ["dequeue", "popAll"])
def test_what_left_the_queue_otherwise_is_no_message(told: Any, operation: str) -> None:
    events = told(queue("enqueue", "later"), queue(operation), queue("remove"), prompt("u1", None, "later"))

    assert [message.key for message in messages(events)] == ["u1"]


# -- forks ------------------------------------------------------------------------------------------------------------

TWO_TURNS = [
    prompt("u1", None, "first"),
    reply("a1", "u1", text("one")),
    between("system", "s1", "a1", subtype="turn_duration"),
    prompt("u2", "s1", "second"),
    reply("a2", "u2", call("t1")),
    result("r2", "a2", "t1"),
    reply("a3", "r2", text("two")),
]


def test_a_prompt_that_hangs_from_an_earlier_turn_is_a_rewind(told: Any) -> None:
    events = told(*TWO_TURNS, prompt("u3", "s1", "second, better"), reply("a4", "u3", text("two")))

    assert forks(events) == [("a1", "u3")]


def test_a_prompt_without_a_parent_is_a_rewind_to_the_start(told: Any) -> None:
    assert forks(told(*TWO_TURNS, prompt("u3", None, "first, better"))) == [("", "u3")]


def test_the_start_may_stand_behind_a_hook(told: Any) -> None:
    hook = between("progress", "p1", None, data={"type": "hook_progress"})
    events = told(hook, prompt("u1", "p1", "first"), reply("a1", "u1", text("one")), prompt("u2", "p1", "better"))

    assert forks(events) == [("", "u2")]


def test_a_prompt_that_was_taken_back_before_the_reply_is_a_fork(told: Any) -> None:
    events = told(*TWO_TURNS, prompt("u3", "a3", "oops"), prompt("u4", "a3", "this"), reply("a4", "u4", text("x")))

    assert forks(events) == [("a3", "u4")]


def test_another_attempt_at_a_reply_is_a_fork(told: Any) -> None:
    assert forks(told(*TWO_TURNS, reply("a4", "r2", text("again")))) == [("r2", "a4")]


def test_a_slash_command_after_a_rewind_is_where_the_fork_is(told: Any) -> None:
    caveat = prompt("u3", "a1", "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)
    command = prompt("u4", "u3", "<command-name>/model</command-name>")

    assert forks(told(*TWO_TURNS, caveat, command, prompt("u5", "u4", "go"))) == [("a1", "u3")]


def test_a_fork_closes_the_branch_that_it_leaves(told: Any) -> None:
    caveat = prompt("u3", "a1", "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True)

    assert forks(told(*TWO_TURNS, caveat, prompt("u4", "a3", "back"))) == [("a1", "u3"), ("a3", "u4")]


def test_what_hangs_from_an_attachment_is_judged_by_what_that_hangs_from(told: Any) -> None:
    stray = between("attachment", "x1", "a1", attachment={"type": "hook"}, rendered=[{"content": "late"}])

    assert forks(told(*TWO_TURNS, stray, prompt("u3", "x1", "other"))) == [("a1", "u3")]


def test_a_segment_that_the_host_kept_does_not_hold_an_abandoned_branch(told: Any) -> None:
    metadata = {"preservedSegment": {"headUuid": "u1", "tailUuid": "a4"}}
    events = told(*TWO_TURNS, prompt("u3", "a1", "other"), reply("a4", "u3", text("x")), *compacted(metadata))

    assert of(Compacted, events)[0].kept == {"u1", "a1", "u3", "a4"}


def test_an_abandoned_branch_can_be_taken_up_again(told: Any) -> None:
    events = told(*TWO_TURNS, prompt("u3", "a1", "other"), reply("a4", "u3", text("x")), prompt("u5", "a3", "back"))

    assert forks(events) == [("a1", "u3"), ("a3", "u5")]


NO_FORKS: dict[str, list[Line]] = {
    "parallel calls, results in any order": [
        reply("b1", "a3", call("t2"), id="m"),
        result("q1", "b1", "t2"),
        reply("b2", "b1", call("t3"), id="m"),
        between("progress", "p1", "b2"),
        result("q2", "b2", "t3"),
        reply("b3", "q1", text("done")),
    ],
    "a result before its call": [
        result("q1", "b1", "t2"),
        reply("b1", "a3", call("t2")),
        reply("b2", "q1", text("done")),
    ],
    "a late line of a reply": [
        reply("b1", "a3", text("x"), id="m"),
        prompt("u3", "b1", "more"),
        reply("b2", "b1", text("y"), id="m"),
        reply("b3", "u3", text("z")),
    ],
    "a parent that was never written": [prompt("u3", "nowhere", "go on"), reply("b1", "u3", text("x"))],
    "no word on parents at all": [
        {name: value for name, value in prompt("u3", None, "x").items() if name != "parentUuid"}
    ],
    "a broken root": [reply("b1", None, text("x")), prompt("u3", "b1", "more")],
    "a root that says what it follows": [prompt("u3", None, "x", logicalParentUuid="a3")],
    "the error before a retry that worked": [
        prompt("u3", "a3", "go"),
        between("system", "e1", "u3", subtype="api_error"),
        reply("b1", "u3", text("x")),
        prompt("u4", "e1", "more"),
    ],
    "a hook that answers late": [
        reply("b1", "a3", call("t2")),
        between("attachment", "x1", "a1", attachment={"type": "hook"}, rendered=[{"content": "late"}]),
        result("q1", "b1", "t2"),
        reply("b2", "q1", text("x")),
    ],
    "a hook's line at a new root": [
        between("progress", "p1", None, data={"type": "hook_progress"}),
        prompt("u3", "p1", "after a resume"),
    ],
    "the client's own lines in a turn": [
        reply("b1", "a3", call("t2"), id="m"),
        reply("b2", "b1", call("t3"), id="m"),
        result("q1", "b1", "t2"),
        prompt("u3", "q1", "what the skill says", isMeta=True),
        result("q2", "b2", "t3"),
        reply("b3", "q2", text("x")),
    ],
    "a result that comes steps later": [
        reply("b1", "a3", call("t2")),
        prompt("u3", "b1", "meanwhile"),
        reply("b2", "u3", text("x")),
        result("q1", "b1", "t2"),
    ],
    "a result with a person's words": [
        reply("b1", "a3", call("t2"), id="m"),
        reply("b2", "b1", call("t3"), id="m"),
        result("q2", "b2", "t3"),
        line("q1", "b1", [{"type": "tool_result", "tool_use_id": "t2", "content": ""}, text("no, the other one")]),
        reply("b3", "q2", text("x")),
    ],
    "what the queue alone tells": [
        reply("b1", "a3", call("t2")),
        result("q1", "b1", "t2"),
        queue("enqueue", "and the tests"),
        queue("remove"),
        reply("b2", "q1", text("x")),
    ],
    "another attempt of a sub-agent": [
        prompt("c1", None, "look", isSidechain=True),
        reply("c2", "c1", text("x"), isSidechain=True),
        reply("c3", "c1", text("y"), isSidechain=True),
    ],
    "a sub-agent's lines": [
        reply("b1", "a3", call("t2", "Task", prompt="look")),
        prompt("c1", None, "look", isSidechain=True),
        reply("c2", "c1", text("found"), isSidechain=True),
        result("q1", "b1", "t2"),
        reply("b2", "q1", text("x")),
    ],
    "a line that hangs from a sub-agent's": [
        prompt("c1", None, "look", isSidechain=True),
        reply("b1", "c1", text("x")),
    ],
}


@pytest.mark.parametrize("lines", NO_FORKS.values(), ids=NO_FORKS.keys())
def test_what_looks_like_a_fork_and_is_none(told: Any, lines: list[Line]) -> None:
    events = told(*TWO_TURNS, *lines)

    assert not of(Forked, events)
    assert {message.key for message in messages(events)} >= {one["uuid"] for one in lines if "message" in one}


# -- compaction -------------------------------------------------------------------------------------------------------


def compacted(metadata: Line | None = None) -> list[Line]:
    """What the host writes at a compaction: a boundary and the summary."""
    boundary = between("system", "c1", None, subtype="compact_boundary", logicalParentUuid="never written")
    if metadata is not None:
        boundary["compactMetadata"] = metadata
    return [boundary, prompt("c2", "c1", "This session is being continued …", isCompactSummary=True)]


def test_a_compaction_drops_everything_for_a_summary_of_the_clients(told: Any) -> None:
    metadata = {"trigger": "auto", "preTokens": 171646, "extra": {"not": "a number"}}
    events = told(*TWO_TURNS, *compacted(metadata), reply("b1", "c2", text("on")), prompt("u3", "a3", "x"))

    (event,) = of(Compacted, events)
    (summary,) = event.summary
    assert (summary.key, summary.parts[0].origin, summary.parts[0].body[:12]) == ("c2", "client", b"This session")
    assert (event.kept, event.before, event.detail) == (frozenset(), "", {"trigger": "auto", "preTokens": 171646})
    assert "c2" not in [message.key for message in messages(events)]
    assert [type(one) for one in events[-4:]] == [Compacted, Said, Forked, Said]


def test_what_follows_a_compaction_may_hang_from_the_end_before_it_or_from_what_was_kept(told: Any) -> None:
    keep_first = compacted({"preservedMessages": {"uuids": ["u1", "a1"]}})

    assert not forks(told(*TWO_TURNS, *compacted(), prompt("u3", "a3", "x")))
    assert not forks(told(*TWO_TURNS, *keep_first, prompt("u3", "a1", "x")))
    assert forks(told(*TWO_TURNS, *keep_first, prompt("u3", "u2", "x"))) == [("u2", "u3")]


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ({"preservedMessages": {"uuids": ["a3", "r2", "s1", "nobody", 7]}}, {"r2", "a3"}),
        ({"preservedSegment": {"headUuid": "a2", "tailUuid": "a3"}}, {"a2", "r2", "a3"}),
        ({"preservedSegment": {"headUuid": "s1", "tailUuid": "r2"}}, {"u2", "a2", "r2"}),
        ({"preservedSegment": {"headUuid": "a3", "tailUuid": "a2"}}, set()),
        ({"preservedSegment": {"headUuid": "nobody", "tailUuid": "a3"}}, set()),
        ({"preservedSegment": {"headUuid": ["u1"], "tailUuid": None}}, set()),
        ({"preservedMessages": "all"}, set()),
    ],
)
def test_messages_that_the_host_kept_stand_behind_the_summary(told: Any, metadata: Line, kept: set[str]) -> None:
    (event,) = of(Compacted, told(*TWO_TURNS, *compacted(metadata)))

    order = [one["uuid"] for one in TWO_TURNS]
    assert event.kept == kept
    assert event.before == (min(kept, key=order.index) if kept else "")


def test_what_stands_between_a_boundary_and_its_summary_is_kept(told: Any) -> None:
    boundary, summary = compacted()
    plan = between("attachment", "x1", "c1", attachment={"type": "plan"}, rendered=[{"content": "the plan"}])
    typed = between("attachment", "x2", "x1", attachment={"type": "queued_command", "prompt": "and the tests"})

    (event,) = of(Compacted, told(*TWO_TURNS, boundary, plan, typed, summary))

    assert (event.kept, event.before) == ({"x1", "x2"}, "x1")


def test_a_boundary_without_a_summary_drops_what_stood_before_it(told: Any) -> None:
    events = told(*TWO_TURNS, compacted()[0], prompt("u3", "c1", "go on"))

    dropped, said = events[-2:]
    assert isinstance(dropped, Compacted) and isinstance(said, Said)
    assert (dropped.summary, dropped.kept) == ((), frozenset())
    assert events[-3].end < dropped.end < said.end


def test_boundaries_at_the_very_beginning_do_not_come_before_the_opening(told: Any) -> None:
    boundary = compacted()[0]

    assert [type(event) for event in told(boundary, boundary)] == [Opened, Compacted]


def test_a_summary_without_a_boundary_is_a_compaction_too(told: Any) -> None:
    (event,) = of(Compacted, told(compacted()[1], reply("a1", "c2", text("on"))))

    assert event.summary[0].key == "c2"


def test_cleared_results_are_warned_of(told: Any) -> None:
    (warning,) = of(Warned, told(*TWO_TURNS, between("system", "m1", "a3", subtype="microcompact_boundary")))

    assert (warning.line, "cleared" in warning.text) == (8, True)


# -- sub-agents -------------------------------------------------------------------------------------------------------


def side(uuid: str, parent: str | None, *, agent: str | None = None, words: str = "", answer: str = "") -> Line:
    more: Line = {"isSidechain": True, **({"agentId": agent} if agent else {})}
    return reply(uuid, parent, text(answer), **more) if answer else prompt(uuid, parent, words, **more)


def scopes(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(event.message.key, event.scope, event.task) for event in of(Said, events) if event.scope]


def test_sub_agents_among_the_sessions_lines_are_scopes_named_by_their_first_line(told: Any) -> None:
    events = told(
        prompt("u1", None, "look"),
        reply("a1", "u1", call("t1", "Task", prompt="look here"), id="m"),
        reply("a2", "a1", call("t2", "Task", prompt="look there"), id="m"),
        side("CAFE0001-0000", None, words="look there"),
        side("cafe0002-0000", None, words="look here"),
        side("d1", "CAFE0001-0000", answer="nothing there"),
        between("progress", "d2", "cafe0002-0000", isSidechain=True),
        side("d3", "d2", answer="found it"),
        result("r1", "a1", "t1"),
    )

    assert scopes(events) == [
        ("CAFE0001-0000", "agent-cafe0001", "t2"),
        ("cafe0002-0000", "agent-cafe0002", "t1"),
        ("d1", "agent-cafe0001", "t2"),
        ("d3", "agent-cafe0002", "t1"),
    ]
    assert [part.origin for part in parts(events)][3:7] == ["model", "model", "model", "model"]
    assert all(not name_rules.problem(scope) for _, scope, _ in scopes(events))


def session(folder: Path, *lines: Line) -> Path:
    return written(folder / f"{SESSION}.jsonl", *lines)


def agent_file(folder: Path, agent: str, *lines: Line | bytes, note: Line | None = None) -> Path:
    inner, _, name = agent.rpartition("/")
    path = written(folder / SESSION / "subagents" / inner / f"agent-{name}.jsonl", *lines)
    if note is not None:
        path.with_suffix(".meta.json").write_text(json.dumps(note))
    return path


def test_sub_agents_with_files_of_their_own_come_after_the_session(tmp_path: Path) -> None:
    result_of = result("r1", "a1", "t1") | {"toolUseResult": {"status": "completed", "agentId": "b22"}}
    path = session(tmp_path, prompt("u1", None, "look"), reply("a1", "u1", call("t1", "Agent", prompt="!")), result_of)
    first = agent_file(
        tmp_path, "b22", side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y")
    )
    lines = [side("d1", None, agent="b33", words="z")]
    second = agent_file(tmp_path, "workflows/w1/b33", *lines, note={"toolUseId": "t9"})
    agent_file(tmp_path, "acompact-b44", side("e1", None, agent="acompact-b44", words="sum it up"))

    events = list(read.events(Recording(path)))

    assert read.beside(path) == [first, second]
    assert [message.key for message in messages(events)] == ["u1", "a1", "r1", "c1", "c2", "d1"]
    assert scopes(events) == [("c1", "agent-b22", "t1"), ("c2", "agent-b22", "t1"), ("d1", "agent-b33", "t9")]
    assert {event.end for event in of(Said, events)[2:]} == {path.stat().st_size}


def test_progress_tells_early_which_call_started_a_sub_agent(tmp_path: Path) -> None:
    progress = between("progress", "p1", "a1", data={"agentId": "b22"}, parentToolUseID="t1")
    path = session(tmp_path, reply("a1", None, call("t1", "Agent", prompt="!")), progress)
    agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"))

    assert scopes(list(read.events(Recording(path)))) == [("c1", "agent-b22", "t1")]


def test_two_sub_agents_with_one_task_have_a_call_each(told: Any) -> None:
    twice = [call("t1", "Task", prompt="look"), call("t2", "Task", prompt="look")]

    events = told(reply("a1", None, *twice), side("c1", None, words="look"), side("d1", None, words="look"))

    assert scopes(events) == [("c1", "agent-c1", "t1"), ("d1", "agent-d1", "t2")]


def test_a_sub_agents_file_says_nothing_of_the_session(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    boundary = between("system", "c2", None, subtype="compact_boundary")
    agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"), boundary, side("c3", "c2", answer="y"))

    events = list(read.events(Recording(path)))

    assert len(of(Opened, events)) == 1
    assert [(event.scope, event.end) for event in of(Compacted, events)] == [("agent-b22", path.stat().st_size)]


def test_a_sub_agents_file_can_be_read_for_itself(tmp_path: Path) -> None:
    lines = side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y")
    path = agent_file(tmp_path, "b22", *lines, note={"toolUseId": "t1"})

    events = list(read.own_events(Recording(path)))

    assert of(Opened, events)[0].source == SESSION
    assert scopes(events) == [("c1", "agent-b22", "t1"), ("c2", "agent-b22", "t1")]
    assert of(Said, events)[-1].end == path.stat().st_size


def test_what_the_session_told_of_a_sub_agent_is_not_told_again(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"), side("c1", None, agent="b22", words="x"))
    agent_file(tmp_path, "b22", side("c1", None, agent="b22", words="x"), side("c2", "c1", agent="b22", answer="y"))

    assert [key for key, _, _ in scopes(list(read.events(Recording(path))))] == ["c1", "c2"]


def test_sub_agents_of_older_versions_stand_in_the_same_folder(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    own = json.dumps(side("c1", None, agent="b22", words="x"), separators=(",", ":")).encode()
    mine = written(tmp_path / "agent-b22.jsonl", own)
    written(tmp_path / "agent-b33.jsonl", own.replace(SESSION.encode(), b"another"))
    (tmp_path / "agent-b44.jsonl").write_bytes(b"\x1f\x8b broken")

    assert read.beside(path) == [mine]


def test_a_sub_agents_file_that_cannot_be_read_is_warned_of(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("u1", None, "look"))
    agent_file(tmp_path, "b22").write_bytes(b"\x1f\x8b broken")
    agent_file(tmp_path, "b33", side("c1", None, agent="b33", words="x"), b"{oops")

    broken, cut = of(Warned, list(read.events(Recording(path))))

    assert "agent-b22.jsonl" in broken.text
    assert ("agent-b33.jsonl" in cut.text, cut.line) == (True, 2)


# -- what nobody can trust --------------------------------------------------------------------------------------------


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_told(tmp_path: Path) -> None:
    path = written(
        tmp_path / "s.jsonl", prompt("u1", None, "hi"), b"[1, 2", b"[1, 2]", reply("a1", "u1", text("hello"))
    )
    with path.open("ab") as file:
        file.write(json.dumps(prompt("u2", "a1", "more")).encode()[:50])

    events = list(read.events(Recording(path)))

    assert [message.key for message in messages(events)] == ["u1", "a1"]
    assert [warning.line for warning in of(Warned, events)] == [2, 3, 5]
    assert "cut short" in of(Warned, events)[-1].text


def test_a_file_that_begins_with_rubbish_is_still_opened_first(told: Any) -> None:
    events = told(b"\xff\xfe{", prompt("u1", None, "hi"))

    assert [type(event) for event in events] == [Opened, Warned, Opened, Said]
    assert (events[0].source, events[2].cwd) == (SESSION, "/work/app")


def test_a_line_of_the_conversation_without_a_message_is_warned_of(told: Any) -> None:
    broken = prompt("u1", None, "hi") | {"message": "hi"}

    assert [warning.line for warning in of(Warned, told(broken))] == [1]


def test_fields_of_unexpected_types_do_not_cost_the_message(told: Any) -> None:
    odd = prompt("u1", None, "hi", timestamp=12, isMeta="no", cwd=["/"], origin="me", attachment=3)
    odd["message"] |= {"usage": [], "id": 4}

    (message,) = messages(told(odd))

    assert (message.key, message.time, message.parts[0].body) == ("u1", "", b"hi")


@pytest.mark.parametrize(
    "broken",
    [
        prompt("u1", None, "cut \ud83d"),
        between("system", "u1", None, subtype="local_command", content="cut \ud83d"),
        between("attachment", "u1", None, attachment={"type": "queued_command", "prompt": "cut \ud83d"}),
        between("attachment", "u1", None, attachment={"type": "x"}, rendered=[{"content": "cut \ud83d"}]),
    ],
)
def test_half_of_a_surrogate_pair_comes_through(told: Any, broken: Line) -> None:
    (part,) = parts(told(broken))

    assert part.body.decode("utf-8", "surrogatepass") == "cut \ud83d"


WHOLE_LINES = [
    reply("a1", None, call("t1", "Task", prompt="look"), text("x")),
    result(
        "r1",
        "a1",
        "t1",
        [text("x"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}],
    ),
    between(
        "attachment", "x1", "r1", attachment={"type": "queued_command", "prompt": "x"}, rendered=[{"content": "x"}]
    ),
    between("attachment", "x2", "r1", attachment={"type": "prompt_snapshot", "systemPrompt": ["x"]}),
    *compacted({"preservedMessages": {"uuids": ["a1"]}, "preservedSegment": {"headUuid": "a1", "tailUuid": "r1"}}),
    side("c3", None, agent="b22", words="look"),
    between("progress", "p1", "a1", data={"agentId": "b22"}, parentToolUseID="t1"),
    between("system", "s2", "a1", subtype="local_command", content="x"),
    {"type": "ai-title", "aiTitle": "x"},
    queue("enqueue", "x"),
    queue("remove"),
]


def test_lines_second_beyond_reason_are_a_warning(told: Any) -> None:
    deep = b'{"type":"user","message":{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"

    assert [warning.line for warning in of(Warned, told(deep))] == [1]


# -- finding and knowing them -----------------------------------------------------------------------------------------


def test_a_transcript_is_known_by_its_first_lines() -> None:
    snapshot = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}
    long = json.dumps(prompt("u1", None, "x" * 100_000), separators=(",", ":")).encode()

    assert read.sniff(REAL.read_bytes()[:65536])
    assert read.sniff(json.dumps(snapshot).encode())
    assert read.sniff(json.dumps(queue("enqueue", "x")).encode() + b"\n")
    assert read.sniff(long[:65536])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"hello\n",
        b'{"type":"session_meta","payload":{}}\n',
        b'{"type":"session","version":3,"id":"x","cwd":"/"}\n',
        b'{"role":"user","content":"hi"}\n',
        b'{"type":["summary"],"sessionId":1}\n',
        b'[{"parentUuid":1,"isSidechain":1,"sessionId":1}]',
    ],
)
def test_other_files_are_not_taken_for_transcripts(head: bytes) -> None:
    assert not read.sniff(head)


def test_the_folder_of_a_project_is_its_path_with_dashes(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-home-me-my-app--"
    folder.mkdir(parents=True)

    assert read.folders(Path("/home/me/my_app\U0001f600"), tmp_path, {}) == [folder]
    assert read.folders(Path("/home/me"), tmp_path, {}) == []


def test_the_environment_can_move_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "projects" / "mine"
    folder.mkdir(parents=True)
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config"), "CLAUDE_CODE_PROJECT_DIR_NAME": "mine"}

    assert read.folders(Path("/anywhere"), Path("/nobody"), env) == [folder]


@pytest.mark.parametrize(
    ("cwd", "is_of"),
    [("/work/app", True), ("/work/app/inner", True), ("/work-app", False), ("/work/app2", False), (None, True)],
)
def test_sessions_of_two_projects_in_one_folder_are_told_apart(cwd: str | None, is_of: bool) -> None:
    head = json.dumps(prompt("u1", None, 'say "cwd":"/elsewhere"', **({"cwd": cwd} if cwd else {})))

    assert read.is_of_project((head if cwd else '{"type":"mode"}').encode(), "/work/app") is is_of


def test_of_a_very_long_path_every_folder_that_begins_like_it_is_found(tmp_path: Path) -> None:
    project = Path("/" + "x" * 300)
    found = tmp_path / ".claude" / "projects" / f"-{'x' * 199}-1a2b3c"
    found.mkdir(parents=True)
    (found.parent / f"-{'x' * 199}").mkdir()

    assert read.folders(project, tmp_path, {}) == [found]


# -- real recordings --------------------------------------------------------------------------------------------------


def unpacked(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines(keepends=True)


def assert_every_beginning_is_told_alike(path: Path, tmp_path: Path) -> None:
    beginning, lines = tmp_path / f"{Recording(path).stem}.jsonl", unpacked(path)
    whole = list(read.own_events(Recording(path)))
    for count in range(1, len(lines), max(1, len(lines) // 60)):
        beginning.write_bytes(b"".join(lines[:count]))
        part = list(read.own_events(Recording(beginning)))
        assert part == whole[: len(part)]


@pytest.mark.parametrize("lines", NO_FORKS.values(), ids=NO_FORKS.keys())
def test_hand_made_files_cut_after_any_line_do_too(tmp_path: Path, lines: list[Line]) -> None:
    more = [*WHOLE_LINES, *TWO_TURNS, *lines, compacted()[0], prompt("z1", "a1", "x"), prompt("z2", None, "y")]

    assert_every_beginning_is_told_alike(written(tmp_path / "whole" / "s.jsonl", *more), tmp_path)


def test_a_real_session_is_told_whole() -> None:
    events = list(read.events(Recording(REAL)))

    assert [type(event).__name__ for event in events[:3]] == ["Opened", "Said", "Opened"]
    assert len(messages(events)) == 54
    assert len({message.reply for message in messages(events)} - {""}) == 13
    assert {part.call for part in parts(events) if part.kind == "tool_use"} == {
        part.call for part in parts(events) if part.kind == "tool_result"
    }
    assert of(Said, events)[-1].end == REAL.stat().st_size
    assert not of(Forked, events) and not of(Warned, events)


SHARED = os.environ.get("CTXVC_TEST_DATA", "")
needs_shared = pytest.mark.skipif(not SHARED, reason="CTXVC_TEST_DATA does not name the folder of shared recordings")
PAIRS = [
    ("20-02395c1048-0.jsonl", "entire-cli-20-02395c1048-0"),
    ("48-b4b05476e5-0.jsonl", "entire-cli-48-b4b05476e5-0"),
    ("7e-c034df6095-2.jsonl", "entire-cli-7e-c034df6095-2"),
    ("86-9d11344fce-1.compacted.jsonl.gz", "entire-cli-86-9d11344fce-1"),
]


def told_by_another(path: Path) -> dict[str, list[Any]]:
    """What someone else's converter found in the same session, by kind of block."""
    found: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": [], "tool_result": []}
    with gzip.open(path) as file:
        for message in [json.loads(one) for one in file][1:]:
            for block in message["content"]:
                match block["type"]:
                    case "text" | "thinking" as kind:
                        found[kind].append((message["role"], block[kind]))
                    case "tool_use":
                        found["tool_use"].append((block["id"], block["name"], block["input"]))
                    case "tool_result" if not block.get("synthetic"):
                        found["tool_result"].append(
                            (block["tool_use_id"], block["content"], bool(block.get("is_error")))
                        )
    found["tool_result"].sort()  # results recorded out of place were moved there
    return found


def told_by_us(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": [], "tool_result": []}
    for event in read.events(Recording(path)):
        told = event.summary if isinstance(event, Compacted) else [event.message] if isinstance(event, Said) else []
        for part in (part for message in told if not message.key.startswith("line:") for part in message.parts):
            block = block_of(part)
            match part.kind:
                case "user" | "assistant" if part.role == "user" or part.origin == "model":
                    found["text"].append((part.role, block["text"]))
                case "thinking":
                    found["thinking"].append((part.role, block["thinking"]))
                case "tool_use":
                    found["tool_use"].append((part.call, part.tool, block["input"]))
                case "tool_result":
                    found["tool_result"].append((part.call, block.get("content", []), part.error))
    found["tool_result"].sort()
    return found


@needs_shared
@pytest.mark.parametrize(("original", "converted"), PAIRS)
def test_another_converter_found_the_same_in_real_sessions(original: str, converted: str) -> None:
    ours = told_by_us(Path(SHARED) / "transcripts" / "claude-code" / original)
    theirs = told_by_another(Path(SHARED) / "trajectories" / f"{converted}.jsonl.gz")

    assert ours == theirs
