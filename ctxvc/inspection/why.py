"""why: the calls of recorded sessions that made the lines of a file, or of a commit, and the conversation around them.

The calls that changed the file are replayed between its versions (`inspection.lineage`). Which session was current, or
ran the commit, decides nothing: it is only reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger.ledger import Row
from ctxvc.inspection.bodies import Place, bodies, read
from ctxvc.inspection.edits import Change, changes, may_change, needle, same_file, script, unread
from ctxvc.inspection.lineage import SLACK, Edit, Evidence, Version, lineage, split
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.code_history import FileVersion
from ctxvc.store.project.links import Step as StoredStep
from ctxvc.store.project.links import steps
from ctxvc.store.store import Store

#: A line of fewer characters than this says nothing about where it came from.
_TELLING = 6
#: Ids of calls at least this long are unique across sessions.
_UNIQUE = 16


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step and the conversation around it; each row can be read with the session's `body`.

    `commit` is the step's own in the store, empty if it has none yet. `asked` is the human text of the turn so far,
    `replied` the model's text in the step, or its last before, `notes` are those of the turn.
    """

    session: str
    scope: str
    step: int
    turn: int
    commit: str
    ended: int
    asked: tuple[Row, ...]
    replied: tuple[Row, ...]
    notes: tuple[Row, ...]


class RecordedEdit(NamedTuple):
    """A call on a file: its place, the path that it names, and its edit."""

    place: Place
    path: str
    edit: Edit


class Line(NamedTuple):
    """A line of a file and where it is from: `edit` is None if no call explains it.

    `version` is the number of the version in which it appeared. `possible` are scripts of that time that name the file.
    """

    text: str
    edit: RecordedEdit | None
    evidence: Evidence
    version: int
    possible: tuple[RecordedEdit, ...] = ()
    #: Other calls that wrote the same text, for a line of some length.
    alternatives: tuple[RecordedEdit, ...] = ()
    #: No call explains the line here, but one contains its text, white space apart.
    doubtful: bool = False

    @property
    def by_person(self) -> bool:
        """Whether a person wrote it: it came after calls on this file were recorded, and none of them can be its
        author."""
        return self.edit is None and self.evidence == "none" and not self.possible and not self.doubtful


def recorded_edits(
    store: Store, sessions: Iterable[str], files: Collection[str], progress: Callable[[int], None] = lambda _: None
) -> dict[str, list[RecordedEdit]]:
    """For each of these files of the project, the calls that changed it or may have, in the order they were made.

    A failed call is left out, except a shell's, which may have done part of its work. Raises: Damaged.
    """
    needles = {name: needle(PurePath(name).name) for name in files}
    opened = {name: StoredSession.for_reading(store, name) for name in sessions}
    stored = bodies(((session, session.scopes()) for session in opened.values()), lambda row: row.kind == "tool_use")
    clock = _Clock(store, opened)
    edits: dict[str, list[RecordedEdit]] = {name: [] for name in files}
    for body, data in read(store, stored):
        progress(len(data))
        concerned = [name for name, part in needles.items() if part in data]
        if not concerned:
            continue
        ext = body.places[0].row.ext
        own_changes, text = changes(data, ext), script(data, ext)
        if not (own_changes or text):
            continue
        unread_text = unread(text)
        doubtful = {name for name in concerned if text and PurePath(name).name in text and may_change(text, name)}
        for place in _calls(body.places):
            if not text and clock.failed(place):
                continue
            started, ended = clock.span(place)
            for name in concerned:
                own = tuple(change for change in own_changes if same_file(change.path, name))
                if own or name in doubtful:
                    edit = Edit(own, started, ended, *((text, unread_text) if name in doubtful else ()))
                    edits[name].append(RecordedEdit(place, own[0].path if own else "", edit))
    for own_edits in edits.values():
        own_edits.sort(key=_order)
    return edits


def along_renames(
    edits: Mapping[str, Sequence[RecordedEdit]], name: str, former: Mapping[str, int]
) -> list[RecordedEdit]:
    """The edits of a file under its name and, up to the time until which it had it, under each `former` name."""
    earlier = (edit for path, until in former.items() for edit in edits[path] if edit.edit.started <= until + SLACK)
    by_call = {(edit.place.address, edit.edit): edit for edit in (*edits[name], *earlier)}
    return sorted(by_call.values(), key=_order)


def _order(edit: RecordedEdit) -> tuple[int, str, int]:
    return edit.edit.ended, edit.place.session, edit.place.row.number


def _calls(places: Iterable[Place]) -> Iterable[Place]:
    """Each call once, of the places of one body: the same call can be made again, and can be in many scopes."""
    by_call: dict[object, Place] = {}
    for place in places:
        call = place.row.call or ""
        by_call.setdefault(call if len(call) >= _UNIQUE else (place.session, place.row.id), place)
    return by_call.values()


def first_edit(edits: Sequence[RecordedEdit]) -> int | None:
    """The earliest start of these edits, less `SLACK`; None if there are none."""
    return min(edit.edit.started for edit in edits) - SLACK if edits else None


def lines_of(history: Sequence[FileVersion], edits: Sequence[RecordedEdit]) -> list[Line]:
    """Each line of the newest version, with the call that made it. `history` has at least one version."""
    versions = [Version(tuple(split(version.text)), version.authored, version.committed) for version in history]
    # If the first version is no older than the first edit, edits may have made the file from its first line on.
    begins = any(edit.edit.started <= history[0].committed + SLACK for edit in edits)
    if begins:
        versions.insert(0, Version((), 0, 0))
    marks = lineage(versions, [edit.edit for edit in edits])
    wrote: dict[str, list[RecordedEdit]] = {}
    for edit in edits:
        for line in {line.strip() for change in edit.edit.changes for line in split(change.new)}:
            if len(line) >= _TELLING:
                wrote.setdefault(line, []).append(edit)
    everything = "\n".join(_squeezed(line) for edit in edits for change in edit.edit.changes for line in _added(change))
    lines = []
    for text, mark in zip(versions[-1].lines, marks, strict=True):
        own = edits[mark.edit] if mark.edit >= 0 else None
        alternatives = tuple(edit for edit in wrote.get(text.strip(), ()) if edit is not own)
        possible = tuple(edits[at] for at in mark.scripts)
        squeezed = _squeezed(text)
        doubtful = own is None and len(squeezed) >= _TELLING and squeezed in everything
        lines.append(Line(text, own, mark.evidence, max(mark.version - begins, 0), possible, alternatives, doubtful))
    return _doubted(lines)


def _doubted(lines: list[Line]) -> list[Line]:
    """The lines; one that says nothing by itself, such as `}`, is a person's only next to another that is."""
    telling = [len(_squeezed(line.text)) >= _TELLING for line in lines]
    has_person_next: list[bool] = [False] * len(lines)
    for order in (range(len(lines)), range(len(lines) - 1, -1, -1)):
        is_person = False
        for at in order:
            if telling[at]:
                is_person = lines[at].by_person
            has_person_next[at] |= is_person
    return [
        line if telling[at] or has_person_next[at] or not line.by_person else line._replace(doubtful=True)
        for at, line in enumerate(lines)
    ]


def _added(change: Change) -> Iterator[str]:
    old = {*split(change.old)}
    return (line for line in split(change.new) if line not in old)


def _squeezed(text: str) -> str:
    return "".join(text.split())


class _Clock:
    """The times of the calls of a store, and which of them failed; reads each scope once."""

    def __init__(self, store: Store, sessions: Mapping[str, StoredSession]) -> None:
        self._store, self._sessions = store, sessions
        self._ends: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        self._errors: dict[tuple[str, str], frozenset[str]] = {}

    def span(self, place: Place) -> tuple[int, int]:
        """The ends of the step before a call's and of its own, in seconds since 1970: the call was made in between."""
        key = place.session, place.scope
        if key not in self._ends:
            committed = [*steps(self._store, self._sessions[place.session].tip(place.scope))][::-1]
            self._ends[key] = [step.number for step in committed], [step.ended for step in committed]
        numbers, ends = self._ends[key]
        at = bisect_left(numbers, place.row.step)
        ended = ends[at] if at < len(ends) else self._store.now()
        return (ends[at - 1] if at else ended), ended

    def failed(self, place: Place) -> bool:
        """Whether a call's result is an error."""
        key = place.session, place.scope
        if key not in self._errors:
            rows = self._sessions[place.session].ledger(place.scope).rows()
            self._errors[key] = frozenset(row.parent for row in rows if row.kind == "tool_result" and row.error)
        return place.row.id in self._errors[key]


def ranges(numbers: Sequence[int], lines: Sequence[Line]) -> list[tuple[int, int]]:
    """The first and last of consecutive lines; lines without text do not separate them."""
    stretches: list[tuple[int, int]] = []
    for number in numbers:
        if stretches and not any(line.text.strip() for line in lines[stretches[-1][1] : number - 1]):
            stretches[-1] = stretches[-1][0], number
        else:
            stretches.append((number, number))
    return stretches


# --- the conversation around a step


def step_of(store: Store, place: Place) -> Step:
    """The step of a call, with the conversation around it. Raises: NotFound, Damaged."""
    stored = StoredSession.for_reading(store, place.session, place.scope)
    number = place.row.step
    rows = [row for row in stored.ledger(place.scope).rows() if row.step <= number]
    turn = max((row.turn for row in rows if row.step == number), default=0)
    here = [row for row in rows if row.turn == turn]
    replies = [row for row in here if row.kind == "assistant"]
    later = takewhile(lambda committed: committed.number >= number, steps(store, stored.tip(place.scope)))
    own = next((committed for committed in later if committed.number == number), StoredStep(number, store.now(), ""))
    return Step(
        session=stored.name,
        scope=place.scope,
        step=number,
        turn=turn,
        commit=own.commit,
        ended=own.ended,
        asked=tuple(row for row in here if row.origin == "human" and row.kind != "note"),
        replied=tuple(row for row in replies if row.step == replies[-1].step),
        notes=tuple(row for row in here if row.kind == "note"),
    )
