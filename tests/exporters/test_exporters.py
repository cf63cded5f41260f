"""What is imported and written again is what was there, in its normal form; what the other API lacks is left out."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic.types import MessageParam
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ctxvc.core.prompt import formats
from ctxvc.core.prompt.formats import Prompt
from ctxvc.core.prompt.outline import Piece
from ctxvc.core.recording.events import Compacted, Event, Opened, Said
from ctxvc.forms import chat_writer
from ctxvc.importers import anthropic_messages, openai_chat
from ctxvc.importers import ctxvc_trajectory as trajectory
from ctxvc.importers.file import Recording
from tests.making.conversation import as_stored
from tests.making.generated import json_objects, json_values, texts

DATA = Path(__file__).parents[1] / "data"


def prompt(events: Iterable[Event]) -> Prompt:
    """All messages of a recording as one prompt, what was compacted included."""
    pieces: list[Piece] = []
    facts: dict[str, Any] = {}
    numbers = itertools.count(1)
    for event in events:
        if isinstance(event, Opened):
            facts.update({name: value for name in ("model", "system", "tools") if (value := getattr(event, name))})
        said = (event.message,) if isinstance(event, Said) else event.summary if isinstance(event, Compacted) else ()
        for message, number in zip(said, numbers, strict=False):
            pieces += [Piece(message=number, role=part.role, **as_stored(part)) for part in message.parts]
    return Prompt(pieces=pieces, **facts)


def imported(importer: Any, value: Any) -> Prompt:
    """The prompt of a file that holds `value`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_text(json.dumps(value))
        return prompt(events_of(importer, path))


def events_of(importer: Any, path: Path) -> Iterable[Event]:
    """The events of a file's first conversation."""
    return next(importer.IMPORTER.conversations(Recording(path)))[1]


def openai_chat_request(prompt: Prompt) -> dict[str, Any]:
    return chat_writer.written(prompt).value


def read(path: Path) -> Any:
    return json.loads(path.read_text())


# Generated conversations.

ids = st.sampled_from(["toolu_1", "toolu_2", "call~2", "call"])
pixels = st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode())


def block(type: str, optional: dict[str, Any] | None = None, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    marks = {"cache_control": st.just({"type": "ephemeral"})}
    return st.fixed_dictionaries({"type": st.just(type), **fields}, optional=marks | (optional or {}))


sources = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("base64"), "media_type": st.sampled_from(["image/png", "image/x"]), "data": pixels | texts}
    ),
    st.fixed_dictionaries({"type": st.just("url"), "url": texts}),
    st.fixed_dictionaries({"type": st.just("file"), "file_id": texts}),
)
text_blocks = block("text", {"citations": st.none() | st.just([])}, text=texts)
images = block("image", {"transformations": json_objects}, source=sources)
documents = block("document", {"title": texts}, source=sources)
unknown = block("fancy", {"x": json_values}, id=texts)
results = block(
    "tool_result",
    {
        "content": st.none() | texts | st.lists(text_blocks | images | unknown | texts, max_size=3),
        "is_error": st.none() | st.booleans(),
        "toolset_name": texts,
    },
    tool_use_id=ids,
)
spoken = st.one_of(
    text_blocks,
    block("thinking", thinking=texts, signature=texts),
    block("redacted_thinking", data=texts),
    block("tool_use", {"caller": json_objects}, id=ids, name=texts, input=json_objects),
    block("server_tool_use", id=ids, name=texts, input=json_objects),
    block("web_search_tool_result", tool_use_id=ids, content=json_values),
    unknown,
)


def message(role: str, content: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"role": st.just(role), "content": content})


anthropic_messages_lists = st.lists(
    st.one_of(
        message("user", texts | st.lists(text_blocks | images | documents | results | unknown | texts, max_size=4)),
        message("assistant", texts | st.lists(spoken, max_size=4)),
        message("system", texts | st.lists(text_blocks, max_size=2)),
    ),
    max_size=6,
).map(lambda messages: [*messages, {"role": "user", "content": "the end"}])


@given(anthropic_messages_lists)
def test_any_messages_come_back_in_their_normal_form(messages: list[dict[str, Any]]):
    messages = json.loads(json.dumps(messages))  # two lone surrogates may be one character in JSON

    written = formats.anthropic(imported(anthropic_messages, {"messages": messages}))

    assert written["messages"] == formats.normalise_anthropic(messages)


@given(anthropic_messages_lists)
def test_the_normal_form_is_its_own_normal_form(messages: list[dict[str, Any]]):
    once = formats.normalise_anthropic(messages)

    assert formats.normalise_anthropic(once) == once
    assert all(one["role"] != two["role"] for one, two in itertools.pairwise(once))


def part(type: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    marks = {"cache_control": st.just({"type": "ephemeral"}), "vendor": json_values}
    return st.fixed_dictionaries({"type": st.just(type), **fields}, optional=marks)


urls = texts | st.tuples(st.sampled_from(["image/png", "image/x"]), pixels | texts).map(
    lambda pair: f"data:{pair[0]};base64,{pair[1]}"
)
pictures = part("image_url", image_url=st.fixed_dictionaries({"url": urls}, optional={"detail": texts}))
openai_parts = part("text", text=texts) | pictures | part("input_audio", input_audio=json_objects) | texts | json_values
arguments = st.one_of(texts, json_objects.map(json.dumps), json_objects.map(lambda value: json.dumps(value, indent=1)))
openai_calls = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {"name": texts}, optional={"arguments": arguments | json_objects, "x": json_values}
            ),
        },
        optional={"id": ids | st.none(), "index": st.integers(0, 3)},
    ),
    st.fixed_dictionaries(
        {"type": st.just("custom"), "id": ids, "custom": st.fixed_dictionaries({"name": texts, "input": texts})}
    ),
    json_objects,
)
contents = st.none() | texts | st.lists(openai_parts, max_size=3)
other_fields = {"name": texts, "cache_control": st.just({"type": "ephemeral"})}
function_pairs = st.tuples(texts.filter(bool), arguments, texts).map(
    lambda pair: [
        {"role": "assistant", "content": None, "function_call": {"name": pair[0], "arguments": pair[1]}},
        {"role": "function", "name": pair[0], "content": pair[2]},
    ]
)
single_messages = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "developer"])}, optional={"content": contents, **other_fields}
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant")},
        optional={
            "content": contents,
            "reasoning_content": st.none() | texts,
            "refusal": st.none() | texts,
            "tool_calls": st.none() | st.lists(openai_calls, max_size=3),
            "audio": st.none() | json_objects,
            **other_fields,
        },
    ),
    st.fixed_dictionaries(
        {"role": st.just("tool"), "tool_call_id": ids}, optional={"content": contents | json_objects, **other_fields}
    ),
)
openai_messages_lists = st.lists(single_messages.map(lambda one: [one]) | function_pairs, max_size=6).map(
    lambda groups: [*(one for group in groups for one in group), {"role": "user", "content": "the end"}]
)


@given(openai_messages_lists)
def test_any_openai_messages_come_back_in_their_normal_form(messages: list[dict[str, Any]]):
    messages = json.loads(json.dumps(messages))

    written = openai_chat_request(imported(openai_chat, {"messages": messages}))

    assert written["messages"] == chat_writer.normalised(messages)


@given(openai_messages_lists)
def test_the_openai_normal_form_is_its_own_normal_form(messages: list[dict[str, Any]]):
    once = chat_writer.normalised(messages)

    assert chat_writer.normalised(once) == once


@given(anthropic_messages_lists, openai_messages_lists)
def test_either_form_can_be_written_as_the_other(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]):
    chat = openai_chat_request(imported(anthropic_messages, {"messages": ours}))
    messages = formats.anthropic(imported(openai_chat, {"messages": theirs}))

    assert chat_writer.normalised(chat["messages"]) == chat["messages"]
    assert formats.normalise_anthropic(messages["messages"]) == messages["messages"]


# The files of the tests.


def test_a_request_comes_back_without_its_cache_marks():
    source = read(DATA / "anthropic" / "request.json")

    written = formats.anthropic(prompt(events_of(anthropic_messages, DATA / "anthropic" / "request.json")))

    assert written["messages"] == formats.normalise_anthropic(source["messages"])
    assert written["model"] == source["model"]
    assert written["system"] == [{"type": "text", "text": "You are careful."}]
    assert [tool.keys() & {"name", "cache_control"} for tool in written["tools"]] == [{"name"}, {"name"}]


def test_the_normal_form_puts_results_first_and_joins_neighbours():
    marked = {"type": "text", "text": " ", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r", "is_error": False}]},
        {"role": "assistant", "content": ""},
        {
            "role": "user",
            "content": [marked, {"type": "tool_result", "tool_use_id": "y", "content": [], "is_error": True}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "z", "content": [marked]}]},
    ]

    assert formats.normalise_anthropic(messages) == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "r"}]},
                {"type": "tool_result", "tool_use_id": "y", "is_error": True},
                {"type": "tool_result", "tool_use_id": "z", "content": [{"type": "text", "text": " "}]},
                {"type": "text", "text": "a"},
                {"type": "text", "text": " "},
            ],
        }
    ]


def test_the_openai_normal_form_joins_instructions_and_drops_what_says_nothing():
    mark = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "b"}
    call = {"type": "function", "id": None, "function": {"name": "f"}}
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": None},
        {"role": "developer", "content": [{**text, **mark}]},
        {"role": "system", "name": "example_user", "content": "c"},
        {"role": "user", "content": [{**text, **mark}], **mark},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": None},
    ]

    assert chat_writer.normalised(messages) == [
        {"role": "system", "content": [{"type": "text", "text": "a"}, text]},
        {"role": "system", "name": "example_user", "content": "c"},
        {"role": "user", "content": [text]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "content": ""},
    ]


def test_an_openai_request_comes_back_whole():
    source = read(DATA / "openai-chat" / "request.json")

    written = openai_chat_request(prompt(events_of(openai_chat, DATA / "openai-chat" / "request.json")))

    assert written["messages"] == chat_writer.normalised(source["messages"])
    assert written["tools"] == source["tools"]
    assert written["model"] == "gpt-4o"
    assert written["messages"][0]["role"] == "system"
    assert [call["id"] for call in written["messages"][2]["tool_calls"]] == ["call_1", "call_1"]
    assert written["messages"][2]["tool_calls"][1]["function"]["arguments"] == '{"city": "Ly'


def test_the_stub_of_a_result_answers_its_call_by_the_id_that_is_written(tmp_path: Path):
    source = prompt(events_of(openai_chat, DATA / "openai-chat" / "request.json"))
    stubbed = [
        msgspec.structs.replace(piece, body=b"stub", extra={}) if piece.kind == "tool_result" else piece
        for piece in source.pieces
    ]

    written = openai_chat_request(Prompt(pieces=stubbed))

    answers = [one for one in written["messages"] if one.get("content") == "stub"]
    assert [(one["role"], one.get("tool_call_id"), one.get("name")) for one in answers] == [
        ("tool", "call_1", None),
        ("tool", "call_1", None),
        ("tool", "call_2", None),
        ("tool", "call_1", None),
        ("function", None, "weather"),
    ]


def test_an_anthropic_request_as_chat_completions():
    written = openai_chat_request(prompt(events_of(anthropic_messages, DATA / "anthropic" / "request.json")))

    image = next(item for item in written["messages"][2]["content"] if item["type"] == "image_url")
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert [tool["function"]["name"] for tool in written["tools"]] == ["read"]
    assert [
        (one["role"], one.get("tool_call_id", ""), [call["id"] for call in one.get("tool_calls", [])])
        for one in written["messages"]
    ] == [
        ("system", "", []),
        ("user", "", []),
        ("user", "", []),
        ("assistant", "", ["toolu_1", "toolu_2"]),
        ("tool", "toolu_2", []),
        ("tool", "toolu_1", []),
        ("user", "", []),
        ("system", "", []),
        ("assistant", "", ["toolu_3"]),
        ("tool", "toolu_3", []),
    ]
    assert written["messages"][3]["content"] == "I read both."
    assert written["messages"][3]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a.txt"}'}
    assert written["messages"][4]["content"] == "one pixel"
    assert written["messages"][5]["content"] == "no such file"


def test_an_openai_request_as_messages_leaves_out_what_only_openai_has():
    written = formats.anthropic(prompt(events_of(openai_chat, DATA / "openai-chat" / "request.json")))

    kinds = [[item["type"] for item in one["content"]] for one in written["messages"]]
    assert kinds[0] == ["text", "image", "image"]
    assert kinds[1:3] == [["tool_use", "tool_use"], ["tool_result", "tool_result"]]
    assert [tool["name"] for tool in written["tools"]] == ["weather"]
    assert written["messages"][1]["content"][1]["input"] == {"arguments": '{"city": "Ly'}


SDK = TypeAdapter(list[MessageParam])


def validated(messages: list[dict[str, Any]]) -> None:
    """Raises what the SDK's own types say against `messages`."""

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, Iterator | list):  # pydantic looks into an `Iterable` only when it is read
            for item in value:
                walk(item)

    walk(SDK.validate_python(messages))


@pytest.mark.parametrize(
    ("importer", "path"),
    [
        (anthropic_messages, "anthropic/request.json"),
        (anthropic_messages, "anthropic/log.jsonl"),
        (openai_chat, "openai-chat/request.json"),
        (openai_chat, "openai-chat/runs.json"),
    ],
)
def test_what_is_written_is_what_the_sdk_takes(importer: Any, path: str):
    written = formats.anthropic(prompt(events_of(importer, DATA / path)))

    validated(written["messages"])
    assert {"type": "text", "text": ""} not in [item for one in written["messages"] for item in one["content"]]


def test_the_sdk_check_does_look_into_blocks():
    with pytest.raises(ValueError, match="validation error"):
        validated([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 7}]}])


def test_json_for_a_file_is_readable_and_holds_lone_surrogates():
    value = {"a": ["é\ud800", 1.5, {"b": None}]}

    assert json.loads(formats.dumps(value)) == value
    assert formats.dumps({"é": [1]}) == '{\n  "é": [\n    1\n  ]\n}\n'.encode()


# Real recordings, where they are at hand.

REAL = os.environ.get("CTXVC_TEST_DATA", "")
real = pytest.mark.skipif(not REAL, reason="CTXVC_TEST_DATA names no folder with transcripts/ and trajectories/")


def by_size(pattern: str, step: int) -> list[Any]:
    """Every `step`-th of the real files in the order of their sizes."""
    paths = sorted(Path(REAL).glob(pattern), key=lambda path: path.stat().st_size) if REAL else []
    return [pytest.param(path, id=path.name) for path in paths[::step]]


@real
@pytest.mark.parametrize("path", by_size("trajectories/*.jsonl.gz", 6))
def test_a_real_trajectory_comes_back(path: Path):
    messages = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()][1:]
    for one in messages:
        one.pop("meta", None)
        for item in one["content"]:
            item.pop("synthetic", None)
    system: list[Any] = []
    while messages[0]["role"] == "system":
        system += messages.pop(0)["content"]

    assert trajectory.sniff(Recording(path).head())
    written = formats.anthropic(prompt(events_of(trajectory, path)))
    assert written.get("system", []) == system
    assert written["messages"] == formats.normalise_anthropic(messages)


@real
@pytest.mark.parametrize("path", by_size("trajectories/*.jsonl.gz", 20))
def test_a_real_trajectory_survives_both_forms(path: Path, tmp_path: Path):
    source = prompt(events_of(trajectory, path))
    for importer, write in ((anthropic_messages, formats.anthropic), (openai_chat, openai_chat_request)):
        file = tmp_path / f"{importer.FORMAT}.json"
        file.write_bytes(formats.dumps(write(source)))
        assert write(prompt(events_of(importer, file))) == write(source)


@real
@pytest.mark.parametrize("path", by_size("transcripts/openai-chat/openhands*", 1))
def test_a_real_log_of_a_call_comes_back(path: Path):
    source = read(path)
    reply = source["response"]["choices"][0]["message"]

    assert openai_chat.sniff(Recording(path).head())
    written = openai_chat_request(prompt(events_of(openai_chat, path)))
    assert written["messages"] == chat_writer.normalised([*source["messages"], reply])
    assert written["tools"] == source["tools"]


@real
@pytest.mark.parametrize("path", by_size("transcripts/openai-chat/tau-bench*", 1))
def test_real_runs_come_back_and_no_call_has_the_id_of_another(path: Path):
    assert openai_chat.sniff(Recording(path).head())
    for run, (_, events) in zip(read(path), openai_chat.conversations(Recording(path)), strict=True):
        found = prompt(events)
        made = [piece.call for piece in found.pieces if piece.kind == "tool_use"]
        answered = [piece.call for piece in found.pieces if piece.kind == "tool_result"]

        assert len(set(made)) == len(made)
        assert answered == made[: len(answered)]
        assert openai_chat_request(found)["messages"] == chat_writer.normalised(run["traj"])
        validated(formats.anthropic(found)["messages"])
