"""Repositories in the person's cache folder with data read from remotes, not part of a store. Only git opens them."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.segments import Segments
from ctxvc.core.prompt.outline import Bodies
from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused, Unreachable
from ctxvc.store import format as fmt
from ctxvc.store.files import locked
from ctxvc.store.git import program, transport
from ctxvc.store.git.transport import Barred
from ctxvc.store.read.revision import Snapshot

_FOLDER = "remotes"
#: A part of the name of a scope's repository.
KIND = ".scopes"
#: The most bytes of a ledger.
_LARGEST = 256 << 20
#: Restored after each fetch: git records there that objects are missing, and would then fetch them by itself.
_SETTINGS = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"


class CachedRepository:
    """A bare repository for one address. It may lack objects, which a store never does."""

    def __init__(self, address: str, kind: str = "") -> None:
        """`kind` becomes part of the repository's name. Raises: Refused if there is no folder for it."""
        from platformdirs import user_cache_path

        folder = user_cache_path("ctxvc", appauthor=False) / _FOLDER
        if not folder.is_absolute():
            raise Refused(f"the cache folder {folder} is not an absolute path", hint="set HOME")
        self.address = address
        self.path = folder / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}{kind}.git"

    @property
    def exists(self) -> bool:
        return (self.path / "HEAD").is_file()

    def make(self) -> None:
        """Creates the repository, empty, if it is missing."""
        if not self.exists:
            program.run(None, "init", "--quiet", "--bare", "--template=", str(self.path))
            self.path.chmod(0o700)

    def files_at(self, commit: str) -> dict[str, str]:
        """path → blob id, of the plain files of a commit."""
        tree = program.run(self.path, "ls-tree", "-r", "-z", "--full-tree", commit).decode("utf-8", "replace")
        entries = {}
        for line in filter(None, tree.split("\0")):
            about, _, path = line.partition("\t")
            mode, _, name = about.split()
            if mode == "100644":
                entries[path] = name
        return entries

    def sizes(self, names: Sequence[str]) -> list[tuple[str, int] | None]:
        """For each id or `COMMIT:PATH`, the blob's id and size in bytes; None if there is no such blob."""
        data = "".join(f"{name}\n" for name in names).encode()
        answers = program.run(self.path, "cat-file", "--batch-check", data=data).decode().splitlines()
        fields = [answer.rsplit(" ", 2) for answer in answers]
        return [(field[0], int(field[2])) if field[1:2] == ["blob"] else None for field in fields]

    def blobs(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of these blobs, all present, in order."""
        data = program.run(self.path, "cat-file", "--batch", data="".join(f"{name}\n" for name in names).encode())
        return [blob for _, blob in program.objects(io.BytesIO(data))]

    def forget(self) -> None:
        """Removes the whole repository, for example after a purge."""
        with self.locked():
            shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"cannot write {folder}: {error.strerror}", hint="check its permissions") from error
        with locked(Path(f"{self.path}.lock")):
            yield


class CachedIndexes(CachedRepository):
    """The indexes of one remote's clones, as last fetched.

    Shallow, which a store never is: an index comes without the sessions behind it.
    """

    def update(self, refspecs: list[str], *, ask: bool = False) -> None:
        """Fetches the refs again, without the history behind their commits. Raises: as `transport.fetch`."""
        with self.locked():
            for last in (False, True):
                try:
                    self.make()
                    transport.fetch(self.path, self.address, refspecs, shallow=True, prune=True, ask=ask)
                    return
                except (Unreachable, Refused, NotFound):
                    raise
                except CtxvcError:
                    # git fails without a reason if nothing matches; and a killed fetch can leave a lock.
                    shutil.rmtree(self.path, ignore_errors=True)
                    if not transport.refs(self.address, *(f"{spec.partition(':')[2]}" for spec in refspecs), ask=ask):
                        return
                    if last:
                        raise

    def refs(self) -> dict[str, str]:
        """ref → commit, as last fetched; empty before the first fetch."""
        if not self.exists:
            return {}
        output = program.run(self.path, "for-each-ref", "--format=%(objectname) %(refname)")
        return {ref: commit for commit, _, ref in (line.partition(" ") for line in output.decode().splitlines())}

    def files(self, commit: str, limit: int) -> dict[str, bytes]:
        """path → bytes of the files of a commit. Raises: Damaged if their total exceeds `limit` bytes."""
        entries = self.files_at(commit)
        if sum(entry[1] for entry in self.sizes([*entries.values()]) if entry) > limit:
            raise Damaged(f"the index {commit[:12]} has more than {limit:,} bytes", hint=Phrase("share-theirs"))
        return dict(zip(entries, self.blobs([*entries.values()]), strict=True))

    def files_of(self, commits: Iterable[str], paths: Sequence[str], limit: int) -> dict[str, dict[str, bytes]]:
        """commit → path → bytes, of these paths in the trees of many commits; missing paths are left out.

        So are commits whose files exceed `limit` bytes in total.
        """
        places = [(commit, path) for commit in commits for path in paths]
        entries: dict[str, dict[str, tuple[str, int]]] = {}
        sizes = self.sizes([f"{commit}:{path}" for commit, path in places])
        for (commit, path), entry in zip(places, sizes, strict=True):
            if entry:
                entries.setdefault(commit, {})[path] = entry
        small = {
            commit: {path: name for path, (name, _) in files.items()}
            for commit, files in entries.items()
            if sum(size for _, size in files.values()) <= limit
        }
        blobs = iter(self.blobs([name for files in small.values() for name in files.values()]))
        return {commit: {path: next(blobs) for path in files} for commit, files in small.items()}


class CachedScope(CachedRepository):
    """A scope on a remote, read without a pull: its ledger, and of its bodies only those that are read.

    A store is never a partial clone; this repository is one, and is not a store. Data that was read once is read again
    without a network.
    """

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
        """`erased` are the ids of objects that a purge erased here. Raises: Refused if there is no cache folder."""
        super().__init__(address, KIND)
        self._session = session
        self._scope = scope
        self._tip = tip
        self._erased = erased
        self._ask = ask
        self._files: dict[str, str] = {}

    def snapshot(self) -> Snapshot:
        """The scope, with bodies that are fetched by their ids when they are read.

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
        """The bytes of files of the commit; missing ones are fetched. Raises: as `snapshot`."""
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
