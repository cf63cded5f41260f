"""A scope on a remote, read without a pull: its ledger, and of its bodies those that somebody looks at.

They are in a repository of the person's cache folder. A store is never a partial clone; this is one, and no store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.segments import Segments
from ctxvc.core.prompt.outline import Bodies
from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused, Unreachable
from ctxvc.store import format as fmt
from ctxvc.store.cache.cached_repository import CachedRepository
from ctxvc.store.git import transport
from ctxvc.store.git.transport import Barred
from ctxvc.store.read.revision import Snapshot

#: The repository's name has this in it.
KIND = ".scopes"
#: The most bytes of a ledger.
_LARGEST = 256 << 20
#: git notes in its settings that objects are missing; only this fetch may know, so that no other goes for them.
_SETTINGS = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


class CachedScope(CachedRepository):
    """A scope of a session at a commit. What was read before is read again without a network."""

    def __init__(
        self,
        address: str,
        session: str,
        scope: str,
        tip: str,
        *,
        erased: frozenset[str] = frozenset(),
        ask: bool = False,
    ) -> None:
        """`erased` are the ids of what a purge erased here. Raises: Refused if there is no cache folder."""
        super().__init__(address, KIND)
        self._session = session
        self._scope = scope
        self._tip = tip
        self._erased = erased
        self._ask = ask
        self._files: dict[str, str] = {}

    def snapshot(self) -> Snapshot:
        """The scope, with bodies that are fetched when they are read, each by its id.

        Raises: Unreachable, Damaged, Refused for a newer format or if a purge erased it here, CtxvcError.
        """
        with self.locked():
            self.make()
            (self.path / "config").write_bytes(_SETTINGS)
        self._refuse_erased(self._tip)
        try:
            self._files = self.files_at(self._tip)
        except CtxvcError:
            self._fetch(f"{self._session}/{self._scope}", [self._tip], shallow=True)
            self._files = self.files_at(self._tip)
        return Snapshot(
            ledger=self._ledger(),
            bodies=Bodies(self._body, self._file),
            commit=self._tip,
            session=self._session,
            scope=self._scope,
        )

    def _ledger(self) -> Ledger:
        paths = sorted(path for path in self._files if path == fmt.META or path.startswith("ledger/"))
        where = f"commit {self._tip[:12]}"
        content = dict(zip(paths, self._content(f"the ledger of {self._session}/{self._scope}", paths), strict=True))
        if fmt.META not in content:
            raise NotFound(f"{where} is not part of a session (no {fmt.META})")
        meta = fmt.decode_meta(content.pop(fmt.META), f"{where}: {fmt.META}")
        if (meta.session, meta.scope) != (self._session, self._scope.partition("@")[0]):
            raise Damaged(
                f"{where} is of another scope than {self._session}/{self._scope}", hint=Phrase("share-theirs")
            )
        groups = content.pop(fmt.GROUPS, b"")
        try:
            segments = {
                fmt.segment_number(path): fmt.decode_rows(data, f"{where}: {path}") for path, data in content.items()
            }
        except ValueError as error:
            raise Damaged(f"{where}: a file that is no ledger", hint=Phrase("share-theirs")) from error
        return Ledger(
            meta=meta, segments=Segments(segments), groups=fmt.decode_groups(groups, f"{where}: {fmt.GROUPS}")
        )

    def _body(self, row: Row) -> bytes:
        (data,) = self._content(row.id, [fmt.body_path(row)])
        if len(data) != row.bytes or hashlib.sha256(data).hexdigest() != row.sha256:
            raise Damaged(f"{row.id}: the body differs from the recorded one", hint=Phrase("share-theirs"))
        return data

    def _file(self, row: Row, suffix: str) -> bytes:
        (data,) = self._content(f"{row.id}-{suffix}", [fmt.file_path(row, suffix)])
        return data

    def _content(self, title: str, paths: Sequence[str]) -> list[bytes]:
        """The bytes of files of the commit, of which those that are missing are fetched. Raises: as `snapshot`."""
        if lost := next((path for path in paths if path not in self._files), ""):
            raise Damaged(f"{title} in commit {self._tip[:12]}: no file {lost}", hint=Phrase("share-theirs"))
        names = [self._files[path] for path in paths]
        self._refuse_erased(*names)
        if absent := [name for name, entry in zip(names, self.sizes(names), strict=True) if entry is None]:
            self._fetch(title, absent)
        sizes = self.sizes(names)
        if len(names) > 1 and sum(entry[1] for entry in sizes if entry) > _LARGEST:
            raise Damaged(f"{title} has more than {_LARGEST:,} bytes", hint=Phrase("share-theirs"))
        if None in sizes:
            raise Damaged(f"{title} did not come", hint=Phrase("share-theirs"))
        return self.blobs(names)

    def _fetch(self, title: str, names: Sequence[str], *, shallow: bool = False) -> None:
        with self.locked():
            try:
                transport.fetch(self.path, self.address, names, shallow=shallow, lean=True, ask=self._ask)
            except Unreachable as error:
                raise Unreachable(f"{title} was not read here before, and {error}", hint=error.advice) from error
            except Barred as error:
                raise Refused(str(error), hint=Phrase("share-take-whole", session=self._session)) from error
            finally:
                (self.path / "config").write_bytes(_SETTINGS)

    def _refuse_erased(self, *names: str) -> None:
        if not self._erased.isdisjoint(names):
            raise Refused(
                f"a purge erased this here, and the clone that has {self._session} did not accept it yet",
                hint=Phrase("share-take-whole", session=self._session),
            )
