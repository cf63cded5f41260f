"""Statistics over all sessions of a store. The sums of a session are cached until one of its tips moves."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.errors import CtxvcError, Damaged
from ctxvc.store.cache import local_cache
from ctxvc.store.store import Store
from ctxvc.tables import sums
from ctxvc.tables.rows import FORMAT, Rows
from ctxvc.tables.session import Place, conversations, rows_of
from ctxvc.tables.sums import Cell, Sums
from ctxvc.tokens import models

By = Literal["", "day", "week", "project", "model", "agent", "person", "tool", "file", "branch"]
#: What a session is summed by. Sums by file need the bodies, and are cached apart.
_CELLS: dict[str, Callable[[Rows], list[Cell]]] = {
    "model": sums.by_model,
    "tool": sums.by_tool,
    "file": sums.by_file,
}
#: The number of files of the cache: few are read, and few rewritten.
_SHARDS = 16
#: The number of sessions from which other processes are worth their start, and of sessions in one's batch.
_MANY, _PART = 500, 50


class Summed(msgspec.Struct, frozen=True):
    """A session's sums, for the tips in `key`. They do not depend on the store's place or the session's writer."""

    key: str
    agent: str
    branch: str
    cells: dict[str, list[Cell]]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The sums for a name, and the number of sessions in them."""

    name: str
    sessions: int
    sums: Sums


class Source(msgspec.Struct, frozen=True):
    """A store's sessions with their sums, its project's folder, and a function that names a session's writer."""

    project: str
    sessions: Mapping[str, Summed]
    writer: Callable[[str], str]


#: The version after a program's name.
_VERSION = re.compile(r" v?[0-9][\w.+-]*$")
#: Called with the number of sessions read, and of all.
Progress = Callable[[int, int], None]


def summed(
    store: Store, by: By, unreadable: list[CtxvcError], progress: Progress = lambda _done, _of: None
) -> dict[str, Summed]:
    """name → sums of every session that can be read; adds the errors of the others to `unreadable`.

    Only sessions with a new tip are read.
    """
    kinds = ("model", "file") if by == "file" else ("model", "tool")
    part = kinds[-1]
    all_tips = conversations(store)
    keys = {name: _key(tips, part) for name, tips in all_tips.items()}
    cached: dict[str, Summed] = {}
    shards = [f"stats-{part}-{number:x}.json" for number in range(_SHARDS)]
    for shard in shards:
        cached |= local_cache.load(store, shard, dict[str, Summed]) or {}
    current = {name: one for name, one in cached.items() if keys.get(name) == one.key}
    stale = {name: tips for name, tips in all_tips.items() if name not in current}
    changed = {_shard(name) for name in cached.keys() - all_tips.keys()}
    for number, (name, one) in enumerate(_each_summed(store, stale, kinds)):
        progress(number, len(stale))
        if isinstance(one, Damaged):
            unreadable.append(one)
            continue
        current[name] = msgspec.structs.replace(one, key=keys[name])
        changed.add(_shard(name))
    for number in changed:
        local_cache.save(store, shards[number], {name: one for name, one in current.items() if _shard(name) == number})
    return current


def _each_summed(
    store: Store, stale: Mapping[str, Mapping[str, str]], kinds: tuple[str, ...]
) -> Iterator[tuple[str, Summed | Damaged]]:
    """The sums of sessions, or the errors in reading them; many are read by a process for each processor."""
    pending = dict(stale)
    cores = os.cpu_count() or 1
    if cores > 1 and len(stale) >= _MANY:
        from concurrent.futures.process import BrokenProcessPool

        from ctxvc import processes

        names = list(stale)
        parts = [{name: stale[name] for name in names[at : at + _PART]} for at in range(0, len(names), _PART)]
        # If no process can start, or one dies, the remaining sessions are read here.
        with suppress(OSError, BrokenProcessPool):
            for part in processes.outcomes(partial(_part_summed, store.path, kinds), parts, cores):
                for name, one in part:
                    del pending[name]
                    yield name, one
    yield from ((name, _summed(store, name, tips, kinds)) for name, tips in pending.items())


def _part_summed(
    path: Path, kinds: tuple[str, ...], sessions: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, Summed | Damaged]]:
    with Store(path) as store:
        return [(name, _summed(store, name, tips, kinds)) for name, tips in sessions.items()]


def _summed(store: Store, name: str, tips: Mapping[str, str], kinds: tuple[str, ...]) -> Summed | Damaged:
    """A session's sums, with an empty key."""
    try:
        rows = rows_of(store, tips, Place("", "", name), files="file" in kinds, changed=True)
    except Damaged as error:
        return error
    session = rows.sessions[0]
    return Summed("", session.agent, session.branch, {kind: _CELLS[kind](rows) for kind in kinds})


def lines(sources: Iterable[Source], by: By, since: str = "", only: Collection[str] | None = None) -> list[Line]:
    """The sums by name, from the day `since` (`2026-11-01`) on, of only these sessions unless `only` is None.

    Days and weeks are in order, all others by falling cost and tokens.
    """
    sums_of: dict[str, Sums] = {}
    sessions: dict[str, set[tuple[str, str]]] = {}
    for source in sources:
        for session, one in source.sessions.items():
            if only is not None and session not in only:
                continue
            for cell in one.cells[by if by in ("tool", "file") else "model"]:
                if cell.day < since:
                    continue
                name = _name(by, source, session, one, cell)
                sums_of.setdefault(name, Sums()).add(cell.sums)
                sessions.setdefault(name, set()).add((source.project, session))
    result = [Line(name=name, sessions=len(sessions[name]), sums=one) for name, one in sums_of.items()]
    if by in ("day", "week"):
        return sorted(result, key=lambda line: line.name)
    return sorted(result, key=lambda line: (-line.sums.cost, -line.sums.usage.prompt, line.name))


def total(sources: Iterable[Source], since: str = "", only: Collection[str] | None = None) -> Line:
    """The sums of all sessions, in which every call is counted once."""
    (line,) = lines(sources, "", since, only) or [Line(name="", sessions=0, sums=Sums())]
    return line


def _name(by: By, source: Source, session: str, one: Summed, cell: Cell) -> str:
    match by:
        case "":
            return ""
        case "day":
            return cell.day
        case "week":
            return _week(cell.day)
        case "project":
            return source.project
        case "agent":
            return _VERSION.sub("", one.agent) or "ctxvc"
        case "person":
            return source.writer(session) or "(this store)"
        case "branch":
            return one.branch or sums.NONE
        case "model":
            return cell.name or "(unknown)"
        case "tool" | "file":
            return cell.name


def _week(day: str) -> str:
    """The week of a day, as `2026-W48`; an invalid day unchanged, since a cache may be from elsewhere."""
    try:
        year, week, _ = date.fromisoformat(day).isocalendar()
    except ValueError:
        return day
    return f"{year}-W{week:02}"


def _key(tips: Mapping[str, str], part: str) -> str:
    parts = (f"{FORMAT} {part} {models.MODELS_DATE}", *(f"{scope} {tips[scope]}" for scope in sorted(tips)))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _shard(name: str) -> int:
    return hashlib.sha256(display.encode(name)).digest()[0] % _SHARDS
