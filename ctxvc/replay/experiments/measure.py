"""What the experiments share: a choice of conversations, alone or joined, a run under a variant, figures that add up,
and the table that shows them beside a paper's.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from ctxvc import policies
from ctxvc.core.ledger.block import Message
from ctxvc.policies.self_managed import SelfManaged
from ctxvc.replay import standin
from ctxvc.replay.conversation import Call, Conversation
from ctxvc.replay.drive import Bare, Prompts, drive, new_session
from ctxvc.replay.measures.cost import CacheSimulation
from ctxvc.replay.measures.retention import OUTCOMES, UNMEASURED, Counts, Gauge, Lookup, Sums
from ctxvc.replay.measures.uses import Use
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


class Spliced(NamedTuple):
    """`conversation` is all of them; `starts` are its calls at which one of them begins, in order."""

    conversation: Conversation
    starts: tuple[int, ...]

    def is_across(self, use: Use) -> bool:
        """Whether only earlier ones of them have what is used."""
        start = self.starts[bisect_right(self.starts, use.call) - 1]
        return self.conversation.blocks[use.blocks[-1]].call < start


def in_date_order(conversations: Iterable[Conversation]) -> list[Conversation]:
    """By the time of the first message, then by name; what has no time comes first."""
    return sorted(conversations, key=lambda one: (one.time, one.file, one.id))


def spliced(conversations: Sequence[Conversation]) -> Spliced:
    """The conversations as one, in their order, without their system prompts and tools.

    Ids of calls are made unique. Calls of a last reply, which never got a result, are left out.
    """
    calls: list[Call] = []
    starts: list[int] = []
    for number, conversation in enumerate(conversations):
        starts.append(len(calls))
        calls += (renamed(call, f"s{number}-") for call in answered(conversation.calls))
    digest = hashlib.sha256("\n".join(one.sha256 for one in conversations).encode()).hexdigest()
    files = " + ".join(dict.fromkeys(one.file for one in conversations))
    joined = Conversation(id=f"{len(conversations)} conversations", file=files, sha256=digest, calls=tuple(calls))
    return Spliced(joined, tuple(starts))


def answered(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls of a conversation that something can follow: what the last reply asked of tools is left out of it."""
    *before, last = calls
    yield from before
    parts = tuple(part for part in last.reply.parts if part.kind != "tool_use")
    if parts:
        yield Call(last.before, msgspec.structs.replace(last.reply, parts=parts))


def renamed(call: Call, prefix: str) -> Call:
    """The call with this before all ids of tool calls and replies in it."""
    return Call(tuple(_message(one, prefix) for one in call.before), _message(call.reply, prefix))


def _message(message: Message, prefix: str) -> Message:
    parts = (
        msgspec.structs.replace(part, call=f"{prefix}{part.call}") if part.call else part for part in message.parts
    )
    return msgspec.structs.replace(message, parts=tuple(parts), reply=message.reply and f"{prefix}{message.reply}")


class Table(msgspec.Struct, frozen=True):
    """Figures of ours with the paper's beside them; a cell is empty if one of the two has none.

    `apart` says in a line what of the two is not comparable.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    apart: str = ""

    @property
    def markdown(self) -> str:
        """The table as Markdown, with what is not comparable below it."""
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
        return "\n\n".join(filter(None, (f"### {self.title}", table, self.apart))) + "\n"


class Result(Protocol):
    """The measurements of an experiment."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its figures, beside the paper's."""


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent, empty if there is none."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def change(share: float | None) -> str:
    """By how much something is more or less, as per cent with its sign, empty if there is nothing to compare."""
    return "" if share is None else f"{100 * share:+.1f} %"


def interval(low: float, high: float) -> str:
    """An interval of shares, in per cent."""
    return f"{100 * low:.1f}-{100 * high:.1f} %"
