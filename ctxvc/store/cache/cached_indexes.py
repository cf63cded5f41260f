"""The indexes of a remote's clones, in a bare repository of their own in the person's cache folder.

Only git opens it, and it may be shallow, which a store never is: an index comes without the sessions behind it.
"""

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


class CachedIndexes:
    """The indexes as they were fetched last."""

    def __init__(self, address: str) -> None:
        """Raises: Refused if there is no folder for it."""
        from platformdirs import user_cache_path

        folder = user_cache_path("ctxvc", appauthor=False) / _FOLDER
        if not folder.is_absolute():
            raise Refused(f"the cache folder {folder} is not an absolute path", hint="set HOME")
        self._address = address
        self.path = folder / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.git"

    def update(self, refspecs: list[str], *, ask: bool = False) -> None:
        """Fetches the refs anew, without what their commits come from. Raises: as `transport.fetch`."""
        with self._locked():
            for last in (False, True):
                try:
                    if not (self.path / "HEAD").is_file():
                        program.run(None, "init", "--quiet", "--bare", "--template=", str(self.path))
                        self.path.chmod(0o700)
                    transport.fetch(self.path, self._address, refspecs, shallow=True, prune=True, ask=ask)
                    return
                except (Unreachable, Refused, NotFound):
                    raise
                except CtxvcError:
                    # git fails without a word where there is nothing; and a killed fetch can leave a lock.
                    shutil.rmtree(self.path, ignore_errors=True)
                    if not transport.refs(self._address, *(f"{spec.partition(':')[2]}" for spec in refspecs), ask=ask):
                        return
                    if last:
                        raise

    def refs(self) -> dict[str, str]:
        """ref → commit, as fetched last; empty if nothing was."""
        if not (self.path / "HEAD").is_file():
            return {}
        output = program.run(self.path, "for-each-ref", "--format=%(objectname) %(refname)")
        return {ref: commit for commit, _, ref in (line.partition(" ") for line in output.decode().splitlines())}

    def files(self, commit: str, limit: int) -> dict[str, bytes]:
        """Path → bytes of the files of a commit. Raises: Damaged if they have more than `limit` bytes together."""
        tree = program.run(self.path, "ls-tree", "-r", "-l", "-z", "--full-tree", commit).decode("utf-8", "replace")
        entries: dict[str, tuple[str, int]] = {}
        for line in filter(None, tree.split("\0")):
            about, _, path = line.partition("\t")
            mode, _, name, length = about.split()
            if mode == "100644":
                entries[path] = name, int(length)
        if sum(size for _, size in entries.values()) > limit:
            raise Damaged(f"the index {commit[:12]} has more than {limit:,} bytes", hint=Phrase("share-theirs"))
        return dict(zip(entries, self._blobs([name for name, _ in entries.values()]), strict=True))

    def files_of(self, commits: Iterable[str], paths: Sequence[str], limit: int) -> dict[str, dict[str, bytes]]:
        """commit → path → bytes, of these paths in the trees of many commits; a path that is not there is left out.

        A commit of which they have more than `limit` bytes together is left out.
        """
        places = [(commit, path) for commit in commits for path in paths]
        data = "".join(f"{commit}:{path}\n" for commit, path in places).encode()
        answers = program.run(self.path, "cat-file", "--batch-check", data=data).decode().splitlines()
        entries: dict[str, dict[str, tuple[str, int]]] = {}
        for (commit, path), answer in zip(places, answers, strict=True):
            name, kind, *size = answer.rsplit(" ", 2)
            if kind == "blob":
                entries.setdefault(commit, {})[path] = name, int(size[0])
        small = {
            commit: {path: name for path, (name, _) in files.items()}
            for commit, files in entries.items()
            if sum(size for _, size in files.values()) <= limit
        }
        blobs = iter(self._blobs([name for files in small.values() for name in files.values()]))
        return {commit: {path: next(blobs) for path in files} for commit, files in small.items()}

    def _blobs(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of blobs, in order."""
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
        with self._locked():
            shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"cannot write {folder}: {error.strerror}", hint="check its permissions") from error
        with locked(Path(f"{self.path}.lock")):
            yield
