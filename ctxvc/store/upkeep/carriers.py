"""Carriers: commits that carry a pack in pieces. Makes a carrier's files, and reassembles the packs of a remote's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ctxvc.errors import CtxvcError, Damaged, Phrase
from ctxvc.store.git import program, transport
from ctxvc.store.git.transport import Barred

_TIPS, _BASE = "tips", "base"
_PIECE = "pack-"
#: The most bytes of one pack, and the most carriers of one session.
_LARGEST = 4 << 30
_MOST = 100_000
_ID = re.compile(r"[0-9a-f]{40}")


def files(tips: Iterable[str], base: Iterable[str], pieces: Iterable[bytes]) -> dict[str, bytes]:
    """The files of a carrier: the pack's pieces, the commits that it leads to, and those that it builds on."""
    lists = {_TIPS: tips, _BASE: base}
    content = {name: "".join(f"{commit}\n" for commit in commits).encode() for name, commits in lists.items()}
    return content | {f"{_PIECE}{number:04}": piece for number, piece in enumerate(pieces)}


class Carriers:
    """The carriers of a remote, in a temporary repository that the caller removes."""

    def __init__(self, folder: Path, address: str, *, ask: bool = False) -> None:
        self._path = folder
        self._address = address
        self._ask = ask
        program.run(None, "init", "--quiet", "--bare", "--template=", str(folder))

    def packs(self, newest: str, ref: str, has: Callable[[str], bool]) -> Iterator[bytes]:
        """The packs that are needed, oldest first; `has` says which commits are already there.

        `ref` is the remote's ref that leads to the carrier. Raises: as `transport.fetch`; Damaged.
        """
        self._fetch(newest, ref, shallow=True)
        chain = [newest]
        if not all(map(has, self._commits(newest, _BASE))):
            self._fetch(newest, ref)
            chain = self._git("rev-list", "--first-parent", f"--max-count={_MOST}", newest).decode().split()
        for carrier in reversed(chain):
            if not all(map(has, self._commits(carrier, _TIPS))):
                yield self._pack(carrier)

    def _fetch(self, carrier: str, ref: str, *, shallow: bool = False) -> None:
        if not shallow:
            (self._path / "shallow").unlink(missing_ok=True)
        try:
            transport.fetch(self._path, self._address, [carrier], shallow=shallow, ask=self._ask)
        except Barred:  # an old server serves only whole refs
            transport.fetch(self._path, self._address, [ref], ask=self._ask)

    def _commits(self, carrier: str, name: str) -> list[str]:
        commits = self._git("cat-file", "blob", f"{carrier}:{name}").decode("utf-8", "replace").split()
        if not all(map(_ID.fullmatch, commits)):
            raise Damaged(f"the carrier {carrier[:12]} names no commits", hint=Phrase("share-theirs"))
        return commits

    def _pack(self, carrier: str) -> bytes:
        lines = self._git("ls-tree", "-l", carrier).decode("utf-8", "replace").splitlines()
        sizes = {path: line.split()[3] for line in lines if (path := line.partition("\t")[2]).startswith(_PIECE)}
        if sum(int(size) for size in sizes.values() if size.isdigit()) > _LARGEST:
            raise Damaged(f"the carrier {carrier[:12]} has more than {_LARGEST:,} bytes", hint=Phrase("share-theirs"))
        return b"".join(self._git("cat-file", "blob", f"{carrier}:{path}") for path in sorted(sizes))

    def _git(self, *arguments: str) -> bytes:
        """git's output. Raises: Damaged if git fails, since the carrier is then not as it should be."""
        try:
            return program.run(self._path, *arguments)
        except CtxvcError as error:
            raise Damaged(f"a carrier of the session is not whole: {error}", hint=Phrase("share-theirs")) from error
