"""Recordings' files → sessions of a store: the work of `ctxvc import`, for any caller."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from ctxvc import importers
from ctxvc.core.recording.continued import Continued, prints
from ctxvc.core.recording.events import Closed, Event, Opened, UnitEvent, Warned
from ctxvc.errors import BadInput, CtxvcError
from ctxvc.importers.file import Recording
from ctxvc.importers.protocol import Conversations, Stamp
from ctxvc.store import exports, hook_outputs
from ctxvc.store.ingest import Unfinished, ingest, start_ingest
from ctxvc.store.read.revision import Snapshot, settled
from ctxvc.store.store import Store
from ctxvc.store.unit_commits import IngestResult

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

#: Seconds after its last change in which a file may still grow, so that its open step waits.
SETTLED = 3600.0


#: Each file makes a pack. Merging packs costs more than lookups in this many.
MANY_PACKS = 256


#: The most sessions that git is writing while the next file is read.
UNDER_WAY = 2
#: The most bytes of a file that may be an export of ours.
_LARGEST_EXPORT = 64 << 20


class Outcome(IngestResult, kw_only=True):
    """The result for one conversation of a file. If `error` is set, nothing of the conversation was recorded."""

    path: Path
    format: str = ""
    error: CtxvcError | None = None


def files_below(folder: Path) -> list[Path]:
    """The files in a folder, at any depth, that could be transcripts, except sub-agents' in their session's folder."""
    endings = importers.endings()
    files = []
    for parent, folders, names in os.walk(folder):
        inner = importers.inner_folders(names, folders)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in inner)
        paths = (Path(parent, name) for name in sorted(names) if name.endswith(endings))
        files += [path for path in paths if path.is_file()]  # a pipe might never end
    return files


def files_of_sessions(projects: Iterable[Path], home: Path, env: Mapping[str, str]) -> list[Path]:
    """The files in which programs keep the sessions of `projects`: all recordings, then the files that go with them."""
    recordings = [item for project in projects for item in importers.find(project, home, env)[0]]
    related = (file for name, path in recordings for file in importers.importer(name).files(path))
    return list(dict.fromkeys([*(path for _, path in recordings), *related]))


def import_paths(
    store: Store,
    paths: Iterable[Path],
    *,
    format: str = "auto",
    name: str = "",
    final: bool = False,
    as_new: bool = False,
    redact: bool = True,
    projects: Sequence[Path] = (),
    removed: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ends: Mapping[Path, int] = MappingProxyType({}),
    progress: Callable[[int], None] = lambda _: None,
    skipped: Callable[[Path], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Imports each file, and from a folder its files of known formats; yields each conversation's outcome, in order.

    A file that cannot be read does not stop the others. In a folder, files of unknown formats are skipped, and
    `skipped` is called with each. `name` names the new session; `as_new` imports a recording that the store already has
    as another session. Without `redact`, new sessions keep all bytes unchanged, secrets included. From recordings with
    conversations of many projects, only those of `projects` are imported, if any are given. `removed` maps recordings
    whose sessions a person removed to the time of that: they stay out unless they changed since. `ends` limits the
    bytes read of a file. `progress` is called with the number of raw bytes read.
    """
    from concurrent.futures import ThreadPoolExecutor  # following one file does not need it

    with ThreadPoolExecutor(UNDER_WAY, "ctxvc-import") as background:
        run = _Run(store, format, name, final, as_new, redact, projects, removed, ends, progress, skipped, background)
        try:
            for path in paths:
                known_only = path.is_dir()
                for file in files_below(path) if known_only else [path]:
                    yield from run.file(file, known_only=known_only)
            yield from run.settle()
        finally:
            # Even if the caller stopped iterating: finish the sessions that git is writing, and point HEAD to the last.
            deque(run.settle(), 0)
            run.close()


@dataclass(slots=True)
class _Run:
    """One import of many files. While git finishes one session, the next file is already read."""

    store: Store
    format: str
    name: str
    final: bool
    as_new: bool
    redact: bool
    projects: Sequence[Path]
    removed: Mapping[tuple[str, str], int]
    ends: Mapping[Path, int]
    progress: Callable[[int], None]
    skipped: Callable[[Path], None]
    background: Executor
    head: tuple[str, str] | None = None  # session and scope of the newest recording
    recorded: int = 0  # its time, in seconds since 1970
    # Sessions that git is still writing, oldest first: the outcome, the import and its end of each.
    endings: deque[tuple[Outcome, Unfinished, Future[None]]] = field(default_factory=deque)

    def file(self, path: Path, *, known_only: bool) -> Iterator[Outcome]:
        recording = self._recording(path)
        name = "" if self.format == "auto" else self.format
        try:
            name = name or importers.detect(recording)
        except BadInput as error:
            if known_only:
                self.skipped(path)
                return
            yield from self.settle()
            yield Outcome(path=path, error=error)
            return
        failed: CtxvcError
        try:
            if session := "" if self.as_new else self._exported(path, name):
                yield from self.settle()
                yield Outcome(path=path, format=name, session=session)
                return
            for suffix, events in _conversations(recording, name, self.removed):
                yield from self._conversation(path, name, suffix, events)
            return
        except OSError as error:
            failed = CtxvcError(f"cannot read {path}: {error.strerror or error}")
        except CtxvcError as error:
            failed = error
        yield from self.settle()
        yield Outcome(path=path, format=name, error=failed)

    def _conversation(self, path: Path, format: str, suffix: str, events: Iterable[Event]) -> Iterator[Outcome]:
        ingestion = start_ingest(
            self.store,
            events,
            name=f"{self.name}{suffix}" if self.name else "",
            suffix=suffix,
            final=self._settled(path, format),
            as_new=self.as_new,
            redact=self.redact,
            after=[earlier for _, earlier, _ in self.endings],
        )
        end = self.background.submit(ingestion.finish)
        self.endings.append((_outcome(path, format, ingestion.result), ingestion, end))
        yield from self.settle(UNDER_WAY)
        subagents = importers.importer(format).beside(path)
        if subagents:
            yield from self.settle()
        for subagent in subagents:
            yield self._subagent(subagent, format, ingestion.result.session)

    def _exported(self, path: Path, format: str) -> str:
        """The session that a file was exported from, if it is an unchanged export, else empty."""
        if importers.importer(format).grows or path.stat().st_size > _LARGEST_EXPORT:
            return ""
        return exports.session_of(self.store, path.read_bytes())

    def _subagent(self, path: Path, format: str, session: str) -> Outcome:
        """Imports a sub-agent's own file, as a recording of its own, into a scope of the same session."""
        try:
            ((_, events),) = _conversations(self._recording(path), format)
            result = ingest(self.store, events, into=session, source=path.stem, final=self._settled(path, format))
            return _outcome(path, format, result)
        except CtxvcError as error:
            return Outcome(path=path, format=format, session=session, error=error)

    def _recording(self, path: Path) -> Recording:
        return Recording(
            path,
            self.progress,
            projects=self.projects,
            stored_output=partial(hook_outputs.whole, self.store.path),
            end=self.ends.get(path),
        )

    def _settled(self, path: Path, format: str) -> bool:
        """Whether the file has stopped growing."""
        return self.final or importers.importer(format).stamp(path).age > SETTLED

    def settle(self, limit: int = 0) -> Iterator[Outcome]:
        """Waits until git is writing at most `limit` sessions; yields the outcomes of the others."""
        while len(self.endings) > limit:
            outcome, ingestion, end = self.endings.popleft()
            try:
                end.result()
            except CtxvcError as error:
                outcome = Outcome(path=outcome.path, format=outcome.format, error=error)
            else:
                if ingestion.result.created or ingestion.result.units:
                    self._newest(ingestion.result.session, ingestion.scope)
                self.store.merge_packs(MANY_PACKS)
            yield outcome

    def _newest(self, session: str, scope: str) -> None:
        """Notes the session as the one for HEAD if no other of this import is newer."""
        tip = self.store.tips(session).get(scope)
        recorded = self.store.commit(tip).author.time if tip else 0
        if recorded >= self.recorded:
            self.head, self.recorded = (session, scope), recorded

    def close(self) -> None:
        """Points HEAD to the newest recording and merges the packs."""
        if self.head:
            self.store.set_current_scope(*self.head)
        self.store.merge_packs()


class Follower:
    """A growing recording with those of its sub-agents: each `take` records what is new in them.

    The result equals one import of the finished files. `session` is empty until there is one.
    """

    def __init__(
        self,
        store: Store,
        path: Path,
        format: str,
        projects: Sequence[Path] = (),
        removed: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self.session = ""
        self._store = store
        self._format = format
        self._projects = projects
        self._removed = removed
        self._stamps: dict[Path, Stamp] = {}  # file → its stamp at the last `take`

    def take(
        self,
        *,
        final: bool = False,
        closes: bool = False,
        subagent: str = "",
        ends: Mapping[Path, int] = MappingProxyType({}),
    ) -> list[Outcome]:
        """Records the new part of each changed file; returns the outcomes.

        `final` also records an open step as it is. `closes` means that no step continues past the host's next action,
        so that an open step is recorded, too, if it is complete; with `subagent`, the name of its file, only there.
        `ends` limits the bytes read of a file.
        """
        outcomes = self._file(self.path, ends.get(self.path), final=final, closes=closes and not subagent)
        if self.session:
            for path in importers.importer(self._format).beside(self.path):
                ending = closes and path.stem == subagent
                outcomes += self._file(path, ends.get(path), into=self.session, final=final, closes=ending)
        if any(outcome.units for outcome in outcomes):
            self._store.merge_packs()
        return outcomes

    def _file(
        self, path: Path, end: int | None, *, into: str = "", final: bool = False, closes: bool = False
    ) -> list[Outcome]:
        try:
            stamp = importers.importer(self._format).stamp(path)
            if self._stamps.get(path) == stamp and not (final or closes):
                return []
            results = list(self._record(path, into, end, final=final, closes=closes))
        except OSError as error:
            failed = CtxvcError(f"cannot read {path}: {error.strerror or error}")
            return [Outcome(path=path, format=self._format, error=failed)]
        except CtxvcError as error:
            return [Outcome(path=path, format=self._format, session=into, error=error)]
        if results:
            if end is None:
                self._stamps[path] = stamp
            self.session = self.session or results[0].session
        return [_outcome(path, self._format, result) for result in results]

    def _record(self, path: Path, into: str, end: int | None, *, final: bool, closes: bool) -> Iterator[IngestResult]:
        """Records each conversation that has a message. Raises: CtxvcError, OSError."""
        # A last line without its end may still be being written; at a recording's end it is read as it is.
        stored_output = partial(hook_outputs.whole, self._store.path)
        recording = Recording(path, growing=not final, projects=self._projects, stored_output=stored_output, end=end)
        for suffix, conversation in _conversations(recording, self._format, self._removed):
            events = _spoken(conversation)
            events = _closed(events) if closes else events
            try:
                source = path.stem if into else ""
                yield ingest(self._store, events, suffix=suffix, into=into, source=source, final=final)
            except _Silent:
                continue


class _Silent(Exception):
    """A conversation has no message yet."""


def _conversations(
    recording: Recording, format: str, removed: Mapping[tuple[str, str], int] = MappingProxyType({})
) -> Conversations:
    """The conversations of a file, each with warnings about its bytes, without those of `removed` that have not changed
    since. Raises: BadInput, also later from the events.
    """
    for suffix, events in importers.conversations(recording, format):
        if removed:
            first = list(islice(events, 1))
            if any(_is_removed(event, suffix, recording.path, removed) for event in first):
                continue
        else:
            first = []
        yield suffix, _misread(chain(first, events), recording)


def _is_removed(event: Event, suffix: str, path: Path, removed: Mapping[tuple[str, str], int]) -> bool:
    time = removed.get((event.format, f"{event.source}{suffix}"), 0) if isinstance(event, Opened) else 0
    return path.stat().st_mtime < time


def _misread(events: Iterable[Event], recording: Recording) -> Iterator[Event]:
    """The events, then a warning for each line with bytes that are not UTF-8."""
    yield from events
    for line, bad in recording.misread.items():
        subject = "a byte is not UTF-8 and is" if bad == 1 else f"{bad} bytes are not UTF-8 and are"
        yield Warned(text=f"{subject} kept as U+DC80 to U+DCFF; everything else is unchanged", line=line)
    recording.misread.clear()


def _spoken(events: Iterator[Event]) -> Iterator[Event]:
    """The events. Raises: _Silent after them if there was no message."""
    silent = True
    for event in events:
        silent = silent and isinstance(event, (Opened, Warned))
        yield event
    if silent:
        raise _Silent


def _closed(events: Iterator[Event]) -> Iterator[Event]:
    """The events, then one that closes the reply so far."""
    end = 0
    for event in events:
        if isinstance(event, UnitEvent):
            end = event.end
        yield event
    yield Closed(end=end)


def _outcome(path: Path, format: str, result: IngestResult) -> Outcome:
    return Outcome(path=path, format=format, **msgspec.structs.asdict(result))


def remember_written(
    store: Store, snapshot: Snapshot, format: str, id: str, files: Mapping[PurePosixPath, bytes]
) -> bool:
    """Records what a session with this id was written from, so that an import of it, perhaps under another id,
    continues from that commit.

    What an open step contains is not committed: such a session becomes a separate one. `format` is empty for an agent
    whose recordings are not read. Returns False if a session is already recorded with this id; then nothing changes.
    """
    if exports.written_session(store, format, id):
        return False
    commit = settled(store, snapshot)
    events: list[Event] = []
    names = {id}
    if format and commit:
        with tempfile.TemporaryDirectory(prefix="ctxvc-written-") as folder:
            for name, data in files.items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_bytes(data)
            recording = Recording(Path(folder) / next(iter(files)))
            with suppress(BadInput):  # there is nothing yet that an import would take
                for suffix, conversation in importers.conversations(recording, format):
                    events += conversation
                    names |= {
                        f"{event.source}{suffix}" for event in events if isinstance(event, Opened) and event.source
                    }
    parts = tuple(item for _, item in prints(events))
    for own_id in names:
        exports.remember_session(store, format, own_id, Continued(commit=commit, parts=parts))
    return True
