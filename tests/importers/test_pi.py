"""What a session of pi becomes: a tree of messages, whose words they are, what a compaction leaves."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.request import request
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.importers import pi
from ctxvc.importers.file import Recording
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import create
from tests.making.events import messages, only, parts

DATA = Path(__file__).parent.parent / "data" / "pi"
V1 = DATA / "v1.jsonl"
V3 = DATA / "v3.jsonl"

HEADER = {"type": "session", "version": 3, "id": "x", "timestamp": "t", "cwd": "/srv/wren"}
Tell = Callable[..., list[Event]]


def entry(kind: str, key: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": key, "parentId": parent, "timestamp": "2026-03-02T09:00:00.000Z", **fields}


def message(key: str, parent: str | None, role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return entry("message", key, parent, message={"role": role, "content": content, **fields})


def user(key: str, parent: str | None, said: str) -> dict[str, Any]:
    return message(key, parent, "user", said)


def assistant(key: str, parent: str | None, *blocks: Any, stop: str = "stop", **fields: Any) -> dict[str, Any]:
    return message(key, parent, "assistant", list(blocks), stopReason=stop, **fields)


def said_text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


CALL = {"type": "toolCall", "id": "toolu_1", "name": "bash", "arguments": {"command": "ls"}}


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """The events of a session with these entries."""

    def events(*entries: dict[str, Any] | bytes, header: dict[str, Any] | None = HEADER) -> list[Event]:
        path = tmp_path / "session.jsonl"
        lines = [header, *entries] if header else list(entries)
        path.write_bytes(b"".join((e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n" for e in lines))
        return list(pi.events(Recording(path)))

    return events


# What the file is


def test_the_header_describes_the_session():
    assert next(pi.events(Recording(V1))) == Opened(
        format="pi",
        source="5d0f3a52-8a3e-4b8e-9d3a-0d8f1c2b3a4e",
        name="pi-5d0f3a52",
        model="claude-sonnet-4-5",
        cwd="/srv/wren",
        time="2025-12-01T10:00:00.000Z",
        agent="pi",
        missing=("the system prompt", "the tool definitions", "pi's own words around summaries"),
        grows=True,
    )


def test_an_id_that_begins_with_the_time_gives_its_end_to_the_name():
    opened = next(pi.events(Recording(V3)))
    assert isinstance(opened, Opened)
    assert opened.name == "pi-2a035a53"


def test_a_model_and_a_name_are_told_when_they_come():
    opened = [event for event in pi.events(Recording(V3)) if isinstance(event, Opened)]
    assert [(event.model, event.title) for event in opened] == [("", ""), ("claude-opus-4-5", ""), ("", "Birds")]


# Messages


def test_version_1_is_told_line_by_line():
    found = messages(list(pi.events(Recording(V1))))
    assert [(m.key, m.role, [part.kind for part in m.parts]) for m in found] == [
        ("line:2", "user", ["user"]),
        ("line:3", "assistant", ["thinking", "assistant", "tool_use"]),
        ("line:4", "user", ["tool_result"]),
        ("line:5", "assistant", ["assistant"]),
        ("line:7", "user", ["user"]),
        ("line:9", "assistant", ["assistant"]),
    ]
    assert len({m.reply for m in found if m.role == "assistant"}) == 3


def test_usage_has_the_names_of_the_messages_api():
    reply = messages(list(pi.events(Recording(V1))))[1]
    assert reply.model == "claude-sonnet-4-5"
    assert reply.usage == {
        "input_tokens": 10,
        "output_tokens": 20,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 40,
    }


def test_a_call_that_nobody_counted_has_no_usage(tell: Tell):
    [reply] = messages(tell(assistant("a", None, said_text("x"), usage={"input": 0, "output": 0})))
    assert reply.usage == {}


def test_a_result_names_its_tool_and_its_failure(tell: Tell):
    result = {"toolCallId": "toolu_1", "toolName": "bash", "isError": True}
    [part] = parts(tell(message("a", None, "toolResult", [said_text("no such file")], **result)))
    assert (part.kind, part.call, part.tool, part.error, part.body) == (
        "tool_result",
        "toolu_1",
        "bash",
        True,
        b"no such file",
    )


def test_a_result_with_an_image_names_it_as_a_file(tell: Tell):
    content = [said_text("a wren"), {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
    [part] = parts(tell(message("a", None, "toolResult", content, toolCallId="c", toolName="read", isError=False)))
    assert (part.tool, part.files) == ("read", (("1.png", b"\x89PNG\r\n\x1a\n"),))
    block = wire.block(kind=part.kind, body=part.body, ext=part.ext, call="c", extra=part.extra, files=dict(part.files))
    assert [piece["type"] for piece in block["content"]] == ["text", "image"]


def test_an_empty_result_stays_empty(tell: Tell):
    [part] = parts(tell(message("a", None, "toolResult", [], toolCallId="c", toolName="read", isError=False)))
    assert (part.kind, part.body) == ("tool_result", b"")


def test_a_signature_is_the_api_s_own_only_where_the_reply_came_over_that_api(tell: Tell):
    thinking = {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "EpgD"}
    [own] = parts(tell(assistant("a", None, thinking, api="anthropic-messages")))
    [foreign] = parts(tell(assistant("a", None, thinking, api="openai-responses")))
    assert wire.block(kind=own.kind, body=own.body, ext=own.ext, extra=own.extra) == {
        "type": "thinking",
        "thinking": "Hm.",
        "signature": "EpgD",
    }
    assert "signature" not in wire.block(kind=foreign.kind, body=foreign.body, ext=foreign.ext, extra=foreign.extra)
    assert foreign.extra["ctxvc"]["pi"]["thinkingSignature"] == "EpgD"


def test_thinking_that_was_cut_has_no_signature_to_send(tell: Tell):
    thinking = {"type": "thinking", "thinking": "Hm", "thinkingSignature": ""}
    [part] = parts(tell(assistant("a", None, thinking, stop="aborted", api="anthropic-messages")))
    assert "signature" not in part.extra


def test_redacted_thinking_is_kept(tell: Tell):
    thinking = {"type": "thinking", "thinking": "[hidden]", "thinkingSignature": "EpgD", "redacted": True}
    [part] = parts(tell(assistant("a", None, thinking, api="anthropic-messages")))
    assert json.loads(part.body) == {"type": "redacted_thinking", "data": "EpgD"}


def test_an_aborted_reply_is_kept_with_what_is_known_of_its_end(tell: Tell):
    events = tell(
        assistant("a", None, said_text("I wi"), {**CALL, "partialJson": '{"c'}, stop="aborted", errorMessage="gone")
    )
    first, call = parts(events)
    assert (first.body, call.tool) == (b"I wi", "bash")
    assert call.extra["ctxvc"]["pi"] == {"partialJson": '{"c', "stopReason": "aborted", "errorMessage": "gone"}
    assert set(wire.block(kind=call.kind, body=call.body, ext=call.ext, call=call.call, extra=call.extra)) == {
        "type",
        "id",
        "name",
        "input",
    }


def test_a_reply_without_a_word_is_no_message_and_ends_the_turn(tell: Tell):
    events = tell(user("a", None, "go"), assistant("b", "a", stop="aborted"), user("c", "b", "again"))
    assert [m.key for m in messages(events)] == ["a", "c"]
    assert isinstance(events[2], Closed)


def test_a_reply_without_a_word_on_another_branch_ends_nothing_here(tell: Tell):
    events = tell(user("a", None, "1"), user("b", "a", "2"), assistant("c", "a", stop="aborted"))
    assert not [event for event in events if isinstance(event, Closed)]


@pytest.mark.parametrize(
    ("blocks", "stop", "closed"),
    [
        ([said_text("x")], "stop", True),
        ([CALL], "toolUse", False),
        ([CALL], "aborted", True),
        ([CALL], "length", False),
        ([], "stop", True),
    ],
)
def test_a_reply_is_finished_when_no_call_of_it_will_run(tell: Tell, blocks: list[Any], stop: str, closed: bool):
    assert isinstance(tell(assistant("a", None, *blocks, stop=stop))[-1], Closed) is closed


@pytest.mark.parametrize(
    ("ran", "shown"),
    [
        ({"output": "Makefile\n", "exitCode": 0}, "Ran `ls`\n```\nMakefile\n\n```"),
        ({"output": "", "exitCode": 0}, "Ran `ls`\n(no output)"),
        ({"output": "x", "exitCode": 2}, "Ran `ls`\n```\nx\n```\n\nCommand exited with code 2"),
        ({"output": "x", "exitCode": None, "cancelled": True}, "Ran `ls`\n```\nx\n```\n\n(command cancelled)"),
        (
            {"output": "x", "exitCode": 0, "truncated": True, "fullOutputPath": "/tmp/o"},
            "Ran `ls`\n```\nx\n```\n\n[Output truncated. Full output: /tmp/o]",
        ),
    ],
)
def test_a_person_s_own_command_is_shown_as_the_model_saw_it(tell: Tell, ran: dict[str, Any], shown: str):
    message = {"role": "bashExecution", "command": "ls", **ran}
    command, output = parts(tell(entry("message", "a", None, message=message)))
    assert display.decode(command.body + output.body) == shown
    assert [(part.kind, part.role, part.origin) for part in (command, output)] == [
        ("user", "user", "human"),
        ("user", "user", "client"),
    ]


def test_a_command_kept_from_the_model_is_left_out(tell: Tell):
    ran = {"role": "bashExecution", "command": "ls", "output": "", "excludeFromContext": True}
    assert parts(tell(entry("message", "a", None, message=ran))) == []


def test_what_extensions_and_summaries_say_is_the_client_s(tell: Tell):
    events = tell(
        entry("custom_message", "a", None, customType="x", content="From an extension.", display=False),
        message("b", "a", "custom", [said_text("Another.")], customType="x"),
        message("c", "b", "hookMessage", "A third."),
        entry("branch_summary", "d", "c", fromId="z", summary="Left that."),
        entry("custom", "e", "d", customType="x", data={"hidden": 1}),
    )
    assert [(part.body, part.role, part.origin) for part in parts(events)] == [
        (b"From an extension.", "user", "client"),
        (b"Another.", "user", "client"),
        (b"A third.", "user", "client"),
        (b"Left that.", "user", "client"),
    ]


def test_a_skill_written_out_is_the_client_s_unless_a_person_added_to_it(tell: Tell):
    skill = '<skill name="nest" location="/s">\nTwigs.\n</skill>'
    events = tell(user("a", None, skill), user("b", "a", skill + "\n\nFor a wren."))
    assert [part.origin for part in parts(events)] == ["client", "human"]


# The tree


def test_going_back_is_a_fork_and_what_is_no_message_is_no_place():
    events = list(pi.events(Recording(V3)))
    assert only(Forked, events).after == "aaaa0003"
    kinds = [type(event).__name__ for event in events]
    assert kinds[kinds.index("Forked") + 1] == "Said"
    assert [m.key for m in messages(events)][-2:] == ["aaaa0007", "aaaa0009"]


def test_a_line_of_messages_has_no_fork(tell: Tell):
    label = entry("label", "l", "a", targetId="a", label="x")
    events = tell(
        user("a", None, "1"), label, user("b", "l", "2"), entry("model_change", "m", "a"), user("c", "b", "3")
    )
    assert not [event for event in events if isinstance(event, Forked)]


def test_a_second_first_message_is_a_fork_from_before_everything(tell: Tell):
    assert only(Forked, tell(user("a", None, "1"), user("b", None, "2"))).after == ""


def test_a_missing_parent_is_told_and_the_conversation_goes_on(tell: Tell):
    events = tell(user("a", None, "1"), user("b", "gone", "2"))
    assert only(Warned, events).line == 3
    assert [m.key for m in messages(events)] == ["a", "b"]
    assert not [event for event in events if isinstance(event, Forked)]


def test_an_id_used_twice_makes_two_messages(tell: Tell):
    keys = [m.key for m in messages(tell(user("line:4", None, "1"), user("a", "line:4", "2"), user("a", "a", "3")))]
    assert len(set(keys)) == 3


# Compaction


def test_version_1_counts_the_lines_that_a_compaction_keeps():
    event = only(Compacted, list(pi.events(Recording(V1))))
    assert (event.kept, event.before) == ({"line:7"}, "line:7")
    assert event.detail == {"tokensBefore": 1234}
    [summary] = event.summary
    assert (summary.key, summary.parts[0].body, summary.parts[0].origin) == (
        "line:8",
        b"The folder holds a Makefile.",
        "client",
    )


def test_a_compaction_keeps_what_follows_its_first_kept_entry_on_this_branch(tell: Tell):
    events = tell(
        user("a", None, "1"),
        user("b", "a", "2"),
        user("x", "b", "elsewhere"),
        user("c", "b", "3"),
        entry("compaction", "k", "c", summary="s", firstKeptEntryId="b", tokensBefore=9),
    )
    event = only(Compacted, events)
    assert (event.kept, event.before) == ({"b", "c"}, "b")


def test_a_first_kept_entry_that_is_no_message_stands_for_what_follows_it(tell: Tell):
    model = entry("model_change", "m", "a", modelId="x")
    events = tell(
        user("a", None, "1"),
        model,
        user("b", "m", "2"),
        entry("compaction", "k", "b", summary="s", firstKeptEntryId="m"),
    )
    assert only(Compacted, events).kept == {"b"}


@pytest.mark.parametrize("first", ["gone", "x", None, 7])
def test_a_compaction_that_points_elsewhere_keeps_nothing(tell: Tell, first: Any):
    events = tell(
        user("a", None, "1"),
        user("x", "a", "elsewhere"),
        user("b", "a", "2"),
        entry("compaction", "k", "b", summary="s", firstKeptEntryId=first),
    )
    assert (only(Compacted, events).kept, only(Compacted, events).before) == (frozenset(), "")


def test_the_summary_before_is_not_kept(tell: Tell):
    events = tell(
        user("a", None, "1"),
        entry("compaction", "k1", "a", summary="s1", firstKeptEntryId="a"),
        user("b", "k1", "2"),
        entry("compaction", "k2", "b", summary="s2", firstKeptEntryId="a"),
    )
    assert [event.kept for event in events if isinstance(event, Compacted)] == [{"a"}, {"a", "b"}]


def test_going_back_behind_a_compaction_goes_on_from_before_it(tell: Tell):
    compaction = entry("compaction", "k", "a", summary="s", firstKeptEntryId="a")
    events = tell(user("a", None, "1"), compaction, user("b", "k", "2"), user("c", "a", "3"), user("d", "k", "4"))
    assert [event.after for event in events if isinstance(event, Forked)] == ["a", "k"]


# Damage


def test_unknown_kinds_and_roles_are_named_once(tell: Tell):
    events = tell(
        *(entry("hologram", f"h{n}", None) for n in range(2)), *(message(f"r{n}", None, "bard", "") for n in range(2))
    )
    assert [event.line for event in events if isinstance(event, Warned)] == [2, 4]


# Where they are


def test_sessions_lie_in_a_folder_named_after_the_project():
    home = Path("/home/wren")
    own = home / ".pi/agent/sessions/--srv-wren--"
    assert pi.folders(Path("/srv/wren"), home, {}) == [own]
    moved = {"PI_CODING_AGENT_DIR": "/var/pi", "PI_CODING_AGENT_SESSION_DIR": "/var/all"}
    assert pi.folders(Path("/srv/wren"), home, moved) == [Path("/var/pi/sessions/--srv-wren--"), Path("/var/all")]


@pytest.mark.parametrize(("project", "is_its"), [("/srv/wren", True), ("/srv", True), ("/srv/wr", False)])
def test_a_session_is_of_the_project_it_was_held_in(project: str, is_its: bool):
    assert pi.is_of_project(V1.read_bytes(), project) is is_its
    assert not pi.is_of_project(b"{}", project)


# A real file

_SHARED = os.environ.get("CTXVC_TEST_DATA")
real = pytest.mark.skipif(not _SHARED, reason="CTXVC_TEST_DATA names no folder with transcripts/ and trajectories/")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "before-compaction.jsonl"
    packed = Path(_SHARED or "") / "transcripts" / "pi" / "before-compaction.jsonl.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@real
def test_nothing_differs_from_the_converted_trajectory(session: Path):
    trajectory = Path(_SHARED or "") / "trajectories" / "pi-mono-before-compaction.jsonl.gz"
    theirs = [json.loads(line) for line in gzip.decompress(trajectory.read_bytes()).splitlines()][1:]
    events = list(pi.events(Recording(session)))
    told = [
        part
        for event in events
        for message in (
            [event.message] if isinstance(event, Said) else event.summary if isinstance(event, Compacted) else ()
        )
        for part in message.parts
    ]
    blocks = [(block, message.get("meta", {})) for message in theirs for block in message["content"]]

    # The trajectory leaves out the notice that a command's output was cut.
    ours = [
        display.decode(part.body).split("\n\n[Output truncated.")[0]
        if part.extra.get("ctxvc", {}).get("pi", {}).get("role")
        else display.decode(part.body)
        for part in told
        if part.kind in ("user", "assistant", "thinking")
    ]
    for at in reversed([at for at, text in enumerate(ours) if text.startswith("Ran `") and text.endswith("`\n")]):
        ours[at : at + 2] = ["".join(ours[at : at + 2])]  # a person's command, and what it printed
    assert ours == [
        block.get("text", block.get("thinking")) for block, _ in blocks if block["type"] in ("text", "thinking")
    ]
    calls = {part.call: (part.tool, wire.arguments(part.body, part.ext)) for part in told if part.kind == "tool_use"}
    assert calls == {block["id"]: (block["name"], block["input"]) for block, _ in blocks if block["type"] == "tool_use"}
    results = {part.call: (display.decode(part.body), part.error) for part in told if part.kind == "tool_result"}
    assert results == {
        block["tool_use_id"]: ("".join(piece["text"] for piece in block["content"]), block.get("is_error", False))
        for block, _ in blocks
        if block["type"] == "tool_result" and not block.get("synthetic")
    }
    used = {
        event.message.time: event.message.usage for event in events if isinstance(event, Said) and event.message.usage
    }
    expected = {meta["ts"]: meta["usage"] for _, meta in blocks if any(meta.get("usage", {}).values())}
    assert used == expected


# The system prompt


def test_the_system_prompt_and_the_tools_are_those_that_the_session_began_with(tell: Tell):
    tool = {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}
    sections = {"preamble": "You code.", "gone": None, "cwd": "/srv"}
    first = message("a", None, "system", "", sections=sections, toolsAdded=[tool, 7, {}])
    later = message("c", "b", "system", "", sections={"skills": "x"})
    events = tell(first, user("b", "a", "Go."), later)
    assert not [event for event in events if isinstance(event, Warned)]
    (told,) = [event for event in events if isinstance(event, Opened) and event.system]
    assert told.system == "You code.\n\n/srv"
    assert told.tools == [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}]


# Edits of what the model is sent


def result(key: str, parent: str, output: str) -> dict[str, Any]:
    return message(key, parent, "toolResult", [said_text(output)], toolCallId="toolu_1", toolName="bash")


def edit(key: str, parent: str, target: str, content: Any) -> dict[str, Any]:
    return entry("context_edit", key, parent, targetId=target, replacement=content and {"content": content})


EDITED = [
    user("a", None, "List the files."),
    assistant("b", "a", said_text("I look."), CALL, stop="toolUse"),
    result("c", "b", "one\ntwo\nthree"),
]


def prompt_of(tmp_path: Path, *entries: dict[str, Any]) -> list[Any]:
    """The prompt of an import of a session with these entries."""
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *entries)))
    with create(tmp_path / ".ctxvc") as store:
        ingest_result = ingest(store, pi.events(Recording(path)), final=True)
        with StoredSession.open(store, ingest_result.session) as stored:
            snapshot = revision.now(stored)
            assert {row.kind: stored.body(row) for row in stored.ledger().rows()}["tool_result"] == b"one\ntwo\nthree"
            return request(snapshot.ledger, snapshot.bodies, None, None).messages


def answer(messages: list[Any]) -> str:
    """The text of the call's result."""
    ((item,),) = [block["content"] for block in messages[2]["content"] if block["type"] == "tool_result"]
    text: str = item["text"]
    return text


def test_a_result_that_was_edited_stands_in_the_prompt_as_the_edit_has_it_and_is_kept_as_it_was(tmp_path: Path):
    messages = prompt_of(tmp_path, *EDITED, edit("d", "c", "c", [said_text("gone: B3")]), user("e", "d", "Next."))
    assert answer(messages) == "gone: B3"


def test_what_was_edited_out_is_not_in_the_prompt(tmp_path: Path):
    out = [edit("d", "c", "c", None), edit("e", "d", "b", [said_text("I look.")])]
    messages = prompt_of(tmp_path, *EDITED, *out, user("f", "e", "Next."))
    assert messages[1]["content"] == [{"type": "text", "text": "I look."}]
    assert messages[2]["content"] == [{"type": "text", "text": "Next."}]


def test_what_an_edit_adds_stands_behind_the_message_and_the_newest_edit_counts(tmp_path: Path):
    more = edit("d", "c", "a", [said_text("List the files."), said_text("and more")])
    back = edit("e", "d", "c", [said_text("x")]), edit("f", "e", "c", [said_text("one\ntwo\nthree")])
    messages = prompt_of(tmp_path, *EDITED, more, *back, user("g", "f", "Next."))
    assert [block["text"] for block in messages[0]["content"]] == ["List the files.", "and more"]
    assert answer(messages) == "one\ntwo\nthree"


def test_an_edit_passes_for_no_stub_of_ours(tmp_path: Path):
    messages = prompt_of(
        tmp_path, *EDITED, edit("d", "c", "c", "[archived B1@abcdef, 9 tokens]"), user("e", "d", "Go.")
    )
    assert answer(messages).startswith("\\[archived")


@pytest.mark.parametrize("replacement", [7, "x", [], {"content": 7}, {"content": [{"type": []}]}, {}])
@pytest.mark.parametrize("target", ["c", "a", "nobody", None, 7])
def test_an_edit_that_makes_no_sense_stops_nothing(tell: Tell, replacement: Any, target: Any):
    odd = entry("context_edit", "d", "c", targetId=target, replacement=replacement)
    events = tell(*EDITED, odd, user("e", "d", "Next."))
    assert isinstance(events[-1], Said)
