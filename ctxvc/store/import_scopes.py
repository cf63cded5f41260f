"""The scopes that an import commits to: as stored, continued from an export, or created for a sub-agent."""

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
    """The commit that a recording continues from, with its session.

    `scope` is the scope for what is new, and `end` the position in the recording where that begins.
    """

    session: str
    commit: str
    scope: str
    end: int


@dataclass(slots=True)
class ImportScope:
    """A scope while commits are made in it. `parent` is the parent of its next commit."""

    ledger: Ledger
    numbering: Numbering
    parent: str
    before: Ledger | None
    covers: str = ""  # changes of the journal covered, from the stored tip
    epochs: list[Ledger] = field(default_factory=list)  # the ledger before each compaction


@dataclass(slots=True)
class ImportScopes:
    """The scopes of one import. `stored` is the session before it, None if it is new."""

    store: Store
    name: str
    pack: PackWriter
    stored: StoredSession | None = None
    base: Base | None = None
    opened: dict[str, ImportScope] = field(default_factory=dict)
    began: tuple[str, Ledger] | None = None  # the first commit of a new session, and its ledger

    def open(self, name: str, source: Source, *, model: str = "", parent: str = "", task: str = "") -> ImportScope:
        """The scope, as stored if this import has not used it yet; a sub-agent's is created.

        `source` and `model` are those of the recording so far, with which a new scope begins.
        """
        if name not in self.opened:
            if self.stored and name in self.stored.scopes():
                ledger, tip = self.stored.ledger(name), self.stored.tip(name)
                self.opened[name] = ImportScope(ledger, Numbering.of(ledger, 0), tip, ledger, self.stored.covers(name))
            elif self.base and name == self.base.scope:
                self.opened[name] = self._resumed(self.base, source)
            elif name == "main":  # as the session began: a killed import may have moved only another scope's ref
                first, ledger = self.beginning()
                self.opened[name] = ImportScope(ledger, Numbering.of(ledger, 0), first, ledger)
            else:
                self.opened[name] = self._sub_agent(name, source, model, parent, task)
        return self.opened[name]

    def _resumed(self, base: Base, source: Source) -> ImportScope:
        """The scope for what follows an export, on top of the exported commit."""
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
        """A new empty scope on top of its parent's newest commit."""
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
