"""The history of blocks and groups: the commits that changed their rows, newest first.

Trees share what did not change, so git is quick to list the commits that changed a file of the ledger. Only those are
read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec

from ctxvc.core.ledger.block import block_number
from ctxvc.core.ledger.ledger import Group, Row, segment_of
from ctxvc.core.prompt.cut import CUT
from ctxvc.errors import CtxvcError, Damaged, Phrase
from ctxvc.inspection.bodies import damaged
from ctxvc.store import format as fmt
from ctxvc.store.format import trailers_of
from ctxvc.store.git import program
from ctxvc.store.git.objects import Commit, Objects, Tree, Unreadable
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify.decoded import Contents

#: More files than this are queried by folder.
_FILES = 100
_GROUPS = fmt.GROUPS.rpartition("/")[2].encode()
#: Name → git id, for the entries of the ledger's folder.
_Ledger = Mapping[bytes, bytes]
_What = tuple[Row | Group | None, Row | Group | None] | Literal["cut", "named"]
_CUT: Literal["cut"] = "cut"
_NAMED: Literal["named"] = "named"
#: Commit, block or group, and what happened to it: the row before and after, or `cut` or `named`.
_Met = tuple[str, str, _What]


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """A commit and what it did to a block or group; `commit` is empty for what is not committed yet.

    `before` is None if it did not exist, `after` if it no longer exists. `cut_before` and `cut_after` say whether a cut
    had removed it from the prompt. If nothing differs, the commit only names it.
    """

    commit: str
    id: str
    before: Row | Group | None = None
    after: Row | Group | None = None
    cut_before: bool = False
    cut_after: bool = False


def touches(stored: StoredSession, scope: str, ids: Collection[str], *, by_name: bool = False) -> Iterator[Touch]:
    """Every commit of the scope, and of those it came from, that changed one of `ids`, newest first. Raises: Damaged.

    `ids` name blocks and groups that the scope has now. The walk ends at the commit in which the last block came in.
    With `by_name`, it includes commits that only name one of them in their message.
    """
    ledger = stored.ledger(scope)
    now: dict[str, Row | Group | None] = {
        name: ledger.groups.get(name) if name.startswith("G") else ledger.get(name) for name in ids
    }
    cuts = _cuts(stored, scope, [row for row in now.values() if isinstance(row, Row) and row.kind in CUT])
    cut = {name for names in cuts.values() for name in names}
    walk = _Walk(stored.store, now, cuts, by_name=by_name)
    for commit, name, states in chain(walk.waiting(stored, scope), walk.commits(stored.tip(scope))):
        item, is_cut = now[name], name in cut
        if states is _CUT:
            cut.discard(name)
            yield Touch(commit=commit, id=name, before=item, after=item, cut_after=True)
            continue
        if states is not _NAMED:
            assert isinstance(states, tuple)
            now[name], item = states
        yield Touch(
            commit=commit, id=name, before=now[name], after=item, cut_before=is_cut, cut_after=is_cut
        )  # fmt: skip


def _cuts(stored: StoredSession, scope: str, rows: Sequence[Row]) -> dict[str, list[str]]:
    """Commit → the blocks that its cut removed from the prompt; the commit is empty if it is not made yet."""
    newest = stored.ledger(scope).meta.cuts[-1:]
    cut_rows = [row for row in rows if newest and row.number <= newest[0]]
    if not cut_rows:
        return {}
    by_commit: dict[str, list[str]] = {}
    uncut = sorted(cut_rows, key=lambda row: row.number)
    newer = ""
    # An undo may have taken a cut back, which rules out bisection: the newest run of commits counts.
    for commit in stored.store.first_parents(stored.tip(scope)):
        cut = max(stored.store.reader.meta(commit).cuts[-1:], default=0)
        while uncut and uncut[-1].number > cut:
            by_commit.setdefault(newer, []).append(uncut.pop().id)
        if not uncut:
            break
        newer = commit
    if uncut:
        by_commit.setdefault(newer, []).extend(row.id for row in uncut)
    return by_commit


def rev_list(store: Store, tip: str, *arguments: str) -> list[str]:
    """The commits from `tip` along first parents that `git rev-list` selects, newest first. Raises: Damaged."""
    try:
        return program.run(store.path, "rev-list", "--first-parent", tip, *arguments).decode("ascii").split()
    except CtxvcError as error:
        raise Damaged(f"a commit in the history of {tip[:12]} is missing or damaged", hint=Phrase("verify")) from error


class _Walk:
    """A walk back through history. `_open` are the blocks and groups whose first commit is still to come on the way."""

    def __init__(self, store: Store, ids: Collection[str], cuts: Mapping[str, Sequence[str]], *, by_name: bool) -> None:
        self._store = store
        self._objects = Objects(store.repository)
        self._contents = Contents(self._objects)
        self._cuts = cuts
        self._by_name = by_name
        self._open = set(ids)
        self._groups = {name for name in ids if name.startswith("G")}
        # Folder of the ledger → file in it → the blocks to look for there.
        self._folders: dict[bytes, dict[bytes, set[str]]] = {}
        for name in self._open - self._groups:
            _, folder, file = fmt.segment_path(segment_of(block_number(name))).encode().split(b"/")
            self._folders.setdefault(folder, {}).setdefault(file, set()).add(name)

    def waiting(self, stored: StoredSession, scope: str) -> Iterator[_Met]:
        """Changes that are acknowledged but not committed yet."""
        yield from (("", name, _CUT) for name in self._cuts.get("", ()))
        if not stored.waiting():
            return
        committed, now = stored.store.reader.ledger(stored.tip(scope)), stored.ledger(scope)
        for name in sorted(self._open, key=_number):
            items_now = now.groups if name.startswith("G") else now
            items_committed = committed.groups if name.startswith("G") else committed
            yield from self._touch("", name, items_committed.get(name), items_now.get(name))

    def commits(self, tip: str) -> Iterator[_Met]:
        """The changes of the commits up to `tip`, newest first."""
        for name in self._visited(tip) if self._open else []:
            if not self._open:
                return
            commit, ledger = self._read(bytes.fromhex(name))
            before = self._read(commit.parents[0])[1] if commit.parents else {}
            yield from self._changed(name, commit.message, before, ledger)

    def _visited(self, tip: str) -> list[str]:
        """The commits that changed a ledger file with a wanted id, or whose messages may name one."""
        files = [
            b"ledger/%b/%b" % (folder, file) for folder, folder_files in self._folders.items() for file in folder_files
        ]
        if len(files) > _FILES:
            files = [b"ledger/%b" % folder for folder in self._folders]
        paths = [path.decode() for path in files] + [fmt.GROUPS] * bool(self._groups)
        commits = rev_list(self._store, tip, "--", *paths)
        commits_by_name = set(self._cuts) - {""}
        if self._by_name:
            commits_by_name.update(rev_list(self._store, tip, "--grep=^Ctxvc-Blocks: "))
        if commits_by_name.issubset(commits):
            return commits
        visited = commits_by_name.union(commits)
        return [commit for commit in self._store.first_parents(tip) if commit in visited]

    def _changed(self, commit: str, message: str, old: _Ledger, new: _Ledger) -> Iterator[_Met]:
        """The changes of a commit, the newest block first."""
        yield from ((commit, block, _CUT) for block in self._cuts.get(commit, ()))
        try:
            met = [*self._in_groups(commit, old.get(_GROUPS), new.get(_GROUPS)), *self._in_rows(commit, old, new)]
        except Unreadable as error:
            raise damaged(error, f"commit {commit[:12]}: ledger") from error
        yield from sorted(met, key=lambda one: _number(one[1]), reverse=True)
        if self._by_name:
            listed = set(trailers_of(message).get("Ctxvc-Blocks", "").replace(",", " ").split())
            for name in sorted(listed.intersection(self._open).difference(one for _, one, _ in met), key=_number):
                yield commit, name, _NAMED

    def _in_groups(self, commit: str, old: bytes | None, new: bytes | None) -> Iterator[_Met]:
        if self._groups and old != new:
            changes = self._contents.regrouped(old, new)
            yield from self._compared(commit, self._groups & changes.touched, changes.old, changes.new)

    def _in_rows(self, commit: str, old: _Ledger, new: _Ledger) -> Iterator[_Met]:
        for folder, files in self._folders.items():
            if old.get(folder) == new.get(folder):
                continue
            old_files, new_files = self._tree(old.get(folder)), self._tree(new.get(folder))
            for file, blocks in files.items():
                was, now = old_files.get(file), new_files.get(file)
                if was != now and (sought := blocks & self._open):
                    yield from self._in_segment(commit, sought, was and was[1], now and now[1])

    def _in_segment(self, commit: str, sought: Collection[str], old: bytes | None, new: bytes | None) -> Iterator[_Met]:
        if old and new and (added := self._contents.added(old, new)):
            yield from self._compared(commit, sought, {}, {row.id: row for row in added})
            return
        before = self._contents.rows(old) if old else {}
        yield from self._compared(commit, sought, before, self._contents.rows(new) if new else {})

    def _compared(
        self,
        commit: str,
        sought: Collection[str],
        before: Mapping[str, Row] | Mapping[str, Group],
        after: Mapping[str, Row] | Mapping[str, Group],
    ) -> Iterator[_Met]:
        for name in sought:
            yield from self._touch(commit, name, before.get(name), after.get(name))

    def _touch(self, commit: str, name: str, before: Row | Group | None, after: Row | Group | None) -> Iterator[_Met]:
        if isinstance(before, Row) and isinstance(after, Row) and before.sha256 != after.sha256:
            before = None  # another block of that number, from a clone that grew apart
        if before == after:
            return
        if before is None and name.startswith("B"):
            self._open.discard(name)  # a group can go and, by an undo, come back
        yield commit, name, (before, after)

    def _read(self, id: bytes) -> tuple[Commit, _Ledger]:
        """A commit, and the files and folders of its ledger."""
        try:
            commit = self._objects.commit(id)
            folder = self._objects.tree(commit.tree).get(b"ledger")
            return commit, {name: entry for name, (_, entry) in self._tree(folder and folder[1]).items()}
        except Unreadable as error:
            raise damaged(error, f"commit {id.hex()[:12]}") from error

    def _tree(self, id: bytes | None) -> Tree:
        return self._objects.tree(id) if id else {}


def _number(name: str) -> tuple[str, int]:
    return name[:1], int(name[1:])
