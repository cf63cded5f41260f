"""What the experiments share: choosing and joining conversations, runs under a variant, sums and tables."""

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
    """What is run: a policy, bare of dashboard, recover and search or not, and the stand-in for the agent.

    What leaves the prompt of a `lossy` variant counts as lost, except for what notes and stubs name, even with a
    dashboard.
    """

    name: str
    policy: str
    bare: bool = False
    agent: standin.Agent | None = None
    lossy: bool = False


class Totals(Sums, frozen=True):
    """Sums over runs. `total` is the tokens of all prompts, including those of a stand-in's calls."""

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
    """Replays the conversation under a variant: a byte for the outcome of each use, and the totals.

    A self-managed policy gets the stand-in `manage`, unless another agent is given.
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


#: Operations by which an agent makes room; every note counts, since the stand-in's always fold.
_FREEING = frozenset({"archive", "note"})


def counts_at(outcomes: bytes, places: Iterable[int]) -> Counts:
    """Counts of the outcomes of the uses at these places, without unmeasured ones."""
    counts = [0] * len(OUTCOMES)
    for place in places:
        if outcomes[place] != UNMEASURED:
            counts[outcomes[place]] += 1
    return Counts(*counts)


_T = TypeVar("_T")


def evenly(values: Sequence[_T], limit: int) -> list[_T]:
    """`limit` of the values, evenly over all of them; all if they are fewer, or the limit is 0."""
    if not 0 < limit < len(values):
        return list(values)
    return [values[number * len(values) // limit] for number in range(limit)]


class Spliced(NamedTuple):
    """Several conversations as one; `starts` are the calls at which each of them begins, in order."""

    conversation: Conversation
    starts: tuple[int, ...]

    def is_across(self, use: Use) -> bool:
        """Whether only earlier conversations contain what is used."""
        start = self.starts[bisect_right(self.starts, use.call) - 1]
        return self.conversation.blocks[use.blocks[-1]].call < start


def in_date_order(conversations: Iterable[Conversation]) -> list[Conversation]:
    """The conversations by the time of their first message, then by name; those without a time first."""
    return sorted(conversations, key=lambda one: (one.time, one.file, one.id))


def spliced(conversations: Sequence[Conversation]) -> Spliced:
    """The conversations joined in order, without their system prompts and tools.

    Ids of calls are made unique. Tool calls in a last reply, which never got a result, are left out.
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
    """The calls of a conversation, without the last reply's tool calls, so that another message can follow."""
    *before, last = calls
    yield from before
    parts = tuple(part for part in last.reply.parts if part.kind != "tool_use")
    if parts:
        yield Call(last.before, msgspec.structs.replace(last.reply, parts=parts))


def renamed(call: Call, prefix: str) -> Call:
    """The call with `prefix` before all its ids of tool calls and replies."""
    return Call(tuple(_message(one, prefix) for one in call.before), _message(call.reply, prefix))


def _message(message: Message, prefix: str) -> Message:
    parts = (
        msgspec.structs.replace(part, call=f"{prefix}{part.call}") if part.call else part for part in message.parts
    )
    return msgspec.structs.replace(message, parts=tuple(parts), reply=message.reply and f"{prefix}{message.reply}")


class Table(msgspec.Struct, frozen=True):
    """Our figures beside the paper's; a cell is empty if one of the two has none.

    `apart` explains in one line what is not comparable.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    apart: str = ""

    @property
    def markdown(self) -> str:
        """The table as Markdown, followed by what is not comparable."""
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
        return "\n\n".join(filter(None, (f"### {self.title}", table, self.apart))) + "\n"


class Result(Protocol):
    """The measurements of an experiment."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The figures, beside the paper's."""


def percent(share: float | None, digits: int = 1) -> str:
    """A share in per cent, empty for None."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def change(share: float | None) -> str:
    """A change in per cent with its sign, empty for None."""
    return "" if share is None else f"{100 * share:+.1f} %"


def interval(low: float, high: float) -> str:
    """An interval of shares, in per cent."""
    return f"{100 * low:.1f}-{100 * high:.1f} %"
