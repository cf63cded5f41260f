"""What the Messages API refuses in a request, by its published rules. Knows nothing of ctxvc.

The first problem is the one that the API would name; where its words are known, they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tests.messages_api import options
from tests.messages_api.content import block_problems, form_problems, is_content
from tests.messages_api.models import MODELS, Model, find
from tests.messages_api.pairs import call_problems, server_call_problems
from tests.messages_api.pictures import image_size
from tests.messages_api.wire import (
    CLEAR_AT_BETA,
    THINKING,
    Message,
    blocks,
    images,
    is_server_result,
    may_be_paused,
)

VERSION = "2026-10-21"
MOST_MESSAGES = 100_000
ROLES = ("user", "assistant", "system")
#: A role → the fields of its messages.
MESSAGE_FIELDS = {
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content"}),
    "system": frozenset({"role", "content", "clear_at", "output_config"}),
}


def problems(
    request: object,
    *,
    betas: Collection[str] = (),
    version: str = VERSION,
    models: Mapping[str, Model] = MODELS,
    counting: bool = False,
) -> list[str]:
    """Each reason for which this body would be refused; empty if there is none.

    `betas` are those of the `anthropic-beta` header, `version` is that of `anthropic-version`; dates compare as
    strings. `counting`: the body is for `count_tokens`. Whether its thinking is still valid, and whether it fits the
    window, takes the memory of a `Judge`.
    """
    if not isinstance(request, dict):
        return ["the body is no object"]
    strict = version >= VERSION
    model = find(request.get("model"), models)
    if model is None:
        return [f"model: {request.get('model')}"]
    return [
        *options.problems(request, model, betas=betas, strict=strict, counting=counting),
        *message_problems(request.get("messages"), model, betas=betas, strict=strict),
    ]


def message_problems(messages: object, model: Model, *, betas: Collection[str] = (), strict: bool = True) -> list[str]:
    """Each reason for which a request with these messages would be refused. `strict`: by the newest API version."""
    if shapeless := _shapeless(messages):
        return shapeless
    assert isinstance(messages, list)
    return [
        *_forms(messages),
        *_structure(messages, model, strict=strict),
        *_system_messages(messages, model, betas),
        *_images(messages, model),
    ]


def canonical_problems(messages: object) -> list[str]:
    """What is wrong in the structure of messages, and what the API would mend for the sender, all without backticks.

    It would mend strings where a list of blocks is meant, and messages of one role in a row. What depends on the model
    or on the day is not judged: where system messages may stand, and what kinds and fields blocks have.
    """
    if shapeless := _shapeless(messages):
        return shapeless
    assert isinstance(messages, list)
    if strings := [at for at, message in enumerate(messages) if isinstance(message["content"], str)]:
        return [f"messages.{at}: not a message in full: its content is a string" for at in strings]
    found = [*_structure(messages, MODELS["claude-opus-5-5"], strict=True), *_mended(messages)]
    return [problem.replace("`", "") for problem in found]


def _shapeless(messages: object) -> list[str]:
    """Why nothing more can be asked of these messages."""
    if not isinstance(messages, list) or not messages:
        return ["messages: no list, or an empty one"]
    if len(messages) > MOST_MESSAGES:
        return [f"messages: at most {MOST_MESSAGES} messages"]
    return [f"messages.{at}: not a message" for at, one in enumerate(messages) if not _is_message(one)]


def _structure(messages: Sequence[Message], model: Model, *, strict: bool) -> Iterator[str]:
    yield from _order(messages, model)
    yield from _content(messages, strict=strict)
    yield from call_problems(messages)
    yield from server_call_problems(messages)


def _mended(messages: Sequence[Message]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if at and messages[at - 1]["role"] == message["role"]:
            yield f"messages.{at}: roles must alternate"
        for number, block in enumerate(message["content"]):
            if block["type"] == "tool_result" and isinstance(block.get("content"), str):
                yield f"messages.{at}.content.{number}: the content of a result is no list"


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in ROLES and is_content(message.get("content"))


def _order(messages: Sequence[Message], model: Model) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "messages.0: the first message must be the user's"
    last, at = messages[-1], len(messages) - 1
    if last["role"] != "assistant" or may_be_paused(last):
        return
    content = blocks(last["content"])
    if content and content[-1]["type"] in THINKING:
        yield f"messages.{at}: The final block in an assistant message cannot be `thinking`."
    if not model.prefill:
        yield (
            f"messages.{at}: a final assistant message is a prefill. This model does not support assistant message "
            "prefill. The conversation must end with a user message."
        )
    elif content and content[-1]["type"] == "text" and str(content[-1].get("text")).endswith((" ", "\t", "\n")):
        yield f"messages.{at}: final assistant content cannot end with trailing whitespace"


def _system_messages(messages: Sequence[Message], model: Model, betas: Collection[str]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if message["role"] != "system":
            continue
        if not model.system_messages:
            yield f"messages.{at}: role 'system' is not supported on this model"
        before = messages[at - 1] if at else None
        if before is None or not (
            before["role"] == "user" or (before["role"] == "assistant" and _ends_in_server_result(before))
        ):
            yield f"messages.{at}: role 'system' must follow a 'user' message"
        if at + 1 < len(messages) and messages[at + 1]["role"] != "assistant":
            yield f"messages.{at}: role 'system' must precede an 'assistant' message or end the array"
        yield from _clear_at(at, message, betas)


def _clear_at(at: int, message: Message, betas: Collection[str]) -> Iterator[str]:
    if "clear_at" not in message:
        return
    if CLEAR_AT_BETA not in betas:
        yield f"messages.{at}.clear_at: Extra inputs are not permitted"
    if message["clear_at"] not in ("next_user_message", "never", None):
        yield f"messages.{at}.clear_at: Input should be 'next_user_message' or 'never'"
    if message["clear_at"] == "next_user_message" and any(
        block.get("cache_control") is not None for block in blocks(message["content"])
    ):
        yield f"messages.{at}: `cache_control` cannot be set on a message with `clear_at`"


def _ends_in_server_result(message: Message) -> bool:
    content = blocks(message["content"])
    return bool(content) and is_server_result(content[-1])


def _content(messages: Sequence[Message], *, strict: bool) -> Iterator[str]:
    for at, message in enumerate(messages):
        content = blocks(message["content"])
        final_reply = at == len(messages) - 1 and message["role"] == "assistant"
        if not content and not final_reply:
            yield f"messages.{at}: content is empty: all messages must have non-empty content"
        for number, block in enumerate(content):
            for reason in block_problems(block, message["role"], strict=strict):
                yield f"messages.{at}.content.{number}: {reason}"


def _forms(messages: Sequence[Message]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if extra := message.keys() - MESSAGE_FIELDS[message["role"]]:
            yield f"messages.{at}.{min(extra)}: Extra inputs are not permitted"
        for number, block in enumerate(blocks(message["content"])):
            for reason in form_problems(block):
                yield f"messages.{at}.content.{number}: {reason}"


def _images(messages: Sequence[Message], model: Model) -> Iterator[str]:
    found: list[tuple[int, dict[str, Any]]] = [
        (at, image) for at, message in enumerate(messages) for image in images(message["content"])
    ]
    if len(found) > model.max_images:
        yield f"messages: {len(found)} images, and at most {model.max_images} are taken"
    longest = 2000 if len(found) > 20 else 8000
    for at, image in found:
        if (size := image_size(image)) and max(size) > longest:
            yield f"messages.{at}: image dimensions {size[0]}x{size[1]} exceed the maximum of {longest} pixels a side"
