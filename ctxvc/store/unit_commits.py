"""Commits a recording's units: one commit each, in the scope where the host had it, all in one pack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from ctxvc.core.ledger.block import group_number
from ctxvc.core.ledger.ledger import Counters, Ledger, Meta, Row, Source, Window
from ctxvc.core.ledger.numbering import Body, Numbering
from ctxvc.core.prompt.request import up_to
from ctxvc.core.recording.edit import around_summary, compacted, edited, withdrawn
from ctxvc.core.recording.events import Compacted, Event, Opened, Warned
from ctxvc.core.recording.recast import applied, recast
from ctxvc.core.recording.steps import Compaction, Edit, Fork, Gatherer, Step, Unit
from ctxvc.core.secrets.redact import Redactor
from ctxvc.core.secrets.units import placed, redacted
from ctxvc.errors import BadInput, NotFound, Phrase, Refused
from ctxvc.store.format import message, ref_of, trailers_of
from ctxvc.store.git.fast_import import Commit, PackWriter, epoch
from ctxvc.store.import_scopes import Base, ImportScope, ImportScopes
from ctxvc.store.log.commits import step_message, times_trailer, usage_trailers
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import recorded_prompts
from ctxvc.store.read.recorded_prompts import RecordedPrompts
from ctxvc.store.read.revision import PROMPT
from ctxvc.store.store import Store, request_files

#: The operations (`Ctxvc-Op`) of a recording's commits.
_RECORDED = frozenset({"step", "compact", "edit", "scope"})


class IngestResult(msgspec.Struct, kw_only=True):
    """The result of an import. `units` counts new commits, `waiting` the messages of a step that may still grow."""

    session: str = ""
    created: bool = False
    units: int = 0
    blocks: int = 0
    waiting: int = 0
    scopes: tuple[str, ...] = ()
    warnings: list[Warned] = []


@dataclass(slots=True)
class UnitCommits:
    """Makes the commits of one import, into `pack`; call `run`."""

    store: Store
    name: str
    pack: PackWriter
    counters: Counters  # the session's newest block and group
    earlier: Source  # the progress of earlier imports
    stored: StoredSession | None = None  # the session before this import; None if it is new
    source: Source = field(init=False)
    gatherer: Gatherer = field(default_factory=Gatherer)
    scopes: ImportScopes = field(init=False)
    # unit → its commit, the scope's counters there, and the number of the scope's compactions before it
    commits: dict[int, tuple[str, Counters, int]] = field(default_factory=dict)
    units: int = 0  # new ones
    model: str = ""
    window: Window | None = None
    blocks: int = 0
    redactor: Redactor | None = None  # None if all bytes are kept exactly
    files: tuple[tuple[str, bytes], ...] = ()  # for the next commit: a system prompt or tools that came later
    frame: tuple[Any, Any] = (None, None)  # the newest system prompt and tools
    prompts: RecordedPrompts = field(init=False)
    base_units: int = 0  # units that are already in the base

    def __post_init__(self) -> None:
        self.source = self.earlier
        self.scopes = ImportScopes(self.store, self.name, self.pack, self.stored)
        self.prompts = RecordedPrompts(self._stored_body)

    def go_on_from(self, base: Base) -> None:
        """Lets the base stand for what the recording has up to its end; the rest is committed in a scope of its own."""
        self.scopes.base = base
        self.gatherer = Gatherer(main=base.scope, rewind=f"{base.scope}-rewind")
        # The base's end is added to `finals`, so that later imports find it even where nothing else records it.
        self.source = msgspec.structs.replace(self.source, finals=tuple(sorted({base.end, *self.source.finals})))
        if self.earlier.units == 0 and (source := self.store.reader.meta(base.commit).source):
            self.source = msgspec.structs.replace(
                self.source, title=source.title, cwd=source.cwd, branch=source.branch, started=source.started
            )

    def run(self, opened: Opened, events: Iterator[Event], *, final: bool, warnings: list[Warned]) -> IngestResult:
        end = 0
        exported = self.scopes.base.end if self.scopes.base else 0
        finals = list(self.source.finals)
        self.model, self.window = opened.model, opened.window
        self.frame = opened.system, opened.tools
        for event in events:
            match event:
                case Opened():
                    opening = self.redactor.opened(event) if self.redactor else event
                    # Before anything new, a title is only the one that the export was given.
                    opening = msgspec.structs.replace(opening, title="") if end <= exported > 0 else opening
                    if opening.tools or (opening.system and not opened.system):
                        self.frame = opening.system, opening.tools
                        self.files = request_files(*self.frame)
                    opened = merged(opened, opening)
                    self._knows(opened)
                case Warned():
                    warnings.append(self.redactor.warned(event) if self.redactor else event)
                case _:
                    while finals and event.end > finals[0]:
                        finals.pop(0)
                        self._commit_all(self.gatherer.finish())
                    self._commit_all(self.gatherer.feed(event))
                    end = event.end
        # Past finals at the very end of a file that has not grown since.
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
            units=self.units,
            blocks=self.blocks,
            waiting=waiting,
            scopes=tuple(self.scopes.opened),
            warnings=warnings,
        )

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

        This is decided for each scope: refs move one by one, so a crash can leave one scope's ref older than others.
        """
        for gathered in units:
            number = self.gatherer.number
            if self.scopes.base and gathered.end <= self.scopes.base.end:
                self.base_units = number
                continue
            unit = placed(gathered, self.redactor) if self.redactor else gathered
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
            # Redacted here, before a secret can get a number or reach git.
            match redacted(unit, self.redactor) if self.redactor else unit:
                case Step() as step:
                    self._step(step, number)
                case Compaction() as compaction:
                    self._compaction(compaction, number)
                case Edit() as edit:
                    self._edit(edit, number)
                case Fork() as fork:
                    self._fork(fork, number)

    def _newest_unit(self, scope: str) -> int:
        """The number of the newest unit of this recording in the stored scope; 0 if none."""
        if self.stored is None or scope not in self.stored.scopes():
            return 0
        source = self.stored.ledger(scope).meta.source
        return source.units if source and source.id == self.source.id else 0

    def _step(self, unit: Step, number: int) -> None:
        scope = self.scopes.open(unit.scope, self.source, model=self.model, parent=unit.parent, task=unit.task)
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
        ledger = scope.ledger.with_rows(withdrawn(scope.ledger, unit.unsent)).with_rows(rows)
        if unit.sent and (unit.sent.before or unit.sent.after):
            blocks = [[row.id for entry in message_entries for row in entry.rows] for message_entries in entries_of]
            ledger = around_summary(ledger, blocks, unit.sent.before, unit.sent.after)
        self.prompts.add(bodies)
        described = step_message(
            rows, lambda row: data.get(row.id, b""), self.source.cwd, step=numbering.step, turn=numbering.turn
        )
        trailers = {
            "Ctxvc-Op": "step",
            "Ctxvc-Actor": "agent",
            **described.trailers,
            **times_trailer((message.parts, message.time) for message in unit.messages),
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
        """The `Ctxvc-Prompt` trailer of a step whose commit renders the request that the host recorded; else empty."""
        if step.sent is None:
            return ""
        sent_ledger = recorded_prompts.before_reply(ledger, rows)
        return self.prompts.trailer(sent_ledger, step.sent, step.scope, *self.frame)

    def _stored_body(self, row: Row, scope: str) -> bytes:
        if self.stored is None:
            raise NotFound(f"{row.handle} is in no commit yet")
        return self.stored.body(row, scope)

    def _compaction(self, unit: Compaction, number: int) -> None:
        """Makes a group of the blocks that left, with the recorded summary as its stub, where the host put it.

        Adds no text of ours.
        """
        scope, event = self.scopes.open(unit.scope, self.source), unit.event
        scope.epochs.append(scope.ledger)
        if event.prompt:
            self._recast(unit, scope, number)
            return
        numbering = self._numbered(scope)
        placed = [numbering.aside(message) for message in event.summary]
        summary = [row for rows, _ in placed for row in rows]
        bodies: tuple[Body, ...] = tuple(body for _, placed_bodies in placed for body in placed_bodies)
        self.prompts.add(bodies)
        ledger, group, count = compacted(scope.ledger, event, summary, self.counters.group + 1)
        self.counters = msgspec.structs.replace(self.counters, group=self.counters.group + bool(group))
        subject = f"compaction by the host: {count} blocks left" + (f" as {group}" if group else "")
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

    def _recast(self, unit: Compaction, scope: ImportScope, number: int) -> None:
        """Makes the prompt that a plugin of the host returned, from the blocks in the scope."""
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
        """Whether the scope's newest commit was made by the recording, not by a verb."""
        if self.stored is None or scope not in self.stored.scopes() or self.stored.tip(scope) != commit:
            return True  # this import made it
        return trailers_of(self.store.commit(commit).message).get("Ctxvc-Op") in _RECORDED

    def _edit(self, unit: Edit, number: int) -> None:
        """Makes the blocks of a message appear in the prompt as the host has them from now on."""
        scope = self.scopes.open(unit.scope, self.source)
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
        scope = ImportScope(
            ledger=ledger.with_meta(meta), numbering=Numbering.of(ledger, 0), parent=parent, before=ledger
        )
        self.scopes.opened[unit.scope] = scope
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
        scope: ImportScope,
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

    def _numbered(self, scope: ImportScope) -> Numbering:
        scope.numbering.block = self.counters.block
        return scope.numbering

    def _at(self, scope: str, unit: int) -> tuple[str, Ledger]:
        """The commit of a unit, and its ledger. For unit 0, before the first, those that the session begins with."""
        if unit == 0:
            return self.scopes.beginning()
        base = self.scopes.base
        if base and unit <= self.base_units:
            # No commit of this scope has the place in the base that the rewind goes to: it goes to the export's end.
            return base.commit, self.store.reader.ledger(base.commit)
        if unit in self.commits:
            commit, counters, epoch_number = self.commits[unit]
            forked = self.scopes.opened[scope]
            ledger = forked.epochs[epoch_number] if epoch_number < len(forked.epochs) else forked.ledger
            # Between two compactions rows are only ever added.
            earlier = up_to(ledger, f"B{counters.block}")
            return commit, earlier.with_meta(msgspec.structs.replace(ledger.meta, counters=counters))
        # Committed by an earlier import: the commit whose ctxvc.json counts this many units.
        for commit in self.store.first_parents(self.store.tips(self.name)[scope]):
            source = self.store.reader.meta(commit).source
            if source is None or source.units <= unit:
                return commit, self.store.reader.ledger(commit)
        raise BadInput(f"unit {unit} of scope {scope} is in no commit")


def _detail(event: Compacted) -> str:
    return " ".join(f"{key}={value}" for key, value in event.detail.items() if isinstance(value, (str, int)))


def _window_fields(meta: Meta, window: Window | None) -> dict[str, Any]:
    """The fields that record a scope's window; none if a provider or a person already set it."""
    if window is None or (meta.window and not meta.window_by):
        return {}
    return {"window": window.tokens, "window_by": window.by, "compacts": window.compacts}


def _reply_model(unit: Unit) -> str:
    """The model of a step's reply; empty for any other unit."""
    messages = unit.messages if isinstance(unit, Step) else ()
    return next((message.model for message in reversed(messages) if message.model), "")


def merged(old: Opened, new: Opened) -> Opened:
    """`old`, completed by the fields of `new`; title, model and list of missing parts are the newest."""
    newest = {name: getattr(new, name) or getattr(old, name) for name in ("model", "title", "missing")}
    first = {
        name: getattr(old, name) or getattr(new, name)
        for name in ("source", "name", "cwd", "branch", "time", "agent", "system", "tools")
    }
    window = old.window if new.window is None else new.window
    return msgspec.structs.replace(old, **newest, **first, grows=old.grows or new.grows, window=window)
