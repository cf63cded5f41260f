"""A prompt → a request of OpenAI's Responses API.

What came as an item of this form is written as it came (`forms/responses.py` has the inverse).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from ctxvc.core import display
from ctxvc.core.conversion.losses import Loss
from ctxvc.core.conversion.responses import reasoning_item
from ctxvc.core.ledger import wire
from ctxvc.core.prompt import formats
from ctxvc.core.prompt import openai_elements as elements
from ctxvc.core.prompt.formats import block_of
from ctxvc.core.prompt.outline import Piece
from ctxvc.exporters import request
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported

_TEXTS = frozenset({"user", "assistant", "system", "note", "dashboard"})
#: Where a call keeps what is not a function's arguments, by the type of its item.
_INPUTS = {
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
}
#: Types of tools that the provider runs, with nothing else to tell of them.
_OWN_TOOLS = frozenset({"web_search", "file_search", "code_interpreter", "image_generation", "local_shell", "shell"})
_FILE_NAME = "document.pdf"


def export(conversation: Conversation) -> Exported:
    """The request. Reasoning of other providers has no place here."""
    losses: list[Loss] = []
    instructions, items = _system(conversation.system, losses)
    for _, group in groupby(conversation.prompt(), attrgetter("message", "role")):
        items += _message(list(group), losses)
    losses += request.lost_tools(conversation.tools, _OWN_TOOLS)
    value = {
        "model": conversation.ledger.meta.model,
        "instructions": instructions,
        "input": items,
        "tools": [tool for tool in map(_tool, conversation.tools) if tool],
    }
    present = {name: field for name, field in value.items() if field or name == "input"}
    return Exported(formats.dumps(present), tuple(losses))


def _system(system: Any, losses: list[Loss]) -> tuple[str, list[dict[str, Any]]]:
    """The instructions, of which there can be one text; messages for the other texts."""
    if isinstance(system, str):
        return system, []
    texts = [block["text"] for block in system or () if block.get("text")]
    losses += [Loss(f"system[{number}]", "a message of the developer") for number in range(1, len(texts))]
    later = [_message_item("developer", [{"type": "input_text", "text": text}]) for text in texts[1:]]
    return (texts[0] if texts else ""), later


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
    """The items of a message: neighbouring texts and pictures are one, everything else is one of its own."""
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
        losses += [Loss(piece.block)] if part is None else request.lost_fields(piece, request.MEDIA_FIELDS)
        parts += [] if part is None else [part]
    if not parts:
        return
    role = first.get("role", {"system": "developer"}.get(group[0].role, group[0].role))
    fields = {name: value for name, value in first.items() if name not in _NOTED or name == "id"}
    if role == "assistant" and not {"id", "status"} <= fields.keys():
        # Only an item of the API's own has parts here: a reply from elsewhere is its text.
        for part in parts:
            yield _message_item(role, part.get("text") or [part], **fields)
    else:
        yield _message_item(role, parts, **fields)


#: Notes on a part that are no fields of its item. A call's `id` is one of Chat Completions: items go without theirs.
_NOTED = frozenset(
    {"role", "content", "item", "field", "part", "parts", "items", "message", "id", "call", "parsed", "output"}
)


def _part(piece: Piece) -> dict[str, Any] | None:
    """The part of a message's content that a piece becomes; None for what has no place here."""
    fields = _notes(piece).get("content")
    fields = fields if isinstance(fields, dict) else {}
    if piece.kind in _TEXTS:
        kind = "output_text" if piece.role == "assistant" else "input_text"
        return {"type": kind, "text": display.decode(piece.body), **fields}
    match block_of(piece):
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            return {"type": "input_image", "image_url": url, "detail": "auto", **fields}
        case {"type": "document", "source": {"type": "base64"} as source, **rest}:
            name = rest.get("title") or _FILE_NAME
            return {"type": "input_file", "filename": name, "file_data": elements.image_url(source)}
        case {"type": "input_text" | "input_image" | "input_file" | "output_text" | "refusal"} as part:
            return part
    return None


def _item(piece: Piece) -> Iterator[dict[str, Any]]:
    notes = _notes(piece)
    fields = {name: value for name, value in notes.items() if name not in _NOTED}
    match piece.kind:
        case "tool_use":
            kind = notes.get("item", "function_call")
            arguments: Any = display.decode(piece.body)
            if kind in _INPUTS and _INPUTS[kind] != "input":
                arguments = wire.parsed(piece.body, dict) or {}
            name = {"name": piece.tool} if kind in ("function_call", "custom_tool_call") else {}
            yield {
                "type": kind,
                "call_id": piece.call,
                **name,
                _INPUTS.get(kind, "arguments"): arguments,
                **fields,
            }
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
        if (part := _output_part(item)) is not None:
            parts.append({**part, **(forms[number] if number < len(forms) else {})})
    return parts or ""


def _output_part(item: Any) -> dict[str, Any] | None:
    match item:
        case {"type": "text", "text": str(text)}:
            return {"type": "input_text", "text": text}
        case {"type": "image", "source": dict(source)} if (url := elements.image_url(source)) is not None:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case {"type": "document", "source": {"type": "base64"} as source, **rest}:
            name = rest.get("title") or _FILE_NAME
            return {"type": "input_file", "filename": name, "file_data": elements.image_url(source)}
    return None


def _reasoning(piece: Piece) -> dict[str, Any] | None:
    """The item of reasoning that a piece came in; None for another provider's."""
    notes = _notes(piece)
    if notes.get("item") != "reasoning":
        return reasoning_item(display.decode(piece.body), str(piece.extra.get("signature", "")))
    if piece.ext == "json":
        return item if (item := wire.parsed(piece.body, dict)) and item.get("type") == "reasoning" else None
    forms = notes["parts"] if isinstance(notes.get("parts"), list) else []
    texts = display.decode(piece.body).split("\n\n") if len(forms) > 1 else [display.decode(piece.body)]
    if len(texts) != len(forms):  # the joint between two parts cannot be seen: the first takes it all
        texts, forms = ["\n\n".join(texts)], forms[:1]
    parts = [{**form, "text": text} for form, text in zip(forms, texts, strict=True)]
    content = [part for part in parts if part.get("type") != "summary_text"]
    item = {
        "type": "reasoning",
        **{name: value for name, value in notes.items() if name not in _NOTED or name == "id"},
        "summary": [part for part in parts if part.get("type") == "summary_text"],
    }
    return {**item, "content": content} if content else item


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
                    if _output_part(item) is None:
                        yield Loss(f"{piece.block}.content[{number}]")
            yield from request.lost_fields(piece)
        case "tool_use":
            yield from request.lost_fields(piece)
