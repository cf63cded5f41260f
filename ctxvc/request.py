"""What the next call is sent: system, tools and messages of a scope, with cache breakpoints, and their hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec

from ctxvc import exporters
from ctxvc.core.ledger import Ledger
from ctxvc.core.prompt import Bodies, Piece, Slot, outline, pieces
from ctxvc.core.sending import alone, together

#: Cache breakpoints that the Messages API takes in one request.
BREAKPOINTS = 4
_MARK = {"type": "ephemeral"}
#: Blocks that may not carry a breakpoint.
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})
_SURROGATE = re.compile("[\ud800-\udfff]")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as the Messages API takes it. `last` is the newest block that it holds, empty for none.

    `label` is `exact` for what we send ourselves, `reconstructed` for what was put together from a recording.
    `system` and `tools` are as they were given to the session; `messages` are valid whatever left the prompt.
    `known` is the digest, where whoever made the request knows it.
    """

    model: str
    messages: list[dict[str, Any]]
    system: Any = None
    tools: Sequence[Any] = ()
    last: str = ""
    label: Literal["exact", "reconstructed"] = "exact"
    known: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of system, tools and messages as canonical JSON, in hexadecimal (docs/format.md)."""
        return self.known or hashlib.sha256(canonical(self.body())).hexdigest()

    def body(self, *, marked: bool = False) -> dict[str, Any]:
        """`system`, `tools` and `messages` for a call, those that there are; `marked` with cache breakpoints."""
        body = {"system": self.system, "tools": list(self.tools), "messages": self.messages}
        given = {name: value for name, value in body.items() if value or name == "messages"}
        return _marked(given) if marked else given


def request(ledger: Ledger, bodies: Bodies, system: Any, tools: Any) -> Request:
    """The request that stands in a ledger. The same ledger gives the same bytes.

    What the request before it was made of is taken from `bodies.made`, where it stands in this one too.
    """
    prompt = exporters.anthropic(exporters.Prompt(pieces=(), system=system, tools=tools))
    given = {name: _encodable(value) for name, value in prompt.items()}
    messages: list[dict[str, Any]] = []
    written: list[bytes] = []
    for role, blocks in exporters.by_message(_content(ledger, bodies), attrgetter("later")):
        # Whoever gets the request may do with it what they like: the blocks that are kept are not in it.
        messages.append({"role": role, "content": [_copy(block.value) for block in blocks]})
        written.append(b'{"content":[%b],"role":%b}' % (b",".join([block.json for block in blocks]), _quoted(role)))
    last = ledger.last()
    return Request(
        model=ledger.meta.model,
        system=given["system"][0] if "system" in given else None,
        tools=tuple(given["tools"][0]) if "tools" in given else (),
        messages=messages,
        last=last.id if last else "",
        label="reconstructed" if ledger.meta.source else "exact",
        known=_digest(written, {name: each for name, (_, each) in given.items()}),
    )


class _Block(NamedTuple):
    """A block of a message's content, and as canonical JSON; `later` where it may not lead its message."""

    value: dict[str, Any]
    json: bytes
    later: bool


class _Made(NamedTuple):
    """What a slot becomes that stands alone: a piece, none where it says nothing, and the piece's blocks."""

    slot: Slot
    piece: Piece | None
    blocks: list[_Block]


def _content(ledger: Ledger, bodies: Bodies) -> Iterator[tuple[str, _Block]]:
    """The blocks of the prompt, each with its role."""
    made = [_made(slot, bodies) for slot in outline(ledger)]
    bodies.made.clear()  # so that no more is kept than one prompt is made of
    bodies.made.update(((each.slot.row.id, each.slot.kind), each) for each in made)
    known = {id(each.piece): each.blocks for each in made if each.piece}
    for piece in together(each.piece for each in made if each.piece):
        for block in known[id(piece)] if id(piece) in known else _blocks(piece):
            yield piece.role, block


def _made(slot: Slot, bodies: Bodies) -> _Made:
    held: _Made | None = bodies.made.get((slot.row.id, slot.kind))
    if held and (held.slot is slot or held.slot == slot):
        return held
    (piece,) = pieces([slot], bodies)
    fit = None if _unsigned(piece) else alone(piece)
    return _Made(slot, fit, list(_blocks(fit)) if fit else [])


def _blocks(piece: Piece) -> Iterator[_Block]:
    for content in exporters.content(piece):
        value, written = _encodable(content)
        yield _Block(value, written, exporters.is_no_result(value))


def _encodable(value: Any) -> tuple[Any, bytes]:
    """`value` as it can be sent, with U+FFFD for each lone surrogate, which UTF-8 cannot hold; its canonical JSON."""
    written = canonical(value)
    if b"\\ud" not in written:
        return value, written
    made = json.loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    return made, canonical(made)


@cache
def _quoted(role: str) -> bytes:
    return canonical(role)


def _copy(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON object that shares nothing with `value` that could be changed."""
    copied = value.copy()
    for name, item in value.items():
        if isinstance(item, dict):
            copied[name] = _copy(item)
        elif isinstance(item, list):
            copied[name] = _copied(item)
    return copied


def _copied(values: list[Any]) -> list[Any]:
    return [
        _copy(item) if isinstance(item, dict) else _copied(item) if isinstance(item, list) else item for item in values
    ]


def _digest(messages: Iterable[bytes], given: Mapping[str, bytes]) -> str:
    """`Request.digest` of these messages and of the other fields that are given, each as canonical JSON."""
    others = [b',"%b":%b' % (name.encode(), given[name]) for name in ("system", "tools") if name in given]
    return hashlib.sha256(b'{"messages":[%b]%b}' % (b",".join(messages), b"".join(others))).hexdigest()


def up_to(ledger: Ledger, last: str) -> Ledger:
    """`ledger` without what came after block `last`: what a call was sent whose reply came next."""
    end = int(last[1:]) if last else 0
    segments = {
        key: kept
        for key, rows in ledger.segments.items()
        if (kept := rows if rows[-1].number <= end else tuple(row for row in rows if row.number <= end))
    }
    return Ledger(meta=ledger.meta, segments=segments, groups=ledger.groups)


def canonical(value: Any) -> bytes:
    """`value` as docs/format.md writes JSON that is hashed: sorted keys, no white space, UTF-8."""
    words = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return words.encode("utf-8", "backslashreplace")  # which only lone surrogates need


def _unsigned(piece: Piece) -> bool:
    """Whether it is thinking that no provider takes back: recorded without its signature."""
    return piece.kind == "thinking" and piece.ext != "json" and not piece.extra.get("signature")


def _marked(body: dict[str, Any]) -> dict[str, Any]:
    """`body` with breakpoints: behind tools and system, and behind the last messages, which the next call repeats.

    A breakpoint looks back over 20 places only, so there is one behind the newest message and one behind the newest
    user message before it: the call before this one ended there.
    """
    messages = list(body["messages"])
    marked = dict(body, messages=messages)
    if isinstance(body.get("system"), str):
        marked["system"] = [{"type": "text", "text": body["system"], "cache_control": _MARK}]
    elif body.get("system"):
        marked["system"] = [*body["system"][:-1], {**body["system"][-1], "cache_control": _MARK}]
    elif body.get("tools"):
        marked["tools"] = [*body["tools"][:-1], {**body["tools"][-1], "cache_control": _MARK}]
    asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in asked[-(BREAKPOINTS - 1) :]:
        content = messages[at]["content"]
        if content and content[-1]["type"] not in _UNMARKABLE:
            messages[at] = {**messages[at], "content": [*content[:-1], {**content[-1], "cache_control": _MARK}]}
    return marked
