"""Explicit scopes: tasks one after the other, each in its own scope or all in one, and tasks in isolation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ctxvc.core import display
from ctxvc.core.view.view import View
from ctxvc.errors import BadInput
from ctxvc.policies.baselines import Keep
from ctxvc.replay.conversation import Call, Conversation, text_of
from ctxvc.replay.drive import Bare, Prompts, faults, new_session
from ctxvc.replay.experiments.measure import Spliced, Table, counts_at, evenly, in_date_order, percent, spliced
from ctxvc.replay.measures.cost import CacheSimulation
from ctxvc.replay.measures.retention import Counts, Gauge, Lookup
from ctxvc.replay.measures.uses import uses
from ctxvc.tokens.meter import Meter

NAME = "scopes"
SOURCE = '"Explicit context management" (ctx-cli), sections 1.1, 1.5 and its experiments'
APART = (
    "The paper's tasks are from SWE-Bench-CL, 780 tokens each, solved by a model that calls the commands itself; "
    "here whole recorded sessions are the tasks, and a stand-in opens a scope when a task starts and leaves it "
    "with the reply's last words. A command is one more model call, whose prompt is counted. Model latency is not "
    "measured."
)

_UNBOUNDED = 1 << 40
#: The most characters of the notes that open and leave a scope.
_REQUESTED, _LEARNED = 120, 600


class Line(msgspec.Struct, frozen=True):
    """Tasks, all in one scope or each in its own (`scoped`).

    `calls` are the model's, including those for commands; `peak` and `total` are the tokens of their prompts, `last` of
    the last task's largest. `base` is the first prompt of all, `growth` the mean growth of a task's first prompt from
    task to task, and `main_growth` that of `main` without human messages and notes. `lost` is the mean number of cached
    tokens lost in a switch of tasks; `cost` is with a prefix cache, in fresh input tokens. `invalid` counts prompts
    that a provider would refuse, `across` the uses of what only earlier tasks contain.
    """

    tasks: int
    scoped: bool
    calls: int
    peak: int
    total: int
    last: int
    base: int
    growth: float
    lost: float
    cost: float
    invalid: int = 0
    across: Counts = Counts()
    main_growth: float = 0.0


class Scopes(msgspec.Struct, frozen=True):
    """`sequence` has the tasks one after the other, linear and scoped; `isolated` sums the tasks by themselves."""

    sequence: tuple[Line, Line]
    isolated: tuple[Line, Line]

    @property
    def tables(self) -> tuple[Table, ...]:
        """A table for the sequence and one for the isolated tasks."""
        columns = ("", "linear", "scoped", "change", "paper: linear", "paper: scoped", "paper: change")
        linear, scoped = self.sequence
        largest = self.isolated[0].peak
        sequence = (
            _row("peak prompt", linear.peak, scoped.peak, "12,059", "1,402", "-88 %"),
            _row("the same, less the largest task's own", linear.peak - largest, scoped.peak - largest, "", "", ""),
            _row("last task's peak", linear.last, scoped.last, "12,059", "801", "-93 %"),
            _row("all prompts (paper: 12-step task)", linear.total, scoped.total, "431,528", "137,025", "-68 %"),
            _row("model calls", linear.calls, scoped.calls, "24", "25", "+4 %"),
            _row("first prompt", linear.base, scoped.base, "1,247", "2,891", "+132 %"),
            _row("growth a task", linear.growth, scoped.growth, "780", "", ""),
            _row(
                "growth of main, humans' and notes' words not counted",
                linear.main_growth,
                scoped.main_growth,
                "",
                "",
                "",
            ),
            _row("cached tokens lost a switch", linear.lost, scoped.lost, "0", "all (57,472 to 0 read)", ""),
            _row("cost with a prefix cache", linear.cost, scoped.cost, "", "", ""),
            _row("invalid prompts", linear.invalid, scoped.invalid, "", "", ""),
            (
                "uses of what only earlier tasks have, visible or routed",
                *(percent(one.across.share("routed")) for one in self.sequence),
                *("", "", "", ""),
            ),
        )
        alone, alone_scoped = self.isolated
        isolated = (
            _row("model calls", alone.calls, alone_scoped.calls, "11", "30", "+173 %"),
            _row("peak prompt", alone.peak, alone_scoped.peak, "", "", ""),
            _row("all prompts", alone.total, alone_scoped.total, "", "", ""),
            _row(
                "cost with a prefix cache (paper: seconds)", alone.cost, alone_scoped.cost, "18.6 s", "50.3 s", "+170 %"
            ),
        )
        tasks = self.sequence[0].tasks
        return (
            Table(f"Explicit scopes: {tasks} tasks one after the other", columns, sequence, APART),
            Table(f"Explicit scopes: {tasks} tasks, each by itself", columns, isolated, APART),
        )


def _row(measure: str, linear: float, scoped: float, *paper: str) -> tuple[str, ...]:
    change = f"{100 * (scoped / linear - 1):+.0f} %" if linear else ""
    return (measure, f"{linear:,.0f}", f"{scoped:,.0f}", change, *paper)


def run(conversations: Iterable[Conversation], *, tasks: int = 15, longest: int = 40) -> Scopes:
    """The comparison on `tasks` conversations of 2 to `longest` calls, evenly over their dates.

    Raises: BadInput if there are none.
    """
    short = [one for one in in_date_order(conversations) if 1 < len(one.calls) <= longest]
    if not short:
        raise BadInput(f"no conversation of 2 to {longest} calls", hint="name more recordings, or a folder of them")
    chosen = evenly(short, tasks)
    meter = Meter(None)
    together = spliced(chosen)
    sequence = (line(together, meter, scoped=False), line(together, meter, scoped=True))
    alone = [spliced([one]) for one in chosen]
    linear = _added([line(one, meter, scoped=False) for one in alone])
    scoped = _added([line(one, meter, scoped=True) for one in alone])
    return Scopes(sequence, (linear, scoped))


def line(tasks: Spliced, meter: Meter, *, scoped: bool) -> Line:
    """The tasks in one session, where nothing leaves the prompt but by a switch of scope."""
    conversation = tasks.conversation
    replayed = new_session(conversation, Bare(inner=Keep()), _UNBOUNDED, meter=meter)
    lookup = Lookup(conversation, uses(conversation))
    prompts, cache, gauge = Prompts(replayed), CacheSimulation(), Gauge(lookup, search=False)
    starts = frozenset(tasks.starts)
    totals: list[int] = []
    first: list[int] = []
    unworded: list[int] = []
    lost: list[int] = []
    invalid = previous = latest = 0
    for number, call in enumerate(conversation.calls):
        if scoped and number in starts and number:
            totals.append(replayed.used())  # the call of `goto`
            cache.ask("recovery", cached=totals[-1])
            replayed.goto("main", _last_words(conversation.calls[number - 1]))
        for message in call.before:
            prompts.append(message)
        if number in starts:
            unworded.append(_unworded(replayed.view()))
        if scoped and number in starts:
            totals.append(replayed.used())  # the call of `scope`
            cache.ask("recovery", cached=totals[-1])
            replayed.open_scope(f"task-{number}", _request(call))
        invalid += any(faults(replayed.request().messages))
        prompt = prompts.prompt(number, replayed.view())
        gauge.add(prompt)
        cached = cache.send(prompts.keys, prompts.sizes)
        if number in starts:
            first.append(prompt.tokens)
            lost.append(max(0, previous - cached))
            latest = 0
        previous, latest = prompt.tokens, max(latest, prompt.tokens)
        totals.append(prompt.tokens)
        prompts.append(call.reply)
    switches = len(lost) - 1
    return Line(
        tasks=len(first),
        scoped=scoped,
        calls=len(totals),
        peak=max(totals, default=0),
        total=sum(totals),
        last=latest,
        base=first[0] if first else 0,
        growth=(first[-1] - first[0]) / switches if switches else 0.0,
        lost=sum(lost[1:]) / switches if switches else 0.0,
        cost=cache.cost().total,
        invalid=invalid,
        across=counts_at(gauge.outcomes, (at for at, use in enumerate(lookup.uses) if tasks.is_across(use))),
        main_growth=(unworded[-1] - unworded[0]) / switches if switches else 0.0,
    )


def _unworded(view: View) -> int:
    """The tokens of a prompt without human messages and notes."""
    worded = (row for row in view.ledger.rows() if row.present and (row.kind == "note" or row.origin == "human"))
    return view.counted - sum(map(view.price.body, worded))


def _added(lines: Sequence[Line]) -> Line:
    """The sums over isolated tasks."""
    return Line(
        tasks=len(lines),
        scoped=any(one.scoped for one in lines),
        calls=sum(one.calls for one in lines),
        peak=max((one.peak for one in lines), default=0),
        total=sum(one.total for one in lines),
        last=0,
        base=0,
        growth=0.0,
        lost=0.0,
        cost=sum(one.cost for one in lines),
        invalid=sum(one.invalid for one in lines),
    )


def _request(call: Call) -> str:
    human = (part for message in call.before for part in message.parts if part.origin == "human")
    return display.one_line(next((text_of(part) for part in human), ""), _REQUESTED) or "the next task"


def _last_words(call: Call) -> str:
    texts = [text_of(part) for part in call.reply.parts if part.kind == "assistant"]
    return display.one_line(texts[-1], _LEARNED) if texts and texts[-1].strip() else "done"
