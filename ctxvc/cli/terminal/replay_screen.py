"""The answer of `replay` for a person: tables, what they mean, and a recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ctxvc.cli.answers.replay import (
    AboveItem,
    ClassesItem,
    Comparison,
    DifferenceItem,
    Recommended,
    Replay,
    ReplayItem,
    Transition,
    UsesItem,
    round_tokens,
)
from ctxvc.cli.answers.shared import table_of
from ctxvc.cli.options.judge_model import lines as judged_lines
from ctxvc.cli.output import Column, Output, Styled, Table, counted, safe

_MOST_ERRORS = 5
_MOST_ABOVE = 3
#: The most lines of the table of `--mine`.
_MOST_LINES = 8
#: The share of uses that should stand in the prompt, as `advice.ENOUGH`.
ENOUGH = 0.95
#: Columns from which on a terminal has room for intervals.
_WIDE = 98

#: What the columns are, for a person.
_LEGEND = """\
seen: percentage of everything a reply used again that was in its prompt (with its 95 % interval)
NT: from blocks older than 5 steps; AR: NT found only in tool results; routed: NT reachable through a stub
of oracle: NT and AR seen, relative to a rule that knows the future; cost: 1 is keeping everything, with recoveries
breaks: of the cached prefix, per 100 calls; unsent: calls without a prompt that fits"""


def show(output: Output, answer: Replay, by: str = "") -> None:
    """The tables and notes; with `by` also how the non-trivial uses went by `kind` of string or by `loss`."""
    tables = chain(_lines(output, answer), _by_lines(output, answer, by) if by else ())
    output.prose(chain(tables, judged_lines(output, answer.judged) if answer.judged else ()))
    if output.terminal and answer.items:
        output.note(f"\n{_LEGEND}")
    stand_ins = sorted({item.stand_in for item in answer.items if item.stand_in})
    if stand_ins:
        names = ", ".join(sorted({item.policy for item in answer.items if item.stand_in}))
        output.note(f"fixed rules stood in for an agent or a model ({', '.join(stand_ins)}): {safe(names)}")
    for item in answer.items:
        if item.model and item.part == "all":
            output.note(
                f"{safe(item.policy)} at {round_tokens(item.budget)} asked {safe(item.model)}: of its cost, "
                f"{item.planner:.3f} is planning and {item.summariser:.3f} writing summaries"
            )
    if answer.above_oracle and not answer.recommended:
        output.note(_above_line(answer.above_oracle))
    for failure in answer.failures[:_MOST_ERRORS]:
        hint = f" (hint: {safe(failure.hint)})" if failure.hint else ""
        output.note(f"failed: {safe(failure.source)}: {safe(failure.error)}{hint}")
    if len(answer.failures) > _MOST_ERRORS:
        output.note(f"{len(answer.failures) - _MOST_ERRORS} more failures (--json lists all)")


def _above_line(above: Sequence[AboveItem]) -> str:
    first = ", ".join(
        f"{safe(one.file)} under {safe(one.policy)} at {round_tokens(one.budget)} (+{one.points:.1f})"
        for one in above[:_MOST_ABOVE]
    )
    more = f", and {len(above) - _MOST_ABOVE} more (--json lists all)" if len(above) > _MOST_ABOVE else ""
    return f"more than 2 points of NT above the oracle, a greedy rule, in single conversations: {first}{more}"


_TITLES = {"all": "", "aside": "set aside", "rest": "the rest"}


def _lines(output: Output, answer: Replay) -> Iterator[str]:
    if answer.recommended:
        yield from _mine_lines(output, answer, answer.recommended)
        return
    for part, title in _TITLES.items():
        items = [item for item in answer.items if item.part == part]
        if not items:
            continue
        if title:
            yield ""
            yield output.style(f"{title}: {counted(items[0].conversations, 'conversation')}", bold=True)
        yield from output.table_lines(_table(output, items))
    if answer.compared:
        yield from _comparison_lines(output, answer.compared)


def _mine_lines(output: Output, answer: Replay, best: Recommended) -> Iterator[str]:
    """The candidates, the best first, and what to take."""
    items = [item for item in answer.items if item.part == "all"]
    which = "" if best.sessions == best.recorded else f", the newest of {best.recorded}"
    yield f"{counted(best.sessions, 'session')} of yours{which}: {answer.calls:,} calls"
    yield ""
    yield from output.table_lines(_table(output, items[:_MOST_LINES]))
    yield ""
    if not best.policy:
        yield "no reply reused anything from its prompt: there is nothing to compare"
        return
    yield output.style(f"recommended: {safe(best.policy)} at {round_tokens(best.budget)}", bold=True)
    yield (
        f"{_percent(best.visible)} of what your agent reused, including recent steps, was still in the prompt, "
        f"{_percent(best.routed)} was one stub away; the cost is {best.cost:.2f} times that of keeping everything, "
        "including recoveries"
    )
    if not best.enough:
        yield f"none of these keeps {_percent(ENOUGH)} in the prompt: try larger budgets, or other policies"
    elif best.prune_rate < _HARDLY:
        yield f"hardly anything had to leave: your sessions nearly fit into {round_tokens(best.budget)}"
    elif best.cost >= 1:
        yield f"it is not cheaper than keeping everything: its benefit is a prompt below {round_tokens(best.budget)}"
    else:
        yield f"it is the cheapest setup that keeps {_percent(ENOUGH)} or more in the prompt"
    if best.uses < _FEW:
        yield f"it is based on only {counted(best.uses, 'use')} of content older than 5 steps"
    if (full := best.fullest) and (full.policy, full.budget) != (best.policy, best.budget):
        yield (
            f"most stays in the prompt under {safe(full.policy)} at {round_tokens(full.budget)}: "
            f"{_percent(full.visible)}, for {full.cost:.2f}"
        )


#: Fewer uses from older blocks than this say little.
_FEW = 50
#: A smaller share of the input that is spared is as good as nothing.
_HARDLY = 0.02


def _unsent(item: ReplayItem) -> int:
    return item.over + item.failed + item.invalid


def _table(output: Output, items: Sequence[ReplayItem]) -> Table:
    wide = output.width >= _WIDE or not output.terminal
    return Table(
        columns=[
            Column("policy", least=14),
            Column("budget", right=True),
            Column("NT seen"),
            Column("AR seen"),
            Column("of oracle", rank=1),
            Column("routed", right=True, rank=3),
            Column("cost", right=True),
            Column("breaks", right=True, rank=2),
            Column("unsent", right=True),
        ],
        rows=[
            [
                item.policy,
                round_tokens(item.budget),
                _share(item.nt, interval=wide),
                _share(item.ar, interval=wide),
                f"{_ratio(item.nt.of_oracle)} {_ratio(item.ar.of_oracle)}",
                _percent_of(item.nt.routed, item.nt.uses),
                f"{item.cost_with_recoveries:.2f}" if item.failed < item.calls else "–",
                f"{item.breaks:.1f}",
                Styled(str(_unsent(item)), "red") if _unsent(item) else "0",
            ]
            for item in items
        ],
    )


def _by_lines(output: Output, answer: Replay, by: str) -> Iterator[str]:
    """A row for each policy and budget, a column for each kind of string, or of loss: the share of NT that was seen."""
    items = [item for item in answer.items if item.part == "all"]
    if not items:
        return
    yield ""
    title = "NT seen, in percent, by kind of string" if by == "kind" else "NT seen, in percent, by what a loss would be"
    yield output.style(title, bold=True)
    parts = [item.kinds if by == "kind" else item.failures for item in items]
    names = [name for name in parts[0] if any(_total(part[name]) for part in parts)]
    columns = [Column("policy", least=14), Column("budget", right=True), *(Column(name, right=True) for name in names)]
    rows = [
        [
            item.policy,
            round_tokens(item.budget),
            *(_percent_of(part[name].nt.visible, _total(part[name])) for name in names),
        ]
        for item, part in zip(items, parts, strict=True)
    ]
    uses = ["uses", "", *(f"{max(_total(part[name]) for part in parts):,}" for name in names)]
    yield from output.table_lines(Table(columns, [*rows, uses]))


def _total(uses: ClassesItem) -> int:
    own = uses.nt
    return own.visible + own.routed + own.searchable + own.recoverable + own.lost


def _comparison_lines(output: Output, comparison: Comparison) -> Iterator[str]:
    a, b = comparison.a, comparison.b
    yield ""
    yield output.style(f"seen under {a} (A) and {b} (B)", bold=True)
    yield from output.table_lines(table_of(Transition, comparison.transitions))
    if comparison.differences:
        yield ""
        yield from output.table_lines(table_of(DifferenceItem, comparison.differences))


def _share(uses: UsesItem, *, interval: bool) -> str:
    """`74.0 (72.9–75.1)`, in percent."""
    share = _percent_of(uses.visible, uses.uses)
    return f"{share} ({100 * uses.low:.1f}–{100 * uses.high:.1f})" if interval and uses.uses else share


def _percent(share: float) -> str:
    """`93 %`; with a decimal where a round number would say all or nothing, and it is not."""
    nearly = 0 < share < 1 and f"{100 * share:.0f}" in ("0", "100")
    return f"{min(99.9, max(0.1, 100 * share)):.1f} %" if nearly else f"{100 * share:.0f} %"


def _percent_of(part: int, total: int) -> str:
    return f"{100 * part / total:.1f}" if total else "–"


def _ratio(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"
