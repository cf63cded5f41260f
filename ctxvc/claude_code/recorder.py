"""The process that serves the hooks' requests, one transcript at a time, and ends when there are none.

A store has at most one. It may be killed at any time: a request is removed only once it is served, and the transcript
stays where the host wrote it. A request that fails is logged and set aside, and the others are served.
"""

from __future__ import annotations

import json
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from ctxvc.claude_code import compaction, compaction_desk, event, handoff, hook, requests, settings, spool
from ctxvc.claude_code.requests import Request
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.errors import Conflict, CtxvcError, Refused
from ctxvc.importers.claude_code import FORMAT
from ctxvc.phrases import PYTHON
from ctxvc.recording import log, places
from ctxvc.recording.files import Follower, Outcome
from ctxvc.store.files import locked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER, is_store, project_root
from ctxvc.store.store import Store, create
from ctxvc.store.trust import contained

#: Seconds that a recorder waits for more requests before it ends, so that a session rarely pays for a start.
LINGER = 20.0
#: The factor for that time while a conversation goes on: a person may read for a while and then compact, which would
#: have to wait for a new recorder to load.
_ATTENDING = 15

#: Seconds between two looks.
_PAUSE = 0.05

#: A transcript is read from its start each time. Unless a request is urgent, the next reading waits this many times the
#: last one's duration, at most `_LONGEST` seconds.
_SHARE = 20
_LONGEST = 30.0

#: Seconds that a new recorder waits for the lock: another may be about to end.
_PATIENCE = 0.5

#: Characters left free after a text for the model, for the reason why the rest is not recorded.
_REASON = 400

#: Attempts at a request whose session another writer has locked.
_TRIES = 3


def work(
    path: Path,
    *,
    linger: float = LINGER,
    phrases: dict[str, str] = PYTHON,
    compactor: Callable[[Store], bool] = lambda _: False,
    recorded: Callable[[Path], None] = lambda _: None,
) -> None:
    """Serves the requests of the store at `path` until none came for `linger` seconds, longer while a conversation goes
    on. Calls `recorded` with `path` after each.

    Returns at once if another process serves them. After an unexpected error the store is opened anew, since nothing in
    memory can be trusted.
    """
    contained.make_folder(path, "ctxvc/hooks")
    while requests.pending(path):
        try:
            with locked(places.lock(path), timeout=_PATIENCE):
                with Store(path) as store:
                    for folder in store.remaining:
                        log.note(path, "purge", f"finished; {folder} may still have erased content")
                    recorder = _Recorder(store, phrases, compactor, recorded)
                    try:
                        recorder.run(linger)
                    finally:
                        recorder.leave()
        except Conflict:
            return


def again(path: Path, phrases: dict[str, str] = PYTHON) -> list[Request]:
    """Serves all requests now, also those set aside; returns those that still fail. Raises: CtxvcError, OSError."""
    requests.ask_again(path)
    work(path, linger=0, phrases=phrases)
    return [request for _, request in requests.aside(path)]


@dataclass(slots=True)
class _Followed:
    """A transcript, and the time at which its next reading is due."""

    follower: Follower
    due: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class _Recorder:
    store: Store
    phrases: dict[str, str]
    compactor: Callable[[Store], bool]
    recorded: Callable[[Path], None]
    transcripts: dict[str, _Followed] = field(default_factory=dict)
    surprised: bool = False

    def run(self, linger: float) -> None:
        last = clock.monotonic()
        place = _place(self.store.path)
        while _place(self.store.path) == place:
            if self.compactor(self.store):
                last = clock.monotonic()
            pending = [*requests.pending(self.store.path), *self._noticed()]
            for transcript, group in _by_transcript(pending).items():
                if self._due(transcript, [request for _, request in group]):
                    self._serve(transcript, group)
                    last = clock.monotonic()
                if self.surprised:
                    return
            waits = linger * _ATTENDING if self.transcripts else linger
            if not pending and clock.monotonic() - last > waits:
                return
            clock.sleep(_PAUSE)

    def leave(self) -> None:
        """Announces that notices are no longer read, then posts those left until now as requests."""
        for transcript in self.transcripts:
            spool.leave(transcript)
        for notice, request in self._noticed():
            requests.post(self.store.path, request)
            _remove(self.store.path, notice)

    def _noticed(self) -> list[tuple[Path, Request]]:
        """The events for which hooks only left a notice, each with its file."""
        return [
            (notice, Request(name, transcript))
            for transcript in self.transcripts
            for notice, name in spool.notices(transcript)
            if name in event.RECORDED
        ]

    def _due(self, transcript: str, batch: Sequence[Request]) -> bool:
        followed = self.transcripts.get(transcript)
        return followed is None or any(request.urgent for request in batch) or clock.monotonic() >= followed.due

    def _serve(self, transcript: str, group: Sequence[tuple[Path, Request]]) -> None:
        """Serves requests about one transcript, or sets the newest aside; they stay if another writer has the lock."""
        batch = [request for _, request in group]
        followed = self.transcripts.get(transcript)
        if followed is None:
            followed = self.transcripts[transcript] = _Followed(Follower(self.store, Path(transcript), FORMAT))
            spool.attend(transcript)
        started = clock.monotonic()
        try:
            succeeded = self._record(followed.follower, transcript, batch)
        except Conflict as error:
            followed.tries += 1
            followed.due = clock.monotonic() + 1
            if followed.tries < _TRIES:
                return
            succeeded = self._failed(batch, error)
        except (CtxvcError, OSError) as error:
            succeeded = self._failed(batch, error)
        # The boundary: an error in one transcript does not stop the others.
        except Exception as error:
            succeeded = self._failed(batch, error)
            self.surprised = True
        followed.tries = 0
        if succeeded:
            spool.mended(transcript)
            places.remove(self.store.path, places.aside(self.store.path, transcript))
        else:
            requests.set_aside(self.store.path, batch[-1])
        took = clock.monotonic() - started
        followed.due = clock.monotonic() + min(_SHARE * took, _LONGEST)
        if _has_ended(batch):
            del self.transcripts[transcript]
            spool.end(transcript)
        for path, _ in group:
            _remove(self.store.path, path)
        self.recorded(self.store.path)

    def _record(self, follower: Follower, transcript: str, batch: Sequence[Request]) -> bool:
        """Records the transcript; returns whether all of it succeeded. Raises: CtxvcError, OSError."""
        if not follower.path.exists():
            return True  # a session without a message yet
        succeeded = True
        ends = compaction.settle(self.store, transcript)
        last = _has_ended(batch)
        closes = any(request.event == "PreCompact" for request in batch)
        for outcome in follower.take(final=last, closes=closes, ends=ends):
            if outcome.error:
                succeeded = self._failed(batch, outcome.error, outcome)
        if not follower.session:
            return succeeded
        stored = StoredSession.open(self.store, follower.session)
        try:
            self._prepare_answers(stored, transcript, batch)
            compaction.warm(stored)
        finally:
            stored.leave()
        return succeeded

    def _prepare_answers(self, stored: StoredSession, transcript: str, batch: Sequence[Request]) -> None:
        """Writes the texts for hooks and the status line, which must be quick. Raises: CtxvcError, OSError."""
        path, ledger = self.store.path, stored.ledger()
        places.write_sealed(path, places.status(path, transcript), _status(ledger, stored))
        limit = event.MOST - len(event.UNFINISHED) - _REASON
        handoff_text = handoff.after_compaction(ledger, stored.body, limit).encode()
        places.write_sealed(path, places.summariser(path, transcript), handoff.for_summariser(ledger).encode())
        places.write_sealed(path, places.so_far(path, transcript), handoff_text)
        if any(request.compacts for request in batch):
            places.write_sealed(path, places.handoff(path, transcript), handoff_text)
        if any(request.last for request in batch):
            places.write_sealed(path, places.offer(path), handoff.at_startup(ledger, stored.body).encode())

    def _failed(self, batch: Sequence[Request], error: Exception, outcome: Outcome | None = None) -> Literal[False]:
        where = outcome.path if outcome else batch[-1].transcript
        _report(self.store.path, batch[-1], f"{where}: {log.describe(error, self.phrases)}")
        return False


def _has_ended(batch: Sequence[Request]) -> bool:
    """Whether the conversation has ended, and did not go on before this batch."""
    turns = [request for request in batch if request.event in ("SessionStart", "SessionEnd")]
    return bool(turns) and turns[-1].last


def _place(store: Path) -> int:
    """The inode of a store, which differs for another store at its path; 0 if it is gone."""
    try:
        return store.stat().st_ino
    except OSError:
        return 0


def _report(store: Path, request: Request, reason: str) -> None:
    """Logs why a conversation is not recorded and reports it to the person, unless that was reported before."""
    before = spool.trouble(request.transcript)
    spool.report(request.transcript, store, reason)
    if before is None or spool.trouble(request.transcript) != before:
        log.note(store, request.event, reason)


def _remove(store: Path, path: Path) -> None:
    """Removes a request of the store, or a notice outside of it."""
    if path.is_relative_to(store):
        places.remove(store, path)
    else:
        path.unlink(missing_ok=True)


def _by_transcript(pending: Sequence[tuple[Path, Request]]) -> dict[str, list[tuple[Path, Request]]]:
    groups: dict[str, list[tuple[Path, Request]]] = {}
    for path, request in pending:
        groups.setdefault(request.transcript, []).append((path, request))
    return groups


def _status(ledger: Ledger, stored: StoredSession) -> bytes:
    rows = list(ledger.rows())
    fields = {
        "session": ledger.meta.session,
        "scope": ledger.meta.scope,
        "steps": ledger.meta.counters.step,
        "blocks": len(rows),
        "left": sum(not row.present for row in rows),
        "notes": sum(row.kind == "note" for row in rows),
        "waiting": stored.waiting(),
    }
    return json.dumps(fields).encode()


def record(
    arguments: Sequence[str],
    env: Mapping[str, str],
    phrases: dict[str, str] = PYTHON,
    chosen: Callable[[Mapping[str, str]], compaction.Choice] | None = None,
    recorded: Callable[[Path], None] = lambda _: None,
) -> None:
    """Serves the requests of a store. Never fails: errors are logged, in the words of `phrases`.

    `arguments` are the store's path, or the folder of a project that may need a store and the first request. `chosen`
    returns the person's settings for the host's compactions; without it, the hooks answer these. `recorded` is called
    with the store's path after each request.
    """
    store: Path | None = None
    try:
        store = Path(arguments[0])
        if len(arguments) > 1:
            first = requests.decoded(arguments[1].encode())
            store = _project_store(Path(arguments[0]), env) if first and Path(first.transcript).exists() else None
            if first and store:
                requests.post(store, first)
        if store:
            requests.ask_again(store)  # a disk that was full may have room
            compactor = partial(compaction_desk.serve, env=env, chosen=chosen) if chosen else lambda _: False
            work(store, phrases=phrases, compactor=compactor, recorded=recorded)
    # The boundary: errors can only go to the log, and to the person through the next hook.
    except Exception as error:
        if store:
            unserved = [request for _, request in requests.pending(store)]
            for request in unserved:
                _report(store, request, log.describe(error, phrases))
            if not unserved:
                log.note(store, hook.RECORD, log.describe(error, phrases))


def _project_store(folder: Path, env: Mapping[str, str]) -> Path | None:
    """The store of the project around `folder`, created if needed; None if there should be none.

    Outside of git, a folder is a project only by the person's choice. The home folder never is: its store would be that
    of every project below it.
    """
    override = env.get("CTXVC_STORE")
    root = project_root(folder)
    if not override and (root in (Path.home(), Path(root.anchor)) or not settings.recorded_here(folder)):
        return None
    path = Path(override).absolute() if override else root / FOLDER
    try:
        create(path).close()
    except Refused:  # another hook has made it meanwhile
        return path if is_store(path) and (override or not path.is_symlink()) else None
    return path
