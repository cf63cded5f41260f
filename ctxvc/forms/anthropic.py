"""The Messages API's requests and replies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Role
from ctxvc.core.recording.usage import counts
from ctxvc.errors import BadInput
from ctxvc.forms import sse
from ctxvc.forms.anthropic_edit import edited, layout, own, results, role, spliced, tool
from ctxvc.forms.form import Facts, Prompt, Reply, facts, json_object, messages_of
from ctxvc.forms.origins import is_by_client
from ctxvc.forms.values import annotated, digest, objects, text_of

__all__ = ["NAME", "edited", "layout", "own", "prompt", "reader", "reply", "results", "role", "spliced", "tool"]

NAME = "anthropic-messages"

#: Keys of a message or response that have their own place in a `Message`, or do not concern the model's input.
_TAKEN = frozenset(
    {"role", "content", "id", "type", "model", "usage", "stop_reason", "stop_sequence", "stop_details", "container"}
)
#: Of each kind of delta: its field, the block's field that it extends, and the block's type.
_DELTAS = {
    "text_delta": ("text", "text", "text"),
    "input_json_delta": ("partial_json", "input", "tool_use"),
    "thinking_delta": ("thinking", "thinking", "thinking"),
    "signature_delta": ("signature", "signature", "thinking"),
}


def prompt(body: bytes) -> Prompt:
    """The prompt in a request's body. Raises: BadInput."""
    request = json_object(body, "the request")
    messages = request.get("messages")
    if not isinstance(messages, list):
        raise BadInput("the request has no messages")
    system = request.get("system")
    return Prompt(
        model=text_of(request.get("model")),
        system=system if isinstance(system, str) else objects(system),
        tools=tuple(objects(request.get("tools"))),
        messages=tuple(messages),
        prints=tuple(map(fingerprint, messages)),
        stream=request.get("stream") is True,
    )


def reply(answer: bytes, *, stream: bool) -> Reply:
    """The reply in an answer. Raises: BadInput."""
    value, complete, error = assembled(sse.events(answer)) if stream else (json_object(answer, "the answer"), True, "")
    if not isinstance(value.get("content"), list):
        raise BadInput("the answer has no reply")
    repeated = {"role": "assistant", "content": value["content"]}
    return Reply(
        messages=(repeated,) if value["content"] else (),
        prints=(fingerprint(repeated),) if value["content"] else (),
        id=text_of(value.get("id")),
        model=text_of(value.get("model")),
        usage=counts(value.get("usage")),
        stop=text_of(value.get("stop_reason")),
        complete=complete,
        error=error,
    )


class _Reader:
    def messages(self, values: Sequence[Any], reply: Reply | None = None) -> list[Message]:
        return messages_of(message(value, "", facts(reply)) for value in values)


reader = _Reader


def message(value: Any, key: str, about: Facts) -> Message | str:
    """The `Message` for a JSON value, or the reason there is none."""
    match value:
        case {"role": "user" | "assistant" | "system" as role, "content": str() | list() as content}:
            blocks = [content] if isinstance(content, str) and content else list(content)
        case _:
            return "it has no known role, or no content"
    if not blocks:
        return "it is empty"
    parts = [wire.part(block, role, origin(block, role)) for block in blocks]
    if fields := {name: item for name, item in value.items() if name not in _TAKEN}:
        parts[0] = annotated(parts[0], "ctxvc", {"message": fields})
    return about.message(role, parts, key)


def origin(block: Any, role: Role) -> Origin:
    """Who made a content block, by its type, its role and the marks in its text."""
    value = block.get("text") if isinstance(block, dict) else block
    if isinstance(block, dict) and text_of(block.get("type")).endswith("tool_result"):
        return "tool"
    if role == "assistant":
        return "model"
    return "client" if role == "system" or is_by_client(text_of(value)) else "human"


def fingerprint(message: Any) -> bytes:
    """A checksum that ignores nulls and cache marks, which a client may change from one request to the next."""
    if not isinstance(message, dict):
        return digest(message)
    return digest([message.get("role"), _bare(message.get("content"))])


def _bare(content: Any) -> Any:
    """A content as a list of blocks, without nulls and cache marks; a result's content, too."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        return blocks
    return [_bare_block(block) if isinstance(block, dict) else block for block in blocks]


def _bare_block(block: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in block.items() if value is not None and key != "cache_control"}
    if bare.get("type") == "tool_result" and "content" in bare:
        bare["content"] = _bare(bare["content"])
    return bare


def assembled(events: Iterable[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], bool, str]:
    """The message assembled from a stream's events, whether it is complete, and the provider's error.

    A delta without a started block starts one; a start under a number in use begins another block. A call's arguments
    that are not JSON stay text. Raises: BadInput if the events have no message.
    """
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    pieces: list[dict[str, list[str]]] = []  # of each block's fields
    places: dict[str, int] = {}  # a block's place by its number in the stream
    complete, error = False, ""

    def begin(index: object, block: dict[str, Any]) -> None:
        places[repr(index)] = len(blocks)
        blocks.append(dict(block))
        pieces.append({})

    for name, event in events:
        match event.get("type") or name, event:
            case "message_start", {"message": dict(started)}:
                message, usage = dict(started), counts(started.get("usage"))
                for block in objects(started.get("content")):
                    begin(None, block)
            case "content_block_start", {"content_block": dict(block)}:
                begin(event.get("index"), block)
            case "content_block_delta", {"delta": dict(delta)}:
                if (index := repr(event.get("index"))) not in places:
                    begin(event.get("index"), {})
                _extend(blocks[places[index]], pieces[places[index]], delta)
            case "message_delta", _:
                ended = event.get("delta")
                if isinstance(ended, dict):
                    message |= {key: item for key, item in ended.items() if item is not None}
                usage |= counts(event.get("usage"))
            case "message_stop", _:
                complete = True
            case "error", _:
                error = wire.compact(event.get("error")).decode("utf-8", "replace")[:500]
    if not message:
        raise BadInput(f"the answer has no reply{f': {error}' if error else ''}")
    content = [_completed(block, texts) for block, texts in zip(blocks, pieces, strict=True) if block.get("type")]
    return {**message, "content": content, "usage": usage}, complete and not error, error


def _extend(block: dict[str, Any], pieces: dict[str, list[str]], delta: dict[str, Any]) -> None:
    if delta.get("type") == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        return
    source, target, kind = _DELTAS.get(text_of(delta.get("type")), ("", "", ""))
    piece = delta.get(source)
    if isinstance(piece, str):
        block.setdefault("type", kind)
        pieces.setdefault(target, []).append(piece)


def _completed(block: dict[str, Any], pieces: dict[str, list[str]]) -> dict[str, Any]:
    """A block with its deltas put together."""
    texts = {field: "".join(more) for field, more in pieces.items()}
    if arguments := texts.pop("input", ""):
        value = wire.parsed(arguments.encode("utf-8", "surrogatepass"), object)
        block["input"] = arguments if value is None else value
    return {**block, **{field: text_of(block.get(field)) + text for field, text in texts.items()}}
