"""Requests of the Messages API ⇄ requests of OpenAI's Responses API, and replies of the latter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.forms import elements, fields, responses_writer
from ctxvc.forms.losses import Converted, Loss, Place
from ctxvc.forms.responses import definition
from ctxvc.forms.responses_writer import BETWEEN
from ctxvc.forms.values import text_in

_TAKEN = ("instructions", "input", "max_output_tokens", "reasoning")
_CUT_SHORT = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def to_responses(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.responses.create` for those of `client.messages.create` (`responses_writer.written`).

    Raises: BadInput.
    """
    fields.check(request, "messages")
    losses: list[Loss] = []
    top = Place(losses)
    written = responses_writer.written(fields.prompt_of(request, top))
    losses += written.losses
    value = {**fields.settings(request, top, limit="max_output_tokens", function=""), **written.value}
    if effort := fields.effort(request.get("output_config"), top.at("output_config")):
        value["reasoning"] = {"effort": effort}
    top.drop_except(request, *fields.TAKEN)
    return Converted(value, tuple(losses))


def from_responses(request: Mapping[str, Any]) -> Converted:
    """The arguments of `client.messages.create` for those of `client.responses.create`.

    Conversation that only the server has, as with `previous_response_id`, is lost. Raises: BadInput.
    """
    if isinstance(request, Mapping) and isinstance(question := request.get("input"), str):
        request = {**request, "input": [{"type": "message", "role": "user", "content": question}]}
    fields.check(request, "input")
    losses: list[Loss] = []
    top = Place(losses)
    items = [(item, top.at("input", number)) for number, item in fields.objects(request, "input", top)]
    count = next((at for at, (item, _) in enumerate(items) if not _instructs(item)), len(items))
    system = list(fields.texts(request.get("instructions"), top.at("instructions")))
    for item, place in items[:count]:
        system += _instructions(item, place)
    value = fields.from_settings(request, top, "max_output_tokens", system=system, tool=definition)
    value["messages"] = _messages(items[count:])
    if effort := fields.effort(request.get("reasoning"), top.at("reasoning")):
        value["output_config"] = {"effort": effort}
    top.drop_except(request, *fields.TAKEN_FROM_OPENAI, *_TAKEN)
    return Converted(value, tuple(losses))


def responses_reply(response: Mapping[str, Any], arguments: fields.ReadArguments = fields.read_arguments) -> Converted:
    """The Messages API's message for a response; `stop_reason` is None if it did not end by itself.

    `arguments` makes a call's `input` from its arguments, which are text here.
    """
    losses: list[Loss] = []
    top = Place(losses)
    items = ((item, top.at("output", number)) for number, item in fields.objects(response, "output", top))
    content = _messages(items, marks=("id", "status"), arguments=arguments)
    blocks = [block for message in content for block in message["content"]]
    details = response.get("incomplete_details")
    reason = text_in(details, "reason") if isinstance(details, dict) else ""
    called = any(block["type"] == "tool_use" for block in blocks)
    match response.get("status"):
        case "completed":
            stop: str | None = "tool_use" if called else "end_turn"
        case "incomplete":
            stop = _CUT_SHORT.get(reason, "max_tokens")
        case _:
            stop = None
    return Converted(
        fields.reply(response, blocks, stop, elements.responses_usage(response.get("usage"))), tuple(losses)
    )


# --- Responses → Messages


def _messages(
    items: Iterable[tuple[dict[str, Any], Place]],
    *,
    marks: Sequence[str] = (),
    arguments: fields.ReadArguments = fields.read_arguments,
) -> list[dict[str, Any]]:
    """The messages of the items, in the normal form. `marks` are fields of items whose loss is not reported."""
    return formats.normalise_anthropic(
        {"role": role, "content": blocks}
        for item, place in items
        for role, blocks in [_converted(item, place, marks, arguments)]
        if role
    )


def _instructs(item: dict[str, Any]) -> bool:
    return item.get("type", "message") == "message" and item.get("role") in ("system", "developer")


def _instructions(item: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    place.drop_except(item, "type", "role", "content")
    return list(fields.texts(item.get("content"), place.at("content")))


def _converted(
    item: dict[str, Any], place: Place, marks: Sequence[str], arguments: fields.ReadArguments
) -> tuple[str, list[dict[str, Any]]]:
    """The role and blocks of an item; the role is empty if the form has no place for it."""
    kind = item.get("type", "message")
    match item:
        case {"role": "user" | "assistant" as role} if kind == "message":
            place.drop_except(item, "type", "role", "content", *marks)
            return role, list(fields.content_blocks(item.get("content"), place.at("content")))
        case {"role": "system" | "developer"} if kind == "message":
            return "system", _instructions(item, place)
        case {"type": "reasoning"} if block := _thinking(item):
            return "assistant", [block]
        case {"type": "function_call" | "custom_tool_call", "call_id": str(call), "name": str(name)}:
            field = "arguments" if kind == "function_call" else "input"
            place.drop_except(item, "type", "call_id", "name", field, *marks)
            if kind != "function_call":
                place.at("type").change("function_call")
            return "assistant", [fields.call(name, call, item.get(field, ""), place.at(field), arguments)]
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": str(call)}:
            place.drop_except(item, "type", "call_id", "output", *marks)
            if kind != "function_call_output":
                place.at("type").change("function_call_output")
            blocks = list(fields.content_blocks(item.get("output"), place.at("output")))
            return "user", [{"type": "tool_result", "tool_use_id": call, "content": blocks}]
    place.drop()
    return "", []


def _thinking(item: dict[str, Any]) -> dict[str, Any] | None:
    """Reasoning as a thinking block, whose signature is the item with each text replaced by its length."""
    texts: list[str] = []
    unfilled = dict(item)
    for name in ("summary", "content"):
        if name not in item or item[name] is None:
            continue
        if not isinstance(item[name], list):
            return None
        parts = []
        for part in item[name]:
            if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                return None
            texts.append(part["text"])
            parts.append({**part, "text": len(part["text"])})
        unfilled[name] = parts
    signature = fields.RESPONSES_SIGNATURE + wire.compact(unfilled).decode()
    return {"type": "thinking", "thinking": BETWEEN.join(texts), "signature": signature}
