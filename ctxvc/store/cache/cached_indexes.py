"""The indexes of a remote's clones, as they were fetched last.

Their repository may be shallow, which a store never is: an index comes without the sessions behind it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused, Unreachable
from ctxvc.store.cache.cached_repository import CachedRepository
from ctxvc.store.git import program, transport


class CachedIndexes(CachedRepository):
    """The indexes of one remote."""

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
