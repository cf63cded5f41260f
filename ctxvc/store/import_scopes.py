"""The scopes that an import makes commits on: as stored, gone on with from an export, or begun for a sub-agent."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Meta, Source
from ctxvc.core.ledger.numbering import Numbering
from ctxvc.store.format import message, ref_of
from ctxvc.store.git.fast_import import Commit, PackWriter, epoch
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


class Base(msgspec.Struct, frozen=True):
    """The commit that a recording goes on from, with its session, and the position where what is new begins."""

    session: str
    commit: str
    scope: str
    end: int


@dataclass(slots=True)
class ImportScope:
    """A scope while commits are made on it. `parent` is the parent of its next commit."""

    ledger: Ledger
    numbering: Numbering
    parent: str
    before: Ledger | None
    covers: str = ""  # changes of the journal covered, as the stored tip says
    epochs: list[Ledger] = field(default_factory=list)  # the ledger before each compaction


@dataclass(slots=True)
class ImportScopes:
    """Those of one import. `stored` is the session as it was before, None if it is new."""

    store: Store
    name: str
    pack: PackWriter
    stored: StoredSession | None = None
    base: Base | None = None
    opened: dict[str, ImportScope] = field(default_factory=dict)
    began: tuple[str, Ledger] | None = None  # the first commit of a new session, and its ledger

    def open(self, name: str, source: Source, *, model: str = "", parent: str = "", task: str = "") -> ImportScope:
        """The scope, as stored if this import has not touched it yet; a sub-agent's is created.

        `source` and `model` are those of the recording so far, which a new scope begins with.
        """
        if name not in self.opened:
            if self.stored and name in self.stored.scopes():
                ledger, tip = self.stored.ledger(name), self.stored.tip(name)
                self.opened[name] = ImportScope(ledger, Numbering.of(ledger, 0), tip, ledger, self.stored.covers(name))
            elif self.base and name == self.base.scope:
                self.opened[name] = self._resumed(self.base, source)
            elif name == "main":  # as the session began, if a killed import moved only the ref of another scope
                first, ledger = self.beginning()
                self.opened[name] = ImportScope(ledger, Numbering.of(ledger, 0), first, ledger)
            else:
                self.opened[name] = self._sub_agent(name, source, model, parent, task)
        return self.opened[name]

    def _resumed(self, base: Base, source: Source) -> ImportScope:
        """The scope of what came after an export, on top of the commit that was exported."""
        before = self.store.reader.ledger(base.commit)
        meta = msgspec.structs.replace(
            before.meta,
            scope=base.scope,
            parent=before.meta.scope,
            source=msgspec.structs.replace(source, units=0),
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
        return ImportScope(ledger, Numbering.of(ledger, 0), commit, ledger)

    def beginning(self) -> tuple[str, Ledger]:
        """The commit that the session began with, and its ledger."""
        if self.began is None:
            tip = next(iter(self.store.tips(self.name).values()))
            *_, first = self.store.first_parents(tip)
            self.began = first, self.store.reader.ledger(first)
        return self.began

    def _sub_agent(self, name: str, source: Source, model: str, parent: str, task: str) -> ImportScope:
        """A scope that begins empty, on top of its parent's newest commit."""
        origin = self.open(parent, source, model=model)
        empty = Ledger(
            meta=Meta(
                format=origin.ledger.meta.format,
                render=origin.ledger.meta.render,
                session=self.name,
                scope=name,
                parent=parent,
                model=model,
                source=source,
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
                time=epoch(source.started, now),
                now=now,
                without=("request",),
                parent=origin.parent,
            )
        )
        return ImportScope(empty, Numbering(block=0), commit, empty)
