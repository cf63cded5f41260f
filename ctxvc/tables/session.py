"""The rows of a session, from its commits and the ledgers at its tips, without what is not committed yet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from ctxvc.core import display
from ctxvc.core.ledger import caption, name_rules
from ctxvc.core.ledger.block import PRESENT
from ctxvc.core.ledger.facts import facts
from ctxvc.core.ledger.ledger import Meta, Row
from ctxvc.inspection.work import call_cost
from ctxvc.report.lines import Line, lines
from ctxvc.report.prompts import text_of
from ctxvc.store import timestamp
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.read import revision
from ctxvc.store.read.revision import Entry, Moment
from ctxvc.store.store import Store
from ctxvc.tables.rows import BlockRow, CallRow, EventRow, FileRow, Rows, SessionRow
from ctxvc.tokens.models import Usage

#: What calls do to files that is counted.
ACTS = frozenset({"read", "edited", "wrote", "deleted"})
#: The operations by which a summary replaces earlier content.
COMPACTIONS = frozenset({"compact", "summarise"})
#: Those by which blocks leave the prompt.
_LEAVING = frozenset({"archive", "mask", "prune", "delete", "summarise", "plan", "compact"})
#: Those that are no events: calls, and beginnings.
_NO_EVENTS = frozenset({"step", "session", "ask"})
_NAMES = re.compile(r"[BG][1-9][0-9]{0,8}")
_FREED = re.compile(r"([0-9]{1,12}) tokens")
_PATH, _TITLE = 400, 200
#: Removes the secrets from a text.
Clean = Callable[[str], str]


def conversations(store: Store) -> dict[str, dict[str, str]]:
    """The tips of all sessions except those with a project's notes."""
    return {name: tips for name, tips in store.all_tips().items() if not name_rules.has_project_notes(name)}


class Place(NamedTuple):
    """The first columns of all rows of a session."""

    project: str
    writer: str
    session: str


def rows_of(
    store: Store,
    tips: Mapping[str, str],
    place: Place,
    *,
    files: bool = False,
    text: bool = False,
    clean: Clean = lambda text: text,
    changed: bool = False,
) -> Rows:
    """The rows of a session with these tips.

    `files` adds what calls did to files, `text` the text of blocks, both made safe by `clean`; they need the bodies.
    With `changed`, only blocks that left the prompt or were read have a row. Raises: Damaged.
    """
    own, _ = lines(store, tips.values())
    reader = _Session(store, place, own, clean, text=text, changed=changed)
    for line in own:
        reader.add_line(line, files=files)
    current = store.current_scope(place.session, tips)
    reader.rows.sessions.append(reader.session(store.reader.meta(tips.get(current) or own[0].tip)))
    return reader.rows


class _Step(NamedTuple):
    """A step's commit, its number and turn, and its time as a text."""

    entry: Entry
    step: int
    turn: int
    time: str


class _Waits(NamedTuple):
    """The seconds that a step waited for the model and for its tools, and its end in seconds since 1970; None if
    unknown."""

    model: int | None = None
    tools: int | None = None
    ended: int | None = None


_NO_WAITS = _Waits()


class _Call(NamedTuple):
    """A call by the agent and its usage, all 0 if not counted."""

    entry: Entry
    usage: Usage


class _Session:
    """Collects the rows of a session, line by line."""

    def __init__(self, store: Store, place: Place, own: list[Line], clean: Clean, *, text: bool, changed: bool) -> None:
        self.rows = Rows([], [], [], [], [])
        self._store = store
        self._head = place._asdict()
        self._clean = clean
        self._text = text
        self._changed = changed
        self._seen: set[tuple[str, str]] = set()
        self._own = own
        meta = store.reader.meta(own[0].tip)
        source, self._model = meta.source, meta.model
        self._agent = _one_line(source.agent or source.format) if source else ""
        self._branch = _one_line(source.branch) if source else ""
        self._started = _time(source.started) if source else ""
        self._title = source.title if source else ""

    def add_line(self, line: Line, *, files: bool) -> None:
        """Adds the calls, events, blocks and files of a line."""
        at = revision.moment(self._store, line.tip)
        rows = list(at.ledger.rows())
        failed = {row.call for row in rows if row.kind == "tool_result" and row.error}
        replies: dict[int, list[Row]] = {}
        for row in rows:
            if row.role == "assistant":
                replies.setdefault(row.step, []).append(row)
        steps: dict[int, _Step] = {}
        step: _Step | None = None
        former: _Call | None = None
        ended: int | None = None
        leaving: dict[str, int] = {}
        for entry in line.entries:
            op = entry.op
            if op in ("step", "ask"):
                reply: list[Row] = []
                waits = _NO_WAITS
                if op == "step":
                    before, step = step, _step(entry)
                    steps[step.step] = step
                    reply = replies.get(step.step, [])
                    goes_on = before is not None and before.turn == step.turn
                    waits = _waits(entry.times, reply, ended if goes_on else None)
                    ended = waits.ended
                former = self._add_call(line, entry, step, reply, failed, waits, former)
            elif op not in _NO_EVENTS:
                newest = step.step if step else 0
                if op in COMPACTIONS and ended is not None:
                    ended = max(ended, entry.time)  # the next reply answers the summary
                self._add_event(line, entry, op, newest)
                if op in _LEAVING:
                    leaving |= dict.fromkeys(_NAMES.findall(entry.trailers.get("Ctxvc-Blocks", "")), newest)
        self._add_blocks(line, at, rows, steps, leaving)
        if files:
            self._add_files(line, at, rows, steps, failed)

    def _add_call(
        self,
        line: Line,
        entry: Entry,
        step: _Step | None,
        reply: list[Row],
        failed: set[str],
        waits: _Waits,
        former: _Call | None,
    ) -> _Call | None:
        """Adds the call of a commit, if it has one; returns the agent's newest call."""
        cost = call_cost(self._store, entry)
        if cost is None and not reply:
            return former
        calls = [row for row in reply if row.kind == "tool_use"]
        self.rows.calls.append(
            CallRow(
                **self._head,
                scope=line.name,
                commit=entry.commit,
                time=step.time if step and step.entry is entry else timestamp.iso(entry.time),
                step=step.step if step else 0,
                turn=step.turn if step else 0,
                agent=self._agent,
                model=_one_line((cost.model if cost else entry.trailers.get("Ctxvc-Model", "")) or self._model),
                branch=self._branch,
                planner=entry.op == "ask",
                has_usage=cost is not None,
                fresh=cost.usage.fresh if cost else 0,
                cache_read=cost.usage.read if cost else 0,
                cache_written=cost.usage.written if cost else 0,
                cache_hour=cost.usage.hour if cost else 0,
                output=cost.usage.reply if cost else 0,
                cost=cost.dollars if cost else None,
                waited_model=waits.model,
                waited_tools=waits.tools,
                pause=max(0, entry.time - former.entry.time) if former else None,
                before=former.usage.prompt if former and former.usage.prompt else None,
                tools=[_one_line(row.tool) for row in calls],
                failed=[_one_line(row.tool) for row in calls if row.call in failed],
                changed=_one_line(entry.trailers.get("Ctxvc-Changed", "")),
            )
        )
        is_agents = entry.op == "step"
        return _Call(entry, cost.usage if cost else Usage()) if is_agents else former

    def _add_event(self, line: Line, entry: Entry, op: str, step: int) -> None:
        trailers = entry.trailers
        freed = _FREED.fullmatch(trailers.get("Ctxvc-Freed", ""))
        self.rows.events.append(
            EventRow(
                **self._head,
                scope=line.name,
                commit=entry.commit,
                time=timestamp.iso(entry.time),
                step=step,
                op=_one_line(op),
                actor=_one_line(trailers.get("Ctxvc-Actor", entry.actor)),
                blocks=len(_NAMES.findall(trailers.get("Ctxvc-Blocks", ""))),
                freed=int(freed[1]) if freed else 0,
                fault=_one_line(trailers.get("Ctxvc-Fault", "")),
                detail=_one_line(trailers.get("Ctxvc-Host", "")),
            )
        )

    def _add_blocks(
        self, line: Line, at: Moment, rows: list[Row], steps: Mapping[int, _Step], leaving: Mapping[str, int]
    ) -> None:
        compacted = [event.step for event in self.rows.events if event.scope == line.name and event.op == "compact"]
        start = timestamp.iso(line.entries[0].time)
        for row in rows:
            if (self._changed and row.present and not row.reads) or (row.id, row.sha256) in self._seen:
                continue
            self._seen.add((row.id, row.sha256))
            step = steps.get(row.step)
            self.rows.blocks.append(
                BlockRow(
                    **self._head,
                    scope=line.name,
                    block=row.id,
                    sha256=row.sha256,
                    kind=row.kind,
                    role=row.role,
                    origin=row.origin,
                    tool=_one_line(row.tool),
                    error=row.error,
                    step=row.step,
                    turn=row.turn,
                    time=step.time if step else start,
                    bytes=row.bytes,
                    state=row.state,
                    group=row.group,
                    removed_by=_one_line(row.removed_by),
                    reads=row.reads,
                    left_step=None if row.present else _left_step(row, leaving, compacted),
                    text=self._clean(_text(row, at)) if self._text else None,
                )
            )

    def _add_files(self, line: Line, at: Moment, rows: list[Row], steps: Mapping[int, _Step], failed: set[str]) -> None:
        folder = caption.folder_of(at.ledger)
        results = {row.call: row.bytes for row in rows if row.kind == "tool_result"}
        costs = {call.commit: call.cost for call in self.rows.calls}
        acts: dict[int, list[tuple[Row, str, str]]] = {}
        for row in rows:
            if row.kind == "tool_use" and row.step in steps:  # others are calls of the parent scope
                acts.setdefault(row.step, []).extend((row, *one) for one in sorted(set(self._acts(row, at, folder))))
        for number, step_acts in acts.items():
            step, paths = steps[number], Counter(path for _, _, path in step_acts)
            cost = costs.get(step.entry.commit)
            for row, act, path in step_acts:
                self.rows.files.append(
                    FileRow(
                        **self._head,
                        scope=line.name,
                        block=row.id,
                        commit=step.entry.commit,
                        step=step.step,
                        turn=step.turn,
                        time=step.time,
                        tool=_one_line(row.tool),
                        act=act,
                        path=path,
                        error=row.call in failed,
                        bytes=row.bytes + results.get(row.call, 0),
                        cost=None if cost is None else cost / len(paths) / paths[path],
                    )
                )

    def _acts(self, row: Row, at: Moment, folder: str) -> Iterator[tuple[str, str]]:
        """What a call did to files, and the path of each."""
        for fact in facts(row.tool, at.bodies.body(row), row.ext):
            if fact.act in ACTS and fact.object:
                yield fact.act, _one_line(self._clean(caption.relative(fact.object, folder)), _PATH)

    def session(self, meta: Meta) -> SessionRow:
        """The row of the session, once all lines are added. `meta` is its current scope's."""
        blocks, times = self.rows.blocks, [entry.time for line in self._own for entry in line.entries]
        return SessionRow(
            **self._head,
            agent=self._agent,
            model=_one_line(meta.model),
            branch=self._branch,
            started=self._started or timestamp.iso(min(times)),
            updated=timestamp.iso(max(times)),
            scopes=len({line.name for line in self._own}),
            turns=meta.counters.turn,
            steps=meta.counters.step,
            blocks=len(blocks),
            bytes=sum(block.bytes for block in blocks),
            blocks_left=sum(block.state not in PRESENT for block in blocks),
            reads=sum(block.reads for block in blocks),
            compactions=sum(event.op in COMPACTIONS for event in self.rows.events),
            title=_one_line(self._clean(self._title), _TITLE) if self._text else None,
        )


def _step(entry: Entry) -> _Step:
    step, turn = (entry.trailers.get(name, "") for name in ("Ctxvc-Step", "Ctxvc-Turn"))
    time = timestamp.iso(entry.time)
    return _Step(entry, int(step) if step.isdecimal() else 0, int(turn) if turn.isdecimal() else 0, time)


def _time(text: str) -> str:
    """A recorded time as ISO 8601 in UTC; empty if it is invalid."""
    seconds = epoch(text, -1)
    return timestamp.iso(seconds) if seconds >= 0 else ""


def _waits(times: Mapping[str, int], reply: list[Row], before: int | None) -> _Waits:
    """The waits of a step by its times; `before` is the end of the step before in the turn, None if unknown.

    A wait is unknown if the clock went backwards.
    """
    if not times:
        return _NO_WAITS
    begin, replied, answered = (times.get(name) for name in ("asked", "replied", "answered"))
    begins = [time for time in (begin, before) if time is not None]
    model = replied - max(begins) if replied is not None and begins else None
    has_calls = any(row.kind == "tool_use" for row in reply)
    tools = max(0, answered - replied) if has_calls and answered is not None and replied is not None else None
    ended = answered if has_calls else replied if replied is not None else begin
    return _Waits(model if model is None or model >= 0 else None, tools, ended)


def _left_step(row: Row, leaving: Mapping[str, int], compacted: list[int]) -> int | None:
    """The step at which a block left; None if the commits do not show it."""
    if row.removed_by == "host":
        return next((step for step in compacted if step >= row.step), None)
    return leaving.get(row.id, leaving.get(row.group))


def _text(row: Row, at: Moment) -> str:
    text = text_of(at.bodies.body(row), row.ext, row.extra) if row.ext in ("txt", "json") else ""
    return text.encode("utf-8", "replace").decode()  # other programs reject lone surrogates


@lru_cache(4096)  # most rows have the same few names
def _one_line(text: str, width: int = 200) -> str:
    """A recorded text as one line without control characters."""
    return text and display.one_line(text, width)
