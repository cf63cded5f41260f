"""Labels: a row's description of its block in a few words, safe to print anywhere."""

from __future__ import annotations

from ctxvc.core import display
from ctxvc.core.ledger import wire

WIDTH = 80
#: The bytes of a body that a label is made from.
_HEAD = 4096
#: Larger JSON, in bytes, is not parsed for a label.
_PARSED = 1024 * 1024
#: The arguments that say most about a call, in order of preference.
_TELLING = (
    "command", "cmd", "file_path", "path", "pattern", "query", "url", "name", "description", "prompt", "title", "input",
)  # fmt: skip


def label(kind: str, body: bytes, ext: str = "txt", *, tool: str = "", media: str = "") -> str:
    """One line of at most 80 characters.

    A call: its tool and most telling argument. An image or document: its media type. A result of several parts: its
    first text. Anything else: the first words of its text.
    """
    if kind == "tool_use":
        name, argument = display.one_line(f"{tool}:", WIDTH), _argument(body, ext)
        room = WIDTH - len(name) - 1
        if len(argument) > room and display.is_path(argument):
            argument = display.path_fitted(argument, room)
        return display.one_line(f"{name} {argument}", WIDTH)
    if kind in ("image", "document") and ext != "json":
        return display.one_line(media or ext, WIDTH)
    if ext == "json" and kind == "tool_result":
        return display.one_line(_first_text(body), WIDTH)
    return display.one_line(display.decode(body[:_HEAD]), WIDTH)


def _argument(body: bytes, ext: str) -> str:
    value = wire.parsed(body, dict) if ext == "json" and len(body) <= _PARSED else None
    if value is not None:
        for name in _TELLING:
            match value.get(name):
                case str(text) if text.strip():
                    return text
                case [str(), *_] as arguments:
                    return " ".join(map(str, arguments))
    return display.decode(body[:_HEAD])


def _first_text(body: bytes) -> str:
    value = wire.parsed(body, list) if len(body) <= _PARSED else None
    if value is None:
        return display.decode(body[:_HEAD])
    for item in value:
        match item:
            case {"type": "text", "text": str(text)}:
                return text
    return ", ".join(str(item.get("type")) for item in value if isinstance(item, dict))
