"""Reads commits: ledgers, bodies, messages; the objects come from libgit2."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pygit2

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row, segment_of
from ctxvc.core.ledger.segments import Segments
from ctxvc.core.prompt import truncation
from ctxvc.errors import Damaged, NotFound, Phrase
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import damage


class Outline(NamedTuple):
    """The size of a scope at a commit: the number of its blocks, and how many of them are notes."""

    meta: Meta
    blocks: int
    notes: int


class _Kind(msgspec.Struct):
    kind: str = ""


_kind_decoder = msgspec.json.Decoder(_Kind)


class Reader:
    """Reads the trees of scopes. Segments shared by trees are decoded once."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self._repository = repository
        self._segments: dict[str, tuple[str, tuple[Row, ...]]] = {}
        self._counted: dict[str, tuple[int, int]] = {}

    def ledger(self, commit: str) -> Ledger:
        """The ledger of the commit with that full id. Raises: Damaged; Refused for a newer format."""
        tree = self.tree(commit)
        where = f"commit {commit[:12]}"
        meta = self.meta(commit)
        segments: dict[int, tuple[Row, ...]] = {}
        groups: dict[str, Group] = {}
        for path, blob in self._ledger_files(tree):
            if path == fmt.GROUPS:
                groups = fmt.decode_groups(self.blob(blob, f"{where}: {path}"), f"{where}: {path}")
            else:
                segments[fmt.segment_number(path)] = self._segment(path, blob, where)
        return Ledger(meta=meta, segments=Segments(segments), groups=groups)

    def row(self, commit: str, number: int) -> tuple[Row, bytes] | None:
        """The row of a block at the commit, and the blob id of its text; the whole text if the model saw it truncated.

        None if the commit has no such block or file. Reads only one segment of the ledger.
        Raises: Damaged; Refused for a newer format.
        """
        tree, path = self.tree(commit), fmt.segment_path(segment_of(number))
        segment = self._entry(tree, path)
        rows = self._segment(path, segment, f"commit {commit[:12]}") if segment else ()
        row = next((row for row in rows if row.number == number), None)
        if row is None:
            return None
        file = truncation.whole(row)
        blob = self._entry(tree, fmt.file_path(row, file) if file else fmt.body_path(row))
        return (row, bytes.fromhex(blob)) if blob else None

    def outline(self, commit: str) -> Outline:
        """The size of the scope at the commit. Parts shared by commits are read once.

        Raises: Damaged, Refused.
        """
        top = self._entry(self.tree(commit), "ledger")
        blocks, notes = self._count(top, tree=True, where=f"commit {commit[:12]}") if top else (0, 0)
        return Outline(self.meta(commit), blocks, notes)

    def _count(self, object_id: str, *, tree: bool, where: str) -> tuple[int, int]:
        """The number of rows, and of notes among them, in a ledger file or below a ledger folder."""
        if object_id in self._counted:
            return self._counted[object_id]
        blocks = notes = 0
        if tree:
            for child in self._children(object_id):
                if child.name == "groups.jsonl":
                    continue
                folder = child.filemode == pygit2.enums.FileMode.TREE
                more = self._count(str(child.id), tree=folder, where=where)
                blocks, notes = blocks + more[0], notes + more[1]
        else:
            data = self.blob(object_id, where)
            try:
                rows = _kind_decoder.decode_lines(data)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise Damaged(f"{where}: not a ledger: {error}", hint=Phrase("verify")) from error
            blocks, notes = len(rows), sum(row.kind == "note" for row in rows)
        self._counted[object_id] = blocks, notes
        return blocks, notes

    def meta(self, commit: str) -> Meta:
        """The commit's `ctxvc.json`. Raises: NotFound if it has none, Damaged, Refused."""
        where = f"commit {commit[:12]}: {fmt.META}"
        data = self.optional(commit, fmt.META)
        if data is None:
            raise NotFound(f"commit {commit[:12]} is not part of a session (no {fmt.META})")
        return fmt.decode_meta(data, where)

    def body(self, commit: str, row: Row) -> bytes:
        """The body of `row` in the tree of `commit`; its checksum is verified.

        Raises: Damaged if it is missing or differs from the ledger.
        """
        data = self.path(commit, fmt.body_path(row), row.id)
        if len(data) != row.bytes or hashlib.sha256(data).hexdigest() != row.sha256:
            raise Damaged(
                f"{row.id} in commit {commit[:12]}: the body differs from the recorded one (another checksum)",
                hint=Phrase("verify-all-hit", lost="the store"),
            )
        return data

    def path(self, commit: str, path: str, what: str) -> bytes:
        """The bytes at `path` in the tree of `commit`. Raises: Damaged if there is no such file."""
        blob = self._entry(self.tree(commit), path)
        if blob is None:
            raise Damaged(f"{what} in commit {commit[:12]}: no file {path}", hint=Phrase("verify"))
        return self.blob(blob, f"{what} in commit {commit[:12]}")

    def optional(self, commit: str, path: str) -> bytes | None:
        """The bytes at `path`; None if the tree has no such file."""
        blob = self._entry(self.tree(commit), path)
        return None if blob is None else self.blob(blob, path)

    def system_and_tools(self, commit: str) -> tuple[Any, Any]:
        """System prompt and tools as the provider got them; each is None if not recorded."""
        return system_and_tools(lambda path: self.optional(commit, path))

    def pieces(self, commit: str, folder: str = fmt.BODY) -> dict[str, str]:
        """The pieces of the body that the newest reply answers: path → blob id, in the body's order."""
        tree = self._entry(self.tree(commit), folder)
        return dict(self._below(tree, folder)) if tree else {}

    def _below(self, tree_id: str, path: str) -> Iterator[tuple[str, str]]:
        for child in self._children(tree_id):
            if child.filemode == pygit2.enums.FileMode.TREE:
                yield from self._below(str(child.id), f"{path}/{child.name}")
            else:
                yield f"{path}/{child.name}", str(child.id)

    def blob(self, blob_id: str, what: str) -> bytes:
        """The bytes of a blob. Raises: Damaged if the object is missing or unreadable."""
        try:
            _, data = self._repository.odb.read(blob_id)
        except (KeyError, pygit2.GitError) as error:
            why = f"{what} is {damage(error)} (git object {blob_id[:12]})"
            raise Damaged(why, hint=Phrase("verify")) from error
        return data

    def tree(self, commit: str) -> pygit2.Tree:
        """The tree of a commit. Raises: Damaged."""
        try:
            git_object = self._repository[commit]
            assert isinstance(git_object, pygit2.Commit)
            return git_object.tree
        except (KeyError, ValueError, pygit2.GitError, AssertionError) as error:
            raise Damaged(f"commit {commit[:12]} is {damage(error)}", hint=Phrase("verify")) from error

    def _entry(self, tree: pygit2.Tree, path: str) -> str | None:
        try:
            return str(tree[path].id)
        except KeyError:
            return None
        except pygit2.GitError as error:
            raise Damaged(f"{path} is {damage(error)}", hint=Phrase("verify")) from error

    def _ledger_files(self, tree: pygit2.Tree) -> Iterator[tuple[str, str]]:
        top = self._entry(tree, "ledger")
        if top is None:
            return
        for high in self._children(top):
            if high.filemode != pygit2.enums.FileMode.TREE:
                yield f"ledger/{high.name}", str(high.id)
                continue
            for low in self._children(str(high.id)):
                yield f"ledger/{high.name}/{low.name}", str(low.id)

    def _children(self, tree_id: str) -> list[pygit2.Object]:
        try:
            git_object = self._repository[tree_id]
            assert isinstance(git_object, pygit2.Tree)
            return list(git_object)
        except (KeyError, AssertionError, pygit2.GitError) as error:
            raise Damaged(f"a folder is {damage(error)} (git object {tree_id[:12]})", hint=Phrase("verify")) from error

    def _segment(self, path: str, blob: str, where: str) -> tuple[Row, ...]:
        cached = self._segments.get(path)
        if cached is not None and cached[0] == blob:
            return cached[1]
        rows = fmt.decode_rows(self.blob(blob, f"{where}: {path}"), f"{where}: {path}")
        self._segments[path] = (blob, rows)
        return rows


def system_and_tools(file: Callable[[str], bytes | None]) -> tuple[Any, Any]:
    """System prompt and tools from a request's files, as read by `file`; each is None if not recorded."""
    text = file("request/system.txt")
    system: Any = None if text is None else text.decode("utf-8", "surrogatepass")
    if text is None and (data := file("request/system.json")) is not None:
        system = wire.parse(data)
    tools = file("request/tools.json")
    return system, None if tools is None else wire.parse(tools)
