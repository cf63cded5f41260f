"""Turns a recording into commits: events in, one commit per step out, all in one pack."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Meta, Row, Source, Window
from ctxvc.core.ledger.numbering import Body, Numbering
from ctxvc.core.ledger.segments import Segments
from ctxvc.core.recording.edit import edited
from ctxvc.core.recording.events import Compacted, Event, Opened, Warned
from ctxvc.core.recording.recast import applied, recast
from ctxvc.core.recording.steps import Compaction, Edit, Fork, Gatherer, Step, Unit
from ctxvc.core.secrets.redact import Redactor
from ctxvc.errors import BadInput, Conflict, Damaged, NotFound, Phrase, Refused
from ctxvc.store.files import locked
from ctxvc.store.format import message, ref_of, trailers_of
from ctxvc.store.git.fast_import import Commit, PackWriter, epoch
from ctxvc.store.log.commits import step_message, usage_trailers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.read import recorded_prompts
from ctxvc.store.read.recorded_prompts import RecordedPrompts
from ctxvc.store.read.revision import PROMPT
from ctxvc.store.store import Store, request_files

#: An import is bound by git's compression: the fastest level takes 4 % more space and a quarter less time.
_QUICK = ("core.compression=1",)
#: What the commits of a recording did (`Ctxvc-Op`).
_RECORDED = frozenset({"step", "compact", "edit", "scope"})


def live_format(agent: str) -> str:
    """The format of sessions that are recorded while a program runs, by what ctxvc has inside it."""
    return f"{agent}-live"


class IngestResult(msgspec.Struct, kw_only=True):
    """The result of an import. `units` counts new commits, `waiting` messages of a step that may still grow."""

    session: str
    created: bool
    units: int = 0
    blocks: int = 0
    waiting: int = 0
    scopes: tuple[str, ...] = ()
    warnings: list[Warned] = []


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """An import whose commits git has, but which no ref reaches yet. `finish` moves the refs and releases the locks.

    `scope` is the recording's last. To start another import before `finish`, pass this one in `after`.
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
    """Imports a recording, or whatever is new in it since the last import.

    `name` is for a session that does not exist yet; `suffix` distinguishes the conversations of one file. `into` is the
    session that a sub-agent's own recording belongs to, and `source` distinguishes it from the session's others.
    `final` commits the open step at the end as it is; otherwise that step is left for a later import if the recording
    says that it grows. Secrets become marks; without `redact`, a new session keeps all bytes exactly, now and later.
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
    """As `ingest`, up to the point where git has everything; HEAD does not move. The rest is only waiting for git.

    `after` are imports not finished yet: their names count as taken, and one of the same recording is finished first.
    """
    warnings: list[Warned] = []
    opened, rest = _opening(iter(events), warnings)
    if redact:
        opened = _with_clean_name(store, opened)
    identity = f"{opened.source}/{source}" if source else f"{opened.source}{suffix}"
    if redact and (names_only := store.redaction.of(into or opened.name)):
        identity = names_only.name(identity)  # a sub-agent's has its file's name in it
    opened = msgspec.structs.replace(opened, source=identity, name=f"{opened.name}{suffix}")
    tips = store.all_tips()
    session_name = into or ("" if as_new else store.session_of(opened.format, opened.source, tips))
    live = "" if as_new or session_name else store.session_of(live_format(opened.format), opened.source, tips)
    if live:  # nothing is missing there
        result = IngestResult(session=live, created=False, warnings=warnings)
        return Unfinished(
            result=result, format=opened.format, source=opened.source, scope="main", finish=_Ending(ExitStack())
        )
    base = None if into or as_new else _base(store, opened, tips)
    if base and session_name not in ("", base.session):
        base = None  # it was imported as a session of its own
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
        result = running.run(opened, rest, final=final or not opened.grows, warnings=warnings)
        result.created = created
        return Unfinished(
            result=result,
            format=opened.format,
            source=opened.source,
            scope=running.gatherer.current,
            # A writer's lock belongs to this thread, so an import into an existing session finishes here.
            finish=_Ending(locks.pop_all()) if created else _Ending(ExitStack()),
        )


class _Ending:
    """Leaves the `with` blocks of an import, once, in any thread; a second call waits for the first."""

    def __init__(self, locks: ExitStack) -> None:
        self._locks = locks
        self._mutex = threading.Lock()

    def __call__(self) -> None:
        with self._mutex:
            self._locks.close()


@contextmanager
def _ingest(
    store: Store, name: str, opened: Opened, created: bool, base: _Base | None, *, alone: bool
) -> Iterator[_Ingest]:
    """The import that makes the commits: in an existing session, or in a new one, whose first commit moves with the
    rest."""
    if not created:
        with StoredSession.open(store, name) as stored, stored.bulk(_QUICK) as (pack, counters):
            imported = store.source_of(name, opened.source) or _source(opened)
            ingestion = _Ingest(store, name, pack, counters, imported, stored)
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
            started = _Ingest(store, name, pack, Counters(), source)
            commit = pack.commit(first)
            started.scopes["main"] = _Scope(first.after, Numbering(block=0), commit, first.after)
            started.began = commit, first.after
            yield started


class _Base(msgspec.Struct, frozen=True):
    """The commit that a recording goes on from, with its session, and the position where what is new begins."""

    session: str
    commit: str
    scope: str
    end: int


def _base(store: Store, opened: Opened, tips: Mapping[str, Mapping[str, str]]) -> _Base | None:
    """The commit that the recording was exported from, if a session of the store still has it."""
    if opened.exported is None:
        return None
    commit = opened.exported.commit
    commit = purge_apply.commits(store).get(commit, commit)
    try:
        session = store.reader.meta(commit).session
    except (NotFound, Damaged):
        return None
    if not any(commit in store.first_parents(tip) for tip in tips.get(session, {}).values()):
        return None
    digest = hashlib.sha256(opened.source.encode("utf-8", "replace")).hexdigest()
    return _Base(session, commit, f"resumed-{digest[:8]}", opened.exported.end)


def _opening(stream: Iterator[Event], warnings: list[Warned]) -> tuple[Opened, Iterator[Event]]:
    """The first `Opened` and the events after it, once it is certain that there is a message to record."""
    opened: Opened | None = None
    for event in stream:
        match event:
            case Opened():
                opened = event if opened is None else _merged(opened, event)
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


def _with_clean_name(store: Store, opened: Opened) -> Opened:
    """`opened` without secrets in the session's proposed name, which may be the first words that a person typed."""
    redactor = store.redaction.of(opened.name)
    return msgspec.structs.replace(opened, name=redactor.name(opened.name)) if redactor else opened


def _merged(old: Opened, new: Opened) -> Opened:
    """`old` with the fields that only `new` has, and the newest title, model and list of missing parts."""
    newest = {name: getattr(new, name) or getattr(old, name) for name in ("model", "title", "missing")}
    first = {
        name: getattr(old, name) or getattr(new, name)
        for name in ("source", "name", "cwd", "branch", "time", "agent", "system", "tools")
    }
    window = old.window if new.window is None else new.window
    return msgspec.structs.replace(old, **newest, **first, grows=old.grows or new.grows, window=window)


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


@dataclass(slots=True)
class _Scope:
    """A scope while commits are made on it. `parent` is the parent of its next commit."""

    ledger: Ledger
    numbering: Numbering
    parent: str
    before: Ledger | None
    covers: str = ""  # changes of the journal covered, as the stored tip says
    epochs: list[Ledger] = field(default_factory=list)  # the ledger before each compaction


@dataclass(slots=True)
class _Ingest:
    store: Store
    name: str
    pack: PackWriter
    counters: Counters  # the session's newest block and group
    earlier: Source  # the progress of earlier imports
    stored: StoredSession | None = None  # the session as it was before; None if it is new
    source: Source = field(init=False)
    gatherer: Gatherer = field(default_factory=Gatherer)
    scopes: dict[str, _Scope] = field(default_factory=dict)
    began: tuple[str, Ledger] | None = None  # the first commit of a new session, and its ledger
    # unit → its commit, the scope's counters at it, and the number of compactions that the scope had had
    commits: dict[int, tuple[str, Counters, int]] = field(default_factory=dict)
    units: int = 0  # new ones
    model: str = ""
    window: Window | None = None
    blocks: int = 0
    redactor: Redactor | None = None  # None if all bytes are kept exactly
    files: tuple[tuple[str, bytes], ...] = ()  # for the next commit: a system prompt or tools that came late
    frame: tuple[Any, Any] = (None, None)  # the newest system prompt and tools
    prompts: RecordedPrompts = field(init=False)
    base: _Base | None = None
    base_units: int = 0  # those that the base has already

    def __post_init__(self) -> None:
        self.source = self.earlier
        self.prompts = RecordedPrompts(self._stored_body)

    def go_on_from(self, base: _Base) -> None:
        """What the recording has before the base's end is the base, and the rest comes into a scope of its own."""
        self.base = base
        self.gatherer = Gatherer(main=base.scope, rewind=f"{base.scope}-rewind")
        if self.earlier.units == 0 and (source := self.store.reader.meta(base.commit).source):
            self.source = msgspec.structs.replace(
                self.source, title=source.title, cwd=source.cwd, branch=source.branch, started=source.started
            )

    def run(self, opened: Opened, events: Iterator[Event], *, final: bool, warnings: list[Warned]) -> IngestResult:
        end = 0
        exported = self.base.end if self.base else 0
        finals = [*([exported] if exported else []), *self.source.finals]
        self.model, self.window = opened.model, opened.window
        self.frame = opened.system, opened.tools
        for event in map(self._beside, events):
            match event:
                case Opened():
                    # Before anything new, a title is the one that the export was given.
                    opening = msgspec.structs.replace(event, title="") if end <= exported > 0 else event
                    if opening.tools or (opening.system and not opened.system):
                        self.frame = opening.system, opening.tools
                        self.files = request_files(*self.frame)
                    opened = _merged(opened, opening)
                    self._knows(opened)
                case Warned():
                    warnings.append(event)
                case _:
                    while finals and event.end > finals[0]:
                        finals.pop(0)
                        self._commit_all(self.gatherer.finish())
                    self._commit_all(self.gatherer.feed(event))
                    end = event.end
        # Those of the past finals at the very end of a file that has not grown since.
        if finals and end >= finals[-1]:
            self._commit_all(self.gatherer.finish())
        if end <= exported:
            self._commit_all(self.gatherer.finish())
        waiting = self.gatherer.rest()
        if final and waiting:
            self.source = msgspec.structs.replace(self.source, finals=(*self.source.finals, end))
            self._commit_all(self.gatherer.finish())
            waiting = 0
        if self.gatherer.number < self.earlier.units:
            progress = f"{self.gatherer.number} steps of {self.earlier.units}"
            warnings.append(Warned(text=f"the file has less than was imported before: {progress}"))
        return IngestResult(
            session=self.name,
            created=False,
            units=self.units,
            blocks=self.blocks,
            waiting=waiting,
            scopes=tuple(self.scopes),
            warnings=warnings,
        )

    def _beside(self, event: Event) -> Event:
        """The event, redacted if it is not part of a unit. Units are redacted once they are known to be new."""
        return self.redactor.event(event) if self.redactor and isinstance(event, (Opened, Warned)) else event

    def _knows(self, opened: Opened) -> None:
        self.model = opened.model or self.model
        self.window = opened.window or self.window
        self.source = msgspec.structs.replace(
            self.source,
            title=opened.title or self.source.title,
            branch=self.source.branch or opened.branch,
            cwd=self.source.cwd or opened.cwd,
            agent=self.source.agent or opened.agent,
            missing=opened.missing or self.source.missing,
        )

    def _commit_all(self, units: Iterable[Unit]) -> None:
        """Commits the units that are new.

        Each scope decides that for itself: refs move one after another, so a crash can leave one scope's ref older than
        the others'.
        """
        for gathered in units:
            number = self.gatherer.number
            if self.base and gathered.end <= self.base.end:
                self.base_units = number
                continue
            unit = _placed(gathered, self.redactor) if self.redactor else gathered
            if isinstance(unit, Compaction):
                self.window = unit.event.window or self.window
            if number == self.earlier.units and unit.end != self.earlier.offset:
                raise Refused(
                    f"the file is not the one that was imported: what ended at byte {self.earlier.offset} now ends "
                    f"at byte {unit.end}",
                    hint=Phrase("import-edited"),
                )
            if number <= self._newest_unit(unit.scope):
                model = _reply_model(unit)
                self.model = (self.redactor.name(model) if self.redactor else model) or self.model
                continue
            self.units += 1
            self.source = msgspec.structs.replace(self.source, units=number, offset=unit.end)
            # Redacted here, before anything gets a number or reaches git: a secret never comes further.
            match _redacted(unit, self.redactor) if self.redactor else unit:
                case Step() as step:
                    self._step(step, number)
                case Compaction() as compaction:
                    self._compaction(compaction, number)
                case Edit() as edit:
                    self._edit(edit, number)
                case Fork() as fork:
                    self._fork(fork, number)

    def _newest_unit(self, scope: str) -> int:
        """The newest unit of this recording that the stored scope has."""
        if self.stored is None or scope not in self.stored.scopes():
            return 0
        source = self.stored.ledger(scope).meta.source
        return source.units if source and source.id == self.source.id else 0

    def _step(self, unit: Step, number: int) -> None:
        scope = self._scope(unit.scope, unit.parent, unit.task)
        numbering = self._numbered(scope)
        entries_of = [list(numbering.add(message)) for message in unit.messages]
        entries = list(chain.from_iterable(entries_of))
        rows = [row for entry in entries for row in entry.rows]
        bodies = tuple(body for entry in entries for body in entry.bodies)
        usage = [entry.usage for entry in entries if entry.usage]
        times = [entry.time for entry in entries if entry.time]
        model = _reply_model(unit)
        self.model = model or self.model
        data = {block: body for block, suffix, body in bodies if not suffix}
        ledger = scope.ledger.with_rows(rows)
        if unit.sent and (unit.sent.before or unit.sent.after):
            blocks = [[row.id for entry in message_entries for row in entry.rows] for message_entries in entries_of]
            ledger = _around_summary(ledger, blocks, unit.sent.before, unit.sent.after)
        self.prompts.add(bodies)
        described = step_message(
            rows, lambda row: data.get(row.id, b""), self.source.cwd, step=numbering.step, turn=numbering.turn
        )
        trailers = {
            "Ctxvc-Op": "step",
            "Ctxvc-Actor": "agent",
            **described.trailers,
            "Ctxvc-Model": model,
            **usage_trailers(usage[-1] if usage else {}),
            PROMPT: self._proof(unit, ledger, rows),
        }
        self._commit(
            unit.scope,
            scope,
            number,
            ledger,
            described.subject,
            trailers,
            text=described.text,
            bodies=bodies,
            actor="agent",
            time=times[-1] if times else "",
            window=None if unit.parent else self.window,
        )

    def _proof(self, step: Step, ledger: Ledger, rows: Sequence[Row]) -> str:
        """The trailer of a step whose commit renders the request that the host recorded; else empty."""
        if step.sent is None:
            return ""
        sent_ledger = recorded_prompts.before_reply(ledger, rows)
        return self.prompts.trailer(sent_ledger, step.sent, step.scope, *self.frame)

    def _stored_body(self, row: Row, scope: str) -> bytes:
        if self.stored is None:
            raise NotFound(f"{row.handle} is in no commit yet")
        return self.stored.body(row, scope)

    def _compaction(self, unit: Compaction, number: int) -> None:
        """Makes a group of the blocks that left, with the recorded summary as its stub, where the host put it; no text
        of ours."""
        scope, event = self._scope(unit.scope), unit.event
        scope.epochs.append(scope.ledger)
        if event.prompt:
            self._recast(unit, scope, number)
            return
        leaving, before = _leaving(scope.ledger, event.kept, event.before)
        numbering = self._numbered(scope)
        placed = [numbering.aside(message) for message in event.summary]
        summary = [row for rows, _ in placed for row in rows]
        bodies: tuple[Body, ...] = tuple(body for _, placed_bodies in placed for body in placed_bodies)
        self.prompts.add(bodies)
        ledger = scope.ledger.with_rows(summary)
        subject = f"compaction by the host: {len(leaving)} blocks left"
        if leaving:
            self.counters = msgspec.structs.replace(self.counters, group=self.counters.group + 1)
            group = _host_group(scope.ledger, f"G{self.counters.group}", leaving, summary, before)
            nested = [
                msgspec.structs.replace(scope.ledger.groups[member], group=group.id)
                for member in group.members
                if member.startswith("G")
            ]
            archived = [
                msgspec.structs.replace(row, state="archived", level=1, group=group.id, removed_by="host")
                for row in leaving
            ]
            ledger = ledger.with_rows(archived).with_groups([group, *nested])
            subject += f" as {group.id}"
        trailers = {"Ctxvc-Op": "compact", "Ctxvc-Actor": "host", "Ctxvc-Host": _detail(event)}
        self._commit(
            unit.scope,
            scope,
            number,
            ledger,
            subject,
            trailers,
            bodies=bodies,
            actor="host",
            time=event.time,
            window=None if event.scope else self.window,
        )

    def _recast(self, unit: Compaction, scope: _Scope, number: int) -> None:
        """Makes the prompt that a plugin of the host's gave back, of the blocks that stand in the scope."""
        event, before = unit.event, scope.ledger
        changes = recast(
            before,
            event.prompt,
            lambda row: self.prompts.body(row, unit.scope),
            as_recorded=self._is_as_recorded(unit.scope, scope.parent),
        )
        numbering = self._numbered(scope)
        added: list[tuple[str, list[Row]]] = []
        bodies: list[Body] = []
        for message_added, place in changes.additions:
            rows, placed_bodies = numbering.aside(message_added)
            added.append((place, rows))
            bodies += placed_bodies
        self.prompts.add(bodies)
        ledger = before.with_rows(row for _, rows in added for row in rows)
        ledger = applied(ledger, changes, added, event.actor, self.counters.group + 1)
        new_groups = [group_number(name) for name in ledger.groups.keys() - before.groups.keys()]
        self.counters = msgspec.structs.replace(self.counters, group=max(new_groups, default=self.counters.group))
        fewer = sum(row.present for row in before.rows()) - sum(
            row.present for row in ledger.rows() if before.get(row.id)
        )
        self._commit(
            unit.scope,
            scope,
            number,
            ledger,
            f"compaction by {event.actor}: {fewer} blocks left",
            {"Ctxvc-Op": "compact", "Ctxvc-Actor": event.actor, "Ctxvc-Host": _detail(event)},
            bodies=tuple(bodies),
            actor="host",
            time=event.time,
            window=None if event.scope else self.window,
        )

    def _is_as_recorded(self, scope: str, commit: str) -> bool:
        """Whether a commit of the recording is the scope's newest, and no verb's."""
        if self.stored is None or scope not in self.stored.scopes() or self.stored.tip(scope) != commit:
            return True  # this import made it
        return trailers_of(self.store.commit(commit).message).get("Ctxvc-Op") in _RECORDED

    def _edit(self, unit: Edit, number: int) -> None:
        """Lets the blocks of a message stand in the prompt as the host has them from now on."""
        scope = self._scope(unit.scope)
        rows = edited(scope.ledger, unit.event)
        blocks = " ".join(row.id for row in rows)
        self._commit(
            unit.scope,
            scope,
            number,
            scope.ledger.with_rows(rows),
            f"edit by the host: {blocks or 'nothing'}",
            {"Ctxvc-Op": "edit", "Ctxvc-Actor": "host", "Ctxvc-Blocks": blocks},
            actor="host",
            time=unit.event.time,
            window=self.window,
        )

    def _fork(self, unit: Fork, number: int) -> None:
        parent, ledger = self._at(unit.origin, unit.unit)
        meta = msgspec.structs.replace(ledger.meta, scope=unit.scope, parent=unit.origin)
        scope = _Scope(ledger=ledger.with_meta(meta), numbering=Numbering.of(ledger, 0), parent=parent, before=ledger)
        self.scopes[unit.scope] = scope
        trailers = {"Ctxvc-Op": "scope", "Ctxvc-Actor": "host"}
        subject = f"scope {unit.scope} from {unit.origin}, step {ledger.meta.counters.step}"
        self._commit(
            unit.scope,
            scope,
            number,
            scope.ledger,
            subject,
            trailers,
            actor="host",
            time=unit.time,
            window=self.window,
        )

    def _commit(
        self,
        name: str,
        scope: _Scope,
        number: int,
        ledger: Ledger,
        subject: str,
        trailers: Mapping[str, str],
        *,
        actor: str,
        time: str,
        bodies: tuple[Body, ...] = (),
        window: Window | None = None,
        text: str = "",
    ) -> None:
        self.counters = msgspec.structs.replace(self.counters, block=max(self.counters.block, scope.numbering.block))
        meta = msgspec.structs.replace(
            ledger.meta,
            counters=msgspec.structs.replace(scope.numbering.counters(self.counters.group), block=self.counters.block),
            model=self.model or ledger.meta.model,
            source=self.source,
            **_window_fields(ledger.meta, window),
        )
        ledger = ledger.with_meta(meta)
        now = self.store.now()
        commit = Commit(
            ref=ref_of(self.name, name),
            before=scope.before,
            after=ledger,
            bodies=bodies,
            files=self.files,
            message=message(subject, {**trailers, "Ctxvc-Seq": scope.covers}, text),
            actor=actor,
            time=epoch(time, now),
            now=now,
            parent=scope.parent,
        )
        scope.parent = self.pack.commit(commit)
        self.files = ()
        scope.ledger = scope.before = ledger
        self.blocks += sum(not suffix for _, suffix, _ in bodies)
        self.commits[number] = (scope.parent, meta.counters, len(scope.epochs))

    def _numbered(self, scope: _Scope) -> Numbering:
        scope.numbering.block = self.counters.block
        return scope.numbering

    def _scope(self, name: str, parent: str = "", task: str = "") -> _Scope:
        """The scope, as stored if this import has not touched it yet; a sub-agent's is created."""
        if name not in self.scopes:
            if self.stored and name in self.stored.scopes():
                ledger, tip = self.stored.ledger(name), self.stored.tip(name)
                self.scopes[name] = _Scope(ledger, Numbering.of(ledger, 0), tip, ledger, self.stored.covers(name))
            elif self.base and name == self.base.scope:
                self.scopes[name] = self._resumed(self.base)
            elif name == "main":
                self.scopes[name] = self._main_again()
            else:
                self.scopes[name] = self._sub_agent(name, parent, task)
        return self.scopes[name]

    def _resumed(self, base: _Base) -> _Scope:
        """The scope of what came after an export, on top of the commit that was exported."""
        before = self.store.reader.ledger(base.commit)
        meta = msgspec.structs.replace(
            before.meta,
            scope=base.scope,
            parent=before.meta.scope,
            source=msgspec.structs.replace(self.source, units=0),
        )
        ledger, now = before.with_meta(meta), self.store.now()
        subject = f"scope {base.scope} from {before.meta.scope}, step {meta.counters.step}"
        commit = self.pack.commit(
            Commit(
                ref=ref_of(self.name, base.scope),
                before=before,
                after=ledger,
                message=message(subject, {"Ctxvc-Op": "scope", "Ctxvc-Actor": "host"}),
                actor="host",
                time=epoch("", now),
                now=now,
                parent=base.commit,
            )
        )
        return _Scope(ledger, Numbering.of(ledger, 0), commit, ledger)

    def _main_again(self) -> _Scope:
        """Scope `main` as the session began, if a killed import moved only the ref of another scope."""
        first, ledger = self._beginning()
        return _Scope(ledger, Numbering.of(ledger, 0), first, ledger)

    def _beginning(self) -> tuple[str, Ledger]:
        """The commit that the session began with, and its ledger."""
        if self.began is None:
            tip = next(iter(self.store.tips(self.name).values()))
            *_, first = self.store.first_parents(tip)
            self.began = first, self.store.reader.ledger(first)
        return self.began

    def _sub_agent(self, name: str, parent: str, task: str) -> _Scope:
        """A scope that begins empty, on top of its parent's newest commit."""
        origin = self._scope(parent)
        empty = Ledger(
            meta=Meta(
                format=origin.ledger.meta.format,
                render=origin.ledger.meta.render,
                session=self.name,
                scope=name,
                parent=parent,
                model=self.model,
                source=self.source,
            )
        )
        now = self.store.now()
        trailers = {"Ctxvc-Op": "scope", "Ctxvc-Actor": "host", "Ctxvc-Task": task}
        commit = self.pack.commit(
            Commit(
                ref=ref_of(self.name, name),
                before=origin.before,
                after=empty,
                message=message(f"scope {name}", trailers),
                actor="host",
                time=epoch(self.source.started, now),
                now=now,
                without=("request",),
                parent=origin.parent,
            )
        )
        return _Scope(empty, Numbering(block=0), commit, empty)

    def _at(self, scope: str, unit: int) -> tuple[str, Ledger]:
        """The commit of a unit, and its ledger. Before the first unit of any scope, those that the session begins
        with."""
        if unit == 0:
            return self._beginning()
        if self.base and unit <= self.base_units:
            # Where in it the rewind goes is in no commit of this scope: it goes to the end of what was exported.
            return self.base.commit, self.store.reader.ledger(self.base.commit)
        if unit in self.commits:
            commit, counters, epoch_number = self.commits[unit]
            forked = self.scopes[scope]
            ledger = forked.epochs[epoch_number] if epoch_number < len(forked.epochs) else forked.ledger
            return commit, _as_of(ledger, counters)
        # Made by an earlier import: the commit whose ctxvc.json counts this many units.
        for commit in self.store.first_parents(self.store.tips(self.name)[scope]):
            source = self.store.reader.meta(commit).source
            if source is None or source.units <= unit:
                return commit, self.store.reader.ledger(commit)
        raise BadInput(f"unit {unit} of scope {scope} is in no commit")


def _detail(event: Compacted) -> str:
    return " ".join(f"{key}={value}" for key, value in event.detail.items() if isinstance(value, (str, int)))


def _as_of(ledger: Ledger, counters: Counters) -> Ledger:
    """`ledger` without its later rows; between two compactions rows are only ever added."""
    segments = {
        key: rows
        for key, segment in ledger.segments.items()
        if (rows := tuple(row for row in segment if row.number <= counters.block))
    }
    meta = msgspec.structs.replace(ledger.meta, counters=counters)
    return Ledger(meta=meta, segments=Segments(segments), groups=ledger.groups)


def _leaving(ledger: Ledger, remaining: frozenset[str], before: str) -> tuple[list[Row], str]:
    """The rows in the prompt that no kept message has, and the first row of the message `before`."""
    leaving: list[Row] = []
    stays: set[int] = set()
    place = ""
    for row in ledger.rows():
        key = row.extra.get("ctxvc", {}).get("key", "")
        if key and key in remaining:
            stays.add(row.msg)
        if key and key == before:
            place = row.id
        if row.present and row.msg not in stays:
            leaving.append(row)
    return leaving, place


def _host_group(ledger: Ledger, name: str, leaving: list[Row], summary: list[Row], before: str) -> Group:
    """The group of the rows that left; existing outer groups become members of it as they are."""
    outer = [group.id for group in ledger.groups.values() if not group.group]
    level = 1 + max((ledger.groups[group].level for group in outer), default=0)
    return Group(
        id=name,
        members=(*outer, *(row.id for row in leaving)),
        level=level,
        label=f"{len(leaving)} blocks, compacted by the host",
        summary=tuple(row.id for row in summary),
        before=before,
        removed_by="host",
    )


def _around_summary(ledger: Ledger, blocks: Sequence[Sequence[str]], before: int, after: int) -> Ledger:
    """`ledger` with the blocks of the first messages, so many before and so many behind the host's newest summary.

    As it is where no summary stands before what was kept.
    """
    groups = [group for group in ledger.groups.values() if group.removed_by == "host" and group.before]
    if not groups:
        return ledger
    newest = max(groups, key=lambda group: group_number(group.id))
    ahead, tail = chain(*blocks[:before]), chain(*blocks[before : before + after])
    return ledger.with_groups([msgspec.structs.replace(newest, summary=(*ahead, *newest.summary, *tail))])


def _placed(unit: Unit, redactor: Redactor) -> Unit:
    """The unit, without secrets in the names of scopes and of a sub-agent's call, which say where it belongs."""
    names = {name: getattr(unit, name) for name in ("scope", "parent", "origin", "task") if hasattr(unit, name)}
    clean = {name: redactor.name(value) for name, value in names.items()}
    return unit if clean == names else msgspec.structs.replace(unit, **clean)


def _redacted(unit: Unit, redactor: Redactor) -> Unit:
    """The unit without its secrets: the same unit that redacted events would make, because grouping depends only on
    names, roles and calls, which redaction keeps."""
    match unit:
        case Step():
            return msgspec.structs.replace(unit, messages=tuple(map(redactor.message, unit.messages)))
        case Compaction() | Edit():
            event = redactor.event(unit.event)
            assert isinstance(event, type(unit.event))
            return msgspec.structs.replace(unit, event=event)
    return unit


def _window_fields(meta: Meta, window: Window | None) -> dict[str, Any]:
    """The fields of a scope that hold its recorded window; a window that a provider or a person gave stays."""
    if window is None or (meta.window and not meta.window_by):
        return {}
    return {"window": window.tokens, "window_by": window.by, "compacts": window.compacts}


def _reply_model(unit: Unit) -> str:
    """The model of a step's reply; empty for any other unit."""
    messages = unit.messages if isinstance(unit, Step) else ()
    return next((message.model for message in reversed(messages) if message.model), "")
