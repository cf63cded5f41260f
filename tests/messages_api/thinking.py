"""Signed thinking: each block is bound to what stood before it, and may come back only after the same.

What is compared: `system`, the tools by name, every message before the block, and the chain of earlier thinking. What
is not: marks for the cache, the order of the tools and of JSON keys, `1` or `1.0`, a string or one block of text, white
space around a text, a turn in one message or in several, and every option of the request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from tests.messages_api.models import MODELS, Model, reads
from tests.messages_api.tokens import text_tokens
from tests.messages_api.wire import THINKING, Block, Message, Request, blocks, signature

#: What becomes of a block that stands behind something else than it was made after.
Mismatch = Literal["error", "drop_block", "allow"]

_CHANGED = "messages.{}.content.{}: Invalid `signature` in `{}` block."
_BOUND = (
    " The block is bound to a different conversation. Remove the block, or set"
    ' `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
_DROPPED, _ALLOWED = "thinking_dropped", "thinking_mismatch_allowed"
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_OPEN = (
    "messages.{}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These"
    " blocks must remain as they were in the original response."
)


@dataclass(frozen=True)
class Signed:
    """What a signature stands for. `trail`: rolling digests of all that stood before; `chain`: earlier signatures."""

    author: str
    text: str
    trail: tuple[bytes, ...]
    chain: tuple[str, ...]


@dataclass(frozen=True)
class Examination:
    """What the signatures of a request say: reasons to refuse it, what it tells the client, and what is left out."""

    problems: Sequence[str]
    transformations: Sequence[Block]
    dropped: frozenset[tuple[int, int]]
    chain: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """A block of thinking in a request, and how long the trail is where it stands."""

    at: int
    number: int
    block: Block
    length: int


@dataclass
class Signer:
    """Signs the thinking of replies, and knows its own again. `hidden`: a signature → tokens of the whole thinking."""

    models: Mapping[str, Model] = field(default_factory=lambda: MODELS)
    hidden: dict[str, int] = field(default_factory=dict)
    _signed: dict[str, Signed] = field(default_factory=dict)
    #: The id of a call → the signatures in the reply that made it.
    _rounds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: The request that was examined last, with its trail, which is that of the reply to it.
    _examined: tuple[Request, _Trail] | None = None

    def sign(
        self, request: Request, chain: tuple[str, ...], model: Model, content: Sequence[Block], *, omit: bool
    ) -> list[Block]:
        """The reply's content with each block of thinking signed; its text is emptied if `omit`.

        `chain` is that of the request's examination: the thinking that the model was shown.
        """
        examined, self._examined = self._examined, None
        trail = examined[1] if examined and examined[0] is request else _Trail(request)
        signed, own = [], list[str]()
        for block in content:
            if block["type"] in THINKING:
                signed.append(self._sign(block, trail.digests, (*chain, *own), model, omit=omit))
                own.append(signature(signed[-1]))
                continue
            signed.append(block)
            if (compared := _compared(block)) is not None:
                trail.add("reply", ["assistant", {}, compared])
        for block in signed:
            if block["type"] == "tool_use":
                self._rounds[block["id"]] = tuple(own)
        return signed

    def _sign(self, block: Block, trail: Sequence[bytes], chain: tuple[str, ...], model: Model, *, omit: bool) -> Block:
        redacted = block["type"] == "redacted_thinking"
        whole = str(block.get("thinking", ""))
        text = "" if redacted or omit else whole
        seal = blake2b(repr((len(self._signed), model.id, whole, trail[-1:], chain[-1:])).encode("utf-8", "replace"))
        name = base64.b64encode(seal.digest()).decode()
        self._signed[name] = Signed(model.id, text, tuple(trail), chain)
        self.hidden[name] = text_tokens(whole, model)
        if redacted:
            return {"type": "redacted_thinking", "data": name}
        return {"type": "thinking", "thinking": text, "signature": name}

    def examine(self, request: Request, model: Model, mismatch: Mismatch) -> Examination:
        """What the signatures in a request, one that has passed the rules, say about it."""
        trail = _Trail(request)
        self._examined = request, trail
        problems, transformations, dropped = [], [], set()
        chain: list[str] = []
        for place in trail.places:
            name = signature(place.block)
            known = self._signed.get(name)
            if known is None or known.text != str(place.block.get("thinking", "")):
                problems.append(_CHANGED.format(place.at, place.number, place.block["type"]))
                continue
            author = self.models[known.author]
            unreadable = not reads(model, author)
            checked = model.bound and author.bound and not unreadable
            difference = trail.differs(known, place, chain) if checked else ""
            if difference and mismatch == "error":
                problems.append(_CHANGED.format(place.at, place.number, place.block["type"]) + _BOUND + difference)
                continue
            if unreadable or difference:
                stays = mismatch == "allow" and not unreadable
                entry = _ALLOWED if stays else _DROPPED
                reason = "model_binding_mismatch" if unreadable else "prefix_binding_mismatch"
                path = f"messages.{place.at}.content.{place.number}"
                transformations.append({"type": entry, "path": path, "reason": reason})
                if not stays:
                    dropped.add((place.at, place.number))
                    continue
            chain.append(name)
        problems += self._open_round(request)
        return Examination(problems, transformations, frozenset(dropped), tuple(chain))

    def _open_round(self, request: Request) -> Iterator[str]:
        """The reply whose calls are answered last must come back with all the thinking it had."""
        messages: Sequence[Message] = request["messages"]
        last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=0)
        answered = {
            block.get("tool_use_id")
            for message in messages[last + 1 :]
            for block in blocks(message["content"])
            if block["type"] == "tool_result"
        }
        if not answered or (request.get("thinking") or {}).get("type") == "disabled":
            return
        content = blocks(messages[last]["content"])
        here = {signature(block) for block in content if block["type"] in THINKING}
        calls = (block["id"] for block in content if block["type"] == "tool_use")
        if any(name not in here for call in calls for name in self._rounds.get(call, ())):
            yield _OPEN.format(last)


class _Trail:
    """What the check compares in a request, in order, each with a digest of all up to it."""

    def __init__(self, request: Request) -> None:
        self.digests: list[bytes] = []
        self.paths: list[str] = []
        self.places: list[_Place] = []
        self._rolling = blake2b(digest_size=12)
        tools = [_bare(tool) for tool in request.get("tools") or []]
        deferred = {str(tool.get("name")): tool for tool in tools if tool.get("defer_loading")}
        self.add("tools", sorted(_json(tool) for tool in tools if not tool.get("defer_loading")))
        for number, block in enumerate(blocks(request.get("system"))):
            if (compared := _compared(block)) is not None:
                self.add(f"system.{number}", compared)
        for at, message in enumerate(request["messages"]):
            beside = {name: value for name, value in message.items() if name not in ("role", "content")}
            for number, block in enumerate(blocks(message["content"])):
                if block["type"] in THINKING:
                    self.places.append(_Place(at, number, block, len(self.digests)))
                elif (compared := _compared(block)) is not None:
                    self.add(f"messages.{at}.content.{number}", [message["role"], beside, compared])
                    for name in _references(block) if deferred else ():
                        if tool := deferred.pop(name, None):
                            self.add(f"tools.{name}", tool)

    def add(self, path: str, value: object) -> None:
        """One more thing that counts."""
        self._rolling.update(_json(value).encode() + b"\0")
        self.digests.append(self._rolling.digest())
        self.paths.append(path)

    def differs(self, signed: Signed, place: _Place, chain: Sequence[str]) -> str:
        """Where the block stands behind something else than it was made after; empty if it does not."""
        if self.digests[place.length - 1] != signed.trail[-1]:
            here = self.digests[: place.length]
            same = sum(one == other for one, other in zip(here, signed.trail, strict=False))
            return f" First difference: {self.paths[same] if same < len(here) else 'something is missing before it'}."
        if chain and tuple(chain) != signed.chain[-len(chain) :]:
            return " First difference: the thinking before it."
        return ""


def _compared(block: Block) -> Block | None:
    """The block as the check sees it; None if it does not see it."""
    block = {name: value for name, value in _bare(block).items() if value is not None}
    if block["type"] == "text":
        text = block["text"].strip()
        return {**block, "text": text} if text else None
    if block["type"] == "tool_result":
        return {**block, "content": [_bare(inner) for inner in blocks(block.get("content"))]}
    return block


def _bare(block: Mapping[str, Any]) -> Block:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _references(value: object) -> Iterator[str]:
    """Names of the tools that a search for tools has found."""
    if isinstance(value, dict):
        if value.get("type") == "tool_reference":
            yield str(value.get("tool_name"))
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _json(value: object) -> str:
    text = _ENCODER.encode(value)
    return _ENCODER.encode(_plain(value)) if ".0" in text or "e+" in text else text


def _plain(value: object) -> object:
    """The value with `1.0` as `1`."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
