"""Turns a prompt's content into what a provider accepts and a model may trust, judging by bytes, not by the ledger.

`valid` corrects what the Messages API would reject although it was recorded; `sendable` also ensures that nothing
recorded can pass for a text of ours.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import FOREIGN
from ctxvc.core.ledger.ledger import RENDER
from ctxvc.core.prompt import stub

_TEXTS = frozenset({"user", "assistant", "system", "note", "dashboard"})
#: Types of content blocks with a kind of their own; one that has kind `other` has a shape that the API rejects.
_OWN_KIND = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document"})
_PROVIDERS_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
#: Types of content blocks that the API accepts and we have no kind for; those that only a system message has; and those
#: that a result may contain besides text.
_KNOWN = _PROVIDERS_CALLS | {"container_upload", "compaction", "fallback", "mcp_tool_listing"}
_OF_SYSTEM = frozenset({"tool_addition", "tool_removal"})
_IN_RESULTS = frozenset({"image", "document", "tool_reference", "browser_state"})
#: Kind → the fields that the API accepts in a user's block besides those of the piece itself, and our own fields.
_FIELDS: Mapping[str, frozenset[str]] = {
    "user": FOREIGN,
    "note": FOREIGN,
    "image": FOREIGN | {"source", "transformations"},
    "document": FOREIGN | {"source", "title", "context", "citations"},
    "tool_result": FOREIGN | {"toolset_name"},
}
_CALL_ID = re.compile("[A-Za-z0-9_-]+")
#: The name of a tool whose call was recorded without one.
_UNNAMED = "unnamed"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A content block with its bytes, ready for any provider's form. Equal `message` numbers belong together.

    `block` is the block or group that it represents, empty if there is none; it is not sent. `tag` is sent after the
    piece.
    """

    message: int
    role: str
    kind: str
    body: bytes
    ext: str = "txt"
    call: str = ""
    tool: str = ""
    error: bool = False
    extra: Mapping[str, Any] = {}
    files: Mapping[str, bytes] = {}
    block: str = ""
    tag: str = ""


class OwnText(Piece, frozen=True, kw_only=True):
    """A text of ours in a body's place: a stub, a masked body, a notice of something missing."""


def sendable(content: Iterable[Piece], render: int = RENDER) -> list[Piece]:
    """`content` as sent to a model: valid, and with nothing recorded that reads as if we had written it.

    In recorded texts except the model's own, a backslash precedes whatever begins like a text of ours in this version
    of rendering (`stub.guarded`).
    """
    return valid(_guarded(piece, render) for piece in content)


def valid(content: Iterable[Piece]) -> list[Piece]:
    """`content` in a form that the Messages API accepts, whatever was recorded.

    - A text without visible characters is removed. A result without any has no content, unless it is an error: that
      must
      have some, and states what is known.
    - What may not be in its place or shape becomes text: a known type of block in an unknown shape, a user's thinking,
      half of a pair of the provider's own call and result.
    - Call ids contain only allowed characters, and the first message is the user's.
    """
    return together(filter(_says_something, map(_fit, content)))


def alone(piece: Piece, render: int = RENDER) -> Piece | None:
    """The part of `sendable` that concerns a single piece; None if the piece is empty."""
    fit = _fit(_guarded(piece, render))
    return fit if _says_something(fit) else None


def together(content: Iterable[Piece], *, apart: bool = False) -> list[Piece]:
    """The rest of `sendable`: what each piece needs because of the others. A piece that needs no change is not copied.

    `apart` means that all of them are `independent`.
    """
    fit = _with_ids(list(content) if apart else _with_whole_pairs(_with_texts_within(list(content))))
    fit = fit if apart else _with_system_in_place(fit)
    if fit and fit[0].role != "user":
        beginning = OwnText(message=fit[0].message, role="user", kind="user", body=display.encode(stub.BEGINNING))
        return [beginning, *fit]
    return fit


def independent(piece: Piece) -> bool:
    """Whether neighbours change no more of a piece than the id of its call."""
    return piece.kind != "other" and piece.role != "system" and not _within(piece)


# --- nothing recorded passes for ours


def _guarded(piece: Piece, render: int) -> Piece:
    if isinstance(piece, OwnText) or piece.role == "assistant" or piece.kind == "dashboard":
        return piece
    if piece.kind == "note" and {"to", "left"} & wire.own_metadata(piece.extra).keys():
        # We wrote its beginning, `[→ ` or `[← `; the rest is recorded.
        text = display.decode(piece.body)
        return msgspec.structs.replace(piece, body=display.encode(text[:1] + stub.guarded(text[1:], render)))
    if piece.kind in _TEXTS or (piece.kind == "tool_result" and wire.items(piece.body, piece.extra) is None):
        text = display.decode(piece.body)
        guarded = stub.guarded(text, render)
        return piece if guarded == text else msgspec.structs.replace(piece, body=display.encode(guarded))
    parsed = wire.parsed(piece.body, object) if piece.ext == "json" else None
    guarded_value = _guarded_value(parsed, render)
    return piece if guarded_value == parsed else msgspec.structs.replace(piece, body=wire.compact(guarded_value))


def _guarded_value(value: Any, render: int) -> Any:
    match value:
        case str():
            return stub.guarded(value, render)
        case list():
            return [_guarded_value(item, render) for item in value]
        case dict():
            return {stub.guarded(key, render): _guarded_value(item, render) for key, item in value.items()}
    return value


# --- what the Messages API takes


def _fit(piece: Piece) -> Piece:
    """The piece in a form that is allowed in its place."""
    if piece.role == "system" and not _was_sent(piece):
        # Only newer models accept a system message among the others, and only before a reply; the user says it instead.
        piece = msgspec.structs.replace(piece, role="user", kind="user" if piece.kind == "system" else piece.kind)
    if piece.role == "user" and (unknown := piece.extra.keys() - _FIELDS.get(piece.kind, piece.extra.keys())):
        piece = msgspec.structs.replace(piece, extra=wire.without(piece.extra, *unknown))
    match piece.kind:
        case "tool_use":
            return piece if piece.tool else msgspec.structs.replace(piece, tool=_UNNAMED)
        case "tool_result":
            return _fit_result(piece)
        case "thinking":
            return piece if piece.role == "assistant" else _as_text(piece)
        case "document" if piece.role == "assistant":
            return _own_text(piece, f"[a document of {display.human_bytes(len(piece.body))}]", kind="assistant")
        case "image" | "document":
            value = _value(piece)
            return piece if piece.ext != "json" or isinstance(value.get("source"), dict) else _as_text(piece)
        case "other":
            fits = "openai" in piece.extra or _is_known(_value(piece)) or _changes_tools(piece)
            return piece if fits else _as_text(piece)
    return piece


def _was_sent(piece: Piece) -> bool:
    """Whether a host sent this as a system message among the others, so that its model accepts one."""
    return piece.role == "system" and wire.own_metadata(piece.extra).get("sent") is True


def _changes_tools(piece: Piece) -> bool:
    """Whether this adds or removes tools in a system message that a host sent; there it is sent unchanged."""
    if piece.role != "system" or wire.own_metadata(piece.extra).get("as_is") is not True:
        return False
    return _type(_value(piece)) in _OF_SYSTEM


def _fit_result(piece: Piece) -> Piece:
    if "openai" in piece.extra and piece.body:
        return piece  # the exporter of that form builds its content, and depends on each item's place
    items = wire.items(piece.body, piece.extra)
    if items is not None:
        fit = [item for item in map(_fit_item, items) if item["type"] != "text" or item["text"].strip()]
        if fit:
            return piece if fit == items else msgspec.structs.replace(piece, body=wire.compact(fit))
    elif display.decode(piece.body).strip():
        return piece
    if not piece.error:
        return msgspec.structs.replace(piece, body=b"", ext="txt", extra=wire.without(piece.extra, "ctxvc"), files={})
    interrupted = wire.own_metadata(piece.extra).get("interrupted") is True
    return _own_text(piece, stub.INTERRUPTED if interrupted else stub.FAILED, kind="tool_result")


def _fit_item(item: Any) -> Any:
    """An item of a result's content in a form that is allowed there."""
    match item:
        case str():
            return {"type": "text", "text": item}
        case {"type": "text", "text": str()}:
            return wire.without(item, "citations") if item.get("citations") else item
        case {"type": "search_result", "content": list(content), "source": str(), "title": str()}:
            return {**item, "content": [_fit_item(inner) for inner in content]}
        case {"type": str(kind)} if kind in _IN_RESULTS:
            return item
    return {"type": "text", "text": display.decode(wire.compact(item))}


def _is_known(value: Mapping[str, Any]) -> bool:
    """Whether the API accepts a block of this type. It keeps adding types for results of its own tools."""
    kind = _type(value)
    if kind == "search_result":
        return all(isinstance(value.get(name), str) for name in ("source", "title"))
    return kind in _KNOWN or (kind.endswith("_tool_result") and kind not in _OWN_KIND)


def _says_something(piece: Piece) -> bool:
    return piece.kind not in _TEXTS or bool(display.decode(piece.body).strip())


def _as_text(piece: Piece) -> Piece:
    return msgspec.structs.replace(piece, kind=piece.role, ext="txt", extra={}, files={})


def _own_text(piece: Piece, value: str, *, kind: str) -> OwnText:
    return OwnText(
        message=piece.message,
        role=piece.role,
        kind=kind,
        body=display.encode(value),
        call=piece.call,
        tool=piece.tool,
        error=piece.error,
        block=piece.block,
    )


def _with_texts_within(content: list[Piece]) -> list[Piece]:
    """`content` with each text that a host sent at the end of an earlier result moved into that result."""
    texts = {at: call for at, piece in enumerate(content) if (call := _within(piece))}
    if not texts:
        return content
    results = {piece.call: at for at, piece in enumerate(content) if piece.kind == "tool_result" and piece.ext == "txt"}
    joined = list(content)
    inside: set[int] = set()
    for at, call in texts.items():
        place = results.get(call, at)
        if place < at and content[place].body:
            joined[place] = msgspec.structs.replace(joined[place], body=joined[place].body + content[at].body)
            inside.add(at)
    return [piece for at, piece in enumerate(joined) if at not in inside]


def _within(piece: Piece) -> str:
    """The call in whose result a host sent the text; empty for another piece."""
    if piece.kind != "user" or "ctxvc" not in piece.extra:
        return ""
    call = wire.own_metadata(piece.extra).get("within")
    return call if isinstance(call, str) else ""


def _with_whole_pairs(content: list[Piece]) -> list[Piece]:
    """`content` with unpaired halves of the provider's own calls and results as text.

    A pair must be within one message. Calls without results at the end of the newest reply stay if nothing follows: the
    provider paused its turn there, and accepts the reply unchanged.
    """
    if all(piece.kind != "other" for piece in content):
        return content
    halves: set[int] = set()
    used: set[str] = set()
    paused: set[int] = set()
    for role, run in groupby(enumerate(content), lambda numbered: numbered[1].role):
        open_calls: dict[str, int] = {}
        for at, kind, call in _providers_halves(run):
            halves.add(at)
            if kind in _PROVIDERS_CALLS and role == "assistant" and call not in used:
                open_calls[call] = at
                used.add(call)
            elif kind not in _PROVIDERS_CALLS and call in open_calls:
                halves -= {open_calls.pop(call), at}
        paused = set(open_calls.values()) if role == "assistant" else set()
    return [_as_text(piece) if at in halves - paused else piece for at, piece in enumerate(content)]


def _providers_halves(run: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, str, str]]:
    """Index, type and id of each of the provider's own calls and results."""
    for at, piece in run:
        if piece.kind == "other" and "openai" not in piece.extra:
            value = _value(piece)
            kind = _type(value)
            if kind in _PROVIDERS_CALLS or kind.endswith("_tool_result"):
                yield at, kind, str(value.get("id" if kind in _PROVIDERS_CALLS else "tool_use_id"))


def _with_system_in_place(content: list[Piece]) -> list[Piece]:
    """`content` with system messages turned into the user's text unless they are between the user and a reply."""
    if all(piece.role != "system" for piece in content):
        return content
    runs = [(role, list(run)) for role, run in groupby(content, lambda piece: piece.role)]
    ordered: list[Piece] = []
    for at, (role, run) in enumerate(runs):
        follows = runs[at + 1][0] if at + 1 < len(runs) else "assistant"
        if role == "system" and not (ordered and ordered[-1].role == "user" and follows == "assistant"):
            ordered += [msgspec.structs.replace(piece, role="user", kind="user") for piece in run]
        else:
            ordered += run
    return ordered


def _with_ids(content: list[Piece]) -> list[Piece]:
    """`content` with call ids that the API accepts; valid ids stay."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for piece in [candidate for candidate in content if candidate.kind == "tool_use"]:
        if piece.call not in ids:
            name = piece.call
            if not _CALL_ID.fullmatch(name):
                name = re.sub("[^A-Za-z0-9_-]", "_", name)[:40] + "-" + _digest(piece.call)
            while name in taken:
                name += "-"
            ids[piece.call] = name
            taken.add(name)
    if all(name == call for call, name in ids.items()):
        return content
    return [
        piece if ids.get(piece.call, piece.call) == piece.call else msgspec.structs.replace(piece, call=ids[piece.call])
        for piece in content
    ]


def _digest(value: str) -> str:
    return hashlib.sha256(display.encode(value)).hexdigest()[:8]


def _value(piece: Piece) -> dict[str, Any]:
    """The content block that a piece contains as JSON; empty if that is not an object."""
    return wire.parsed(piece.body, dict) or {}


def _type(value: Mapping[str, Any]) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""
