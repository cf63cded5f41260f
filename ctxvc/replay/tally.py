"""Measures one run's prompts as they come: their cost and the outcome of each use.

`Prepared` is what all replays of a conversation share.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from ctxvc.policies.baselines import Keep
from ctxvc.replay.conversation import Conversation, Prompt, timestamp
from ctxvc.replay.drive import Bare, Prompts, drive, new_session
from ctxvc.replay.measures.anchors import common_anchors
from ctxvc.replay.measures.cost import CacheSimulation, DemandRecovery
from ctxvc.replay.measures.retention import UNMEASURED, VISIBLE, Gauge, Lookup, retention
from ctxvc.replay.measures.uses import Use, uses
from ctxvc.replay.measures.water_marks import WaterMarks
from ctxvc.replay.results.result import Result, Tokens, UsesMeasured, Visible, encode_uses
from ctxvc.replay.work import Setup
from ctxvc.tokens.meter import Meter


class Tally:
    """The measurements of a run, whatever made its prompts; `totals` has the tokens of each prompt.

    `archive` and `search` are those of `Gauge`. Callers add calls besides the conversation's own to `cache`.
    """

    def __init__(self, prepared: Prepared, *, archive: bool = True, search: bool = True) -> None:
        self.totals: list[int] = []
        self.cache = CacheSimulation()
        self._prepared = prepared
        self._gauge = Gauge(prepared.lookup, archive=archive, search=search)
        self._demand = DemandRecovery(prepared.lookup.uses, prepared.tokens)

    def add(self, prompt: Prompt, keys: Sequence[Hashable], sizes: Sequence[int]) -> None:
        """Measures a call's prompt; calls come in order. `keys` and `sizes` are those of `CacheSimulation.send`."""
        prepared = self._prepared
        self.totals.append(prompt.tokens)
        self.cache.send(keys, sizes, prepared.times[prompt.call])
        self._demand.add(prompt, range(*prepared.lookup.spans[prompt.call]), self._gauge.add(prompt))

    def result(self, setup: Setup, oracle: bytes, belady: bytes, **counts: Any) -> Result:
        """The result; `oracle` and `belady` are the outcomes of the uses under those, `counts` the other fields."""
        prepared, outcomes = self._prepared, self._gauge.outcomes
        conversation, uses = prepared.conversation, prepared.lookup.uses
        retained = retention(uses, outcomes)
        return Result(
            version="",
            anchors=common_anchors().version,
            conversation=conversation.id,
            file=conversation.file,
            sha256=conversation.sha256,
            aside=conversation.aside,
            policy=setup.policy,
            budget=setup.budget,
            options=setup.options,
            calls=len(conversation.calls),
            tokens=Tokens(peak=max(self.totals, default=0), total=sum(self.totals), keep=prepared.keep.total),
            cost=msgspec.structs.replace(self.cache.cost(), keep=prepared.keep_cost, demand=self._demand.cost),
            prefix_breaks=self.cache.breaks,
            recoveries=self._demand.calls,
            retention=retained.uses,
            kinds=dict(retained.kinds.items()),
            failures=dict(retained.categories.items()),
            oracle=_visible(uses, outcomes, oracle),
            belady=_visible(uses, outcomes, belady),
            uses=encode_uses(_measured(uses, outcomes)),
            **counts,
        )


def _measured(uses: Sequence[Use], outcomes: bytes) -> UsesMeasured:
    nt = tuple(place for place, use in enumerate(uses) if use.nt)
    return UsesMeasured(bytes(outcomes), nt, tuple(place for place in nt if uses[place].ar))


def _visible(uses: Sequence[Use], outcomes: bytes, bound: bytes) -> Visible:
    """The uses visible under a bound, of those measured in the run: a failed call has nothing to compare."""
    visible = [
        use for use, own, ideal in zip(uses, outcomes, bound, strict=True) if ideal == VISIBLE and own != UNMEASURED
    ]
    return Visible(len(visible), sum(use.nt for use in visible), sum(use.ar for use in visible))


#: A budget that no recording reaches.
_UNBOUNDED = 1 << 40


class Room(NamedTuple):
    """The room in which a bound chooses: a budget, and the water marks of the policy that it is compared with.

    `overhead` is the tokens of system prompt and tools, that policy's own included, so that both pay the same.
    """

    budget: int
    marks: WaterMarks
    overhead: int


@dataclass
class Prepared:
    """The uses of a conversation, the tokens of its blocks, and the run that keeps everything.

    `overhead` is the tokens of system prompt and tools, `times` the recorded times of the calls in seconds. `bounds`
    has the outcomes under the oracle, by room and whether only results leave; `rooms` the room of each policy that was
    run, by its name, budget and whether it was bare.
    """

    conversation: Conversation
    meter: Meter
    lookup: Lookup
    tokens: tuple[int, ...]
    overhead: int
    times: tuple[float | None, ...]
    keep: Tokens
    keep_cost: float
    bounds: dict[tuple[Room, bool], bytes] = field(default_factory=dict)
    rooms: dict[tuple[str, int, bool], Room] = field(default_factory=dict)


def prepare(conversation: Conversation) -> Prepared:
    """The data that the replays of a conversation share."""
    meter = Meter(None)
    session = new_session(conversation, Bare(inner=Keep()), _UNBOUNDED, meter=meter)
    prompts = Prompts(session)
    times = tuple(timestamp(call.reply.time) for call in conversation.calls)
    cache = CacheSimulation()
    totals = []
    for driven, time in zip(drive(conversation, session, prompts), times, strict=True):
        if driven.prompt:
            cache.send(prompts.keys, prompts.sizes, time)
            totals.append(driven.prompt.tokens)
    view = session.view()
    rows = {number: view.ledger[block] for block, number in prompts.numbers.items()}
    return Prepared(
        conversation=conversation,
        meter=meter,
        lookup=Lookup(conversation, uses(conversation)),
        tokens=tuple(view.price.body(rows[number]) for number in range(len(rows))),
        overhead=view.overhead,
        times=times,
        keep=Tokens(peak=max(totals, default=0), total=sum(totals), keep=sum(totals)),
        keep_cost=cache.cost().prompts,
    )
