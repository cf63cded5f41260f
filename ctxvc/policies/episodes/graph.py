"""The episode graph: the typed pieces of work that a scope's conversation falls into, and how far each has left.

It is found in the rows of a ledger and stored nowhere else. Its invariants (CWL, section 4.3) hold by construction: a
call of `delimiter` counts only if the tool would have accepted it, whoever did. So an act depends on expl episodes that
had ended before it began, names are used once, and one episode at most is active. What came before the first start is
the prologue; what stands outside all episodes later on is expl work that nobody told of (`implicit`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.numbering import ASIDE, is_human
from ctxvc.core.ledger.pairs import calls_and_results, pairs
from ctxvc.core.plan import protected as protection
from ctxvc.core.prompt.cut import is_cut, latest_step
from ctxvc.core.view import view
from ctxvc.core.view.view import Price
from ctxvc.policies.episodes.course import Course, Made, Span, grown
from ctxvc.policies.episodes.delimiter import TOOL, Declared, Type, judge

State = Literal["active", "closed", "evicted in part", "evicted"]

#: How much of an episode has left, as words for its level from 0 to 4.
LEVELS = ("nothing", "reasoning", "bulk", "intermediate", "whole")
REASONING, BULK, INTERMEDIATE, WHOLE = range(1, 5)

#: Most steps of an implicit episode.
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
        """The name used in stubs and reasons."""
        what = {"declared": self.type, "derived": "derived", "implicit": "unmarked"}[self.made]
        return f"{what} {display.one_line(self.name, 60)}"


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The episodes in the order in which they began, and the blocks of the prologue, which never leaves.

    `places` has the place of each block's episode among them.
    """

    prologue: tuple[str, ...]
    episodes: tuple[Episode, ...]
    places: Mapping[str, int] = {}


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


def plain(tool: str) -> str:
    """The name of a tool in lower case, without that of its MCP server."""
    return tool.rpartition("__")[2].lower()


def is_mark(row: Row) -> bool:
    """Whether a block is a call of `delimiter`, also where an agent with a tool of that name calls ours otherwise."""
    if row.kind != "tool_use" or not row.tool.endswith(TOOL):
        return False
    return plain(row.tool).removeprefix("context_") == TOOL


def declared_episodes(ledger: Ledger, text_of: Words) -> dict[str, Declared]:
    """The episodes that the calls of a scope have declared so far, by name, as `delimiter.judge` takes them."""
    return {mark.name: mark for _, mark in _accepted(ledger, text_of)}


@dataclass(slots=True)
class _Marked:
    """The course that the model's marks give. `marks` are those of all blocks, `answered` has a result → its call."""

    course: Course
    marks: Mapping[str, Declared]
    answered: Mapping[str, str]
    current: int | None = None

    def fork(self) -> _Marked:
        return replace(self, course=self.course.fork())

    def renew(self, fresh: _Marked, rows: list[Row]) -> bool:
        before, now = self.marks, fresh.marks
        self.marks, self.answered = fresh.marks, fresh.answered
        places = self.course.places
        if any(now.get(block) != before.get(block) for block in {*before, *now} if block in places):
            return False
        # A later result of an older call changes what stands for that call.
        return not any(row.kind == "tool_result" and fresh.answered.get(row.id) in places for row in rows)

    def take(self, step: list[Row]) -> None:
        course = self.course
        for row in step:
            mark = self.marks.get(row.id)
            if mark and not mark.closed:
                self.current = course.begin(Span(mark.name, mark.type, "declared", mark.dependencies))
            place = self.current
            if call := self.answered.get(row.id):  # a result is where its call is
                place = course.places.get(call)
                place = None if place is None or course.spans[place].made == "implicit" else place
            course.put(row, place)
            if mark and mark.closed and self.current is not None:
                span = course.span(self.current)
                span.description, span.ended = mark.description, row.step
                self.current = None


def declared(ledger: Ledger, text_of: Words, *, implicit: int = IMPLICIT, tools: Tools = TOOLS) -> Graph:
    """The graph of a scope as the model's calls told it; one episode after the other of at most `implicit` steps where
    there was no such call."""
    marks = dict(_accepted(ledger, text_of))
    fresh = _Marked(Course(implicit, prologue=bool(marks)), marks, pairs(ledger).calls)
    return graph(ledger, grown(ledger, ("declared", implicit, bool(marks)), fresh).course, tools=tools)


def graph(ledger: Ledger, course: Course, *, tools: Tools = TOOLS, superseded: Collection[str] = ()) -> Graph:
    """The graph of a course, as its blocks stand in this ledger."""
    blocks = course.before or (course.spans[0].blocks if course.spans else [])
    first = ledger[blocks[0]].number if blocks else 0
    rows, stays, level = ledger.by_id(), staying(ledger, first), leaving(ledger, tools, first)
    settled = _settled(ledger, course, tools)
    episodes: list[Episode] = []
    for place, span in enumerate(course.spans):
        episode = settled.get(place)
        if episode is None:
            of_span = [rows[block] for block in span.blocks]
            episode = _episode(span, of_span, ledger, stays, level)
            if course.is_settled(place) and not any(_may_leave(row, ledger.meta) for row in of_span):
                settled[place] = episode
        if episode.superseded != (span.name in superseded):
            episode = msgspec.structs.replace(episode, superseded=span.name in superseded)
        episodes.append(episode)
    return Graph(prologue=tuple(course.before), episodes=tuple(episodes), places=course.places)


def _settled(ledger: Ledger, course: Course, tools: Tools) -> dict[int, Episode]:
    """The episodes of which all has left that ever may, and none of whose blocks changed since, by their places.

    They are the same whatever is protected or cut now.
    """
    cache, end = course.cache, max(ledger.meta.cuts, default=0)
    if cache.terms is None or cache.terms[0] != tools or cache.terms[1] > end:
        cache.of.clear()
    else:
        for segment in ledger.segments.changed_since(cache.segments):
            for row in ledger.segments.get(segment):
                cache.of.pop(course.places.get(row.id, -1), None)
    cache.segments, cache.terms = ledger.segments, (tools, end)
    return cache.of


def _may_leave(row: Row, meta: Meta) -> bool:
    """Whether a block is in the prompt and nothing of its own keeps it there."""
    return row.present and not _remains(row) and not is_cut(row, meta)


def _remains(row: Row) -> bool:
    """Whether a block stays by its own origin, kind or pin, whatever surrounds it."""
    return is_human(row.role, row.origin) or row.role == "system" or row.state == "pinned" or row.kind in ASIDE


def staying(ledger: Ledger, first: int = 0) -> Callable[[Row], bool]:
    """Whether a block never leaves with an episode, for itself or for the other half of its pair.

    So does what a human or the system said, what is pinned or protected for good, notes and dashboards. The latest step
    stays only while it is that. Blocks before number `first` do not count as halves.
    """
    protected, latest = protection.protected(ledger), latest_step(ledger)
    (results, calls), rows = pairs(ledger), ledger.by_id()

    def alone(row: Row) -> bool:
        return _remains(row) or (row.id in protected and row.step != latest)

    def stays(row: Row) -> bool:
        if alone(row):
            return True
        half = results.get(row.id) or calls.get(row.id)
        return half is not None and rows[half].number >= first and alone(rows[half])

    return stays


def leaving(ledger: Ledger, tools: Tools = TOOLS, first: int = 0) -> Leaving:
    """The level at which a block leaves an episode of a type, from `REASONING` to `WHOLE`. A result leaves with its
    call, and thinking early only where it explored. Calls before block number `first` do not count."""
    rule, calls, rows = tools.levels(), pairs(ledger).calls, ledger.by_id()

    def level(row: Row, kind: Type) -> int:
        if row.kind == "thinking" and kind == "expl":
            return REASONING
        if row.kind == "tool_use":
            return rule(row)
        return rule(call_of(row)) if row.kind == "tool_result" else WHOLE

    def call_of(result: Row) -> Row:
        call = rows.get(calls.get(result.id, ""))
        if call is None:  # one of several results
            before = (row for row in calls_and_results(ledger, {result.call}) if row.number < result.number)
            call = next((row for row in reversed(list(before)) if row.kind == "tool_use"), None)
        return call if call and call.number >= first else result

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


def _accepted(ledger: Ledger, text_of: Words) -> Iterator[tuple[str, Declared]]:
    """The calls that count, as (block, the episode as it is then): answered without an error, and well made."""
    marks: dict[str, Declared] = {}
    calls = list(chain.from_iterable(ledger.by_segment(_marks)))
    results, rows = pairs(ledger).results if calls else {}, ledger.by_id() if calls else {}
    for row in calls:
        if row.id in results and not rows[results[row.id]].error:
            mark = judge(wire.arguments(display.encode(text_of(row)), row.ext), marks).episode
            if mark:
                marks[mark.name] = mark
                yield row.id, mark


def _marks(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if is_mark(row)]


def _episode(span: Span, rows: list[Row], ledger: Ledger, stays: Callable[[Row], bool], level: Leaving) -> Episode:
    leavable = [row for row in rows if row.present and not is_cut(row, ledger.meta) and not stays(row)]
    absent_levels = {level(row, span.type) for row in rows if not row.present}
    lowest = min((level(row, span.type) for row in leavable), default=WHOLE + 1)
    name = span.name or (f"step {span.first}" if span.first == span.last else f"steps {span.first}-{span.last}")
    return Episode(
        name=name,
        type=span.type,
        made=span.made,
        state=_state(span.ended is None, bool(leavable), bool(absent_levels)),
        level=lowest - 1 if any(one < lowest for one in absent_levels) else 0,
        dependencies=span.dependencies,
        description=span.description,
        began=span.first,
        ended=span.ended,
        blocks=tuple(span.blocks),
        left=tuple(row.id for row in leavable),
    )


def _state(active: bool, some_stay: bool, some_left: bool) -> State:
    if active:
        return "active"
    if not some_left:
        return "closed"
    return "evicted in part" if some_stay else "evicted"
