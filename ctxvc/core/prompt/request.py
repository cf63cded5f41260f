"""The next request: system, tools and messages of a scope, with cache breakpoints, and their hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, groupby
from operator import attrgetter, is_not
from typing import Any, Literal, NamedTuple

import msgspec

from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.segments import Segments
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies, Piece, Slot, outline, pieces
from ctxvc.core.prompt.sanitise import alone, independent, together

#: Cache breakpoints that the Messages API accepts in one request.
BREAKPOINTS = 4
_MARK = {"type": "ephemeral"}
#: Blocks that may not carry a breakpoint.
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})
#: The beginning of a prompt's canonical JSON.
_BEGINNING = b'{"messages":['
#: The number of newest messages that may change in the next prompt and are hashed anew.
_UNSETTLED = 4
_SURROGATE = re.compile("[\ud800-\udfff]")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt in the form of the Messages API. `last` is its newest block, empty for none.

    `label` is `exact` for what we send ourselves, `reconstructed` for what was assembled from a recording. `system` and
    `tools` are those of the session; `messages` are valid whatever left the prompt. `known` is the digest, and
    `written` each message as canonical JSON, if the maker of the request knows them.
    """

    model: str
    messages: list[dict[str, Any]]
    system: Any = None
    tools: Sequence[Any] = ()
    last: str = ""
    label: Literal["exact", "reconstructed"] = "exact"
    known: str = ""
    written: Sequence[bytes] = ()

    @property
    def digest(self) -> str:
        """The SHA-256 of system, tools and messages as canonical JSON, in hexadecimal (docs/format.md)."""
        return self.known or hashlib.sha256(canonical(self.body())).hexdigest()

    def body(self, *, marked: bool = False) -> dict[str, Any]:
        """The non-empty ones of `system`, `tools` and `messages` for a call; `marked` with cache breakpoints."""
        body = {"system": self.system, "tools": list(self.tools), "messages": self.messages}
        present = {name: value for name, value in body.items() if value or name == "messages"}
        return _marked(present) if marked else present


def request(ledger: Ledger, bodies: Bodies, system: Any, tools: Any) -> Request:
    """The request of a ledger. The same ledger gives the same bytes.

    Whatever it shares with the previous request is reused from `bodies.cache`.
    """
    prompt = formats.anthropic(formats.Prompt(pieces=(), system=system, tools=tools))
    encoded = {name: _encodable(value) for name, value in prompt.items()}
    newest: _Newest = bodies.cache.setdefault("newest", _Newest())
    messages = _messages(newest, ledger, bodies)
    last = ledger.last()
    return Request(
        model=ledger.meta.model,
        system=encoded["system"][0] if "system" in encoded else None,
        tools=tuple(encoded["tools"][0]) if "tools" in encoded else (),
        # Callers may modify the request, so it does not contain the cached blocks themselves.
        messages=[{"role": message.role, "content": list(map(_copied, message.content))} for message in messages],
        last=last.id if last else "",
        label="reconstructed" if ledger.meta.source else "exact",
        known=_digest(newest, messages, {name: written for name, (_, written) in encoded.items()}),
        written=tuple([message.json for message in messages]),
    )


class _Block(NamedTuple):
    """A block of a message's content, and its canonical JSON.

    `later` if it may not lead its message, `flat` if it contains neither objects nor arrays.
    """

    value: dict[str, Any]
    json: bytes
    later: bool
    flat: bool


class _Rendered(NamedTuple):
    """A piece of the prompt, its blocks, and whether it is `sanitise.independent`."""

    piece: Piece
    blocks: list[_Block]
    independent: bool


class _RenderedSlot(NamedTuple):
    """A slot and its rendering regardless of its neighbours; None if it renders to nothing."""

    slot: Slot
    rendered: _Rendered | None


@dataclass(slots=True)
class _Newest:
    """The newest prompt made from some bodies, most of which the next one repeats.

    `messages` are keyed by the identities of their pieces. `hashed` is the hash of the messages in `settled`.
    """

    render: int = 0
    slots: tuple[Slot, ...] = ()
    rendered_slots: list[_RenderedSlot] = field(default_factory=list)
    messages: dict[tuple[int, ...], _Message] = field(default_factory=dict)
    settled: list[_Message] = field(default_factory=list)
    hashed: Any = field(default_factory=lambda: hashlib.sha256(_BEGINNING))


class _Message(NamedTuple):
    """A message of the prompt: the rendered pieces, its content, and the whole as canonical JSON."""

    rendered: list[_Rendered]
    role: str
    content: list[_Block]
    json: bytes


def _messages(newest: _Newest, ledger: Ledger, bodies: Bodies) -> list[_Message]:
    """The messages of the prompt. Parts of the newest prompt are made again only if they differ."""
    slots = outline(ledger)
    if newest.render != ledger.meta.render:
        newest.render, newest.slots, newest.rendered_slots, newest.messages = ledger.meta.render, (), [], {}
    both = enumerate(map(is_not, slots, newest.slots))
    common = next((at for at, differs in both if differs), min(len(slots), len(newest.slots)))
    by_place = {(one.slot.row.id, one.slot.kind): one for one in newest.rendered_slots[common:]}
    rendered_slots = newest.rendered_slots[:common] + [
        _render(slot, by_place, bodies, newest.render) for slot in slots[common:]
    ]
    messages: list[tuple[tuple[int, ...], _Message]] = []
    for role, run in groupby(
        _together([rendered_slot.rendered for rendered_slot in rendered_slots if rendered_slot.rendered]),
        attrgetter("piece.role"),
    ):
        run_pieces = list(run)
        key = tuple(map(id, run_pieces))
        messages.append((key, newest.messages.get(key) or _message(role, run_pieces)))
    newest.slots, newest.rendered_slots, newest.messages = slots, rendered_slots, dict(messages)
    return [message for _, message in messages]


def _together(content: list[_Rendered]) -> list[_Rendered]:
    """Pieces adjusted to their neighbours; pieces that render to no block are dropped."""
    apart = [rendered.piece for rendered in content]
    fit = together(apart, apart=all(map(attrgetter("independent"), content)))
    if len(fit) != len(apart) or any(map(is_not, fit, apart)):
        by_piece = {id(rendered.piece): rendered for rendered in content}
        content = [by_piece.get(id(piece)) or _rendered(piece) for piece in fit]
    return [rendered for rendered in content if rendered.blocks]


def _message(role: str, content: list[_Rendered]) -> _Message:
    blocks = sorted(chain.from_iterable(rendered.blocks for rendered in content), key=attrgetter("later"))
    written = b'{"content":[%b],"role":%b}' % (b",".join([block.json for block in blocks]), _quoted(role))
    return _Message(content, role, blocks, written)


def _render(
    slot: Slot, by_place: Mapping[tuple[str, str], _RenderedSlot], bodies: Bodies, render: int
) -> _RenderedSlot:
    earlier = by_place.get((slot.row.id, slot.kind))
    if earlier and (earlier.slot is slot or earlier.slot == slot):
        return earlier
    (piece,) = pieces([slot], bodies, render)
    fit = None if _unsigned(piece) else alone(piece, render)
    return _RenderedSlot(slot, _rendered(fit) if fit else None)


def _rendered(piece: Piece) -> _Rendered:
    return _Rendered(piece, list(_blocks(piece)), independent(piece))


def _blocks(piece: Piece) -> Iterator[_Block]:
    for content in formats.content(piece):
        value, written = _encodable(content)
        flat = not any(isinstance(item, (dict, list)) for item in value.values())
        yield _Block(value, written, formats.is_no_result(value), flat)


def _copied(block: _Block) -> dict[str, Any]:
    """The block's value, sharing nothing mutable with it."""
    if block.flat:
        return block.value.copy()
    copied: dict[str, Any] = msgspec.to_builtins(block.value)
    return copied


def _encodable(value: Any) -> tuple[Any, bytes]:
    """`value` as sent, with U+FFFD for lone surrogates, which UTF-8 cannot encode; and its canonical JSON."""
    written = canonical(value)
    if b"\\ud" not in written:
        return value, written
    cleaned = json.loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    return cleaned, canonical(cleaned)


@cache
def _quoted(role: str) -> bytes:
    return canonical(role)


def _digest(newest: _Newest, messages: Sequence[_Message], fields: Mapping[str, bytes]) -> str:
    """`Request.digest` of these messages and the other fields present, each as canonical JSON.

    It continues from the hash of what the previous prompt also had.
    """
    settled, state = newest.settled, newest.hashed.copy()
    if len(settled) > len(messages) or any(map(is_not, settled, messages)):
        settled, state = [], hashlib.sha256(_BEGINNING)
    at = max(len(settled), len(messages) - _UNSETTLED)
    state.update(_listed(messages, len(settled), at))
    newest.settled, newest.hashed = list(messages[:at]), state.copy()
    state.update(_listed(messages, at, len(messages)))
    others = [b',"%b":%b' % (name.encode(), fields[name]) for name in ("system", "tools") if name in fields]
    state.update(b"]%b}" % b"".join(others))
    digest: str = state.hexdigest()
    return digest


def _listed(messages: Sequence[_Message], start: int, end: int) -> bytes:
    """The items from `start` to `end` of an array of them, each but the first with the comma before it."""
    return b"".join([b"%b%b" % (b"," if at else b"", messages[at].json) for at in range(start, end)])


def up_to(ledger: Ledger, last: str) -> Ledger:
    """The ledger up to block `last`: that of the call whose reply came next."""
    end = int(last[1:]) if last else 0
    segments = {
        key: rows_kept
        for key, rows in ledger.segments.items()
        if (rows_kept := rows if rows[-1].number <= end else tuple(row for row in rows if row.number <= end))
    }
    return Ledger(meta=ledger.meta, segments=Segments(segments), groups=ledger.groups)


def frame(system: Any, tools: Any) -> str:
    """The SHA-256 of what is sent besides the messages, as canonical JSON; equal for equal system prompts and tools."""
    sent = formats.anthropic(formats.Prompt(pieces=(), system=system, tools=tools))
    return hashlib.sha256(canonical([sent.get("system"), sent.get("tools")])).hexdigest()


def canonical(value: Any) -> bytes:
    """`value` in docs/format.md's form for JSON that is hashed: sorted keys, no white space, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")  # only lone surrogates need this


def _unsigned(piece: Piece) -> bool:
    """Whether a piece is thinking that no provider takes back: recorded without its signature."""
    return piece.kind == "thinking" and piece.ext != "json" and not piece.extra.get("signature")


def _marked(body: dict[str, Any]) -> dict[str, Any]:
    """The body with breakpoints: after tools or system, and after the last messages, which the next call repeats.

    A breakpoint looks back over only 20 places, so there is one after the newest message and one after the newest user
    message before it, where the previous call ended.
    """
    messages = list(body["messages"])
    marked = dict(body, messages=messages)
    if isinstance(body.get("system"), str):
        marked["system"] = [{"type": "text", "text": body["system"], "cache_control": _MARK}]
    elif body.get("system"):
        marked["system"] = [*body["system"][:-1], {**body["system"][-1], "cache_control": _MARK}]
    elif body.get("tools"):
        marked["tools"] = [*body["tools"][:-1], {**body["tools"][-1], "cache_control": _MARK}]
    user_places = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in user_places[-(BREAKPOINTS - 1) :]:
        content = messages[at]["content"]
        if content and content[-1]["type"] not in _UNMARKABLE:
            messages[at] = {**messages[at], "content": [*content[:-1], {**content[-1], "cache_control": _MARK}]}
    return marked


#: Fields of all providers' requests that are stored elsewhere, or differ in each request.
_NONE = frozenset(
    {"messages", "input", "contents", "system", "instructions", "systemInstruction", "system_instruction", "tools"}
    | {"metadata", "stream", "previous_response_id", "conversation", "client_metadata"}
)
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parameters(body: bytes) -> Mapping[str, bytes]:
    """The top-level fields of a body that are parameters, name → JSON; empty for a body that is not a JSON object."""
    try:
        fields = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return {name: bytes(value) for name, value in fields.items() if name not in _NONE}
