"""Recordings of OpenAI chat completions: what each form of a message becomes, and what is never lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Event, Forked, Opened, Warned
from ctxvc.importers import openai_chat
from ctxvc.importers.file import Recording
from tests.making.events import messages, parts, written

DATA = Path(__file__).parents[1] / "data" / "openai-chat"


def told(path: Path) -> list[Event]:
    ((_, events),) = openai_chat.conversations(Recording(path))
    return list(events)


def told_of(tmp_path: Path, *values: Any) -> list[Event]:
    """The events of a file with a JSON value a line."""
    return told(written(tmp_path / "log.jsonl", *values))


def warnings(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Warned)]


def call(id: str | None, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "function": function} | ({} if id is None else {"id": id})


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def result(id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def test_the_leading_instructions_are_the_system_prompt_and_functions_are_tools():
    opened = told(DATA / "request.json")[0]

    assert isinstance(opened, Opened)
    assert (opened.format, opened.name, opened.model, opened.grows) == ("openai-chat", "request", "gpt-4o", False)
    assert opened.system == [{"type": "text", "text": "You are a guide."}, {"type": "text", "text": "Answer briefly."}]
    assert opened.tools[0] == {
        "name": "weather",
        "description": "Weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": True,
    }
    assert opened.tools[1] == {"type": "custom", "custom": {"name": "shell", "description": "Runs a line."}}


def test_a_single_system_message_is_a_string_and_a_later_one_a_block(tmp_path: Path):
    events = told_of(
        tmp_path,
        [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "system", "content": "c"}],
    )

    assert isinstance(events[0], Opened)
    assert events[0].system == "a"
    assert [(part.kind, part.role, part.body) for part in parts(events)] == [
        ("user", "user", b"b"),
        ("system", "system", b"c"),
    ]


@pytest.mark.parametrize(
    ("message", "note"),
    [
        ({"name": "example_user", "content": "a"}, {"message": {"name": "example_user"}}),
        ({"content": [{"type": "text", "text": "a", "x": 1}]}, {"part": {"x": 1}, "parts": True}),
    ],
)
def test_a_leading_system_message_with_more_than_text_stays_a_message(tmp_path: Path, message: Any, note: Any):
    events = told_of(tmp_path, [{"role": "system", **message}])

    assert isinstance(events[0], Opened)
    assert events[0].system is None
    assert parts(events)[0].extra == {"openai": note}


def test_every_part_has_its_kind_and_its_maker():
    assert [(part.kind, part.origin, part.ext) for part in parts(told(DATA / "request.json"))] == [
        ("user", "human", "txt"),
        ("image", "human", "png"),
        ("image", "human", "json"),
        ("other", "human", "json"),
        ("thinking", "model", "txt"),
        ("tool_use", "model", "json"),
        ("tool_use", "model", "txt"),
        ("tool_result", "tool", "txt"),
        ("tool_result", "tool", "txt"),
        ("assistant", "model", "txt"),
        ("tool_use", "model", "txt"),
        ("tool_use", "model", "txt"),
        ("tool_result", "tool", "json"),
        ("tool_result", "tool", "txt"),
        ("system", "client", "txt"),
        ("tool_use", "model", "json"),
        ("tool_result", "tool", "txt"),
        ("assistant", "model", "txt"),
        ("user", "human", "txt"),
    ]


def test_arguments_are_kept_byte_for_byte_whatever_they_are(tmp_path: Path):
    written = ['{ "a" :1.0}', '{"a": 1', "", "nothing", '"\ud800"', '{"a":"\\u00e9"}\r\n']

    events = told_of(tmp_path, [calls(*(call(f"c{n}", "f", text) for n, text in enumerate(written)))])

    assert [part.body for part in parts(events)] == [text.encode("utf-8", "surrogatepass") for text in written]


def test_an_id_used_twice_is_two_calls_and_each_has_its_result(tmp_path: Path):
    events = told_of(
        tmp_path,
        [
            calls(call("x", "first", "{}"), call("x", "second", "{}")),
            result("x", "1"),
            result("x", "2"),
            calls(call("x", "third", "{}")),
            {"role": "user", "content": "stop"},
            calls(call("x", "fourth", "{}")),
            result("x", "4"),
            result("x", "4 again"),
        ],
    )

    found = parts(events)
    assert [(part.call, part.tool) for part in found if part.kind == "tool_use"] == [
        ("x", "first"),
        ("x~2", "second"),
        ("x~3", "third"),
        ("x~4", "fourth"),
    ]
    assert [(part.call, part.tool, part.body) for part in found if part.kind == "tool_result"] == [
        ("x", "first", b"1"),
        ("x~2", "second", b"2"),
        ("x~4", "fourth", b"4"),
        ("x~4", "fourth", b"4 again"),
    ]
    assert [part.extra for part in found if part.call == "x~2"] == [{"openai": {"id": "x"}}] * 2


def test_an_id_that_looks_like_one_of_ours_stays_unique(tmp_path: Path):
    events = told_of(tmp_path, [calls(*(call(given, "f", "{}") for given in ("x", "x~2", "x", "x", "x~2")))])

    assert [part.call for part in parts(events)] == ["x", "x~2", "x~3", "x~4", "x~2~2"]


def test_a_result_without_a_call_in_the_file_keeps_its_id_and_name(tmp_path: Path):
    (found,) = parts(told_of(tmp_path, [{**result("x", "1"), "name": "f"}]))

    assert (found.kind, found.call, found.tool) == ("tool_result", "x", "f")


def test_an_empty_leading_system_message_is_warned_of(tmp_path: Path):
    events = told_of(tmp_path, [{"role": "system", "content": []}, {"role": "user", "content": "a"}])

    assert warnings(events) == ["message 1 was skipped: it is empty"]


def test_a_made_up_id_is_never_that_of_a_result_without_a_call(tmp_path: Path):
    twice = calls(call("x", "f", "{}"), call("x", "f", "{}"))

    before = parts(told_of(tmp_path, [result("x~2", "orphan"), twice]))
    after = parts(told_of(tmp_path, [twice, result("x~2", "orphan")]))

    assert [part.call for part in before] == ["x~2", "x", "x~3"]
    assert [(part.kind, part.call) for part in after] == [("tool_use", "x"), ("tool_use", "x~2"), ("other", "")]


def test_calls_without_ids_find_their_results_by_name_then_by_order(tmp_path: Path):
    events = told_of(
        tmp_path,
        [
            calls(call(None, "a", "{}"), call(None, "b", "{}"), call(None, "c", "{}")),
            {"role": "tool", "name": "b", "content": "of b"},
            {"role": "tool", "content": "of a"},
            {"role": "tool", "content": "of c"},
        ],
    )

    found = parts(events)
    tools = {part.call: part.tool for part in found if part.kind == "tool_use"}
    assert len(tools) == 3
    assert [(tools[part.call], part.body) for part in found if part.kind == "tool_result"] == [
        ("b", b"of b"),
        ("a", b"of a"),
        ("c", b"of c"),
    ]


def test_the_older_function_call_pairs_with_its_function_message():
    found = parts(told(DATA / "request.json"))

    made, answered = found[15], found[16]
    assert (made.tool, made.body) == ("weather", b"{}")
    assert (answered.call, answered.tool, answered.body) == (made.call, "weather", b"rain")


def test_a_log_tells_each_message_once_and_a_reply_with_its_cost():
    events = told(DATA / "log.jsonl")

    assert [(message.key, message.parts[0].body.decode()) for message in messages(events)] == [
        ("message:1", "Hi"),
        ("message:2", "Hello"),
        ("message:3", "Say it in French"),
        ("message:3~2", "Say it in German"),
    ]
    assert [event.after for event in events if isinstance(event, Forked)] == ["message:2"]
    reply = messages(events)[1]
    assert (reply.reply, reply.model, reply.time) == ("chatcmpl-1", "gpt-4o-mini-2024-07-18", "2023-11-14T22:13:20Z")
    assert reply.usage == {
        "input_tokens": 12,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 8,
        "output_tokens": 3,
    }


def test_messages_a_line_begin_with_the_system_prompt(tmp_path: Path):
    events = told_of(
        tmp_path,
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "system", "content": "d"},
    )

    assert isinstance(events[0], Opened)
    assert events[0].system == "a"
    assert [part.body for part in parts(events)] == [b"b", b"c", b"d"]


def test_of_several_choices_the_first_is_taken_and_the_rest_named(tmp_path: Path):
    choices = [{"message": {"role": "assistant", "content": text}} for text in "abc"]

    events = told_of(tmp_path, {"id": "r", "choices": choices})

    assert [part.body for part in parts(events)] == [b"a"]
    assert warnings(events) == ["skipped: 2 more choices in the response"]


def test_a_message_that_says_nothing_is_left_out_with_a_warning(tmp_path: Path):
    events = told_of(
        tmp_path,
        [
            {"role": "user", "content": ""},
            {"role": "assistant", "content": None, "tool_calls": [], "refusal": None},
            {"role": "assistant"},
            {"role": "user", "name": "ada", "content": []},
            {"role": "user", "content": [], "refusal": ""},
            {"role": "user", "content": "a"},
        ],
    )

    assert len(messages(events)) == 1
    assert warnings(events) == [f"message {number} was skipped: it is empty" for number in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        {"role": "user", "content": {"text": "an object"}},
        {"role": "user", "content": 7},
        {"role": "assistant", "tool_calls": {"0": {}}},
        {"role": "assistant", "function_call": {"name": "f"}},
        {"role": "critic", "content": "of a role that nobody knows"},
        {"role": "function", "name": "never called", "content": ""},
        {"role": "user", "content": "", "tool_calls": [{"id": "x"}]},
    ],
)
def test_a_message_that_cannot_be_taken_apart_is_kept_verbatim(tmp_path: Path, message: dict[str, Any]):
    (part,) = parts(told_of(tmp_path, [message]))

    assert part.kind == "other"
    assert json.loads(part.body) == message


def test_every_run_of_a_list_of_runs_is_a_conversation():
    found = [(ending, list(events)) for ending, events in openai_chat.conversations(Recording(DATA / "runs.json"))]

    assert [ending for ending, _ in found] == ["-0-0", "-0-1"]
    for _, events in found:
        assert isinstance(events[0], Opened)
        assert (events[0].name, events[0].system) == ("runs", "# Policy")
        assert [part.call for part in parts(events) if part.call] == ["call_a", "call_a", "call_a~2", "call_a~2"]


def test_runs_that_tell_no_different_name_are_numbered(tmp_path: Path):
    path = tmp_path / "runs.json"
    run = {"task_id": 1, "trial": 2, "traj": [{"role": "user", "content": "a"}]}
    path.write_text(json.dumps([run, run, {**run, "trial": None}]))

    assert [ending for ending, _ in openai_chat.conversations(Recording(path))] == ["-1-2", "-run-2", "-run-3"]


def test_any_other_file_is_one_conversation():
    assert [ending for ending, _ in openai_chat.conversations(Recording(DATA / "log.jsonl"))] == [""]
