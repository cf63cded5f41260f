"""CWL's long run: many conversations as one session, in date order, under a ceiling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from ctxvc import policies
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View
from ctxvc.policies.candidates import cost_in_prompt, removable
from ctxvc.replay.conversation import Conversation, timestamp
from ctxvc.replay.drive import Prompts, drive, new_session
from ctxvc.replay.experiments.measure import Spliced, Table, counts_at, evenly, in_date_order, percent, spliced
from ctxvc.replay.measures.cost import PRICES, CacheSimulation, Cost
from ctxvc.replay.measures.retention import Counts, Gauge, Lookup
from ctxvc.replay.measures.uses import Use, uses
from ctxvc.replay.results.file import LineFile, code_version
from ctxvc.replay.results.result import Tokens
from ctxvc.tokens.meter import Meter

NAME = "long-run"
OPTIONS = ("out",)
SOURCE = 'CWL (arXiv 2606.11213), sections 5 ("KV cache invalidation"), 6.3 to 6.5'
APART = (
    "The paper's agent marks its episodes and works on tasks of a benchmark; here episodes are derived from "
    "recorded sessions, whose agents never saw the earlier sessions, so a use across a boundary is a common "
    "string, not a known need. Costs are of prompts with a prefix cache of 5 minutes, in fresh input tokens; the "
    "paper's are bills. Uncapped is calculated, not run: all blocks except thinking stay, which exceeds any "
    "model's window."
)
#: The paper's findings by ceiling.
PAPER = {
    50_000: "up to 3 x cheaper than above 120k, up to 2 x slower",
    80_000: "20-70 % cheaper than uncapped; 23 % cheaper than compaction",
    120_000: "near the frontier; above it dearer with no gain",
}

CEILINGS = (50_000, 80_000, 120_000)
#: The model's window in tokens: above all ceilings, so that these decide.
WINDOW = 200_000


class Run(msgspec.Struct, frozen=True):
    """The session under one policy. `ceiling` is in tokens, 0 if there is none.

    Of its `calls`, `failed` could not be made and `over` had a prompt above the ceiling, by at most `excess` tokens; at
    most `floor` of the tokens in these could not leave. `breaks` counts the prompts that did not begin with the
    previous one. `first` and `last` are the engine's milliseconds per call, medians of the first and the last tenth.
    `across` are the uses of what only earlier conversations contain, `within` the other non-trivial ones.
    """

    policy: str
    ceiling: int
    calls: int
    failed: int = 0
    over: int = 0
    excess: int = 0
    floor: int = 0
    tokens: Tokens = Tokens()
    cost: Cost = Cost()
    breaks: int = 0
    first: float = 0.0
    last: float = 0.0
    across: Counts = Counts()
    within: Counts = Counts()


class LongRun(msgspec.Struct, frozen=True):
    """The runs of a session of `conversations`, with `tokens` in all its blocks."""

    conversations: int
    tokens: int
    runs: tuple[Run, ...]
    uncapped: Run

    @property
    def tables(self) -> tuple[Table, ...]:
        """One row a ceiling, then the summary's and the uncapped run's."""
        columns = (
            *("policy", "ceiling", "calls", "over it", "by at most", "floor then", "peak", "all prompts"),
            *("cost to uncapped", "with summaries' own", "breaks / 100 calls", "ms a call, first and last tenth"),
            *("across sessions: visible", "or routed", "within (NT): visible", "or routed", "paper"),
        )
        rows = tuple(self._row(run) for run in (*self.runs, self.uncapped))
        title = f"CWL's long run: {self.conversations} sessions, {self.tokens:,} tokens"
        paper = ("paper: 89 tasks", "80,000", "", "", "", "", "", "80 M", "0.3-0.8", *[""] * 7, "accuracy as alone")
        return (Table(title, columns, (*rows, paper), APART),)

    def _row(self, run: Run) -> tuple[str, ...]:
        uncapped, cost = self.uncapped.cost.prompts, run.cost
        return (
            *(run.policy, f"{run.ceiling:,}" if run.ceiling else "", f"{run.calls:,}", f"{run.over:,}"),
            *(f"{run.excess:,}" if run.over else "", f"{run.floor:,}" if run.over else "", f"{run.tokens.peak:,}"),
            *(f"{run.tokens.total:,}", f"{cost.prompts / uncapped:.3f}" if uncapped else ""),
            f"{cost.total / uncapped:.3f}" if cost.summariser and uncapped else "",
            f"{100 * run.breaks / run.calls:.1f}" if run.calls else "",
            f"{run.first:.1f}, {run.last:.1f}" if run.first else "",
            *(percent(run.across.share("visible")), percent(run.across.share("routed"))),
            *(percent(run.within.share("visible")), percent(run.within.share("routed"))),
            PAPER.get(run.ceiling, "") if run.policy.startswith("episodes") else "",
        )


def run(
    conversations: Iterable[Conversation],
    *,
    ceilings: Sequence[int] = CEILINGS,
    summaries: Sequence[int] = (80_000,),
    limit: int = 12,
    out: Path | None = None,
) -> LongRun:
    """The runs at `ceilings`, and those of the policy `summary` triggered at `summaries`, in tokens.

    `limit` is the number of conversations, evenly over their dates; 0 takes all, which may take hours: a call takes
    longer the more blocks there are that may not leave. Each finished run is a line of the file `out`, and is not made
    again.
    Raises: BadInput if `out` is not a file of such runs.
    """
    ordered = evenly(in_date_order(conversations), limit)
    sequence = spliced(ordered)
    lookup = Lookup(sequence.conversation, uses(sequence.conversation))
    setups = [(f"episodes:derive=on,ceiling={ceiling}", ceiling) for ceiling in ceilings]
    for ceiling in summaries:  # the policy's usual shares, but of the ceiling
        share = ceiling / WINDOW
        setups.append((f"summary:trigger={share:g},keep={share / 10:g},least={share / 10:g}", ceiling))
    meter = Meter(None)
    file = LineFile(out, msgspec.json.Decoder(_Line).decode, "a long run", _BEGINNING) if out else None
    subject = f"{code_version()} {sequence.conversation.sha256}"
    lines = file.records if file else ()
    earlier = {(line.run.policy, line.run.ceiling): line.run for line in lines if line.subject == subject}
    runs: list[Run] = []
    for setup in setups:
        runs.append(earlier.get(setup) or _run(sequence, lookup, *setup, meter))
        if file and setup not in earlier:
            file.add([_Line(subject, runs[-1])])
    sizes = [meter.count(block.text) for block in sequence.conversation.blocks]
    return LongRun(len(ordered), sum(sizes), tuple(runs), _uncapped(sequence, lookup, sizes))


class _Line(msgspec.Struct, frozen=True, tag_field="schema", tag="ctxvc-long-run/1"):
    """A run as a line of a file; `subject` identifies the code and the session."""

    subject: str
    run: Run


_BEGINNING = b'{"schema":"ctxvc-long-run/1"'


def _run(sequence: Spliced, lookup: Lookup, spec: str, ceiling: int, meter: Meter) -> Run:
    conversation = sequence.conversation
    replayed = new_session(conversation, policies.parse(spec), WINDOW, meter=meter)
    replayed.shows_dashboard = False  # as in the paper
    prompts, gauge, cache = Prompts(replayed), Gauge(lookup, search=False), CacheSimulation()
    summaries = _Summaries()
    seconds: list[float] = []
    totals: list[int] = []
    over = failed = excess = floor = 0
    for number, driven in enumerate(drive(conversation, replayed, prompts)):
        seconds.append(driven.seconds)
        if driven.prompt is None:
            failed += 1
            continue
        tokens = driven.prompt.tokens
        totals.append(tokens)
        gauge.add(driven.prompt)
        cache.send(prompts.keys, prompts.sizes, timestamp(conversation.calls[number].reply.time))
        if written := summaries.new(replayed.view()):
            cache.ask("summariser", cached=totals[-2] if len(totals) > 1 else tokens, output=written)
        if tokens > ceiling:
            over += 1
            excess = max(excess, tokens - ceiling)
            floor = max(floor, _floor(replayed.view()))
    tenth = max(1, len(seconds) // 10)
    across, within = _across_and_within(sequence, lookup.uses, gauge.outcomes)
    return Run(
        policy=spec,
        ceiling=ceiling,
        calls=len(seconds),
        failed=failed,
        over=over,
        excess=excess,
        floor=floor,
        tokens=Tokens(peak=max(totals, default=0), total=sum(totals)),
        cost=cache.cost(),
        breaks=cache.breaks,
        first=1000 * median(seconds[:tenth]),
        last=1000 * median(seconds[-tenth:]),
        across=across,
        within=within,
    )


class _Summaries:
    """The summaries in a session's prompts, in order of appearance."""

    def __init__(self) -> None:
        self._groups: set[str] = set()

    def new(self, view: View) -> int:
        """The tokens of the summaries that are new since the last time."""
        groups = view.ledger.groups
        names = [name for name in groups.keys() - self._groups if is_summary(groups[name].stub)]
        self._groups.update(names)
        return sum(view.price.text(groups[name].stub) for name in names)


def _floor(view: View) -> int:
    """The tokens of what may not leave the prompt."""
    return view.used - sum(cost_in_prompt(view, row) for row in removable(view))


def _across_and_within(sequence: Spliced, uses: Sequence[Use], outcomes: bytes) -> tuple[Counts, Counts]:
    across = [place for place, use in enumerate(uses) if sequence.is_across(use)]
    within = [place for place, use in enumerate(uses) if use.nt and not sequence.is_across(use)]
    return counts_at(outcomes, across), counts_at(outcomes, within)


def _uncapped(sequence: Spliced, lookup: Lookup, sizes: Sequence[int]) -> Run:
    """The calculated run in which nothing but thinking ever leaves."""
    conversation = sequence.conversation
    added = [0] * len(conversation.calls)
    for block in conversation.blocks:
        if block.kind != "thinking" and block.seen < len(added):
            added[block.seen] += sizes[block.number]
    total = tokens = 0
    cost, last = 0.0, None
    for call, new in zip(conversation.calls, added, strict=True):
        time = timestamp(call.reply.time)
        cold = time is not None and last is not None and time - last > PRICES.seconds
        cost += (tokens + new) * PRICES.written if cold else tokens * PRICES.cached + new * PRICES.written
        last = last if time is None else time
        tokens += new
        total += tokens
    across, within = _across_and_within(sequence, lookup.uses, bytes(len(lookup.uses)))
    tokens_of_all = Tokens(peak=tokens, total=total)
    return Run("uncapped", 0, len(added), tokens=tokens_of_all, cost=Cost(prompts=cost), across=across, within=within)
