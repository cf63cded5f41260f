"""Repositories of the person's cache folder: what was read from remotes, and is in no store. Only git opens them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused, Unreachable
from ctxvc.store.files import locked
from ctxvc.store.git import program, transport

_FOLDER = "remotes"


class CachedRepository:
    """A bare repository for one address. It may lack objects, which a store never does."""

    def __init__(self, address: str, kind: str = "") -> None:
        """`kind` is a part of its name. Raises: Refused if there is no folder for it."""
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
        """Makes it, empty, if it is not there."""
        if not self.exists:
            program.run(None, "init", "--quiet", "--bare", "--template=", str(self.path))
            self.path.chmod(0o700)

    def files_at(self, commit: str) -> dict[str, str]:
        """Path → id, of the plain files of a commit."""
        tree = program.run(self.path, "ls-tree", "-r", "-z", "--full-tree", commit).decode("utf-8", "replace")
        entries = {}
        for line in filter(None, tree.split("\0")):
            about, _, path = line.partition("\t")
            mode, _, name = about.split()
            if mode == "100644":
                entries[path] = name
        return entries

    def sizes(self, names: Sequence[str]) -> list[tuple[str, int] | None]:
        """For each id, or `COMMIT:PATH`, that of the blob and its bytes; None where there is none."""
        data = "".join(f"{name}\n" for name in names).encode()
        answers = program.run(self.path, "cat-file", "--batch-check", data=data).decode().splitlines()
        fields = [answer.rsplit(" ", 2) for answer in answers]
        return [(field[0], int(field[2])) if field[1:2] == ["blob"] else None for field in fields]

    def blobs(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of blobs that are there, in order."""
        data = program.run(self.path, "cat-file", "--batch", data="".join(f"{name}\n" for name in names).encode())
        blobs, at = [], 0
        for _ in names:
            start = data.index(b"\n", at) + 1
            length = int(data[at : start - 1].rsplit(b" ", 1)[1])
            blobs.append(data[start : start + length])
            at = start + length + 1
        return blobs

    def forget(self) -> None:
        """Removes all of it: after a purge, say."""
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
    """The indexes of one remote's clones, as they were fetched last.

    Shallow, which a store never is: an index comes without the sessions behind it.
    """

    def update(self, refspecs: list[str], *, ask: bool = False) -> None:
        """Fetches the refs anew, without what their commits come from. Raises: as `transport.fetch`."""
        with self.locked():
            for last in (False, True):
                try:
                    self.make()
                    transport.fetch(self.path, self.address, refspecs, shallow=True, prune=True, ask=ask)
                    return
                except (Unreachable, Refused, NotFound):
                    raise
                except CtxvcError:
                    # git fails without a word where there is nothing; and a killed fetch can leave a lock.
                    shutil.rmtree(self.path, ignore_errors=True)
                    if not transport.refs(self.address, *(f"{spec.partition(':')[2]}" for spec in refspecs), ask=ask):
                        return
                    if last:
                        raise

    def refs(self) -> dict[str, str]:
        """ref → commit, as fetched last; empty if nothing was."""
        if not self.exists:
            return {}
        output = program.run(self.path, "for-each-ref", "--format=%(objectname) %(refname)")
        return {ref: commit for commit, _, ref in (line.partition(" ") for line in output.decode().splitlines())}

    def files(self, commit: str, limit: int) -> dict[str, bytes]:
        """Path → bytes of the files of a commit. Raises: Damaged if they have more than `limit` bytes together."""
        entries = self.files_at(commit)
        if sum(entry[1] for entry in self.sizes([*entries.values()]) if entry) > limit:
            raise Damaged(f"the index {commit[:12]} has more than {limit:,} bytes", hint=Phrase("share-theirs"))
        return dict(zip(entries, self.blobs([*entries.values()]), strict=True))

    def files_of(self, commits: Iterable[str], paths: Sequence[str], limit: int) -> dict[str, dict[str, bytes]]:
        """commit → path → bytes, of these paths in the trees of many commits; a path that is not there is left out.

        A commit of which they have more than `limit` bytes together is left out.
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
