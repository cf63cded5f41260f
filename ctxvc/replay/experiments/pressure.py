"""VISTA's pressure sweep: a fixed budget, and more and more other work between learning something and using it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from ctxvc.core.ledger.block import Message
from ctxvc.errors import BadInput
from ctxvc.replay.conversation import Call, Conversation
from ctxvc.replay.experiments.measure import (
    Table,
    Totals,
    Variant,
    answered,
    counts_at,
    evenly,
    in_date_order,
    measured,
    percent,
    renamed,
)
from ctxvc.replay.measures.retention import UNMEASURED, Counts, Lookup, Sums
from ctxvc.replay.measures.uses import uses
from ctxvc.tokens.meter import Meter

NAME = "pressure"
SOURCE = "VISTA (arXiv 2606.30005), Figure 3 and Table 7"
APART = (
    "The paper measures a model's success on LOCA-bench, whose environments grow; here calls and results of "
    "unrelated recordings are inserted into the middle of a recorded one, and the next replies' uses of the part "
    "before are counted. A stand-in manages the context. `solved` counts recordings in which all these uses are "
    "visible or routed."
)

VARIANTS = (Variant("VISTA", "self_managed"), Variant("ReAct", "window", bare=True))
SIZES = (8_000, 16_000, 32_000, 64_000, 96_000, 128_000, 256_000)
#: Table 7: success in per cent by context growth.
PAPER: Mapping[str, Mapping[int, str]] = {
    "VISTA": dict(zip(SIZES, ("82.7", "84.0", "70.7", "61.3", "57.3", "50.7", "32.0"), strict=True)),
    "ReAct": dict(zip(SIZES, ("84.0", "74.7", "65.3", "52.0", "36.0", "22.7", "12.0"), strict=True)),
}
#: The number of replies after the other work whose uses count.
QUESTION = 5


class Pressure(Sums, frozen=True):
    """A variant under `size` tokens of other work.

    Of `conversations`, `visible` have all uses visible, and `solved` all visible or routed; `uses` has the outcomes of
    all.
    """

    variant: str
    size: int
    conversations: int = 0
    visible: int = 0
    solved: int = 0
    uses: Counts = Counts()
    totals: Totals = Totals()


class Sweep(msgspec.Struct, frozen=True):
    budget: int
    points: tuple[Pressure, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a variant and size."""
        columns = (
            *("method", "other work", "recordings", "all visible", "solved", "uses visible", "or routed"),
            *("or searchable", "all prompts", "paper: success"),
        )
        rows = tuple(
            (
                *(one.variant, f"{one.size:,}", str(one.conversations)),
                *(percent(one.visible / one.conversations), percent(one.solved / one.conversations)),
                *(percent(one.uses.share("visible")), percent(one.uses.share("routed"))),
                *(percent(one.uses.share("searchable")), f"{one.totals.total:,}"),
                f"{PAPER.get(one.variant, {}).get(one.size, '')} %",
            )
            for one in self.points
        )
        return (Table(f"VISTA's pressure sweep at {self.budget:,} tokens", columns, rows, APART),)


def run(
    conversations: Iterable[Conversation],
    *,
    variants: Sequence[Variant] = VARIANTS,
    sizes: Sequence[int] = SIZES,
    budget: int = 128_000,
    limit: int = 8,
    calls: tuple[int, int] = (12, 60),
) -> Sweep:
    """Each variant at each size, on `limit` conversations, evenly over their dates; 0 for all.

    `calls` is the fewest and the most that a conversation may have. Sizes for which the recordings of other sources do
    not suffice are left out.
    Raises: BadInput if nothing is left.
    """
    ordered = in_date_order(conversations)
    able = [one for one in ordered if calls[0] <= len(one.calls) <= calls[1]]
    meter = Meter(None)
    sums = {(variant.name, size): Pressure(variant.name, size) for variant in variants for size in sizes}
    for conversation in evenly(able, limit):
        for size in sizes:
            pressed, start, end, tokens = under_pressure(conversation, _foreign(conversation, ordered), size, meter)
            if tokens < size:
                break  # the other recordings have no more
            lookup = Lookup(pressed, uses(pressed))
            places = [
                place
                for place, use in enumerate(lookup.uses)
                if end <= use.call < end + QUESTION and pressed.blocks[use.blocks[-1]].seen <= start
            ]
            if not places:
                continue
            for variant in variants:
                outcomes, totals = measured(pressed, lookup, variant, budget, meter)
                counts = counts_at(outcomes, places)
                is_measured = all(outcomes[place] != UNMEASURED for place in places)
                all_visible = is_measured and counts.up_to("visible") == counts.total
                solved = is_measured and counts.up_to("routed") == counts.total
                sums[variant.name, size] += Pressure(variant.name, size, 1, all_visible, solved, counts, totals)
    points = [point for point in sums.values() if point.conversations]
    if not points:
        wrong = (
            f"no conversation of {calls[0]} to {calls[1]} calls uses its first half again, with others to put into it"
        )
        raise BadInput(wrong, hint="name more recordings, from several projects")
    return Sweep(budget, tuple(points))


def under_pressure(
    conversation: Conversation, foreign: Iterable[Conversation], size: int, meter: Meter
) -> tuple[Conversation, int, int, int]:
    """The conversation with `size` tokens of others' calls and results in its middle, as far as they suffice.

    Also the number of the first inserted call, that of the first call which continues the conversation's own work, and
    the tokens inserted.
    """
    middle = len(conversation.calls) // 2
    later = conversation.calls[middle]
    results = tuple(message for message in later.before if any(part.kind == "tool_result" for part in message.parts))
    remainder = tuple(message for message in later.before if message not in results)
    calls = list(conversation.calls[:middle])
    before = results
    tokens = 0
    for exchange, back in _exchanges(foreign):
        if tokens >= size:
            break
        calls.append(Call(before, exchange))
        before = (back,)
        tokens += sum(meter.count(part.body.decode(errors="replace")) for part in (*exchange.parts, *back.parts))
    start, end = middle, len(calls)
    calls.append(Call((*before, *remainder), later.reply))
    calls += conversation.calls[middle + 1 :]
    return msgspec.structs.replace(conversation, calls=tuple(calls)), start, end, tokens


def _foreign(conversation: Conversation, ordered: Sequence[Conversation]) -> Iterator[Conversation]:
    """Yields the conversations of other sources, by the beginning of the file's name, rotated by the checksum."""
    source = conversation.file.partition("-")[0]
    foreign = [one for one in ordered if one.file.partition("-")[0] != source]
    first = int(conversation.sha256[:8] or "0", 16) % len(foreign) if foreign else 0
    yield from foreign[first:]
    yield from foreign[:first]


def _exchanges(conversations: Iterable[Conversation]) -> Iterator[tuple[Message, Message]]:
    """Yields each reply with tool calls, reduced to these, and the message with their results."""
    for number, conversation in enumerate(conversations):
        calls = [renamed(call, f"other-{number}-") for call in answered(conversation.calls)]
        for call, following in pairwise(calls):
            uses_ = tuple(part for part in call.reply.parts if part.kind == "tool_use")
            back = next(
                (one for one in following.before if any(part.kind == "tool_result" for part in one.parts)), None
            )
            if uses_ and back and {part.call for part in uses_} == {part.call for part in back.parts}:
                yield msgspec.structs.replace(call.reply, parts=uses_), back
