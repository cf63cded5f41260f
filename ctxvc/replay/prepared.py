"""What all replays of a conversation share, worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ctxvc.policies.baselines import Keep
from ctxvc.replay.bare import Bare
from ctxvc.replay.conversation import Conversation, timestamp
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.replay.measures.cost import CacheSimulation
from ctxvc.replay.measures.retention import Lookup
from ctxvc.replay.measures.uses import uses
from ctxvc.replay.measures.water_marks import WaterMarks
from ctxvc.replay.results.result import Tokens
from ctxvc.tokens.meter import Meter

#: A budget that no recording reaches.
_UNBOUNDED = 1 << 40


class Room(NamedTuple):
    """The room in which a bound chooses: a budget, the marks of the policy that it stands beside, and `overhead`, the
    tokens of system prompt and tools, that policy's own tools included, since it pays for the same."""

    budget: int
    marks: WaterMarks
    overhead: int


@dataclass
class Prepared:
    """The uses of a conversation, the tokens of its blocks, and the run that keeps everything.

    `overhead` are the tokens of system prompt and tools, `times` the recorded times of the calls in seconds. `bounds`
    has what an oracle reaches, by room and whether only results leave; `rooms` that of each policy that was run, by
    its name, budget and whether it was bare.
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
    """What the replays of a conversation share."""
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
