"""Pieces of a prompt → a request of Chat Completions.

What was read in this form is written unchanged, by the notes that `chat.py` leaves. Where the API has several spellings
of a message, the normal form has one: importing what was written and writing it again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.formats import block_of, has_place
from ctxvc.core.prompt.outline import Piece
from ctxvc.forms import elements
from ctxvc.forms.elements import text
from ctxvc.forms.fields import CHAT_SIGNATURE, FILE_NAME
from ctxvc.forms.losses import MEDIA_FIELDS, Converted, Loss, lost_fields, lost_in_item, lost_tools
from ctxvc.forms.values import text_in, text_of

#: Fields of a message in which servers send a model's reasoning, and take it back.
REASONING = ("reasoning_content", "reasoning")
_SAYING = ("content", *REASONING, "refusal", "tool_calls", "function_call", "audio")
_ORDER = {"thinking": 0, "tool_use": 2}
_FOLLOWS = "it follows in a message of the user"
_REORDERED = "reasoning, then text, then calls"


def written(prompt: formats.Prompt) -> Converted:
    """The body of a chat completions request, its messages in the form of `normalised`.

    Results become messages of the role `tool`, before the rest of their message; their pictures follow with that rest,
    since a tool's message takes text only. Reasoning returns in the field in which a server sent it. The path of a loss
    is a piece's `block`, perhaps with a field after it, or `tools[3]`.
    """
    losses: list[Loss] = []
    messages = list(_system(prompt.system))
    calls = {piece.call: piece for piece in prompt.pieces if piece.kind == "tool_use"}
    for (_, role), group in groupby(prompt.pieces, attrgetter("message", "role")):
        messages += _messages(role, list(group), calls, losses)
    request = {
        "model": prompt.model,
        "messages": normalised(messages),
        "tools": [tool for tool in map(elements.function, prompt.tools or []) if tool],
    }
    losses += lost_tools(prompt.tools)
    return Converted({name: value for name, value in request.items() if value or name == "messages"}, tuple(losses))


def normalised(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of a chat completions request in the form of `written`. All changes mean the same to the API:

    - The system and developer messages at the start that have only text are one system message; its content is a
      string where it is one text.
    - An empty message is absent, unless it is a result; a result without content has an empty one.
    - A call without arguments has empty ones; an id that is null is absent.
    - `cache_control`, which some gateways take, is absent from messages and their parts.
    """
    normal = [message for message in map(_normal_message, messages) if _says_something(message)]
    texts: list[str] = []
    count = 0
    while count < len(normal) and (instructions := _instructions(normal[count])):
        texts += instructions
        count += 1
    return [{"role": "system", "content": _shortest(list(map(text, texts)))}, *normal[count:]] if count else normal


def _normal_message(message: dict[str, Any]) -> dict[str, Any]:
    message = formats.unmarked(message)
    if isinstance(message.get("content"), list):
        message["content"] = formats.unmarked(message["content"])
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [_normal_call(call) for call in message["tool_calls"]]
    if message.get("role") in ("tool", "function"):
        message.setdefault("content", "")
        if message.get("tool_call_id", "") is None:
            del message["tool_call_id"]
    return message


def _normal_call(call: Any) -> Any:
    match call:
        case {"function": {"name": str()} as inner}:
            call = {**call, "function": {"arguments": "", **inner}}
        case {"custom": {"name": str()} as inner}:
            call = {**call, "custom": {"input": "", **inner}}
        case _:
            return call
    return {name: value for name, value in call.items() if name != "id" or value is not None}


def _says_something(message: dict[str, Any]) -> bool:
    return message.get("role") in ("tool", "function") or any(message.get(name) for name in _SAYING)


def _instructions(message: dict[str, Any]) -> list[str]:
    """The texts of a message that has only instructions; empty for any other."""
    match message:
        case {"role": "system" | "developer", "content": str(content), **rest} if not rest:
            return [content]
        case {"role": "system" | "developer", "content": list(parts), **rest} if not rest:
            texts = [part["text"] for part in parts if _is_plain(part)]
            return texts if len(texts) == len(parts) and all(texts) else []
    return []


def _system(system: Any) -> Iterator[dict[str, Any]]:
    match system:
        case str(content):
            yield {"role": "system", "content": content}
        case list(blocks):
            yield {"role": "system", "content": [text(block["text"]) for block in blocks if block.get("text")]}


def _messages(
    role: str, pieces: Sequence[Piece], calls: dict[str, Piece], losses: list[Loss]
) -> Iterator[dict[str, Any]]:
    """The messages that one message becomes: each result is one of its own."""
    pictures: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.kind == "tool_result":
            losses += _losses(piece)
            yield _tool_message(piece, calls.get(piece.call, piece), pictures, losses)
    others = [piece for piece in pieces if piece.kind != "tool_result"]
    lost = [loss for piece in others for loss in _losses(piece)]
    losses += lost
    if others or pictures:
        yield _chat_message(role, others, pictures)
    without_place = {loss.path for loss in lost if not loss.change}
    order = [(_ORDER.get(piece.kind, 1), piece.block) for piece in others if piece.block not in without_place]
    if role == "assistant":
        later = (block for (earlier, _), (here, block) in pairwise(order) if here < earlier)
        losses += [Loss(f"{block}.order", _REORDERED) for block in list(later)[:1]]


# --- results


def _tool_message(piece: Piece, call: Piece, pictures: list[dict[str, Any]], losses: list[Loss]) -> dict[str, Any]:
    """The message for a result; it names `call` by the id that the call is written with."""
    notes, call_notes = piece.extra.get("openai", {}), call.extra.get("openai", {})
    content: Any = display.decode(piece.body)
    if notes.get("parsed"):
        content = wire.parse(piece.body)
    elif notes.get("parts"):
        forms = notes.get("items", {})
        items = block_of(piece).get("content") or [text("")]
        content = [_result_item(item, forms.get(str(number), {})) for number, item in enumerate(items)]
    elif wire.own_metadata(piece.extra).get("parts"):
        if "openai" in piece.extra:
            content = [_result_item(item, {}) for item in block_of(piece).get("content", ()) if has_place(item)]
        else:
            content = _shortest(list(_texts(piece, pictures, losses))) or ""
    own_id = notes.get("id", piece.call)
    answered = {"role": notes.get("role", "tool"), "tool_call_id": own_id and call_notes.get("id", piece.call)}
    if call_notes.get("field") == "function_call":
        answered = {"role": "function", "name": call.tool}
    return {**answered, "content": content, **notes.get("message", {})}


def _result_item(item: Any, form: dict[str, Any]) -> Any:
    match item:
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            return _image_part(url, form)
        case {"type": "text"}:
            return {**item, **form}
    return item


def _texts(piece: Piece, pictures: list[dict[str, Any]], losses: list[Loss]) -> Iterator[dict[str, Any]]:
    """The texts of a result; its pictures are added to `pictures`."""
    for number, item in enumerate(block_of(piece).get("content", [])):
        path = f"{piece.block}.content[{number}]"
        block = text(item) if isinstance(item, str) else item
        part = _media_part(block) if isinstance(block, dict) else None
        match block:
            case {"type": "text", "text": str(value)}:
                losses += lost_in_item(path, block)
                yield from [text(value)] if value else []
            case _ if part is None:
                losses.append(Loss(path))
            case _ if part["type"] == "text":
                losses.append(Loss(path, "text"))
                yield part
            case _:
                losses.append(Loss(path, _FOLLOWS))
                pictures += [text(f"[from the result of {piece.call}:]"), part]


# --- other messages


def _chat_message(role: str, pieces: Sequence[Piece], pictures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    marks = pieces[0].extra.get("openai", {}) if pieces else {}
    content: list[Any] = list(pictures)
    calls: list[Any] = []
    fields: dict[str, Any] = {}
    for piece in pieces:
        match piece.kind, piece.extra.get("openai", {}).get("field", ""):
            case "other", "message":
                message: dict[str, Any] = wire.parse(piece.body)
                return message
            case "other", "content":
                content.append(wire.parse(piece.body))
            case "other", "tool_calls":
                calls.append(wire.parse(piece.body))
            case "tool_use", "function_call":
                fields["function_call"] = {"name": piece.tool, "arguments": display.decode(piece.body)}
            case "tool_use", _:
                calls.append(_call(piece))
            case (("thinking" | "assistant"), ("reasoning_content" | "refusal") as field):
                fields[field] = display.decode(piece.body)
            case "thinking", _ if field := _reasoning_field(piece):
                fields[field] = "\n\n".join(filter(None, (fields.get(field), display.decode(piece.body))))
            case _:
                content += _content_part(piece)
    if len(content) == 1 and _is_plain(content[0]) and not marks.get("parts"):
        fields["content"] = content[0]["text"]
    elif content:
        fields["content"] = content
    if calls:
        fields["tool_calls"] = calls
    return {"role": marks.get("role", role), **fields, **marks.get("message", {})}


def _reasoning_field(piece: Piece) -> str:
    """The field in which a server sent a thinking block's reasoning; empty if none did."""
    signature = text_in(piece.extra, "signature")
    field = signature.removeprefix(CHAT_SIGNATURE)
    return field if field in REASONING and field != signature else ""


def _content_part(piece: Piece) -> Iterator[dict[str, Any]]:
    """The part of a message's content for a piece; none if this form has no place for it."""
    form = piece.extra.get("openai", {}).get("part", {})
    if piece.kind not in ("image", "document", "other", "thinking"):
        yield {**text(display.decode(piece.body)), **form}
    elif part := _media_part(block_of(piece), form):
        yield part


def _media_part(block: dict[str, Any], form: dict[str, Any] = {}) -> dict[str, Any] | None:
    """The part for a picture or document; None if this form has no place for it."""
    match block:
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            return _image_part(url, form)
        case {"type": "document", "source": {"type": "base64", "media_type": str(), "data": str()} as source}:
            name = text_of(block.get("title")) or FILE_NAME
            return {"type": "file", "file": {"filename": name, "file_data": elements.image_url(source)}}
        case {"type": "document", "source": {"type": "text", "data": str(value)}} if value:
            return text(value)
    return None


def _image_part(url: str, form: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image_url", **form, "image_url": {"url": url, **form.get("image_url", {})}}


def _call(piece: Piece) -> dict[str, Any]:
    notes = piece.extra.get("openai", {})
    form = notes.get("call", {"type": "function", "function": {}})
    kind, field = ("function", "arguments") if isinstance(form.get("function"), dict) else ("custom", "input")
    arguments = wire.parse(piece.body) if notes.get("parsed") else display.decode(piece.body)
    return {"id": notes.get("id", piece.call), **form, kind: {"name": piece.tool, field: arguments, **form[kind]}}


def _shortest(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A list of one text as that text, since not all servers take a list."""
    return parts[0]["text"] if len(parts) == 1 else parts


def _is_plain(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str(), **other}:
            return not other
    return False


# --- what has no place


def _losses(piece: Piece) -> Iterator[Loss]:
    if "openai" in piece.extra:  # of OpenAI's forms: only what the Responses API has
        field = piece.extra["openai"].get("field", "")
        if (piece.kind == "thinking" and field != "reasoning_content") or (piece.kind == "other" and not field):
            yield Loss(piece.block)
    elif piece.kind == "thinking":
        yield from () if _reasoning_field(piece) else (Loss(piece.block),)
    elif piece.kind in ("image", "document", "other"):
        part = _media_part(block_of(piece))
        if part is None:
            yield Loss(piece.block)
        elif part["type"] == "text":
            yield Loss(piece.block, "text")
        else:
            yield from lost_fields(piece, MEDIA_FIELDS)
    else:
        if piece.kind == "tool_result" and piece.error:
            yield Loss(f"{piece.block}.is_error")
        yield from lost_fields(piece)
