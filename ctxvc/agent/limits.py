"""The limits and the spending of a run: one account for the agent, its helpers and the policy's model."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ctxvc.errors import BadInput, Phrase
from ctxvc.tokens import models


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends by itself: its limits in replies, tokens and dollars (0: none), helpers' included.

    `tokens` are those of all prompts and replies together, as the provider counts. Each call counts its whole prompt,
    cached or not. The reply that reaches a limit is recorded, and its calls are run.
    Raises: BadInput for tokens or dollars that are no amount.
    """

    steps: int = 100
    dollars: float = 0.0
    tokens: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 0:
            raise BadInput(f"{self.tokens} is not a number of tokens", hint="use 0 for no limit, or a positive number")
        if not (math.isfinite(self.dollars) and self.dollars >= 0):
            raise BadInput(
                f"{self.dollars} is not an amount of dollars", hint="use 0 for no limit, or a positive number"
            )

    def check(self, model: str) -> None:
        """Raises: BadInput for a limit of cost where the model's price is unknown."""
        if self.dollars and models.dollars(model, models.Usage()) is None:
            raise BadInput(
                f"no price is known for the model {model[:80]!r}, so a cost limit would have no effect",
                hint=Phrase("cost-unknown"),
            )


class Spending:
    """The usage of a run's replies, as the provider counted it. Safe to use from several threads.

    `planner_usage` is the part of `usage` that policies' questions took.
    """

    def __init__(self, limits: Limits) -> None:
        self.replies = 0
        self.usage = models.Usage()
        self.planner_usage = models.Usage()
        self._limits = limits
        self._asked = 0
        self._dollars = 0.0
        self._planner_dollars = 0.0
        self._tokens = 0
        self._priced = True
        self._lock = threading.Lock()

    @property
    def dollars(self) -> float | None:
        """The cost; None if a model without a price replied."""
        return self._dollars if self._priced else None

    @property
    def planner_dollars(self) -> float | None:
        """The part of `dollars` that policies' questions cost; None where `dollars` is."""
        return self._planner_dollars if self._priced else None

    def begin(self) -> Literal["steps", "tokens", "cost"] | None:
        """Counts a reply that is about to be asked for. Gives the limit that is reached instead, if one is."""
        with self._lock:
            if self._asked >= self._limits.steps:
                return "steps"
            if self._limits.tokens and self._tokens >= self._limits.tokens:
                return "tokens"
            if self._limits.dollars and self._dollars >= self._limits.dollars:
                return "cost"
            self._asked += 1
        return None

    def add(self, message: Mapping[str, Any], model: str, *, prompt: int = 0, aside: bool = False) -> None:
        """Adds what a message took. `model` is whose price counts where the one that replied has none.

        What was asked `aside`, by a policy, costs the same and is no reply of the conversation. Where no usage is
        reported, as by some local models, the limit of tokens counts our own estimate of the `prompt`.
        """
        reported = message.get("usage")
        usage_items = reported.items() if isinstance(reported, Mapping) else ()
        used = models.usage_of({name: count for name, count in usage_items if isinstance(count, int)})
        cost = models.dollars(str(message.get("model") or model), used)
        if cost is None:
            cost = models.dollars(model, used)
        with self._lock:
            self.replies += not aside
            self.usage += used
            self.planner_usage += used if aside else models.Usage()
            self._tokens += used.prompt + used.reply or prompt
            self._dollars += cost or 0.0
            self._planner_dollars += (cost or 0.0) if aside else 0.0
            self._priced = self._priced and cost is not None
