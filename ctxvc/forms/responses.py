"""The Responses API's requests and replies. Consecutive items of the model are one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.forms import elements, sse
from ctxvc.forms import items as native
from ctxvc.forms.form import Facts, Prompt, Reply, facts, json_object, messages_of
from ctxvc.forms.responses_edit import edited, is_by_model, is_item, layout, own, results, role, spliced, tool
from ctxvc.forms.values import digest, objects, text_of

__all__ = ["NAME", "edited", "layout", "own", "prompt", "reader", "reply", "results", "role", "spliced", "tool"]

NAME = "openai-responses"


def prompt(body: bytes) -> Prompt:
    """The prompt in a request's body, an item a message. Raises: BadInput."""
    request = json_object(body, "the request")
    match request.get("input"):
        case str(text):
            items = [{"type": "message", "role": "user", "content": text}]
        case list(items):
            pass
        case _:
            raise BadInput("the request has no input")
    conversation = request.get("conversation")
    return Prompt(
        model=text_of(request.get("model")),
        system=text_of(request.get("instructions")) or None,
        tools=tuple(map(definition, [*objects(request.get("tools")), *_added_tools(items)])),
        messages=tuple(items),
        prints=tuple(fingerprint([item]) for item in items),
        stream=request.get("stream") is True,
        continues=text_of(request.get("previous_response_id"))
        or text_of(conversation.get("id") if isinstance(conversation, dict) else conversation),
    )


def _added_tools(items: Sequence[Any]) -> Iterable[dict[str, Any]]:
    """The tools in items of the input, where Codex sends some."""
    for item in objects(list(items)):
        for added in objects(item.get("tools")) if item.get("type") == "additional_tools" else ():
            yield from objects(added.get("tools")) if added.get("type") == "namespace" else [added]


def reply(answer: bytes, *, stream: bool) -> Reply:
    """The reply in an answer. Raises: BadInput."""
    response, complete, error = (
        assembled(sse.events(answer)) if stream else (json_object(answer, "the answer"), True, "")
    )
    output = response.get("output")
    if not isinstance(output, list):
        raise BadInput("the answer has no reply")
    reason = response.get("incomplete_details")
    calls = any(text_of(item.get("type")).endswith("_call") for item in objects(output))
    cut = isinstance(reason, dict) and reason.get("reason") == "max_output_tokens"
    return Reply(
        messages=tuple(output),
        prints=tuple(fingerprint([item]) for item in output),
        id=text_of(response.get("id")),
        model=text_of(response.get("model")),
        usage=elements.responses_usage(response.get("usage")),
        stop="max_tokens" if cut else "tool_use" if calls else "end_turn" if complete else "",
        complete=complete,
        error=error,
    )


class _Reader:
    def messages(self, values: Sequence[Any], reply: Reply | None = None) -> list[Message]:
        if reply is None:
            return messages_of(message(group, "", facts(None)) for group in grouped(values))
        return [_by_model(answer) for answer in messages_of([message(list(values), "", facts(reply))])]


def _by_model(message: Message) -> Message:
    """A reply as the model's, even if its items are not, as in a summary by the server."""
    if message.role == "assistant":
        return message
    parts = tuple(msgspec.structs.replace(part, role="assistant", origin="model") for part in message.parts)
    return msgspec.structs.replace(message, role="assistant", parts=parts)


reader = _Reader


def assembled(events: Iterable[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], bool, str]:
    """The response assembled from a stream's events, whether it is complete, and the provider's error.

    Raises: BadInput if the events are empty.
    """
    response: dict[str, Any] = {}
    finished: dict[int, dict[str, Any]] = {}
    started: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    complete, error = False, ""
    for name, event in events:
        kind, place = text_of(event.get("type")) or name, event.get("output_index")
        place = place if isinstance(place, int) else len(finished)
        if kind == "error" or event.get("error"):
            error = text_of(event.get("message")) or repr(event.get("error"))[:500]
        if isinstance(event.get("response"), dict):
            response = event["response"]
            complete = complete or kind in ("response.completed", "response.incomplete")
            error = error or (repr(response.get("error"))[:500] if kind == "response.failed" else "")
        elif isinstance(event.get("item"), dict):
            (finished if kind.endswith(".done") else started)[place] = event["item"]
        elif kind == "response.output_text.delta":
            texts.setdefault(place, []).append(text_of(event.get("delta")))
    if not response and not finished and not started:
        raise BadInput(f"the answer has no reply{f': {error}' if error else ''}")
    for place in started.keys() - finished.keys():
        if texts.get(place):  # it broke off in the middle of a text
            piece = {"type": "output_text", "text": "".join(texts[place]), "annotations": []}
            finished[place] = {**started[place], "content": [piece]}
    output = response.get("output") or [item for _, item in sorted(finished.items())]
    return {**response, "output": output}, complete, error


def definition(tool: dict[str, Any]) -> dict[str, Any]:
    """The Messages API's tool for a function; any other kind of tool unchanged."""
    match tool:
        case {"type": "function", "name": str(), **function}:
            fields = {name: value for name, value in function.items() if name != "strict" or value}
            return elements.tool({"type": "function", "function": fields | {"name": tool["name"]}})
        case {"type": "custom", "name": str(), **custom}:
            return {"type": "custom", "custom": custom | {"name": tool["name"]}}
    return tool


def grouped(items: Iterable[Any]) -> list[Any]:
    """The items of each message: a reply's together, every other item alone."""
    groups: list[Any] = []
    for by_model, run in groupby(items, is_by_model):
        together = list(run)
        groups += [together] if by_model else [[item] for item in together]
    return groups


def message(group: Any, key: str, about: Facts) -> Message | str:
    """The `Message` for a list of items, or the reason there is none."""
    items = [item for item in group if is_item(item)] if isinstance(group, list) else []
    if not items:
        return "it is not an item"
    converted = [native.converted({"type": "message", **item}) for item in items]
    parts = tuple(part for _, item_parts in converted for part in item_parts)
    if not parts:
        return "it is empty"
    return about.message(converted[0][0], parts, key)


def fingerprint(group: Any) -> bytes:
    """A checksum that items share with their repetition in a later request, which lacks some fields of a response."""
    if not isinstance(group, list):
        return digest(group)
    return digest(
        [repr(native.identity({"type": "message", **item})) if isinstance(item, dict) else item for item in group]
    )
