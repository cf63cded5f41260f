"""The prompts of one run, measured as they come: what they cost, and what each use met."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ctxvc.replay.measures.common import common_anchors
from ctxvc.replay.measures.cost import CacheSimulation, DemandRecovery
from ctxvc.replay.measures.retention import UNMEASURED, VISIBLE, Gauge, retention
from ctxvc.replay.measures.uses import Use
from ctxvc.replay.prepared import Prepared
from ctxvc.replay.prompt import Prompt
from ctxvc.replay.results.result import Cost, Result, Tokens, UsesMeasured, Visible, encode_uses
from ctxvc.replay.work import Setup


class Tally:
    """The measures of a run that do not depend on what made its prompts: `totals` are their tokens.

    `archive` and `search` are as of `Gauge`. Calls besides the conversation's own are added to `cache`.
    """

    def __init__(self, prepared: Prepared, *, archive: bool = True, search: bool = True) -> None:
        self.totals: list[int] = []
        self.cache = CacheSimulation()
        self._prepared = prepared
        self._gauge = Gauge(prepared.lookup, archive=archive, search=search)
        self._demand = DemandRecovery(prepared.lookup.uses, prepared.tokens)

    def add(self, prompt: Prompt, keys: Sequence[Hashable], sizes: Sequence[int]) -> None:
        """Measures the prompt of a call, in the order of the calls; `keys` and `sizes` as of `CacheSimulation.send`."""
        prepared = self._prepared
        self.totals.append(prompt.tokens)
        self.cache.send(keys, sizes, prepared.times[prompt.call])
        self._demand.add(prompt, range(*prepared.lookup.spans[prompt.call]), self._gauge.add(prompt))

    def result(self, setup: Setup, oracle: bytes, belady: bytes, **counts: Any) -> Result:
        """The result; `oracle` and `belady` are the outcomes of the uses under these, `counts` its other fields."""
        prepared, outcomes = self._prepared, self._gauge.outcomes
        conversation, uses = prepared.conversation, prepared.lookup.uses
        paid, recoveries, retained = self.cache.cost(), self._demand.recoveries(), retention(uses, outcomes)
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
            cost=Cost(
                prompts=paid.prompts,
                keep=prepared.keep_cost,
                planner=paid.planner,
                summariser=paid.summariser,
                recovery=paid.recovery,
                demand=recoveries.cost,
            ),
            prefix_breaks=paid.breaks,
            recoveries=recoveries.calls,
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
    """What a bound sees of the uses of a run that were measured: of a call that failed there is nothing to compare."""
    visible = [
        use for use, own, ideal in zip(uses, outcomes, bound, strict=True) if ideal == VISIBLE and own != UNMEASURED
    ]
    return Visible(len(visible), sum(use.nt for use in visible), sum(use.ar for use in visible))
