"""One run of a conversation with a stand-in of one's choice, as far as the experiments need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


class Measured(msgspec.Struct, frozen=True):
    """`outcomes` has a byte a use. `total` counts the tokens of all prompts, a stand-in's among them."""

    outcomes: bytes
    calls: int
    failed: int
    over: int
    total: int
    cost: float
    archives: int
    reads: int


def measured(conversation: Conversation, lookup: Lookup, variant: Variant, budget: int, meter: Meter) -> Measured:
    """The conversation under a variant. A self-managed policy has its manager, unless another agent is given."""
    inner = policies.parse(variant.policy)
    policy = Bare(inner=inner) if variant.bare else inner
    terms = policy.terms_in(budget)
    manages = isinstance(inner, SelfManaged) and inner.agent and inner.archive
    agent = variant.agent or (standin.manage if manages and not variant.bare else None)
    replayed = new_session(conversation, policy, budget, meter=meter)
    prompts, cache = Prompts(replayed), CacheSimulation()
    gauge = Gauge(lookup, archive=terms.handles and not variant.lossy, search="search" in terms.tools)
    calls = failed = over = total = 0
    for driven in drive(conversation, replayed, prompts, managed=agent is not None, agent=agent or standin.manage):
        calls += 1
        if driven.extra:
            cache.ask("recovery", cached=driven.extra)
            total += driven.extra
        if driven.prompt is None:
            failed += 1
            continue
        over += driven.over
        total += driven.prompt.tokens
        cache.send(prompts.keys, prompts.sizes)
        gauge.add(driven.prompt)
    stored = replayed.stored
    operations = stored.operations if isinstance(stored, MemorySession) else {}
    return Measured(
        outcomes=gauge.outcomes,
        calls=calls,
        failed=failed,
        over=over,
        total=total,
        cost=cache.cost().total,
        archives=sum(count for (verb, actor), count in operations.items() if verb in _FREEING and actor == "agent"),
        reads=sum(count for (verb, actor), count in operations.items() if verb == "recover" and actor == "agent"),
    )


#: Operations by which an agent makes room; a note counts where it folded, since the stand-in writes no other.
_FREEING = frozenset({"archive", "note"})


def counts_at(outcomes: bytes, places: Iterable[int]) -> Counts:
    """The outcomes of the uses at these places, as far as they were measured."""
    counts = [0] * len(OUTCOMES)
    for place in places:
        if outcomes[place] != UNMEASURED:
            counts[outcomes[place]] += 1
    return Counts(*counts)
