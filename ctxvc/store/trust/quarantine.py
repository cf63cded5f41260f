"""Content from another store: fetched beside ours, checked there, and only then accepted.

The other side may be anyone. Until everything that a scope's history needs has been checked, none of it is in our packs
and no ref leads to it; if killed, a quarantine leaves a folder that the next one removes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pygit2

from ctxvc.errors import CtxvcError, Damaged, Phrase
from ctxvc.store import files
from ctxvc.store.files import locked
from ctxvc.store.git import program, transport
from ctxvc.store.git.objects import Objects, Unreadable
from ctxvc.store.store import Store
from ctxvc.store.trust import contained
from ctxvc.store.upkeep.carriers import Carriers
from ctxvc.store.verify.finding import Where
from ctxvc.store.verify.history import History

#: The folder in the store.
FOLDER = "ctxvc/incoming"
_PACKS = (".pack", ".idx")


class Quarantine:
    """Objects that were received and not accepted yet. `objects` is their folder."""

    def __init__(self, store: Store, objects: Path, lock: int) -> None:
        self._store = store
        self._objects = objects
        self._lock = lock
        self._repository: pygit2.Repository | None = None
        self._reader: Objects | None = None

    def fetch(self, address: str, wants: Iterable[str], *, ask: bool = False) -> None:
        """Fetches commits by their ids, or whole refs, with everything that they need. Raises: as `transport.fetch`."""
        transport.fetch(self._store.path, address, wants, objects=self._objects, ask=ask, inherit=(self._lock,))
        self._repository = self._reader = None

    def assemble(self, address: str, carrier: str, ref: str, *, ask: bool = False) -> None:
        """Assembles what arrives in pieces: the packs of a carrier, and of earlier carriers that are needed.

        `ref` is the remote's ref that leads to the carrier. Raises: as `transport.fetch`; Damaged.
        """
        folder = self._objects.parent / "pieces.git"
        try:
            for pack in Carriers(folder, address, ask=ask).packs(carrier, ref, self.has):
                try:
                    transport.run(
                        self._store.path, address, "index-pack", "--stdin", "--strict",
                        data=pack, objects=self._objects, inherit=(self._lock,),
                    )  # fmt: skip
                except CtxvcError as error:
                    raise Damaged(
                        f"the pieces of {carrier[:12]} make no pack: {error}", hint=Phrase("share-theirs")
                    ) from error
                self._repository = self._reader = None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def has(self, commit: str) -> bool:
        """Whether the commit is in the store or was received."""
        return commit in self.repository

    @property
    def repository(self) -> pygit2.Repository:
        """The store's repository as it would be with the received objects."""
        if self._repository is None:
            self._repository = program._open(self._store.path, trusted=True)
            self._repository.odb.add_disk_alternate(str(self._objects))
        return self._repository

    def names(self) -> frozenset[str]:
        """The ids of all objects that were received."""
        return frozenset(chain.from_iterable(map(program.packed, (self._objects / "pack").glob("pack-*.idx"))))

    def check(self, session: str, scope: str, tip: str) -> None:
        """Checks every commit of the scope that the store does not have, as `verify` does.

        Raises: Damaged, with the first fault.
        """
        if self._reader is None:
            self._reader = Objects(self.repository)  # one for all checks: the scopes of a session share most trees
        objects, history = self._reader, History(self._reader)
        try:
            meta = history.meta(objects.commit(bytes.fromhex(tip)))
            if meta is None or (meta.session, meta.scope) != (session, scope.partition("@")[0]):
                raise _bad(session, scope, f"{tip[:12]} is of another scope")
            for name in self._new(objects, tip):
                commit = objects.commit(bytes.fromhex(name))
                parent = objects.commit(commit.parents[0]) if commit.parents else None
                where = Where(session=session, scope=scope, commit=name)
                for finding in history.findings(commit, parent, 0, where):
                    if finding.level == "damage":
                        raise _bad(session, scope, f"commit {name[:12]}: {finding.what}")
        except Unreadable as error:
            raise _bad(session, scope, str(error)) from error
        for _, finding in history.broken.values():
            raise _bad(session, scope, str(finding.what))

    def _new(self, objects: Objects, tip: str) -> Iterator[str]:
        """The commits that the store does not have, parents first. Raises: Unreadable."""
        own = self._store.repository
        seen: set[str] = set()
        stack = [(tip, False)]
        while stack:
            commit, is_done = stack.pop()
            if is_done:
                yield commit
            elif commit not in seen and commit not in own:
                seen.add(commit)
                stack.append((commit, True))
                stack += [(parent.hex(), False) for parent in objects.commit(bytes.fromhex(commit)).parents]

    def follows(self, tip: str, older: str) -> bool:
        """Whether `tip` continues `older` by first parents: a second parent, as of a goto, does not count."""
        at: str | None = tip
        while at is not None and at != older:
            commit = self.repository[at]
            assert isinstance(commit, pygit2.Commit)
            at = str(commit.parent_ids[0]) if commit.parent_ids else None
        return at == older

    def accept(self) -> None:
        """Moves the received packs into the store. If killed in between, it leaves packs that no ref needs."""
        target = self._store.path / "objects" / "pack"
        packs = sorted((self._objects / "pack").glob("pack-*.pack"))
        with self._store.shared():
            for pack in packs:
                for suffix in _PACKS:  # git looks for the index, which comes last
                    os.replace(pack.with_suffix(suffix), target / f"{pack.stem}{suffix}")
            files.sync_folder(target)
        self._repository = self._reader = None


@contextmanager
def quarantine(store: Store) -> Iterator[Quarantine]:
    """Yields a place for received objects; removes at the end what is not accepted. One at a time. Raises: Conflict."""
    contained.make_folder(store.path, "ctxvc/lock")
    with locked(store.path / "ctxvc" / "lock" / "_incoming") as lock:
        folder = store.path / FOLDER
        contained.remove_tree(store.path, FOLDER)
        contained.make_folder(store.path, f"{FOLDER}/objects/pack", private=True)
        try:
            yield Quarantine(store, folder / "objects", lock)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _bad(session: str, scope: str, why: str) -> Damaged:
    return Damaged(f"{session}/{scope} was not pulled: {why}", hint=Phrase("share-theirs"))
