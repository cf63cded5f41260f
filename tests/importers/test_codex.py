"""What a Codex rollout becomes: its items, whose words they are, what a compaction or a rollback leaves."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core import display as text
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.recording.events import Closed, Compacted, Event, Forked, Opened, Said, Warned
from ctxvc.core.recording.steps import Gatherer, Step
from ctxvc.importers import codex as read
from ctxvc.importers.file import Recording
from tests.making.events import messages, only, parts

DATA = Path(__file__).parent.parent / "data" / "codex"
CURRENT = DATA / "current.jsonl"
BARE = DATA / "bare.jsonl"

META = {"type": "session_meta", "payload": {"id": "0199a213-81c0-7800-8aa1-bbab2a035a53", "cwd": "/srv/wren"}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-02T09:00:00.000Z", "type": "response_item", "payload": {"type": kind, **fields}}


def user(*texts: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return item("message", role="user", content=content, **fields)


def assistant(said: str) -> dict[str, Any]:
    return item("message", role="assistant", content=[{"type": "output_text", "text": said}])


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return item("function_call", name="exec_command", arguments=arguments, call_id=call_id)


def output(call_id: str, value: Any = "done") -> dict[str, Any]:
    return item("function_call_output", call_id=call_id, output=value)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-02T09:00:00.000Z", "type": "event_msg", "payload": {"type": kind, **fields}}


def used(total: int) -> dict[str, Any]:
    last = {"input_tokens": total, "output_tokens": 1}
    return event("token_count", info={"total_token_usage": {"total_tokens": total}, "last_token_usage": last})


def compacted(message: str = "", history: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    payload: dict[str, Any] = {"message": message}
    if history is not None:
        payload["replacement_history"] = [line["payload"] for line in history]
    return {"timestamp": "2026-03-02T09:00:00.000Z", "type": "compacted", "payload": payload}


CONTEXT = user("<environment_context>\n<cwd>/srv/wren</cwd>\n</environment_context>")


@pytest.fixture
def tell(tmp_path: Path):
    """The events of a rollout with these lines."""

    def events(*lines: dict[str, Any] | str | bytes) -> list[Event]:
        path = tmp_path / "rollout.jsonl"
        raw = [
            line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
            for line in lines
        ]
        path.write_bytes(b"".join(line + b"\n" for line in raw))
        return list(read.events(Recording(path)))

    return events


# What the file is


def test_a_rollout_is_known_by_its_first_line_even_when_that_is_cut():
    head = CURRENT.read_bytes()
    assert read.sniff(head)
    assert read.sniff(head[:100])
    assert read.sniff(BARE.read_bytes())


def test_the_first_line_describes_the_session():
    opened = next(read.events(Recording(CURRENT)))
    assert opened == Opened(
        format="codex",
        source="0199a213-81c0-7800-8aa1-bbab2a035a53",
        name="codex-2a035a53",
        cwd="/srv/wren",
        branch="nest",
        time="2026-03-02T08:59:58.000Z",
        agent="Codex codex-tui 0.140.0",
        system="Help with the code in this folder.",
        missing=("the tool definitions", "what the provider's own tools returned (web search)"),
        grows=True,
    )


def test_sessions_begun_in_one_minute_get_different_names(tell):
    first = tell({"type": "session_meta", "payload": {"id": "0199a213-81c0-7800-8aa1-bbab2a035a53"}})
    second = tell({"type": "session_meta", "payload": {"id": "0199a213-9f01-7800-8aa1-000000000001"}})
    assert only(Opened, first).name != only(Opened, second).name


def test_a_forked_rollout_keeps_its_own_description(tell):
    parent = {"type": "session_meta", "payload": {"id": "ffffffff-0000-7000-8000-000000000000", "cwd": "/else"}}
    assert only(Opened, tell(META, parent)).cwd == "/srv/wren"


def test_a_fork_that_lacks_its_history_says_so(tell):
    meta = {"type": "session_meta", "payload": {"id": "x", "history_base": {"thread_id": "y"}}}
    assert "the history before the fork" in only(Opened, tell(meta)).missing[0]


def test_the_model_is_told_when_it_is_known_and_when_it_changes(tell):
    turns = [{"type": "turn_context", "payload": {"model": model}} for model in ("gpt-a", "gpt-a", "gpt-b")]
    opened = [event for event in tell(META, *turns, assistant("hello")) if isinstance(event, Opened)]
    assert [event.model for event in opened] == ["", "gpt-a", "gpt-b"]


def test_a_thread_s_name_is_the_title(tell):
    events = tell(META, event("thread_name_updated", thread_name="Wren"))
    assert isinstance(events[-1], Opened)
    assert events[-1].title == "Wren"


def test_the_oldest_rollouts_have_bare_lines():
    events = list(read.events(Recording(BARE)))
    opened = only(Opened, events)
    assert (opened.source, opened.branch) == ("c3c4b301-27c8-4c70-b6e4-46b99fdf0236", "nest")
    assert opened.system is None
    assert "the system prompt" in opened.missing
    shell, result = parts(events)[3:5]
    assert (shell.tool, shell.call, shell.ext) == ("local_shell", "call_a", "json")
    assert (result.call, result.body, result.error) == ("call_a", b"Makefile\n", True)
    assert [part.origin for part in parts(events)] == ["client", "human", "model", "model", "tool", "model"]


# Messages and whose words they are


def test_items_become_messages_in_file_order():
    found = messages(list(read.events(Recording(CURRENT))))
    told = [(message.key, message.role, [part.kind for part in message.parts]) for message in found]
    assert told == [
        ("line:3", "system", ["system", "system"]),
        ("line:4", "user", ["user", "user"]),
        ("line:6", "user", ["user"]),
        ("line:8", "assistant", ["thinking"]),
        ("line:9", "assistant", ["assistant"]),
        ("line:10", "assistant", ["tool_use"]),
        ("line:11", "assistant", ["tool_use"]),
        ("line:12", "user", ["tool_result"]),
        ("line:13", "user", ["tool_result"]),
        ("line:14", "assistant", []),
        ("line:15", "assistant", ["tool_use"]),
        ("line:16", "user", ["tool_result"]),
        ("line:17", "assistant", []),
        ("line:18", "assistant", ["assistant"]),
    ]
    assert found[3].time == "2026-03-02T09:00:05.000Z"
    assert {message.model for message in found if message.role == "assistant"} == {"gpt-5.4"}


def test_a_developer_s_message_is_a_system_message_of_the_client(tell):
    [part] = parts(tell(META, item("message", role="developer", content=[{"type": "input_text", "text": "Be brief."}])))
    assert (part.kind, part.role, part.origin) == ("system", "system", "client")
    assert part.extra == {"openai": {"role": "developer"}}


@pytest.mark.parametrize(
    "put_in",
    [
        "# AGENTS.md instructions for /srv/wren\n\n<INSTRUCTIONS>\nTabs.\n</INSTRUCTIONS>",
        "<user_instructions>\n\nTabs.\n\n</user_instructions>",
        "<ENVIRONMENT_CONTEXT>cwd</ENVIRONMENT_CONTEXT>",
        "  <environment_context>\n<cwd>/</cwd>\n</environment_context>\n",
        "<skill>\n<name>x</name>\n</skill>",
        "<turn_aborted>\nThe user interrupted.\n</turn_aborted>",
        "<user_shell_command>\n<command>ls</command>\n</user_shell_command>",
        '<hook_prompt hook_run_id="h">Again.</hook_prompt>',
        "<image name=[Image #1]>",
        "Warning: apply_patch was requested via exec_command. Use the apply_patch tool instead of exec_command.",
    ],
)
def test_what_codex_puts_in_is_the_client_s(tell, put_in: str):
    assert [part.origin for part in parts(tell(META, user(put_in)))] == ["client"]


@pytest.mark.parametrize(
    "typed",
    [
        "What is <environment_context>?",
        "<environment_context> is what, exactly?",
        "<environment_context>x</environment_context> What does that mean?",
        "<skill>",
        "",
        "# AGENTS.md instructions are wrong",
    ],
)
def test_what_a_person_may_have_typed_is_the_person_s(tell, typed: str):
    assert [part.origin for part in parts(tell(META, user(typed)))] == ["human"]


def test_a_rollout_that_says_whose_words_they_are_is_believed(tell):
    kinds = {"content_item_kinds": ["user.text", "hooks.additional_context", "unknown"]}
    message = user("<skill>x</skill>", "Mind the nest.", "Hello", internal_chat_message_metadata_passthrough=kinds)
    assert [part.origin for part in parts(tell(META, message))] == ["human", "client", "human"]


def test_another_agent_s_message_is_no_person_s(tell):
    sent = item("agent_message", author="/root/a", recipient="/root", content=[{"type": "input_text", "text": "Done."}])
    line = {"type": "inter_agent_communication", "payload": {"author": "/root/a", "content": "Done."}}
    told = parts(tell(META, sent, line))
    assert [(part.body, part.role, part.origin) for part in told] == [(b"Done.", "user", "client")] * 2
    assert [part.extra["openai"]["item"] for part in told] == ["agent_message", "inter_agent_communication"]
    assert {part.extra["openai"]["author"] for part in told} == {"/root/a"}


def test_an_image_is_decoded(tell):
    content = [
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "high"},
        {"type": "input_image", "image_url": "https://example.org/wren.png"},
    ]
    inline, linked = parts(tell(META, item("message", role="user", content=content)))
    assert (inline.kind, inline.ext, inline.body) == ("image", "png", b"\x89PNG\r\n\x1a\n")
    assert inline.extra["openai"] == {"content": {"detail": "high"}}
    assert linked.kind == "image"
    assert json.loads(linked.body)["source"] == {"type": "url", "url": "https://example.org/wren.png"}


# Replies


def replies(events: list[Event]) -> list[str]:
    return [message.reply for message in messages(events) if message.role == "assistant"]


def test_what_the_model_says_without_a_break_is_one_reply():
    assert replies(list(read.events(Recording(CURRENT)))) == ["reply:8"] * 5 + ["reply:15"] * 2 + ["reply:18"]


def test_the_usage_that_comes_behind_the_results_belongs_to_their_reply():
    counts = [message for message in messages(list(read.events(Recording(CURRENT)))) if message.usage]
    assert [(message.reply, message.parts, message.time) for message in counts] == [
        ("reply:8", (), "2026-03-02T09:00:06.200Z"),
        ("reply:15", (), "2026-03-02T09:00:09.000Z"),
    ]
    assert counts[1].usage == {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 50}


@pytest.mark.parametrize("between", [user("Wait."), event("task_complete"), compacted("s")])
def test_a_count_that_cannot_be_placed_is_left_out(tell, between: dict[str, Any]):
    events = tell(META, user("one"), assistant("a"), output("x"), between, used(9))
    assert not [message.usage for message in messages(events) if message.usage]


@pytest.mark.parametrize("last", [None, {}, {"input_tokens": None, "output_tokens": 1}, {"input_tokens": 5}])
def test_a_count_without_numbers_is_no_message(tell, last: Any):
    told = event("token_count", info={"total_token_usage": {"total_tokens": 5}, "last_token_usage": last})
    assert [message.key for message in messages(tell(META, assistant("a"), told))] == ["line:2"]


def test_a_reply_is_counted_once(tell):
    counts = [
        message.usage["input_tokens"]
        for message in messages(tell(META, assistant("a"), used(7), used(9)))
        if message.usage
    ]
    assert counts == [7]


@pytest.mark.parametrize("between", [user("Wait."), output("call_x"), used(5), event("task_complete")])
def test_a_reply_ends_with_what_the_model_did_not_say(tell, between: dict[str, Any]):
    assert list(dict.fromkeys(replies(tell(META, assistant("one"), between, assistant("two"))))) == [
        "reply:2",
        "reply:4",
    ]


def test_a_count_told_again_ends_no_reply(tell):
    events = tell(META, used(5), assistant("one"), used(5), event("agent_message", message="x"), assistant("two"))
    assert replies(events) == ["reply:3", "reply:3"]


@pytest.mark.parametrize("kind", ["task_complete", "turn_aborted"])
def test_the_end_of_a_turn_closes_its_last_reply(tell, kind: str):
    assert isinstance(tell(META, assistant("one"), event(kind))[-1], Closed)


# Calls, results, reasoning


def test_arguments_are_kept_byte_for_byte(tell):
    raw = '{"b" : 1.0,\n "a":"\\u00e9", "a": 2}'
    [part] = parts(tell(META, call("call_a", raw)))
    assert (part.kind, part.call, part.tool, part.ext) == ("tool_use", "call_a", "exec_command", "json")
    assert part.body == raw.encode()


def test_free_text_to_a_custom_tool_is_text(tell):
    [part] = parts(
        tell(META, item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c", status="completed"))
    )
    assert (part.body, part.ext, part.tool) == (b"*** Begin", "txt", "apply_patch")
    assert part.extra == {"openai": {"item": "custom_tool_call", "status": "completed"}}
    assert wire.block(kind=part.kind, body=part.body, ext=part.ext, call=part.call, tool=part.tool)["input"] == {
        "arguments": "*** Begin"
    }


def test_the_fields_of_a_call_that_have_no_place_are_kept_beside_it(tell):
    [part] = parts(tell(META, item("function_call", name="_fetch", namespace="mcp__x", arguments="{}", call_id="c")))
    assert part.tool == "_fetch"
    assert part.extra == {"openai": {"namespace": "mcp__x"}}


def test_a_result_of_text_and_images_names_the_image_as_a_file(tell):
    value = [
        {"type": "input_text", "text": "a wren"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ]
    [part] = parts(tell(META, output("c", value)))
    assert (part.ext, part.files) == ("json", (("1.png", b"\x89PNG\r\n\x1a\n"),))
    block = wire.block(kind=part.kind, body=part.body, ext="json", call="c", extra=part.extra, files=dict(part.files))
    assert [piece["type"] for piece in block["content"]] == ["text", "image"]


def test_a_result_of_one_text_is_that_text(tell):
    [part] = parts(tell(META, output("c", [{"type": "input_text", "text": "a wren"}])))
    assert (part.ext, part.body) == ("txt", b"a wren")


@pytest.mark.parametrize(
    "value", [[{"type": "input_text", "text": 5}], {"x": 1}, 7, [None], [{"type": "encrypted_content"}]]
)
def test_a_result_in_another_shape_is_kept_as_it_is(tell, value: Any):
    [part] = parts(tell(META, output("c", value)))
    assert (part.kind, json.loads(part.body)) == ("tool_result", value)


def test_failure_is_told_by_the_recording_and_never_by_the_text(tell):
    plain, failed = parts(tell(META, output("a", "Error: Exit code 1"), output("b", {"content": "", "success": False})))
    assert (plain.error, failed.error) == (False, True)


def test_encrypted_or_empty_reasoning_is_kept_whole(tell):
    items = [
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAA",
        },
        {"summary": [], "type": "reasoning"},
    ]
    told = parts(tell(META, *({"type": "response_item", "payload": value} for value in items)))
    assert [(part.kind, part.ext, part.origin) for part in told] == [("thinking", "json", "model")] * 2
    assert [json.loads(part.body) for part in told] == items
    assert all("openai" in part.extra for part in told)


def test_readable_reasoning_is_text(tell):
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    [part] = parts(tell(META, item("reasoning", summary=summary, content=None)))
    assert (part.kind, part.ext, part.body) == ("thinking", "txt", b"One.\n\nTwo.")


def test_a_search_on_the_provider_s_side_is_kept_and_wants_no_result(tell):
    search = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "wren"}}
    events = tell(META, assistant("one"), {"type": "response_item", "payload": search}, assistant("two"))
    assert [part.kind for part in parts(events)] == ["assistant", "other", "assistant"]
    assert json.loads(parts(events)[1].body) == search
    assert replies(events) == ["reply:2"] * 3


def test_an_item_of_an_unknown_kind_is_kept_as_it_is(tell):
    [part] = parts(tell(META, item("hologram", beam=[1, 2])))
    assert (part.kind, part.origin, json.loads(part.body)) == ("other", "client", {"type": "hologram", "beam": [1, 2]})


def test_what_codex_never_sends_is_left_out(tell):
    assert parts(tell(META, item("ghost_snapshot", ghost_commit={}), item("compaction_trigger"))) == []


# Compaction and rollback


def test_a_compaction_keeps_the_messages_that_its_history_repeats(tell):
    one, two = user("one"), user("two")
    sealed = item("compaction", id="cmp_1", encrypted_content="gAA")
    events = tell(
        META, CONTEXT, one, assistant("first"), call("c"), output("c"), two, compacted("", [one, CONTEXT, two, sealed])
    )
    event = only(Compacted, events)
    assert event.kept == {"line:2", "line:3", "line:7"}
    assert [(message.key, message.parts[0].kind, message.parts[0].origin) for message in event.summary] == [
        ("line:8.1", "other", "client")
    ]
    assert event.before == ""


def test_context_that_a_compaction_puts_in_anew_stands_before_the_message_it_was_put_before(tell):
    one, two = user("one"), user("two")
    fresh = user("<environment_context>new</environment_context>")
    event = only(Compacted, tell(META, CONTEXT, one, two, compacted("", [one, fresh, two])))
    assert (event.kept, event.before) == ({"line:3", "line:4"}, "line:4")
    assert event.summary[0].parts[0].origin == "client"


def test_equal_messages_are_kept_as_often_as_they_are_repeated(tell):
    event = only(Compacted, tell(META, user("go"), assistant("a"), user("go"), compacted("s", [user("go")])))
    assert event.kept == {"line:2"}
    twice = compacted("s", [user("go"), user("go")])
    assert only(Compacted, tell(META, user("go"), assistant("a"), user("go"), twice)).kept == {"line:2", "line:4"}


def test_a_summary_behind_all_that_is_kept_stands_at_the_end(tell):
    fresh, summary = user("<environment_context>new</environment_context>"), user("All well.")
    event = only(Compacted, tell(META, user("one"), compacted("All well.", [fresh, user("one"), summary])))
    assert (event.before, len(event.summary)) == ("", 2)


def test_what_a_person_wrote_stays_theirs_when_a_compaction_restates_it(tell):
    cut, summary = user("a long te… 5 tokens truncated"), user("So far: all well.")
    event = only(Compacted, tell(META, user("a long text"), compacted("So far: all well.", [cut, summary])))
    assert event.kept == frozenset()
    assert [message.parts[0].origin for message in event.summary] == ["human", "client"]


def test_a_compaction_without_a_history_keeps_what_codex_keeps(tell):
    long = user("x" * 60_000)
    event = only(
        Compacted, tell(META, CONTEXT, user("old"), long, assistant("a"), user("y" * 30_000), compacted("All well."))
    )
    assert event.kept == {"line:2", "line:6"}
    assert [part.body for part in event.summary[0].parts] == [b"All well."]


def test_a_second_compaction_drops_the_summary_of_the_first(tell):
    first, second = (
        item("compaction", id="cmp_1", encrypted_content="R"),
        item("compaction", id="cmp_2", encrypted_content="R"),
    )
    one = user("one")
    events = tell(META, one, compacted("", [one, first]), assistant("a"), compacted("", [one, second]))
    assert [event.kept for event in events if isinstance(event, Compacted)] == [{"line:2"}, {"line:2"}]


def back(turns: int) -> dict[str, Any]:
    return event("thread_rolled_back", num_turns=turns)


PUT_IN = user("<turn_aborted>x</turn_aborted>")
ONE, TWO = [user("one"), assistant("a")], [user("two"), assistant("b")]
COMPACTED = [user("one"), user("two"), compacted("", [user("one"), user("two"), item("compaction", id="cmp_1")])]


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        pytest.param([CONTEXT, *ONE, *TWO, back(1)], ["line:4"], id="from the message before the dropped turns"),
        pytest.param([*ONE, PUT_IN, user("two"), back(1)], ["line:3"], id="along goes what was put in before the turn"),
        pytest.param([CONTEXT, *ONE, back(9)], ["line:2"], id="of all turns, what stood before the first stays"),
        pytest.param([*ONE, back(1)], [""], id="of everything, from before the first message"),
        pytest.param([*ONE, user("two"), back(1), user("three"), back(1)], ["line:3"] * 2, id="from what one left"),
        pytest.param(
            [*COMPACTED, user("3"), back(2), *map(user, "4567"), back(2)], ["line:8"], id="after a compaction"
        ),
        pytest.param([user("one"), back(0)], [], id="of no turn"),
        pytest.param([user("one"), back(-1)], [], id="of less than none"),
    ],
)
def test_a_rollback_is_a_fork(tell, lines: list[dict[str, Any]], after: list[str]):
    assert [event.after for event in tell(META, *lines) if isinstance(event, Forked)] == after


def test_a_rollback_into_what_a_compaction_left_is_told_as_one(tell):
    events = tell(META, *COMPACTED, user("three"), back(2))
    assert not [event for event in events if isinstance(event, Forked)]
    last = events[-1]
    assert isinstance(last, Compacted)
    assert (last.kept, last.summary) == ({"line:2"}, ())


# Damage


def test_an_unknown_kind_of_line_is_named_once(tell):
    events = tell(META, *[{"type": "hologram", "payload": {}}] * 3, {"type": "world_state", "payload": {}})
    assert [event.line for event in events if isinstance(event, Warned)] == [2]


# Where they are


def test_rollouts_lie_in_the_home_or_where_the_environment_says():
    home = Path("/home/wren")
    assert read.folders(Path("/srv"), home, {}) == [home / ".codex/sessions", home / ".codex/archived_sessions"]
    assert read.folders(Path("/srv"), home, {"CODEX_HOME": "/var/codex"})[0] == Path("/var/codex/sessions")


@pytest.mark.parametrize(
    ("project", "is_its"), [("/srv/wren", True), ("/srv", True), ("/srv/wren/", True), ("/srv/wr", False)]
)
def test_a_rollout_is_of_the_project_it_was_made_in(project: str, is_its: bool):
    assert read.is_of_project(CURRENT.read_bytes(), project) is is_its
    assert read.is_of_project(CURRENT.read_bytes()[:200], project) is is_its
    assert read.is_of_project(BARE.read_bytes(), project) is is_its


def test_a_head_without_a_folder_is_of_no_project():
    assert not read.is_of_project(b"{}", "/")
    assert not read.is_of_project(b'"cwd":"\\q"', "/")


# Real files

_SHARED = os.environ.get("CTXVC_TEST_DATA")
_NAMES = ("00-34f597b72d-1.compacted.jsonl.gz", "a3-92ff332928-0.jsonl", "a5-7b22d8d4bd-0.jsonl")
real = pytest.mark.skipif(not _SHARED, reason="CTXVC_TEST_DATA names no folder with transcripts/ and trajectories/")


@pytest.fixture(params=_NAMES)
def rollout(request: pytest.FixtureRequest) -> Path:
    return Path(_SHARED or "") / "transcripts" / "codex" / request.param


@real
def test_nothing_differs_from_the_converted_trajectory(rollout: Path):
    trajectory = Path(_SHARED or "") / "trajectories" / f"agentv-{rollout.name.split('.')[0]}.jsonl.gz"
    theirs = [json.loads(line) for line in gzip.decompress(trajectory.read_bytes()).splitlines()][1:]
    events = list(read.events(Recording(rollout)))
    blocks = [block for message in theirs for block in message["content"]]

    system = next(event.system for event in events if isinstance(event, Opened))
    texts = [text.decode(part.body) for part in parts(events) if part.kind in ("user", "assistant", "system")]
    assert [system, *texts] == [block["text"] for block in blocks if block["type"] == "text"]

    calls = {part.call: (part.tool, arguments(part)) for part in parts(events) if part.kind == "tool_use"}
    assert calls == {block["id"]: (block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"}

    counts = [event.message.usage for event in events if isinstance(event, Said) and event.message.usage]
    assert counts == [message["meta"]["usage"] for message in theirs if "usage" in message.get("meta", {})]

    searched = {part.call for part in parts(events) if part.tool == "tool_search"}
    results = {part.call: text.decode(part.body) for part in parts(events) if part.kind == "tool_result"}
    expected = {
        block["tool_use_id"]: "".join(piece["text"] for piece in block["content"])
        for block in blocks
        if block["type"] == "tool_result" and not block.get("synthetic")
    }
    # A search among tools gives no text; the trajectory has its JSON written anew.
    assert {key: json.loads(value) if key in searched else value for key, value in results.items()} == {
        key: json.loads(value) if key in searched else value for key, value in expected.items()
    }


def arguments(part: Part) -> Any:
    found = wire.arguments(part.body, part.ext)
    free = part.extra.get("openai", {}).get("item") == "custom_tool_call"
    return {"input": found["arguments"]} if free else found


@real
def test_every_reply_becomes_a_step_with_its_usage(rollout: Path):
    gatherer = Gatherer()
    told = [event for event in read.events(Recording(rollout)) if not isinstance(event, Opened | Warned)]
    units = [unit for event in told for unit in gatherer.feed(event)] + list(gatherer.finish())
    steps = [unit for unit in units if isinstance(unit, Step)]
    replied = [message for step in steps for message in step.messages if message.role == "assistant"]
    assert len(replied) == len({message.reply for message in messages(told) if message.reply})
    assert all(message.parts for message in replied)
    assert all(message.usage for message in replied[:-1])


@real
def test_nine_tenths_of_the_user_s_role_are_the_client_s(rollout: Path):
    size = {"human": 0, "client": 0}
    for part in parts(list(read.events(Recording(rollout)))):
        if part.kind == "user":
            size[part.origin] += len(part.body)
    assert size["client"] > 0.85 * sum(size.values())


@real
def test_every_turn_of_a_real_rollout_begins_with_a_person(rollout: Path):
    raw = gzip.decompress(rollout.read_bytes()) if rollout.suffix == ".gz" else rollout.read_bytes()
    typed = [
        line["payload"]["message"]
        for line in map(json.loads, raw.splitlines())
        if line["type"] == "event_msg" and line["payload"]["type"] == "user_message"
    ]
    human = [text.decode(part.body) for part in parts(list(read.events(Recording(rollout)))) if part.origin == "human"]
    assert human == typed
