"""The judge: what the API says to a request, and the reply it would send, all in memory."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.messages_api import rules
from tests.messages_api.cache import Cache, Charge, Position, rendered
from tests.messages_api.models import MODELS, Model, find
from tests.messages_api.thinking import Mismatch, Signer
from tests.messages_api.tokens import block_tokens
from tests.messages_api.wire import BINDING_BETA, THINKING, Block, Request, blocks

#: What a client's method takes and does not put into the body.
_NOT_SENT = ("betas", "extra_headers", "extra_body", "extra_query", "timeout")


class Refused(Exception):
    """The API would answer 400: one reason for each of `problems`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True)
class Ruling:
    """What the API makes of a request: refused for its `problems`, or shown to the model as `positions`.

    `transformations` is what it changed or let pass in the request's thinking, `chain` the thinking the model sees.
    """

    problems: Sequence[str]
    transformations: Sequence[Block] = ()
    chain: tuple[str, ...] = ()
    positions: Sequence[Position] = ()

    @property
    def tokens(self) -> int:
        """The size of the prompt."""
        return self.positions[-1].tokens if self.positions else 0


class Judge:
    """One account of the API: it judges requests, signs the thinking of replies, and keeps a cache.

    `thinking`: the account checks what a block of thinking stands behind, as one made since 2026-08-31 does. For an
    older one it is checked where the request asks for it, or the model always does. `clock` gives seconds.
    """

    def __init__(
        self,
        *,
        thinking: bool = True,
        models: Mapping[str, Model] = MODELS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = models
        self._thinking = thinking
        self._clock = clock
        self._signer = Signer({**MODELS, **models})
        self._cache = Cache()
        self._numbers = itertools.count(1)

    def check(self, request: Request) -> list[str]:
        """Each reason for which this request would be refused; empty if there is none.

        `request` holds what a method of the client takes, `betas` and `extra_body` among them, or is a body as sent.
        """
        body, betas = as_sent(request)
        return list(self.rule(body, betas=betas).problems)

    def reply(self, request: Request, content: str | Sequence[Block], *, stop_reason: str = "") -> Block:
        """The message that answers the request with this content, its thinking signed, its usage counted.

        A call without an id gets one. Text that does not fit into `max_tokens` or the window is cut, and what comes
        after it is left out. Raises: Refused.
        """
        body, betas = as_sent(request)
        ruling = self.rule(body, betas=betas)
        if ruling.problems:
            raise Refused(ruling.problems)
        return self.answer(body, ruling, content, betas=betas, stop_reason=stop_reason)

    def rule(
        self,
        body: object,
        *,
        betas: Collection[str] = (),
        version: str = rules.VERSION,
        counting: bool = False,
    ) -> Ruling:
        """What the API makes of a body. Nothing is remembered of it."""
        problems = rules.problems(body, betas=betas, version=version, models=self.models, counting=counting)
        if problems:
            return Ruling(problems)
        assert isinstance(body, dict)
        model = self._model(body)
        seen = self._signer.examine(body, model, self._mismatch(body, model))
        if seen.problems:
            return Ruling(seen.problems)
        positions = rendered(_without(body, seen.dropped), model, self._signer.hidden)
        ruling = Ruling([], seen.transformations, seen.chain, positions)
        if ruling.tokens > model.window:
            return Ruling([f"prompt is too long: {ruling.tokens} tokens > {model.window} maximum"])
        return ruling

    def answer(
        self,
        body: Request,
        ruling: Ruling,
        content: str | Sequence[Block],
        *,
        betas: Collection[str] = (),
        stop_reason: str = "",
    ) -> Block:
        """The message that answers a body on which the ruling is that it is taken."""
        model = self._model(body)
        thinking = body.get("thinking") or {}
        said = [dict(block) for block in blocks(content)]
        if thinking.get("type") == "disabled":
            said = [block for block in said if block["type"] not in THINKING]
        for block in said:
            if block["type"] == "tool_use":
                block.setdefault("input", {})
                block.setdefault("id", f"toolu_{next(self._numbers):024}")
        kept, cut = _cut(said, min(body["max_tokens"], model.window - ruling.tokens), model)
        omit = thinking.get("display", "omitted" if model.newer else "summarized") != "summarized"
        signed = self._signer.sign(body, ruling.chain, model, kept, omit=omit)
        if cut:
            short = body["max_tokens"] <= model.window - ruling.tokens
            stop_reason = "max_tokens" if short else "model_context_window_exceeded"
        calls = any(block["type"] == "tool_use" for block in signed)
        message: Block = {
            "id": f"msg_{next(self._numbers):024}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": signed,
            "stop_reason": stop_reason or ("tool_use" if calls else "end_turn"),
            "stop_sequence": None,
            "stop_details": None,
            "usage": self._usage(ruling, signed, model),
        }
        if BINDING_BETA in betas:
            message["input_transformations"] = list(ruling.transformations)
        return message

    def _usage(self, ruling: Ruling, content: Sequence[Block], model: Model) -> Block:
        hidden = self._signer.hidden
        charge: Charge = self._cache.charge(ruling.positions, model, self._clock())
        thought = sum(block_tokens(block, model, hidden) for block in content if block["type"] in THINKING)
        return {
            "input_tokens": charge.fresh,
            "cache_creation_input_tokens": sum(charge.written.values()),
            "cache_read_input_tokens": charge.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": charge.written["5m"],
                "ephemeral_1h_input_tokens": charge.written["1h"],
            },
            "output_tokens": sum(block_tokens(block, model, hidden) for block in content),
            "output_tokens_details": {"thinking_tokens": thought},
            "server_tool_use": None,
            "service_tier": "standard",
        }

    def _model(self, body: Request) -> Model:
        model = find(body["model"], self.models)
        assert model is not None
        return model

    def _mismatch(self, body: Request, model: Model) -> Mismatch:
        binding = (body.get("thinking") or {}).get("block_binding") or {}
        chosen = binding.get("prefix_mismatch_behavior")
        if chosen == "drop_block":
            return "drop_block"
        return "error" if chosen or self._thinking or model.strict else "allow"


def as_sent(request: Request) -> tuple[dict[str, Any], frozenset[str]]:
    """The body and the betas of what a method of the client was given."""
    body = {name: value for name, value in request.items() if name not in _NOT_SENT} | dict(
        request.get("extra_body") or {}
    )
    header = str((request.get("extra_headers") or {}).get("anthropic-beta", ""))
    named = (name.strip() for name in header.split(","))
    return body, frozenset({*(request.get("betas") or ()), *filter(None, named)})


def _without(body: Request, dropped: Collection[tuple[int, int]]) -> Request:
    """The body without these blocks; a message that held nothing else is left out."""
    if not dropped:
        return body
    messages = []
    for at, message in enumerate(body["messages"]):
        content = [block for number, block in enumerate(blocks(message["content"])) if (at, number) not in dropped]
        if content:
            messages.append({**message, "content": content})
    return {**body, "messages": messages}


def _cut(content: Sequence[Block], budget: int, model: Model) -> tuple[list[Block], bool]:
    """As much of a reply as the budget of tokens allows, and whether something is left out.

    A text ends where the budget does. A call that does not fit is there without its input, as one that must not be run.
    """
    kept: list[Block] = []
    for block in content:
        size = block_tokens(block, model, {})
        if size <= budget:
            kept.append(block)
            budget -= size
            continue
        field = {"text": "text", "thinking": "thinking"}.get(block["type"])
        if field and (part := block[field][: len(block[field]) * budget // size]):
            kept.append({**block, field: part})
        elif block["type"] == "tool_use" and budget > 0:
            kept.append({**block, "input": {}})
        return kept, True
    return kept, False
