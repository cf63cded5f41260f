"""The episode graph: the typed pieces of work that a scope's conversation falls into, and how far each has left.

It is found in the rows of a ledger and stored nowhere else. Its invariants (CWL, section 4.3) hold by construction: a
call of `delimiter` counts only if the tool would have accepted it, whoever did. So an act depends on expl episodes that
had ended before it began, names are used once, and one episode at most is active. What came before the first start is
the prologue; what stands outside all episodes later on is expl work that nobody told of (`implicit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE, is_human
from ctxvc.core.ledger.pairs import results_of
from ctxvc.core.plan import protected as protection
from ctxvc.core.prompt.cut import is_cut, latest_step
from ctxvc.core.view import view
from ctxvc.core.view.view import Price
from ctxvc.policies.episodes.delimiter import TOOL, Declared, Type, judge

#: Who told of an episode: the model with its calls, a rule that looked at what was done, nobody.
Made = Literal["declared", "derived", "implicit"]
State = Literal["active", "closed", "evicted in part", "evicted"]

#: How much of an episode has left, as words for its level from 0 to 4.
LEVELS = ("nothing", "reasoning", "bulk", "intermediate", "whole")
REASONING, BULK, INTERMEDIATE, WHOLE = range(1, 5)

#: Steps of an implicit episode at most.
IMPLICIT = 20

#: Tools whose results list what was found: searches and directories.
BULK_TOOLS = (
    *("grep", "glob", "ls", "find", "list", "search", "tool_search", "websearch", "web_search"),  # Claude Code, pi
    *("list_dir", "grep_files", "file_search", "codebase_search", "find_file", "search_dir", "search_file"),  # Codex
)
#: Tools that show one thing or run one command.
INTERMEDIATE_TOOLS = (
    *("read", "bash", "bashoutput", "webfetch", "notebookread", "lsp", "taskoutput", "powershell"),  # Claude Code, pi
    *("shell", "local_shell", "shell_command", "exec_command", "write_stdin", "view_image", "read_file"),  # Codex
    *("execute_bash", "terminal", "execute_ipython_cell", "fetch", "browser", "web_read"),  # OpenHands
    *("str_replace_editor:view", "file_editor:view", "str_replace_based_edit_tool:view"),
    *("view", "open", "web_fetch", "read_bash", "command"),  # SWE-agent and others
)

Words = Callable[[Row], str]
#: The level at which a block leaves an episode of a type.
Leaving = Callable[[Row, Type], int]


class Episode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An episode and how it stands.

    `began` is the step of its first block, `ended` the step in which it ended; None while it is active. `blocks` are
    all of its blocks, in order; `left` are those that are still in the prompt and may leave it some day. Of a
    `superseded` expl later ones have looked at all files again.
    """

    name: str
    type: Type
    made: Made = "declared"
    state: State
    level: int = 0
    dependencies: tuple[str, ...] = ()
    description: str = ""
    began: int
    ended: int | None = None
    blocks: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    superseded: bool = False

    @property
    def title(self) -> str:
        """As stubs and reasons name it."""
        what = {"declared": self.type, "derived": "derived", "implicit": "unmarked"}[self.made]
        return f"{what} {display.one_line(self.name, 60)}"


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The episodes in the order in which they began, and the blocks of the prologue, which never leaves."""

    prologue: tuple[str, ...]
    episodes: tuple[Episode, ...]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An episode as people see it. `tokens` are those of its bodies, `shown` those in the prompt now, as counted."""

    type: Type
    name: str
    state: State
    level: str
    tokens: int
    shown: int
    blocks: int
    dependencies: tuple[str, ...]
    made: Made


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools' calls leave early: `bulk` ones first, then `intermediate` ones.

    Names are compared without case and without the name of an MCP server. `tool:word` are only those calls of a tool
    whose most telling argument begins with that word.
    """

    bulk: tuple[str, ...] = BULK_TOOLS
    intermediate: tuple[str, ...] = INTERMEDIATE_TOOLS

    def levels(self) -> Callable[[Row], int]:
        """The level at which a call leaves, with its result."""
        table = {name.lower(): INTERMEDIATE for name in self.intermediate}
        table |= {name.lower(): BULK for name in self.bulk}

        names: dict[str, str] = {}

        def level(call: Row) -> int:
            name = names.get(call.tool) or names.setdefault(call.tool, plain(call.tool))
            if name in table:
                return table[name]
            word = call.label.removeprefix(f"{call.tool}: ").partition(" ")[0].lower()
            return table.get(f"{name}:{word}", WHOLE)

        return level


#: The usual tables.
TOOLS = Tools()


@dataclass(slots=True)
class Span:
    """The rows of an episode in the making."""

    name: str
    type: Type
    made: Made
    dependencies: tuple[str, ...] = ()
    description: str = ""
    ended: int | None = None
    superseded: bool = False
    rows: list[Row] = field(default_factory=list)


def plain(tool: str) -> str:
    """The name of a tool in lower case, without that of its MCP server."""
    return tool.rpartition("__")[2].lower()


def is_mark(row: Row) -> bool:
    """Whether a block is a call of `delimiter`, also where an agent with a tool of that name calls ours otherwise."""
    if row.kind != "tool_use" or not row.tool.endswith(TOOL):
        return False
    return plain(row.tool).removeprefix("context_") == TOOL


def declared_episodes(ledger: Ledger, text_of: Words) -> dict[str, Declared]:
    """The episodes that the calls of a scope have told so far, by name, as `delimiter.judge` wants them."""
    return {mark.name: mark for _, mark in _accepted(list(ledger.rows()), text_of)}


def declared(ledger: Ledger, text_of: Words, *, implicit: int = IMPLICIT, tools: Tools = TOOLS) -> Graph:
    """The graph of a scope as the model's calls told it; one episode after the other of at most `implicit` steps where
    there was no such call."""
    rows = list(ledger.rows())
    marks = dict(_accepted(rows, text_of))
    answered = {result.id: call for call, result in results_of(rows).items()}
    places: dict[str, Span | None] = {}
    current: Span | None = None
    for row in rows:
        mark = marks.get(row.id)
        if mark and not mark.closed:
            current = Span(mark.name, mark.type, "declared", mark.dependencies)
        call = answered.get(row.id, "")
        places[row.id] = places.get(call, current)  # a result is where its call is
        if mark and mark.closed and current:
            current.description, current.ended = mark.description, row.step
            current = None
    return graph(ledger, rows, places, implicit=implicit, tools=tools)


def graph(
    ledger: Ledger,
    rows: list[Row],
    places: Mapping[str, Span | None],
    *,
    implicit: int,
    tools: Tools = TOOLS,
    prologue: bool = True,
) -> Graph:
    """The graph of rows of which each is in the span that `places` has for its block.

    Those in none are implicit episodes, or before the first span the prologue; without any span there is none, nor
    without `prologue`.
    """
    before: list[str] = []
    spans: list[Span] = []
    outside: Span | None = None
    begun = not prologue or not any(places.values())
    for row in rows:
        span = places[row.id]
        if span is None and not begun:
            before.append(row.id)
            continue
        begun = True
        if span is None:
            if outside is None or row.step - outside.rows[0].step >= implicit:
                outside = Span("", "expl", "implicit")
                spans.append(outside)
            span = outside
            span.ended = row.step
        elif not span.rows:
            spans.append(span)
            outside = None
        span.rows.append(row)
    stays = staying(ledger, rows)
    level = leaving(rows, tools)
    return Graph(prologue=tuple(before), episodes=tuple(_episode(span, ledger, stays, level) for span in spans))


def staying(ledger: Ledger, rows: list[Row]) -> frozenset[str]:
    """The blocks that never leave with an episode, with the other halves of their pairs: what a human or the system
    said, what is pinned or protected for good, notes and dashboards. The latest step stays only while it is that."""
    protected, latest = protection.protected(ledger), latest_step(ledger)
    stays = {
        row.id
        for row in rows
        if is_human(row.role, row.origin)
        or row.role == "system"
        or row.state == "pinned"
        or row.kind in ASIDE
        or (row.id in protected and row.step != latest)
    }
    for call, result in results_of(rows).items():
        if call in stays or result.id in stays:
            stays |= {call, result.id}
    return frozenset(stays)


def leaving(rows: Iterable[Row], tools: Tools = TOOLS) -> Leaving:
    """The level at which a block leaves an episode of a type, from `REASONING` to `WHOLE`. A result leaves with its
    call, and thinking early only where it explored."""
    rule = tools.levels()
    calls: dict[str, int] = {}
    levels: dict[str, int] = {}
    for row in rows:
        if row.kind == "tool_use":
            calls[row.call] = levels[row.id] = rule(row)
        elif row.kind == "tool_result":
            levels[row.id] = calls[row.call] if row.call in calls else rule(row)

    def level(row: Row, kind: Type) -> int:
        if row.kind == "thinking" and kind == "expl":
            return REASONING
        return levels.get(row.id, WHOLE)

    return level


def lines(ledger: Ledger, graph: Graph, price: Price) -> list[Line]:
    """The episodes as `ctxvc context --episodes` lists them."""
    costs = view.costs(ledger, price)
    return [
        Line(
            type=episode.type,
            name=episode.name,
            state=episode.state,
            level=LEVELS[episode.level],
            tokens=sum(costs[block].body for block in episode.blocks),
            shown=sum(costs[block].shown for block in episode.blocks),
            blocks=len(episode.blocks),
            dependencies=episode.dependencies,
            made=episode.made,
        )
        for episode in graph.episodes
    ]


def _accepted(rows: list[Row], text_of: Words) -> Iterator[tuple[str, Declared]]:
    """The calls that count, as (block, the episode as it is then): answered without an error, and well made."""
    marks: dict[str, Declared] = {}
    calls = [row for row in rows if is_mark(row)]
    results = results_of(rows) if calls else {}
    for row in calls:
        if row.id in results and not results[row.id].error:
            mark = judge(wire.arguments(display.encode(text_of(row)), row.ext), marks).episode
            if mark:
                marks[mark.name] = mark
                yield row.id, mark


def _episode(span: Span, ledger: Ledger, stays: frozenset[str], level: Leaving) -> Episode:
    rows = span.rows
    leavable = [row for row in rows if row.present and row.id not in stays and not is_cut(row, ledger.meta)]
    absent_levels = {level(row, span.type) for row in rows if not row.present}
    lowest = min((level(row, span.type) for row in leavable), default=WHOLE + 1)
    first, last = rows[0].step, rows[-1].step
    name = span.name or (f"step {first}" if first == last else f"steps {first}-{last}")
    return Episode(
        name=name,
        type=span.type,
        made=span.made,
        state=_state(span.ended is None, bool(leavable), bool(absent_levels)),
        level=lowest - 1 if any(one < lowest for one in absent_levels) else 0,
        dependencies=span.dependencies,
        description=span.description,
        began=rows[0].step,
        ended=span.ended,
        blocks=tuple(row.id for row in rows),
        left=tuple(row.id for row in leavable),
        superseded=span.superseded,
    )


def _state(active: bool, some_stay: bool, some_left: bool) -> State:
    if active:
        return "active"
    if not some_left:
        return "closed"
    return "evicted in part" if some_stay else "evicted"
