"""The log on a terminal: a header, then the turns with their steps; and a line by a template."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

from ctxvc.cli.output import Output, counted, iso
from ctxvc.cli.terminal import charts
from ctxvc.cli.terminal.table import breadth, cut
from ctxvc.core import display
from ctxvc.core.display import human_tokens
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput
from ctxvc.inspection.story import BOOKKEEPING, Moment, Turn
from ctxvc.store.read.revision import Snapshot

#: Digits of a commit's id, which identify it in a store of some ten thousand.
DIGITS = 7
#: Of a longer run of steps so many are shown, its newest and its oldest; and the tools that the others are counted by.
_RUN = 12
_ENDS = 5
_TOOLS = 4
#: Dollars below which what a planner cost is not said.
_CENT = 0.005
#: Characters of a line in a pipe.
_LONGEST = 400
#: Operations by what they are about, and the colour of each.
_COLORS = {
    "note": "cyan", "scope": "magenta", "goto": "magenta", "session": "magenta",
    "compact": "yellow", "undo": "red", "redo": "red", "delete": "red", "settings": "blue",
}  # fmt: skip

_FIELD = re.compile(r"\{([a-z]{0,20})\}")
#: What looks like a field whose brace was not closed.
_OPEN_FIELD = re.compile(r"\{([a-z]{1,20})(?![a-z}])")

#: The fields of a template, and what each is of a commit.
FIELDS: Mapping[str, Callable[[Moment], object]] = {
    "commit": lambda moment: moment.entry.commit,
    "short": lambda moment: moment.entry.commit[:DIGITS],
    "scope": lambda moment: moment.meta.scope,
    "step": lambda moment: moment.step,
    "turn": lambda moment: moment.turn,
    "time": lambda moment: iso(moment.entry.time),
    "actor": lambda moment: moment.actor,
    "op": lambda moment: moment.op,
    "tokens": lambda moment: "" if moment.tokens is None else moment.tokens,
    "cost": lambda moment: "" if moment.dollars is None else f"{moment.dollars:.4f}",
    "model": lambda moment: moment.entry.trailers.get("Ctxvc-Model", ""),
    "subject": lambda moment: moment.entry.subject,
    "text": lambda moment: moment.text(heading=False),
}


def header(output: Output, snapshot: Snapshot, newest: Moment | None, calls: Sequence[int]) -> Iterator[str]:
    """What the scope is: its session, model, size, growth by the sizes of its `calls` and, of an import, where it comes
    from.
    """
    meta = snapshot.ledger.meta
    sizes = [counted(meta.counters.turn, "turn"), counted(meta.counters.step, "step")]
    if newest is not None and newest.tokens is not None:
        sizes.append(f"{human_tokens(newest.tokens)} tokens")
    name = f"{snapshot.session}/{snapshot.scope}"
    parts = (name, display.one_line(meta.model, 80), *sizes)
    yield output.style(cut(" · ".join(filter(None, parts)), output.width), bold=True)
    if grew := charts.growth(calls):
        yield _fit(output, grew)
    if meta.source:
        source = meta.source
        where = [source.format, f"on {source.branch}" if source.branch else "", source.cwd, source.title]
        yield _fit(output, " · ".join(display.one_line(part, 200) for part in where if part), dim=True)


def turn_lines(output: Output, turn: Turn, scope: str, *, every: bool) -> Iterator[str]:
    """A turn: what the human said, when, what it came to; then what was done, in the order of its moments.

    Without `every` long runs of steps are shown in part, and bookkeeping not at all.
    """
    if turn.number:
        yield _heading(output, turn, scope)
    run: list[Moment] = []
    for moment in turn.moments:
        if moment.rows:
            run.append(moment)
        elif every or moment.op not in BOOKKEEPING:
            yield from _steps(output, run, every=every)
            run = []
            yield _event(output, moment)
    yield from _steps(output, run, every=every)


def line(output: Output, moment: Moment) -> str:
    """`abee97a “fix the login test” · Read auth.py (+2 calls)`"""
    text = moment.text(max(output.width - DIGITS - 1, 20) if output.terminal else _LONGEST, heading=False)
    return f"{output.style(moment.entry.commit[:DIGITS], fg='yellow')} {_colored(output, moment, text)}"


def formatted(template: str, moment: Moment) -> str:
    """`template` with the fields of a commit. Raises: BadInput for an unknown one."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in FIELDS:
            raise BadInput(
                f"--format has no field {match[0]}{meant(match[1], FIELDS)}", hint=f"available: {', '.join(FIELDS)}"
            )
        return display.one_line(str(FIELDS[match[1]](moment)), _LONGEST)

    for match in _OPEN_FIELD.finditer(template):
        if match[1] in FIELDS:
            raise BadInput(f"--format: {match[0]} has no closing brace", hint=f"write {match[0]}}}")
    return _FIELD.sub(value, template.replace("\\t", "\t").replace("\\n", "\n"))


def _heading(output: Output, turn: Turn, scope: str) -> str:
    where = f"turn {turn.number}" + (f" of {display.one_line(turn.scope, 30)}" if turn.scope != scope else "")
    when = datetime.fromtimestamp(turn.time, timezone.utc).astimezone().strftime("%Y-%m-%d %H:%M")
    size = human_tokens(turn.tokens) if turn.tokens is not None else ""
    cost = f"${turn.dollars:,.2f}" if turn.dollars is not None else ""
    if turn.planner_dollars >= _CENT:
        cost += f" (planner ${turn.planner_dollars:,.2f})"
    head = "  ".join(filter(None, (where, when, size, cost)))
    room = output.width - breadth(head) - 4
    request = f"“{display.fitted(turn.request, room)}”" if turn.request else ""
    return f"{output.style(head, bold=True)}  {output.style(request, fg='green')}"


def _steps(output: Output, run: Sequence[Moment], *, every: bool) -> Iterator[str]:
    """A run of steps; of a long one the ends, and what was called between."""
    if every or len(run) <= _RUN:
        yield from (_step(output, moment) for moment in run)
        return
    yield from (_step(output, moment) for moment in run[:_ENDS])
    between = run[_ENDS:-_ENDS]
    tools = Counter(display.one_line(call.tool, 30) for moment in between for call in moment.calls)
    names = [f"{name} ×{count}" if count > 1 else name for name, count in tools.most_common(_TOOLS)]
    names += ["…"] if len(tools) > _TOOLS else []
    text = f"{len(between)} more steps" + (f": {', '.join(names)}" if names else "")
    yield output.style(cut(f"{'⋮':>4}  {text}", output.width), dim=True)
    yield from (_step(output, moment) for moment in run[-_ENDS:])


def _step(output: Output, moment: Moment) -> str:
    commit = moment.entry.commit[:DIGITS]
    prefix = f"{moment.step:>4}  {output.style(commit, fg='yellow')}  "
    return prefix + moment.text(output.width - max(4, len(str(moment.step))) - DIGITS - 4)


def _event(output: Output, moment: Moment) -> str:
    """What is no step, marked so that it stands out."""
    text = display.fitted(moment.text(), output.width - DIGITS - 8)
    return f"{'──':>4}  {output.style(moment.entry.commit[:DIGITS], fg='yellow')}  {_colored(output, moment, text)}"


def _colored(output: Output, moment: Moment, text: str) -> str:
    return text if moment.rows else output.style(text, fg=_COLORS.get(moment.op, "yellow"), bold=True)


def _fit(output: Output, text: str, **style: bool | str) -> str:
    return output.style(display.fitted(text, output.width), **style)
