"""Pieces of a prompt → a request of OpenAI's Responses API.

Items that were read in this form are written unchanged (`items.py` has the inverse).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.forms import elements
from ctxvc.forms.fields import FILE_NAME, RESPONSES_SIGNATURE
from ctxvc.forms.items import ARGUMENTS
from ctxvc.forms.losses import MEDIA_FIELDS, Converted, Loss, lost_fields, lost_in_item, lost_tools
from ctxvc.forms.values import text_in, text_of

_TEXTS = frozenset({"user", "assistant", "system", "note", "dashboard"})
#: Separates the parts of an item's reasoning.
BETWEEN = "\n\n"
#: Types of tools that the provider runs.
_OWN_TOOLS = frozenset({"web_search", "file_search", "code_interpreter", "image_generation", "local_shell", "shell"})


def written(prompt: formats.Prompt) -> Converted:
    """The body of a Responses API request, with the first text of the system prompt as `instructions`, and further ones
    as developer messages.

    Reasoning returns as the item that it was read from; another provider's is lost. The path of a loss is a piece's
    `block`, perhaps with a field after it, or `tools[3]`.
    """
    losses: list[Loss] = []
    system = prompt.system
    texts = [system] if isinstance(system, str) else [block["text"] for block in system or () if block.get("text")]
    items = [_message_item("developer", [{"type": "input_text", "text": text}]) for text in texts[1:]]
    for _, group in groupby(prompt.pieces, attrgetter("message", "role")):
        items += _message(list(group), losses)
    losses += lost_tools(prompt.tools, _OWN_TOOLS)
    value = {
        "model": prompt.model,
        "instructions": texts[0] if texts else "",
        "input": items,
        "tools": [tool for tool in map(_tool, prompt.tools or ()) if tool],
    }
    return Converted({name: field for name, field in value.items() if field or name == "input"}, tuple(losses))


def _tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    function = elements.function(tool)
    if function is None:
        return tool if tool.get("type") in _OWN_TOOLS else None
    kind = function.get("type")
    if kind not in ("function", "custom") or kind not in function:
        return None
    return {"type": kind, **({"strict": False} if kind == "function" else {}), **function[kind]}


def _message_item(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **fields}


def _message(group: Sequence[Piece], losses: list[Loss]) -> Iterator[dict[str, Any]]:
    """The items of a message: consecutive texts and pictures are one, everything else is an item of its own."""
    for is_content, run in groupby(group, _is_content):
        if is_content:
            yield from _content_item(list(run), losses)
            continue
        for piece in run:
            losses += _losses(piece)
            yield from _item(piece)


def _is_content(piece: Piece) -> bool:
    if piece.kind == "other":
        return "item" not in _notes(piece)
    return piece.kind in _TEXTS or piece.kind in ("image", "document")


def _notes(piece: Piece) -> Mapping[str, Any]:
    notes = piece.extra.get("openai")
    return notes if isinstance(notes, dict) else {}


def _content_item(group: Sequence[Piece], losses: list[Loss]) -> Iterator[dict[str, Any]]:
    first = _notes(group[0])
    parts: list[Any] = []
    for piece in group:
        part = _part(piece)
        losses += _losses_of_content(piece, part)
        parts += [] if part is None else [part]
    if not parts:
        return
    role = first.get("role", {"system": "developer"}.get(group[0].role, group[0].role))
    fields = {name: value for name, value in first.items() if name not in _NOTED or name == "id"}
    if role == "assistant" and not {"id", "status"} <= fields.keys():
        # Only the API's own items have parts here: a reply from elsewhere becomes a text.
        for part in parts:
            yield _message_item(role, part.get("text") or [part], **fields)
    else:
        yield _message_item(role, parts, **fields)


#: Notes on a part that are no fields of its item. `id` is a Chat Completions call's: items are sent without theirs.
_NOTED = frozenset(
    {"role", "content", "item", "field", "part", "parts", "items", "message", "id", "call", "parsed", "output"}
)


def _part(piece: Piece) -> dict[str, Any] | None:
    """The part of a message's content for a piece; None if this form has no place for it."""
    fields = _notes(piece).get("content")
    fields = fields if isinstance(fields, dict) else {}
    if piece.kind in _TEXTS:
        kind = "output_text" if piece.role == "assistant" else "input_text"
        return {"type": kind, "text": display.decode(piece.body), **fields}
    block = block_of(piece)
    match block:
        case {"type": "input_text" | "input_image" | "input_file" | "output_text" | "refusal"}:
            return block
        case {"type": "text"}:
            return None
    part = _input_part(block)
    return {**part, **fields} if part and part["type"] == "input_image" else part


def _item(piece: Piece) -> Iterator[dict[str, Any]]:
    notes = _notes(piece)
    fields = {name: value for name, value in notes.items() if name not in _NOTED}
    match piece.kind:
        case "tool_use":
            kind = notes.get("item", "function_call")
            field = ARGUMENTS.get(kind, "arguments")
            is_text = field in ("arguments", "input")
            arguments = display.decode(piece.body) if is_text else wire.parsed(piece.body, dict) or {}
            name = {"name": piece.tool} if kind in ("function_call", "custom_tool_call") else {}
            yield {"type": kind, "call_id": piece.call, **name, field: arguments, **fields}
        case "tool_result":
            yield {
                "type": notes.get("item", "function_call_output"),
                "call_id": piece.call,
                "output": _output(piece),
                **fields,
            }
        case "thinking" if item := _reasoning(piece):
            yield item
        case "other":
            value = wire.parsed(piece.body, dict)
            yield from [value] if value is not None and value.get("type") == notes["item"] else []


def _output(piece: Piece) -> Any:
    """A result's text, or the list of its parts."""
    form = _notes(piece).get("output")
    if wire.items(piece.body, piece.extra) is None:
        text = display.decode(piece.body)
        return {"content": text, **form} if isinstance(form, dict) else text
    forms = form if isinstance(form, list) else []
    parts = []
    for number, item in enumerate(block_of(piece).get("content", [])):
        if (part := _input_part(item)) is not None:
            parts.append({**part, **(forms[number] if number < len(forms) else {})})
    return parts or ""


def _input_part(item: Any) -> dict[str, Any] | None:
    """The part of a message or result for a block; None if this form has no place for it."""
    match item:
        case {"type": "text", "text": str(text)}:
            return {"type": "input_text", "text": text}
        case {"type": "document", "source": {"type": "text", "data": str(text)}} if text:
            return {"type": "input_text", "text": text}
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case {"type": "document", "source": {"type": "base64", "media_type": str(), "data": str()} as source}:
            name = text_of(item.get("title")) or FILE_NAME
            return {"type": "input_file", "filename": name, "file_data": elements.image_url(source)}
    return None


def _reasoning(piece: Piece) -> dict[str, Any] | None:
    """The reasoning item that a piece was read from; None for another provider's."""
    notes = _notes(piece)
    if notes.get("item") != "reasoning":
        return _signed_item(display.decode(piece.body), text_in(piece.extra, "signature"))
    if piece.ext == "json":
        return item if (item := wire.parsed(piece.body, dict)) and item.get("type") == "reasoning" else None
    forms = notes["parts"] if isinstance(notes.get("parts"), list) else []
    texts = display.decode(piece.body).split(BETWEEN) if len(forms) > 1 else [display.decode(piece.body)]
    if len(texts) != len(forms):  # the parts cannot be told apart: the first takes all
        texts, forms = [BETWEEN.join(texts)], forms[:1]
    parts = [{**form, "text": text} for form, text in zip(forms, texts, strict=True)]
    content = [part for part in parts if part.get("type") != "summary_text"]
    item = {
        "type": "reasoning",
        **{name: value for name, value in notes.items() if name not in _NOTED or name == "id"},
        "summary": [part for part in parts if part.get("type") == "summary_text"],
    }
    return {**item, "content": content} if content else item


def _signed_item(text: str, signature: str) -> dict[str, Any] | None:
    """The item that a thinking block was read from, by its signature (`responses_request`); None if it is another's or
    was changed."""
    item = wire.parsed(display.encode(signature.removeprefix(RESPONSES_SIGNATURE)), dict)
    if item is None or item.get("type") != "reasoning" or not signature.startswith(RESPONSES_SIGNATURE):
        return None
    start = 0
    for name in ("summary", "content"):
        filled = []
        parts = item.get(name)
        for part in parts if isinstance(parts, list) else ():
            size = part.get("text") if isinstance(part, dict) else None
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(text) - start:
                return None
            filled.append({**part, "text": text[start : start + size]})
            start += size + len(BETWEEN)
        if name in item:
            item[name] = filled
    return item if start in (0, len(text) + len(BETWEEN)) else None


# --- what has no place


def _losses_of_content(piece: Piece, part: dict[str, Any] | None) -> Iterator[Loss]:
    if part is None:
        yield Loss(piece.block)
    elif piece.kind == "document" and part["type"] == "input_text":
        yield Loss(piece.block, "text")
    else:
        yield from lost_fields(piece, MEDIA_FIELDS)


def _losses(piece: Piece) -> Iterator[Loss]:
    match piece.kind:
        case "thinking":
            if _reasoning(piece) is None:
                yield Loss(piece.block)
        case "tool_result":
            if piece.error and not isinstance(_notes(piece).get("output"), dict):
                yield Loss(f"{piece.block}.is_error")
            if wire.items(piece.body, piece.extra) is not None:
                for number, item in enumerate(block_of(piece).get("content", [])):
                    yield from _losses_of_item(f"{piece.block}.content[{number}]", item)
            yield from lost_fields(piece)
        case "tool_use":
            yield from lost_fields(piece)


def _losses_of_item(path: str, item: Any) -> Iterator[Loss]:
    match item, _input_part(item):
        case _, None:
            yield Loss(path)
        case {"type": "document"}, {"type": "input_text"}:
            yield Loss(path, "text")
        case {"type": "text"}, _:
            yield from lost_in_item(path, item)
