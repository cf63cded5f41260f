"""Requests in another form: what comes back is what was there, less what was reported as lost."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxvc
from ctxvc.core.prompt import formats
from ctxvc.errors import BadInput
from ctxvc.forms import chat_writer, conversion, fields, responses_writer
from ctxvc.forms.conversion import Converted, Form, Loss
from ctxvc.forms.losses import Place
from ctxvc.importers import anthropic_messages
from tests.exporters.test_exporters import imported
from tests.making.generated import json_objects, json_values, texts

PIXEL = "iVBORw0KGgo="
SAID = st.integers(0, 10**6).map(lambda number: f"m{number}m") | texts


# --- generated requests


def block(type: str, lost: dict[str, Any] | None = None, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A block of that type; `lost` are fields that OpenAI's forms have no place for."""
    marks = {"cache_control": st.just({"type": "ephemeral"})}
    return st.fixed_dictionaries({"type": st.just(type), **fields}, optional=marks | (lost or {}))


text_blocks = block("text", {"citations": st.just([{"type": "char_location"}])}, text=SAID)
images = block(
    "image",
    source=st.sampled_from(
        [
            {"type": "base64", "media_type": "image/png", "data": PIXEL},
            {"type": "url", "url": "https://example.org/a.png"},
            {"type": "file", "file_id": "file_1"},
        ]
    ),
)
documents = block(
    "document",
    {"title": st.just("report.pdf"), "context": st.just("of May")},
    source=st.sampled_from(
        [
            {"type": "base64", "media_type": "application/pdf", "data": PIXEL},
            {"type": "url", "url": "https://example.org/a.pdf"},
        ]
    ),
)
unknown = st.fixed_dictionaries({"type": st.sampled_from(["search_result", "container_upload"]), "source": SAID})


def reasoning(own_signature: str) -> st.SearchStrategy[dict[str, Any]]:
    """Thinking of a server of the form that is converted to, or of some other."""
    signatures = st.sampled_from([own_signature, "c2lnbmVk"])
    return st.builds(lambda value, signature: {"type": "thinking", "thinking": value, "signature": signature},
                     st.just("m1m: let me see"), signatures)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn, own_signature: str, pictures_in_results: bool) -> dict[str, Any]:
    """A request of the Messages API as a program may make it."""
    messages: list[dict[str, Any]] = []
    calls: list[str] = []
    for number in range(draw(st.integers(0, 4))):
        item = text_blocks | images if pictures_in_results else text_blocks
        results = [
            draw(
                block(
                    "tool_result",
                    {"is_error": st.booleans()},
                    tool_use_id=st.just(call),
                    content=SAID | st.lists(item, max_size=2),
                )
            )
            for call in calls
        ]
        said = draw(st.lists(text_blocks | images | documents | unknown, max_size=2))
        # What is always carried keeps the replies before and after it apart.
        messages.append({"role": "user", "content": [*results, *said, {"type": "text", "text": "go on"}]})
        thought = draw(st.lists(reasoning(own_signature), max_size=1))
        replied = draw(st.lists(text_blocks | unknown, max_size=2))
        calls = [f"call_{number}_{at}" for at in range(draw(st.integers(0, 2)))]
        called = [
            draw(block("tool_use", {"caller": st.just({"type": "direct"})},
                       id=st.just(call), name=st.just("read"), input=json_objects))
            for call in calls
        ]  # fmt: skip
        messages.append({"role": "assistant", "content": [*thought, *replied, *called]})
    tools = st.lists(
        st.fixed_dictionaries(
            {"name": st.just("read"), "input_schema": st.just({"type": "object", "properties": {}})},
            optional={"description": SAID, "strict": st.just(True), "defer_loading": st.just(True)},
        )
        | st.just({"type": "web_search_20250305", "name": "web_search"}),
        max_size=2,
    )
    more = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "system": SAID | st.lists(text_blocks, max_size=3),
                "tools": tools,
                "model": st.just("some-model"),
                "max_tokens": st.integers(1, 9999),
                "temperature": st.just(0.5),
                "stop_sequences": st.just(["END"]),
                "tool_choice": st.sampled_from(
                    [
                        {"type": "auto"},
                        {"type": "any", "disable_parallel_tool_use": True},
                        {"type": "none"},
                        {"type": "tool", "name": "read"},
                    ]
                ),
                "output_config": st.just({"effort": "high"}) | st.just({"effort": "low", "format": {"type": "x"}}),
                "thinking": st.just({"type": "adaptive"}),
                "metadata": st.just({"user_id": "u"}),
            },
        )
    )
    return {"messages": messages, **more}


# --- what is left


def steps(path: str) -> list[str | int]:
    return [int(step[1:-1]) if step.startswith("[") else step for step in re.findall(r"[^.\[\]]+|\[\d+\]", path)]


def last_first(path: list[str | int]) -> list[str]:
    return [str(step).zfill(9) for step in path]


def less(value: Any, losses: Iterable[Loss]) -> Any:
    """A copy of `value` without what was lost."""
    value = copy.deepcopy(value)
    for path in sorted((steps(loss.path) for loss in losses), key=last_first, reverse=True):
        place = value
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
    return value


def normal(request: dict[str, Any]) -> dict[str, Any]:
    """A request in the spelling that conversions write."""
    system = request.get("system") or []
    texts = [
        part for part in ([{"type": "text", "text": system}] if isinstance(system, str) else system) if part["text"]
    ]
    texts = [{"type": "text", "text": part["text"]} for part in texts]
    result = {
        **request,
        "messages": formats.normalise_anthropic(request["messages"]),
        "system": texts[0]["text"] if len(texts) == 1 else texts,
    }
    return {name: field for name, field in result.items() if field or name == "messages"}


def strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from strings(item)
        case dict():
            for item in value.values():
                yield from strings(item)


# --- there and back


@given(requests("openai.chat:reasoning_content", pictures_in_results=False))
def test_a_request_comes_back_from_chat_completions_less_what_was_lost(request: dict[str, Any]) -> None:
    there = conversion.to_chat(request)
    back = conversion.from_chat(there.value)

    assert not [loss for loss in there.losses if loss.change]
    assert back.losses == ()
    assert normal(back.value) == normal(less(request, there.losses))


@given(requests('openai.responses:{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":15}],'
                '"encrypted_content":"x"}', pictures_in_results=True))  # fmt: skip
def test_a_request_comes_back_from_responses_less_what_was_lost(request: dict[str, Any]) -> None:
    there = conversion.to_responses(request)
    back = conversion.from_responses(there.value)

    assert not [loss for loss in there.losses if loss.change]
    assert back.losses == ()
    assert normal(back.value) == normal(less(request, there.losses))


@given(requests("openai.chat:reasoning", pictures_in_results=False))
def test_what_went_through_once_goes_through_again_without_loss(request: dict[str, Any]) -> None:
    chat = conversion.to_chat(request).value
    common = conversion.from_chat(chat)

    again = conversion.to_chat(common.value)

    assert not common.losses and not again.losses
    assert conversion.from_chat(again.value).value == common.value


@pytest.mark.parametrize("writer", [chat_writer, responses_writer])
@given(requests("openai.chat:reasoning_content", pictures_in_results=True))
def test_a_request_and_its_recording_are_written_alike(writer: Any, request: dict[str, Any]) -> None:
    messages = [*request["messages"], {"role": "user", "content": "the end"}]
    request = {**request, "messages": formats.normalise_anthropic(messages)}
    losses: list[Loss] = []

    converted = writer.written(fields.prompt_of(request, Place(losses))).value
    exported = writer.written(imported(anthropic_messages, request)).value

    items = "messages" if writer is chat_writer else "input"
    assert converted[items] == exported[items]


def test_the_property_sees_a_loss_that_is_not_reported() -> None:
    request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "odd"}]}]}
    there = conversion.to_chat(request)

    assert [loss.path for loss in there.losses] == ["messages[0].content[1]"]
    assert normal(conversion.from_chat(there.value).value) != normal(request)


# --- hostile input

KINDS = (
    *("text", "image", "tool_use", "tool_result", "thinking", "function_call", "reasoning", "function_call_output"),
    *("message", "input_text", "image_url", "file", "refusal"),
)
BLOCK_FIELDS = (
    *("text", "source", "id", "call_id", "name", "input", "arguments", "output", "summary", "signature", "content"),
    *("image_url", "file"),
)
ITEM_FIELDS = ("function_call", "tool_call_id", "reasoning_content", "call_id", "name", "arguments")
REQUEST_FIELDS = (
    *("system", "tools", "tool_choice", "stop", "reasoning", "instructions", "output_config", "max_tokens"),
    *("parallel_tool_calls", "stop_sequences"),
)


def odd_fields(*names: str) -> dict[str, st.SearchStrategy[Any]]:
    return dict.fromkeys(names, json_values)


odd_blocks = st.recursive(
    json_values | st.fixed_dictionaries({"type": st.sampled_from(KINDS)}, optional=odd_fields(*BLOCK_FIELDS)),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)
odd_calls = st.fixed_dictionaries(
    {"id": json_values, "function": json_values | st.just({"name": "f"}), "type": json_values}
)
odd_messages = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            **odd_fields(*ITEM_FIELDS),
            "role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "function", 5]),
            "type": st.sampled_from(KINDS),
            "content": odd_blocks | st.lists(odd_blocks, max_size=3),
            "tool_calls": odd_blocks | st.lists(odd_calls, max_size=2),
            "output": odd_blocks,
            "summary": odd_blocks,
        },
    )
    | json_values,
    max_size=4,
)
odd_requests = st.fixed_dictionaries(
    {},
    optional={
        **odd_fields(*REQUEST_FIELDS),
        "messages": odd_messages | json_values,
        "input": odd_messages | json_values,
    },
)
odd_choices = st.fixed_dictionaries({"message": odd_messages.map(lambda messages: messages[0] if messages else {})})
odd_replies = st.fixed_dictionaries(
    {},
    optional={
        **odd_fields("status", "incomplete_details", "id"),
        "choices": json_values | st.lists(odd_choices, max_size=2),
        "output": odd_messages,
        "usage": json_values | st.just({"prompt_tokens": 5, "completion_tokens": None}),
    },
)
CONVERSIONS: list[Callable[[Any], Converted]] = [
    conversion.to_chat,
    conversion.from_chat,
    conversion.to_responses,
    conversion.from_responses,
]


@pytest.mark.parametrize("converted", CONVERSIONS)
@given(request=odd_requests | json_values)
def test_whatever_comes_in_is_converted_or_refused(converted: Callable[[Any], Converted], request: Any) -> None:
    try:
        result = converted(request)
    except BadInput:
        return
    json.dumps(result.value)


@given(odd_replies)
def test_whatever_replies_is_a_message(value: dict[str, Any]) -> None:
    for reply in (conversion.chat_reply(value).value, conversion.responses_reply(value).value):
        assert reply["role"] == "assistant" and isinstance(reply["content"], list)
        json.dumps(reply)


@given(odd_messages)
def test_no_marked_text_of_a_message_vanishes_unreported(messages: list[Any]) -> None:
    """Each string in a text block stands in what was made of it, or below a place that was reported."""
    messages = [item for item in messages if isinstance(item, dict)]
    marked = [
        {**message, "role": role, "content": [{"type": "text", "text": f"m{number}m"}, message.get("content")]}
        for number, message in enumerate(messages)
        if (role := message.get("role")) in ("user", "assistant", "system", "developer")
    ]
    for converted in (conversion.from_chat, conversion.to_chat):
        result = converted({"messages": marked})
        lost = {loss.path for loss in result.losses if not loss.change}
        there = "\n".join(strings(result.value))
        assert all(f"m{number}m" in there or any(f"[{at}]" in path for path in lost)
                   for at, message in enumerate(marked)
                   for number in [message["content"][0]["text"][1:-1]])  # fmt: skip


# --- examples


def chat(*messages: dict[str, Any], **more: Any) -> Converted:
    return conversion.from_chat({"messages": list(messages), **more})


def test_parallel_results_become_one_message_and_what_follows_stays_behind_them() -> None:
    call = {"type": "function", "function": {"name": "read", "arguments": "{}"}}

    converted = chat(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", **call}, {"id": "b", **call}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "and?"},
    )

    assert converted.value["system"] == "be brief"
    assert [block["type"] for block in converted.value["messages"][2]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
    ]
    assert not converted.losses


def test_a_picture_in_a_result_follows_the_results_in_chat_completions() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": source}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "text"},
    ]
    calls = [{"type": "tool_use", "id": call, "name": "see", "input": {}} for call in "ab"]
    request = {"messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]}

    there = conversion.to_chat(request)

    assert [message["role"] for message in there.value["messages"]] == ["assistant", "tool", "tool", "user"]
    assert there.value["messages"][3]["content"][1]["image_url"]["url"].endswith(PIXEL)
    assert there.losses == (Loss("messages[1].content[0].content[0]", "it follows in a message of the user"),)


def test_arguments_that_are_no_json_are_kept_as_text() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "a'}}

    converted = chat({"role": "assistant", "tool_calls": [call]})

    assert converted.value["messages"][0]["content"][0]["input"] == {"arguments": '{"path": "a'}
    assert converted.losses[0].path == "messages[0].tool_calls[0].function.arguments"


def test_calls_of_the_oldest_form_get_ids_and_their_results_the_same() -> None:
    converted = chat(
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}},
        {"role": "function", "name": "read", "content": "out"},
    )

    call, result = (message["content"][0] for message in converted.value["messages"])
    assert call["id"] == result["tool_use_id"] == "call-1"


def test_instructions_are_text_and_what_else_stands_there_is_reported() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}

    there = conversion.to_chat({"system": [{"type": "text", "text": "be brief"}, picture], "messages": []})

    assert there.value["messages"] == [{"role": "system", "content": "be brief"}]
    assert there.losses == (Loss("system[1]"),)


def test_a_field_beside_a_text_is_reported() -> None:
    converted = chat({"role": "user", "content": [{"type": "text", "text": "hi", "annotations": [{"type": "url"}]}]})

    assert converted.value["messages"][0]["content"] == [{"type": "text", "text": "hi"}]
    assert converted.losses == (Loss("messages[0].content[0].annotations"),)


def test_a_custom_call_becomes_a_functions_and_that_is_reported() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": '{"line": 1}'}}

    converted = chat({"role": "assistant", "tool_calls": [call]})

    (block,) = converted.value["messages"][0]["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "patch", {"line": 1})
    assert converted.losses == (Loss("messages[0].tool_calls[0]", "a function's call"),)


def test_text_after_a_call_is_reported_as_moved() -> None:
    content = [{"type": "tool_use", "id": "a", "name": "f", "input": {}}, {"type": "text", "text": "after"}]

    there = conversion.to_chat({"messages": [{"role": "assistant", "content": content}]})

    assert there.losses == (Loss("messages[0].content[1].order", "reasoning, then text, then calls"),)


def test_an_encrypted_reasoning_item_comes_back_as_it_was() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "first"}, {"type": "summary_text", "text": "\n\nthen"}],
        "content": [{"type": "reasoning_text", "text": ""}],
        "encrypted_content": "gAAA",
    }
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}

    common = conversion.from_responses({"input": [item, call]})

    assert not common.losses
    assert common.value["messages"][0]["content"][0]["thinking"] == "first\n\n\n\nthen\n\n"
    assert conversion.to_responses(common.value).value["input"] == [item, call]


@pytest.mark.parametrize("change", ["", "other text, longer than what was there", "fir"])
def test_reasoning_whose_text_was_changed_does_not_go_back(change: str) -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "first"}]}
    common = conversion.from_responses({"input": [item]}).value
    common["messages"][0]["content"][0]["thinking"] = change

    there = conversion.to_responses(common)

    assert there.value["input"] == [] and there.losses[0].path == "messages[0].content[0]"


def test_from_chat_to_responses_both_halves_tell_what_they_lost() -> None:
    request = {"messages": [{"role": "user", "content": "hi", "name": "Ada"}], "stop": "END", "seed": 5}

    converted = ctxvc.convert(request, "chat", "responses")

    assert converted.value["input"][0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert [loss.path for loss in converted.losses] == ["messages[0].name", "seed", "messages API: stop_sequences"]


@pytest.mark.parametrize("source, target", [("messages", "html"), ("", "chat")])
def test_a_form_that_does_not_exist_is_refused(source: Form, target: Form) -> None:
    with pytest.raises(BadInput, match="no form"):
        ctxvc.convert({"messages": []}, source, target)


def test_a_reply_of_either_form_is_a_message() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    message = {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [call]}
    item = {
        "type": "function_call",
        "id": "fc_1",
        "status": "completed",
        "call_id": "a",
        "name": "f",
        "arguments": "{}",
    }

    from_chat = conversion.chat_reply(
        {"id": "c1", "model": "m", "choices": [{"finish_reason": "stop", "message": message}], "usage": usage}
    )
    from_responses = conversion.responses_reply({"id": "r1", "status": "completed", "output": [item]})

    assert [block["type"] for block in from_chat.value["content"]] == ["thinking", "text", "tool_use"]
    assert from_chat.value["stop_reason"] == from_responses.value["stop_reason"] == "tool_use"
    assert from_chat.value["usage"]["input_tokens"] == 40 and from_chat.value["usage"]["output_tokens"] == 7
    assert not from_chat.losses and not from_responses.losses


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("length", "max_tokens"), ("content_filter", "refusal"), ("tool_calls", "end_turn"), (None, None)],
)
def test_why_a_chat_completion_ended_is_told_as_the_messages_api_does(finish: str | None, stop: str | None) -> None:
    reply = conversion.chat_reply({"choices": [{"finish_reason": finish, "message": {"content": "x"}}]})

    assert reply.value["stop_reason"] == stop
