"""What the prompt cache reads and writes: the prompt as positions, the marks in it, and the entries that live.

An entry is the prompt from its beginning up to a marked block. A request reads the longest one that a mark of its own,
or one of the positions shortly before a mark, ends on; then it writes one for each of its marks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tests.messages_api.models import Model
from tests.messages_api.tokens import MESSAGE_FRAME, TOOLS_FRAME, block_tokens, json_tokens
from tests.messages_api.wire import THINKING, Block, Request, blocks, shown

#: How many positions a mark looks at, itself the first.
LOOKBACK = 20
SECONDS = {"5m": 300.0, "1h": 3600.0}
#: A run of these is one position.
RUNS = ("tool_use", "tool_result")


@dataclass(frozen=True)
class Position:
    """A block of the prompt: what stands up to its end, in tokens and as a digest, and how it is marked."""

    digest: bytes
    tokens: int
    #: The number for the lookback; blocks of one run share it.
    number: int
    #: How long the prefix up to here may live, or None.
    mark: str | None


@dataclass(frozen=True)
class Charge:
    """How the tokens of a prompt are billed: read from the cache, written to it by lifetime, and neither."""

    read: int
    written: Mapping[str, int]
    fresh: int


@dataclass(frozen=True)
class _Piece:
    text: str
    tokens: int
    kind: str
    mark: str | None
    markable: bool = True


def rendered(request: Request, model: Model, hidden: Mapping[str, int]) -> list[Position]:
    """The prompt as the model sees it: tools, system, messages. `request` has passed the rules."""
    pieces = list(_pieces(request, model, hidden))
    automatic = _mark(request)
    last = max((at for at, piece in enumerate(pieces) if piece.markable), default=-1) if automatic else -1
    digest, tokens, number, before = blake2b(model.id.encode(), digest_size=16), 0, -1, ""
    positions = []
    for at, piece in enumerate(pieces):
        if piece.kind not in RUNS or piece.kind != before:
            number += 1
        before = piece.kind
        tokens += piece.tokens
        digest.update(piece.text.encode("utf-8", "surrogatepass") + b"\0")
        mark = piece.mark or (automatic if at == last else None)
        positions.append(Position(digest.digest(), tokens, number, mark))
    return positions


def _pieces(request: Request, model: Model, hidden: Mapping[str, int]) -> Iterator[_Piece]:
    tools = request.get("tools") or []
    for number, tool in enumerate(tools):
        frame = TOOLS_FRAME if number == 0 else 0
        yield _Piece(_text("tool", tool), frame + json_tokens(_bare(tool), model), "tool", _mark(tool))
    for block in blocks(request.get("system")):
        yield _Piece(_text("system", block), block_tokens(block, model, hidden), "system", _mark(block))
    # A change of these leaves the tools and the system prompt in the cache, and nothing behind them.
    toggles = _text("toggles", _toggles(request))
    for _, message in shown(request["messages"]):
        start = f"{toggles}\0{message['role']}"
        toggles = ""
        for number, block in enumerate(blocks(message["content"])):
            tokens = block_tokens(block, model, hidden) + (MESSAGE_FRAME if number == 0 else 0)
            markable = block["type"] not in THINKING and message.get("clear_at") != "next_user_message"
            yield _Piece(_text(start, block), tokens, block["type"], _mark_within(block), markable)
            start = ""


def _toggles(request: Request) -> Block:
    thinking = dict(request.get("thinking") or {})
    # What to do with a block that does not fit is never shown to the model.
    thinking.pop("block_binding", None)
    effort = (request.get("output_config") or {}).get("effort")
    return {"thinking": thinking, "effort": effort, "choice": request.get("tool_choice")}


def _bare(block: Mapping[str, Any]) -> Block:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _text(start: str, block: Mapping[str, Any]) -> str:
    """The order of the block's own fields does not count; the order within its values does."""
    fields = _bare(block)
    if block.get("type") == "tool_result":
        fields["content"] = [sorted(_bare(inner).items()) for inner in blocks(block.get("content"))]
    return f"{start}\0{json.dumps(sorted(fields.items()), separators=(',', ':'))}"


def _mark(holder: Mapping[str, Any]) -> str | None:
    marker = holder.get("cache_control")
    return None if marker is None else str(marker.get("ttl", "5m"))


def _mark_within(block: Block) -> str | None:
    marks = [_mark(block)]
    if block["type"] == "tool_result":
        marks += [_mark(inner) for inner in blocks(block.get("content"))]
    return max((mark for mark in marks if mark), default=None)


@dataclass
class Cache:
    """The entries of one account: a digest of a prompt → the second it ends, and how long it lives."""

    _entries: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def charge(self, positions: Sequence[Position], model: Model, now: float) -> Charge:
        """How this prompt is billed; its marks are entries from now on. `now` in seconds."""
        marked = [position for position in positions if position.mark]
        found = self._longest(positions, now)
        read = found.tokens if found else 0
        written = dict.fromkeys(SECONDS, 0)
        upto = read
        for position in marked:
            assert position.mark is not None
            if position.tokens < model.cache_minimum:
                continue
            written[position.mark] += max(0, position.tokens - upto)
            upto = max(upto, position.tokens)
            self._entries[position.digest] = (now + SECONDS[position.mark], SECONDS[position.mark])
        if found:
            lives = self._entries[found.digest][1]
            self._entries[found.digest] = (now + lives, lives)
        total = positions[-1].tokens if positions else 0
        return Charge(read, written, total - upto)

    def _longest(self, positions: Sequence[Position], now: float) -> Position | None:
        """The last position within reach of a mark that an entry ends on."""
        for at in range(len(positions) - 1, -1, -1):
            if positions[at].mark and (found := self._before(positions[: at + 1], now)):
                return found
        return None

    def _before(self, positions: Sequence[Position], now: float) -> Position | None:
        """The nearest entry that the mark at the end of these positions reaches."""
        for position in reversed(positions):
            if position.number <= positions[-1].number - LOOKBACK:
                return None
            ends, _ = self._entries.get(position.digest, (now, 0.0))
            if ends > now:
                return position
        return None
