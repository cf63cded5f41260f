"""Hosts' own compactions: how much of what was needed later their summaries still name, and how much policies keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from ctxvc import policies
from ctxvc.core.ledger.block import Message
from ctxvc.replay.conversation import Conversation
from ctxvc.replay.drive import Prompts, new_session
from ctxvc.replay.experiments.measure import Table, counts_at, interval, percent
from ctxvc.replay.measures.anchors import stands_in
from ctxvc.replay.measures.oracle import oracle
from ctxvc.replay.measures.retention import LOST, ROUTED, UNMEASURED, Counts, Gauge, Lookup, Sums, wilson
from ctxvc.replay.measures.uses import uses
from ctxvc.session.compaction import planned
from ctxvc.tokens.meter import Meter

NAME = "compaction"
SOURCE = "recorded compactions (each beside the host's own summary)"
APART = (
    "At each recorded compaction, what stood in the prompt since the one before is brought down to a size at "
    "once, as our plugins do it. `reached` is the size to which the host brought it: its share of "
    "what a compaction can take, by the provider's counts of the calls around it, where the smallest prompt of "
    "the recording is what it cannot (system prompt, tools, instructions). It holds the summary and files that "
    "the host attached again, which the recordings lack; so there are the figures at the size of the summary "
    "alone, too. Counted is each exact string that a later reply uses and only blocks from before the compaction "
    "hold. Columns add up: visible in a block, or named (in the summary's text; by a stub), or found by one "
    "search, or behind an address. What a summary does not name is lost to the host. What a human wrote, the "
    "newest step and stubs stay whatever the size is: `beside it` is what was left beside what was asked for, as "
    "a mean of the points."
)

POLICIES = ("default", "mask", "clear")
#: The sizes to which a prompt is reduced.
REACHED, ALONE = "reached", "summary's size"
#: No policy acts by itself on a prompt of any recording in a window of this size.
_WINDOW = 2_000_000
_KEEP = "keep"
_SUMMARY, _ORACLE = "the host's summary", "oracle"


class Tally(Sums, frozen=True):
    """What one way to compact kept over a number of points: of all later needs, and of those that only results contain.

    `tokens` sums the sizes that it left, `size` their ratios to the target sizes.
    """

    way: str
    aside: bool
    points: int = 0
    needs: Counts = Counts()
    at_risk: Counts = Counts()
    size: float = 0.0
    tokens: int = 0


class Compactions(msgspec.Struct, frozen=True):
    """The sums over all points, separately for the recordings that are set aside, and each point's figures."""

    sums: tuple[Tally, ...]
    points: tuple[tuple[str, int, tuple[Tally, ...]], ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a way."""
        columns = (
            *("way", "points", "needs", "visible", "of the oracle", "or named", "95 %", "or searchable"),
            *("or behind an address", "at risk: visible or named", "or behind an address", "beside it", "tokens, mean"),
        )
        return tuple(
            Table(title, columns, tuple(_rows([own for own in self.sums if own.aside is aside])), APART * (not aside))
            for aside, title in ((True, "Set aside"), (False, "The others"))
        )


def run(conversations: Iterable[Conversation], *, specs: Sequence[str] = POLICIES) -> Compactions:
    """The figures of every recorded compaction, for the host and each policy of `specs`."""
    sums: dict[tuple[str, bool], Tally] = {}
    points = []
    meter = Meter(None)
    for conversation in conversations:
        start = 0
        for host_compaction in conversation.compactions:
            ways = tuple(_point(conversation, start, host_compaction.call, host_compaction.summary, specs, meter))
            start = host_compaction.call
            for own in ways:
                key = own.way, own.aside
                sums[key] = sums[key] + own if key in sums else own
            if ways:
                points.append((conversation.file, host_compaction.call, ways))
    return Compactions(tuple(sums.values()), tuple(points))


def _point(
    conversation: Conversation, start: int, end: int, summary: str, specs: Sequence[str], meter: Meter
) -> Iterator[Tally]:
    """What each way keeps at the compaction before the call `end`; nothing if no later reply needs earlier blocks."""
    part = msgspec.structs.replace(conversation, calls=conversation.calls[start:], compactions=(), reported=())
    cut = end - start
    if not 0 < cut < len(part.calls):
        return
    lookup = Lookup(part, uses(part))
    limit = next((block.number for block in part.blocks if block.call >= cut), len(part.blocks))
    places = [place for place, use in enumerate(lookup.uses) if use.call >= cut and use.blocks[-1] < limit]
    if not places:
        return
    at_risk = [
        place
        for place in places
        if all(part.blocks[block].kind in ("tool_result", "thinking") for block in lookup.uses[place].blocks)
    ]

    def result(way: str, outcomes: bytes, tokens: int, target: int) -> Tally:
        measured = bytearray([UNMEASURED]) * len(lookup.uses)
        for place, outcome in zip(places, outcomes, strict=True):
            measured[place] = outcome
        counts, risks = counts_at(bytes(measured), places), counts_at(bytes(measured), at_risk)
        return Tally(way, conversation.aside, 1, counts, risks, tokens / target, tokens)

    sizes = [meter.count(block.text) if block.kind != "thinking" else 0 for block in part.blocks]
    least = meter.count(summary) or 1
    in_summary = bytes(ROUTED if stands_in(lookup.uses[place].anchor, summary) else LOST for place in places)
    yield result(_SUMMARY, in_summary, least, least)
    for title, target in (
        (REACHED, max(least, _reached(conversation, end, sum(sizes[:limit]), least))),
        (ALONE, least),
    ):
        for spec in specs:
            yield result(f"{spec}, {title}", *_under(spec, part, cut, target, lookup, places, meter), target)
        came = sum(sizes[block.number] for block in part.blocks if block.seen == cut and block.number >= limit)
        before = sum(size for block, size in zip(part.blocks, sizes, strict=True) if block.seen < cut)
        prompts = oracle(part, lookup.uses, sizes, _WINDOW, before / _WINDOW, (target + came) / _WINDOW)
        best = next(islice(prompts, cut, None))
        yield result(f"{_ORACLE}, {title}", Gauge(lookup).classify(best, places), best.tokens - came, target)


def _under(
    spec: str, part: Conversation, cut: int, target: int, lookup: Lookup, places: Sequence[int], meter: Meter
) -> tuple[bytes, int]:
    """The outcomes of the needs under a policy that reduces the prompt to the target at once, and the tokens left."""
    policy = policies.parse(spec)
    session = new_session(part, policies.parse(_KEEP), _WINDOW, meter=meter)
    prompts = Prompts(session)
    for number, call in enumerate(part.calls[: cut + 1]):
        for message in call.before if number < cut else _results(call.before):
            prompts.append(message)
        if number < cut:
            prompts.append(call.reply)
    view = session.view()
    pruned = [msgspec.structs.replace(row, state="pruned") for row in view.ledger.rows() if row.kind == "thinking"]
    view = replace(view, ledger=view.ledger.with_rows(pruned))  # no host hands thinking to a plugin
    view = replace(view, ledger=planned(view, view.ledger, policy, target).after)
    terms = policy.terms_in(_WINDOW)
    prompt = prompts.prompt(cut, view)
    gauge = Gauge(lookup, archive=terms.handles, search="search" in terms.tools)
    return gauge.classify(prompt, places), prompt.tokens


def _results(messages: Iterable[Message]) -> Iterator[Message]:
    """The results in the messages, which belong to the previous step's calls."""
    for message in messages:
        results = tuple(part for part in message.parts if part.kind == "tool_result")
        if results:
            yield msgspec.structs.replace(message, parts=results)


def _reached(conversation: Conversation, call: int, content: int, summary: int) -> int:
    """The tokens to which the host reduced what it could compact; 0 if the provider's counts are unknown."""
    counts = [count for count in conversation.reported if count]
    before, after = (conversation.reported[at] if at < len(conversation.reported) else 0 for at in (call - 1, call))
    if not (before and after):
        return 0
    fixed = min(*counts, after - summary)
    return int(content * min(1.0, max(0.0, (after - fixed) / max(1, before - fixed))))


def _rows(sums: Sequence[Tally]) -> Iterator[tuple[str, ...]]:
    bounds = {own.way.rpartition(", ")[2]: own.needs.share() for own in sums if own.way.startswith(_ORACLE)}
    for own in sums:
        share, bound = own.needs.share(), bounds.get(own.way.rpartition(", ")[2])
        yield (
            *(own.way, str(own.points), f"{own.needs.total:,}", percent(share)),
            *(percent(share / bound if share is not None and bound else None), percent(own.needs.share("routed"))),
            interval(*wilson(own.needs.up_to("routed"), own.needs.total)),
            *(percent(own.needs.share("searchable")), percent(own.needs.share("recoverable"))),
            *(percent(own.at_risk.share("routed")), percent(own.at_risk.share("recoverable"))),
            *(f"{own.size / own.points:.2f}", f"{own.tokens / own.points:,.0f}"),
        )
