"""Turns a recording into commits: reads events, writes one commit per step, all in one pack."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.ledger import Counters, Source
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.core.recording.continued import exported
from ctxvc.core.recording.events import Event, Exported, Opened, Warned
from ctxvc.errors import BadInput, Conflict, Damaged, NotFound, Phrase, Refused
from ctxvc.store import exports
from ctxvc.store.files import locked
from ctxvc.store.format import live_format
from ctxvc.store.import_scopes import Base, ImportScope
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.store import Store
from ctxvc.store.unit_commits import IngestResult, UnitCommits, merged

#: An import's speed is limited by git's compression: the fastest level takes 4 % more space and a quarter less time.
_QUICK = ("core.compression=1",)


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """An import whose commits are in git, but which no ref reaches yet. `finish` moves the refs and releases the locks.

    `scope` is the recording's last scope. To start another import before `finish`, pass this one in `after`.
    """

    result: IngestResult
    format: str
    source: str
    scope: str
    finish: Callable[[], None]


def ingest(
    store: Store,
    events: Iterable[Event],
    *,
    name: str = "",
    suffix: str = "",
    into: str = "",
    source: str = "",
    final: bool = False,
    as_new: bool = False,
    redact: bool = True,
) -> IngestResult:
    """Imports a recording, or what is new in it since the last import.

    `name` is for a session that does not exist yet; `suffix` distinguishes the conversations of one file. `into` is the
    session that a sub-agent's own recording belongs to, and `source` distinguishes it from the session's others.
    `final` commits the open step at the end; otherwise, if the recording may grow, that step is left for a later
    import. Secrets become marks; without `redact`, a new session keeps all bytes exactly, now and later.
    Raises: BadInput if the recording has no message; Refused if the file is not the one imported before, or if its
    secrets became marks the last time and should not now.
    """
    unfinished = start_ingest(
        store,
        events,
        name=name,
        suffix=suffix,
        into=into,
        source=source,
        final=final,
        as_new=as_new,
        redact=redact,
    )
    unfinished.finish()
    if (unfinished.result.created or unfinished.result.units) and not into:
        store.set_current_scope(unfinished.result.session, unfinished.scope)
    return unfinished.result


def start_ingest(
    store: Store,
    events: Iterable[Event],
    *,
    name: str = "",
    suffix: str = "",
    into: str = "",
    source: str = "",
    final: bool = False,
    as_new: bool = False,
    redact: bool = True,
    after: Sequence[Unfinished] = (),
) -> Unfinished:
    """As `ingest`, until git has everything; HEAD does not move. What remains is only waiting for git.

    `after` are imports not finished yet: their names count as taken, and one of the same recording is finished first.
    """
    warnings: list[Warned] = []
    opened, later = _opening(iter(events), warnings)
    if not (into or as_new):
        opened, later = _as_continued(store, opened, suffix, later)
    if redact and (namer := store.redaction.of(opened.name)):  # a name may be the first words that a person typed
        opened = msgspec.structs.replace(opened, name=namer.name(opened.name))
    identity = f"{opened.source}/{source}" if source else f"{opened.source}{suffix}"
    if redact and (names_only := store.redaction.of(into or opened.name)):
        identity = names_only.name(identity)  # that of a sub-agent includes its file's name
    opened = msgspec.structs.replace(opened, source=identity, name=f"{opened.name}{suffix}")
    tips = store.all_tips()
    session_name = into or ("" if as_new else store.session_of(opened.format, opened.source, tips))
    live = "" if as_new or session_name else store.session_of(live_format(opened.format), opened.source, tips)
    if live:  # nothing is missing in the live session
        result = IngestResult(session=live, warnings=warnings)
        return Unfinished(
            result=result, format=opened.format, source=opened.source, scope="main", finish=_Ending(ExitStack())
        )
    base = None if into or as_new else _base(store, opened, tips)
    if base and session_name not in ("", base.session):
        base = None  # it was imported as a separate session
    if base is None and session_name and not into:
        base = _base_of_scope(store, session_name, opened.source, tips)
    session_name = session_name or (base.session if base else "")
    created = not session_name
    for other in after:
        if created and not as_new and (other.format, other.source) == (opened.format, opened.source):
            other.finish()
            session_name = store.session_of(opened.format, opened.source)
            created = not session_name
    if created:
        taken = {*tips, *(other.result.session for other in after)}
        session_name = name_rules.check(name, "session", taken) if name else _free(opened.name or "session", taken)
    if not redact:
        if not (created or store.redaction.is_exact(session_name)):
            raise Refused(
                f"session {session_name} was recorded with secrets replaced by marks, and continues that way",
                hint=Phrase("import-as-new"),
            )
        store.redaction.keep_exact(session_name)
    redactor = store.redaction.of(session_name)
    if redactor:
        opened = redactor.opened(opened)
        warnings[:] = map(redactor.warned, warnings)
    with ExitStack() as locks:
        running = locks.enter_context(_ingest(store, session_name, opened, created, base, alone=not after))
        running.redactor = redactor
        result = running.run(opened, later, final=final or not opened.grows, warnings=warnings)
        result.created = created
        return Unfinished(
            result=result,
            format=opened.format,
            source=opened.source,
            scope=running.gatherer.current,
            # A lock must be released in the thread that took it, so an import into an existing session finishes here.
            finish=_Ending(locks.pop_all()) if created else _Ending(ExitStack()),
        )


class _Ending:
    """Closes the contexts of an import once, from any thread; a second call waits for the first."""

    def __init__(self, locks: ExitStack) -> None:
        self._locks = locks
        self._mutex = threading.Lock()

    def __call__(self) -> None:
        with self._mutex:
            self._locks.close()


@contextmanager
def _ingest(
    store: Store, name: str, opened: Opened, created: bool, base: Base | None, *, alone: bool
) -> Iterator[UnitCommits]:
    """Yields the import that makes the commits: into an existing session, or a new one.

    The first commit of a new session becomes visible together with the rest.
    """
    if not created:
        with StoredSession.open(store, name) as stored, stored.bulk(_QUICK) as (pack, counters):
            imported = store.source_of(name, opened.source) or _source(opened)
            if imported.format == live_format(opened.format):
                raise Conflict(
                    f"session {name!r} is recorded live since this import began", hint="nothing is missing in it"
                )
            ingestion = UnitCommits(store, name, pack, counters, imported, stored)
            if base:
                ingestion.go_on_from(base)
            yield ingestion
        return
    source = _source(opened)
    first = store.first_commit(
        name, model=opened.model, source=source, system=opened.system, tools=opened.tools, time=opened.time
    )
    with locked(store.lock_path(name)) as lock:
        if store.has(name):
            raise Conflict(f"session {name!r} was created meanwhile", hint="run the import again")
        if alone:
            store.clean_up()
        with store.pack_writer(lock, _QUICK) as pack:
            started = UnitCommits(store, name, pack, Counters(), source)
            commit = pack.commit(first)
            started.scopes.opened["main"] = ImportScope(first.after, Numbering(block=0), commit, first.after)
            started.scopes.began = commit, first.after
            yield started


def _base(store: Store, opened: Opened, tips: Mapping[str, Mapping[str, str]]) -> Base | None:
    """The commit that the recording was exported from, if a session of the store still has it."""
    if opened.exported is None:
        return None
    return base_of(store, opened.exported, opened.format, opened.source, tips)


def base_of(
    store: Store, exported: Exported, format: str, source: str, tips: Mapping[str, Mapping[str, str]]
) -> Base | None:
    """The commit that an agent's session continues from, and the scope that it continues in; None if it is gone."""
    commit = purge_apply.commits(store).get(exported.commit, exported.commit)
    try:
        meta = store.reader.meta(commit)
    except (NotFound, Damaged):
        return None
    if not any(commit in store.first_parents(tip) for tip in tips.get(meta.session, {}).values()):
        return None
    is_resumed = meta.source is not None and meta.source.format in (format, live_format(format))
    return Base(meta.session, commit, f"{'resumed' if is_resumed else format}-{_digest(source)}", exported.end)


def _base_of_scope(store: Store, session: str, source: str, tips: Mapping[str, Mapping[str, str]]) -> Base | None:
    """What an earlier import continued from, as its scope shows; None if the recording is the session's own.

    The recording and the cache may no longer show it: the agent rewrote the recording, or the store is a clone.
    """
    ending = f"-{_digest(source)}"
    for scope, tip in tips.get(session, {}).items():
        imported = store.reader.meta(tip).source
        if scope.endswith(ending) and imported and imported.id == source:
            commit = next(item for item in store.first_parents(tip) if store.reader.meta(item).scope != scope)
            return Base(session, commit, scope, imported.finals[0] if imported.finals else 0)
    return None


def _digest(source: str) -> str:
    """The part of a scope's name that identifies a recording that continues a session."""
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:8]


def _as_continued(store: Store, opened: Opened, suffix: str, later: Iterator[Event]) -> tuple[Opened, Iterator[Event]]:
    """`opened` with the export that it continues, if the store remembers writing that session."""
    written = None if opened.exported else exports.written_session(store, opened.format, f"{opened.source}{suffix}")
    if written is None:
        return opened, later
    events = list(later)
    return msgspec.structs.replace(opened, exported=exported(written, events)), iter(events)


def _opening(stream: Iterator[Event], warnings: list[Warned]) -> tuple[Opened, Iterator[Event]]:
    """The first `Opened` and the events after it, once there certainly is a message to record."""
    opened: Opened | None = None
    for event in stream:
        match event:
            case Opened():
                opened = event if opened is None else merged(opened, event)
            case Warned():
                warnings.append(event)
            case _:
                if opened is None:
                    raise BadInput("the recording does not start with a header")

                def rest(first: Event = event) -> Iterator[Event]:
                    yield first
                    yield from stream

                return opened, rest()
    raise BadInput("it has no messages", hint=Phrase("check-format"))


def _source(opened: Opened) -> Source:
    return Source(
        format=opened.format,
        id=opened.source,
        title=opened.title,
        agent=opened.agent,
        cwd=opened.cwd,
        branch=opened.branch,
        started=opened.time,
        missing=opened.missing,
    )


def _free(wish: str, taken: set[str]) -> str:
    """`wish` as a valid name, with a number appended if it is taken."""
    name = name_rules.slug(wish)
    lower = {other.lower() for other in taken}
    number = 2
    free = name
    while free.lower() in lower:
        free, number = f"{name}-{number}", number + 1
    return free
