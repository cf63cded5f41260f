"""What the next call is sent: system, tools and messages of a scope, with cache breakpoints, and their hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ctxvc import exporters
from ctxvc.core.ledger import Ledger
from ctxvc.core.prompt import Bodies, Piece, outline, pieces, sendable

#: Cache breakpoints that the Messages API takes in one request.
BREAKPOINTS = 4
_MARK = {"type": "ephemeral"}
#: Blocks that may not carry a breakpoint.
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as the Messages API takes it. `last` is the newest block that it holds, empty for none.

    `label` is `exact` for what we send ourselves, `reconstructed` for what was put together from a recording.
    `system` and `tools` are as they were given to the session; `messages` are valid whatever left the prompt.
    """

    model: str
    messages: list[dict[str, Any]]
    system: Any = None
    tools: Sequence[Any] = ()
    last: str = ""
    label: Literal["exact", "reconstructed"] = "exact"

    @property
    def digest(self) -> str:
        """The SHA-256 of system, tools and messages as canonical JSON, in hexadecimal (docs/format.md)."""
        return hashlib.sha256(canonical(self.body())).hexdigest()

    def body(self, *, marked: bool = False) -> dict[str, Any]:
        """`system`, `tools` and `messages` for a call, those that there are; `marked` with cache breakpoints."""
        body = {"system": self.system, "tools": list(self.tools), "messages": self.messages}
        given = {name: value for name, value in body.items() if value or name == "messages"}
        return _marked(given) if marked else given


def request(ledger: Ledger, bodies: Bodies, system: Any, tools: Any) -> Request:
    """The request that stands in a ledger. The same ledger gives the same bytes."""
    held = [piece for piece in pieces(outline(ledger), bodies) if not _unsigned(piece)]
    prompt = exporters.Prompt(pieces=sendable(held), system=system, tools=tools)
    body = exporters.anthropic(prompt)
    last = ledger.last()
    return Request(
        model=ledger.meta.model,
        system=body.get("system"),
        tools=tuple(body.get("tools", ())),
        messages=body["messages"],
        last=last.id if last else "",
        label="reconstructed" if ledger.meta.source else "exact",
    )


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
