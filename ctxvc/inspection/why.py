"""why: the step of a session that a code commit, or a line of code, came from.

A link says so. Where there is none, it is looked for by its text, in what the calls of all sessions wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger.ledger import Row
from ctxvc.inspection.bodies import Place, bodies, read
from ctxvc.inspection.edits import Write, needle, same_file, writes
from ctxvc.store.git.fast_import import epoch
from ctxvc.store.links import Link, every, step_of, steps
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: A line of fewer characters than this says nothing of where it came from.
TELLING = 6
#: Seconds by which the clock of a recording and that of git may differ.
_SLACK = 60
_MOST_WANTED = 400


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call that wrote a file of the commit. `path` is as it names it, `lines` counts the sought lines in its text."""

    place: Place
    path: str
    lines: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step and the conversation around it; each row can be read with the session's `body`.

    `commit` is the step's own in the store, empty where it has none yet. `asked` is what a person said in the turn so
    far, `replied` what the model said in the step, or last before it, `notes` those of the turn.
    """

    session: str
    scope: str
    step: int
    turn: int
    commit: str
    asked: tuple[Row, ...]
    replied: tuple[Row, ...]
    notes: tuple[Row, ...]
    calls: tuple[Call, ...]


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """Lines sought by their text in files of the project, all written before `time` (since 1970).

    Without a time, the newest step that wrote them is sought.
    """

    lines: Mapping[str, frozenset[str]]
    time: int | None = None

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))


class ByText(NamedTuple):
    """The step whose calls wrote most of the sought lines: `found` of them."""

    step: Step
    found: int


def sought_lines(lines: Mapping[str, Iterable[str]], time: int | None) -> Sought:
    """The lines that say something, white space around them left out; not more than a bounded number."""
    by_file: dict[str, frozenset[str]] = {}
    room = _MOST_WANTED
    for file, file_lines in lines.items():
        telling = dict.fromkeys(line for line in map(str.strip, file_lines) if len(line) >= TELLING and needle(line))
        if chosen := list(telling)[:room]:
            by_file[file] = frozenset(chosen)
            room -= len(chosen)
    return Sought(lines=by_file, time=time)


# --- by a link


def linked(store: Store, link: Link, lines: Mapping[str, frozenset[str]]) -> Step | None:
    """The step of a link, with the calls that wrote these files; None if its session is not in the store.

    `lines` are those of each file whose number a call is told with.
    """
    session, scope = _where(store, link)
    if not session:
        return None
    stored = _opened(store, session, scope)
    others = [
        link_before
        for link_before in every(store)
        if link_before.time < link.time and _where(store, link_before) == (session, scope)
    ]
    oldest = min(epoch(link_before.time, 0) for link_before in (*others, link))
    steps_since = list(takewhile(lambda step: step.ended >= oldest, steps(store, stored.tip(scope))))
    newest = stored.ledger(scope).meta.counters.step
    step = step_of(link, steps_since, newest)
    since: dict[str, int] = {}
    for link_before in others:
        since.update(
            {name: max(since.get(name, 0), step_of(link_before, steps_since, newest)) for name in link_before.files}
        )

    def belongs(row: Row, name: str) -> bool:
        # What an earlier commit of the file took is that one's.
        return since.get(name, 0) < row.step <= step

    return _step(stored, scope, step, list(_calls(stored, scope, lines, belongs)))


def _where(store: Store, link: Link) -> tuple[str, str]:
    """Session and scope, as they are now; a recording may have come into the store after its code commit."""
    session = link.session if store.tips(link.session) else ""
    if link.recording:
        session = store.session_of(link.host, link.recording) or session
    if not session:
        return "", ""
    return session, link.scope if link.scope in store.tips(session) else store.current_scope(session)


def _calls(
    stored: StoredSession, scope: str, sought: Mapping[str, frozenset[str]], belongs: Callable[[Row, str], bool]
) -> Iterator[Call]:
    for row in stored.ledger(scope).rows():
        if row.kind != "tool_use" or not any(belongs(row, name) for name in sought):
            continue
        hits = [
            (len(lines), write.path)
            for name, write, lines in _hits(writes(stored.body(row, scope), row.ext), sought)
            if write.path and same_file(write.path, name) and belongs(row, name)
        ]
        if hits:
            count, path = max(hits)
            yield Call(place=Place(stored.name, scope, row), path=path, lines=count)


# --- by text


def by_text(store: Store, sessions: Sequence[str], sought: Sought, progress: Callable[[int], None]) -> ByText | None:
    """The step, among these sessions, whose calls wrote the sought lines; None if no call did. Raises: Damaged."""
    needles = [needle(line) for lines in sought.lines.values() for line in lines]
    if not needles:
        return None
    writers = {name: _opened(store, name) for name in sessions}
    stored = bodies(
        ((stored_body, stored_body.scopes()) for stored_body in writers.values()), lambda row: row.kind == "tool_use"
    )
    by_scope: dict[tuple[str, str], list[tuple[Call, frozenset[str], bool]]] = {}
    for stored_body, body in read(store, stored):
        progress(len(body))
        if not any(part in body for part in needles):
            continue
        place = stored_body.places[0]
        hits = [hit for hit in _hits(writes(body, place.row.ext), sought.lines) if hit[2]]
        if hits:
            name, write, _ = max(hits, key=lambda hit: (same_file(hit[1].path, hit[0]), len(hit[2])))
            lines = frozenset(line for _, _, lines_written in hits for line in lines_written)
            call = Call(place=place, path=write.path, lines=len(lines))
            scope_calls = by_scope.setdefault((place.session, place.scope), [])
            scope_calls.append((call, lines, same_file(write.path, name)))
    if not by_scope:
        return None
    return _best(store, writers, by_scope, sought)


def _best(
    store: Store,
    writers: Mapping[str, StoredSession],
    by_scope: Mapping[tuple[str, str], Sequence[tuple[Call, frozenset[str], bool]]],
    sought: Sought,
) -> ByText:
    """The scope in which most was written, to a file of that name if there is one; there the newest step in time."""
    until = None if sought.time is None else sought.time + _SLACK
    ranked: list[tuple[tuple[bool, int, bool, int], str, str, int, list[Call]]] = []
    for (session, scope), scope_calls in by_scope.items():
        in_named_file = any(in_named_file for _, _, in_named_file in scope_calls)
        hits = [hit for hit in scope_calls if hit[2] or not in_named_file]
        times = {step.number: step.ended for step in steps(store, writers[session].tip(scope))}
        last = max(times.values(), default=0)
        when = {call.place.row.step: times.get(call.place.row.step, last) for call, _, _ in hits}
        early = [step for step, time in when.items() if until is None or time <= until]
        step = max(early) if early else min(when)
        calls = [call for call, _, _ in hits if call.place.row.step <= step]
        lines = frozenset(line for call, lines_written, _ in hits if call in calls for line in lines_written)
        rank = (in_named_file, len(lines), bool(early), when[step] if early else -when[step])
        ranked.append((rank, session, scope, step, calls))
    rank, session, scope, step, calls = max(ranked, key=lambda candidate: candidate[:4])
    return ByText(_step(writers[session], scope, step, calls), rank[1])


def _hits(
    written: Sequence[Write], sought: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, Write, frozenset[str]]]:
    """Each text that a call wrote, with the file that it can be for, and the lines of it that are sought.

    A file may have moved since: its name is enough.
    """
    for write in written:
        own = write.lines
        for name, lines in sought.items():
            if not write.path or PurePath(write.path).name == PurePath(name).name:
                yield name, write, lines & own


# --- the conversation around a step


def _step(stored: StoredSession, scope: str, step: int, calls: Sequence[Call]) -> Step:
    rows = [row for row in stored.ledger(scope).rows() if row.step <= step]
    turn = max((row.turn for row in rows if row.step == step), default=0)
    here = [row for row in rows if row.turn == turn]
    replies = [row for row in here if row.kind == "assistant"]
    behind = takewhile(lambda commit_step: commit_step.number >= step, steps(stored.store, stored.tip(scope)))
    commit = next((commit_step.commit for commit_step in behind if commit_step.number == step), "")
    return Step(
        session=stored.name,
        scope=scope,
        step=step,
        turn=turn,
        commit=commit,
        asked=tuple(row for row in here if row.origin == "human" and row.kind != "note"),
        replied=tuple(row for row in replies if row.step == replies[-1].step),
        notes=tuple(row for row in here if row.kind == "note"),
        calls=tuple(calls),
    )


def _opened(store: Store, session: str, scope: str = "") -> StoredSession:
    stored = StoredSession.open(store, session, scope)
    stored.leave()  # whoever only looks writes nothing
    return stored
