"""What the experiments share: a choice of conversations, a run under a variant, and figures that add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from ctxvc import policies
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.replay import standin
from ctxvc.replay.bare import Bare
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.replay.measures.cost import CacheSimulation
from ctxvc.replay.measures.retention import OUTCOMES, UNMEASURED, Counts, Gauge, Lookup
from ctxvc.store.log.memory import MemorySession
from ctxvc.tokens.meter import Meter


class Variant(NamedTuple):
    """What is run: a policy, whether board, recover and search are taken away, and who stands in for the agent.

    What leaves a `lossy` one's prompt counts as lost but for what notes and stubs say of it, also where a board stands.
    """

    name: str
    policy: str
    bare: bool = False
    agent: standin.Agent | None = None
    lossy: bool = False


class Sums(msgspec.Struct, frozen=True):
    """Figures that add up: a field with a default is summed, one without says what the figures are of."""

    def __add__(self: _Sums, more: _Sums) -> _Sums:
        summed = self.__struct_fields__[-len(self.__struct_defaults__) :]
        return msgspec.structs.replace(self, **{name: getattr(self, name) + getattr(more, name) for name in summed})


_Sums = TypeVar("_Sums", bound=Sums)


class Totals(Sums, frozen=True):
    """Of runs: `total` counts the tokens of all prompts, a stand-in's among them."""

    calls: int = 0
    failed: int = 0
    over: int = 0
    total: int = 0
    cost: float = 0.0
    archives: int = 0
    reads: int = 0


def measured(
    conversation: Conversation, lookup: Lookup, variant: Variant, budget: int, meter: Meter
) -> tuple[bytes, Totals]:
    """The conversation under a variant: a byte for the outcome of each use, and the totals.

    A self-managed policy has its manager, unless another agent is given.
    """
    inner = policies.parse(variant.policy)
    policy = Bare(inner=inner) if variant.bare else inner
    terms = policy.terms_in(budget)
    manages = isinstance(inner, SelfManaged) and inner.agent and inner.archive
    agent = variant.agent or (standin.manage if manages and not variant.bare else None)
    replayed = new_session(conversation, policy, budget, meter=meter)
    prompts, cache = Prompts(replayed), CacheSimulation()
    gauge = Gauge(lookup, archive=terms.handles and not variant.lossy, search="search" in terms.tools)
    totals = Totals()
    for driven in drive(conversation, replayed, prompts, managed=agent is not None, agent=agent or standin.manage):
        if driven.extra:
            cache.ask("recovery", cached=driven.extra)
        tokens = driven.prompt.tokens if driven.prompt else 0
        totals += Totals(1, failed=driven.prompt is None, over=driven.over, total=tokens + driven.extra)
        if driven.prompt:
            cache.send(prompts.keys, prompts.sizes)
            gauge.add(driven.prompt)
    stored = replayed.stored
    operations = stored.operations if isinstance(stored, MemorySession) else {}
    archives = sum(count for (verb, actor), count in operations.items() if verb in _FREEING and actor == "agent")
    reads = sum(count for (verb, actor), count in operations.items() if verb == "recover" and actor == "agent")
    return gauge.outcomes, totals + Totals(cost=cache.cost().total, archives=archives, reads=reads)


#: Operations by which an agent makes room; a note counts where it folded, since the stand-in writes no other.
_FREEING = frozenset({"archive", "note"})


def counts_at(outcomes: bytes, places: Iterable[int]) -> Counts:
    """The outcomes of the uses at these places, as far as they were measured."""
    counts = [0] * len(OUTCOMES)
    for place in places:
        if outcomes[place] != UNMEASURED:
            counts[outcomes[place]] += 1
    return Counts(*counts)


_T = TypeVar("_T")


def evenly(values: Sequence[_T], limit: int) -> list[_T]:
    """So many of the values, evenly over all of them; all where they are fewer, or the limit is 0."""
    if not 0 < limit < len(values):
        return list(values)
    return [values[number * len(values) // limit] for number in range(limit)]
