"""Repositories of the person's cache folder: what was read from remotes, and is in no store. Only git opens them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ctxvc.errors import Refused
from ctxvc.store.files import locked
from ctxvc.store.git import program

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
