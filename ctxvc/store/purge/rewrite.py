"""Rewrites history without some content: only the trees and commits that must change, each once.

A new commit depends only on the old one and the content to erase: every rewrite gives the same ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import pygit2

from ctxvc.core import display
from ctxvc.core.ledger import caption, wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import Damaged, Phrase
from ctxvc.store import format as fmt
from ctxvc.store.git import program
from ctxvc.store.git.objects import damage
from ctxvc.store.log import journal
from ctxvc.store.log.journal import Change, Head, Record, encode_head, encode_record
from ctxvc.store.purge.scrub import Scrub

_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_ID = re.compile(rb"\b[0-9a-f]{40}\b")
_SUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_PROMPT = re.compile(rb"\nCtxvc-Prompt: [0-9a-f]{64} \S+(?: (?:\+([0-9]+)|-[0-9]+))?(?=\n)")
_FOLDER = b"40000"

_KINDS = {
    "blob": pygit2.enums.ObjectType.BLOB,
    "tree": pygit2.enums.ObjectType.TREE,
    "commit": pygit2.enums.ObjectType.COMMIT,
}


class Raw:
    """Reads and writes git objects as bytes. With `dry` nothing is written: new objects only get their id."""

    def __init__(self, repository: pygit2.Repository, *, dry: bool = False) -> None:
        self._odb = repository.odb
        self._dry = dry

    def read(self, id: bytes) -> bytes:
        """Raises: Damaged."""
        try:
            return self._odb.read(pygit2.Oid(raw=id))[1]
        except (KeyError, pygit2.GitError) as error:
            raise Damaged(f"git object {id.hex()[:12]} is {damage(error)}", hint=Phrase("verify")) from error

    def write(self, kind: Literal["blob", "tree", "commit"], data: bytes) -> bytes:
        if self._dry:
            return hashlib.sha1(b"%s %d\0%s" % (kind.encode(), len(data), data), usedforsecurity=False).digest()
        return self._odb.write(_KINDS[kind], data).raw

    def own_commit(self, tree: bytes, parents: Iterable[str], time: int, message: str) -> str:
        """The full id of a new commit made by ctxvc itself."""
        who = f"ctxvc <ctxvc@ctxvc> {time} +0000"
        head = [f"tree {tree.hex()}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        return self.write("commit", ("\n".join(head) + "\n\n" + message).encode()).hex()

    def entries(self, id: bytes) -> list[tuple[bytes, bytes, bytes]]:
        """Mode, name and id of each entry of a tree."""
        return _ENTRY.findall(self.read(id))


def names(tree: bytes) -> list[bytes]:
    """The names of a tree's entries."""
    return [name for _, name, _ in _ENTRY.findall(tree)]


def files(raw: Raw, roots: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Path and id of each file below the trees; a blob at several paths is listed once."""
    seen: set[bytes] = set()
    stack = [(root, "") for root in roots]
    while stack:
        tree, path = stack.pop()
        if tree in seen:
            continue
        seen.add(tree)
        for mode, name, child in raw.entries(tree):
            where = f"{path}{name.decode('utf-8', 'backslashreplace')}"
            if mode == _FOLDER:
                stack.append((child, where + "/"))
            elif child not in seen:
                seen.add(child)
                yield where, child


class Rewriter:
    """Maps old objects to new ones. `commits` and `roots` have only those that changed."""

    def __init__(self, raw: Raw, scrub: Scrub) -> None:
        self._raw = raw
        self._scrub = scrub
        self._memo: dict[tuple[bytes, str], bytes] = {}
        self._rows: dict[bytes, bytes] = {}
        self.commits: dict[bytes, bytes] = {}
        self.roots: dict[bytes, bytes] = {}  # commit → its new tree, if that changed

    def all(self, ids: list[bytes], progress: Callable[[int], None] = lambda _: None) -> None:
        """Rewrites commits, parents before children; `progress` is called with the number done."""
        raw_commits = {commit: self._raw.read(commit) for commit in ids}
        children: dict[bytes, list[bytes]] = {}
        for number, commit in enumerate(ids):
            progress(number)
            tree, parents = links(raw_commits[commit])
            if (new := self.tree(tree, "")) != tree:
                self.roots[commit] = new
            if parents:
                children.setdefault(parents[0], []).append(commit)
        for commit in ids:
            data = self._commit(commit, raw_commits[commit], children)
            if data != raw_commits[commit]:
                self.commits[commit] = self._raw.write("commit", data)

    def tree(self, id: bytes, path: str) -> bytes:
        """The id of the replacement of the tree at `path`."""
        key = (id, path)
        if key not in self._memo:
            entries = self._raw.entries(id)
            new = [(mode, name, self._entry(mode, name, child, path)) for mode, name, child in entries]
            same = new == entries
            self._memo[key] = id if same else self._raw.write("tree", b"".join(b"%s %s\0%s" % item for item in new))
        return self._memo[key]

    def _entry(self, mode: bytes, name: bytes, id: bytes, path: str) -> bytes:
        where = f"{path}{name.decode('utf-8', 'backslashreplace')}"
        if mode == _FOLDER:
            return self.tree(id, f"{where}/")
        if where.startswith(("blocks/", "archive/")) and id not in self._scrub.bodies:
            return id  # bodies that change were replaced before
        key = (id, where)
        if key not in self._memo:
            data = self._raw.read(id)
            new = self._scrub.bodies[id] if id in self._scrub.bodies else self._file(where, data)
            self._memo[key] = id if new == data else self._raw.write("blob", new)
        return self._memo[key]

    def _file(self, path: str, data: bytes) -> bytes:
        """The replacement of a file that is not a body."""
        top = path.partition("/")[0]
        if path == fmt.GROUPS:
            return lines(data, self._group) if self._scrub.touches(data) else data
        if top == "ledger":
            sums = self._scrub.sums
            hit = any(digest.decode() in sums for digest in _SUM.findall(data))
            return lines(data, self._row) if hit or self._scrub.touches(data) else data
        if top == "plans":
            return self._plan(data)
        if top == "request":
            return self._scrub.body(data, path.rpartition(".")[2])
        return self._scrub.written_json(data) if path.endswith(".json") else self._scrub.written(data)

    def _row(self, line: bytes) -> bytes:
        if line not in self._rows:  # a row is in many versions of its segment
            (row,) = fmt.decode_rows(line, "ledger")
            if row.sha256 in self._scrub.sums or self._scrub.touches(line):
                new = self._scrub.row(row)
                self._rows[line] = line if new == row else fmt.encode_rows([new]).rstrip(b"\n")
            else:
                self._rows[line] = line
        return self._rows[line]

    def _group(self, line: bytes) -> bytes:
        (group,) = fmt.decode_groups(line, fmt.GROUPS).values()
        new = self._scrub.group(group)
        return line if new == group else fmt.encode_groups([new]).rstrip(b"\n")

    def _plan(self, data: bytes) -> bytes:
        """The replacement of a pending plan, which names the commit it is based on, and prefixes of checksums."""
        data = self._with_new_ids(self._scrub.written_json(data))
        value = wire.parsed(data, dict) or {}
        for action in value.get("plan", {}).get("actions", ()):
            for block, checksum in action.get("checksums", {}).items():
                for old, new in self._scrub.renamed.items():
                    if old.startswith(checksum):
                        action["checksums"][block] = new[: len(checksum)]
        return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n" if value else data

    def _commit(self, id: bytes, data: bytes, children: Mapping[bytes, list[bytes]]) -> bytes:
        head, _, message = data.partition(b"\n\n")
        tree, parents = links(data)
        new = [b"tree %s" % self.roots.get(id, tree).hex().encode()]
        new += [b"parent %s" % self.commits.get(parent, parent).hex().encode() for parent in parents]
        head = b"\n".join([*new, *head.split(b"\n")[len(new) :]])
        if id in self.roots and fmt.trailers_of(message.decode("utf-8", "replace")).get("Ctxvc-Op") == "step":
            message = (self._step_subject(tree) or message.partition(b"\n")[0]) + message[message.find(b"\n") :]
        message = self._with_new_ids(self._scrub.written(message))
        prompt = _PROMPT.search(message)
        if prompt and self._changed(id, int(prompt[1] or 0), children):
            # The prompt that was sent no longer exists, so nothing can be compared with its hash.
            message = message[: prompt.start()] + message[prompt.end() :]
        return head + b"\n\n" + message

    def _step_subject(self, tree: bytes) -> bytes:
        """A new subject for a step, made from what is left of its blocks; empty if none of them changes.

        A subject may contain any part of a text, even one too short to be recognised, so replacing words is not enough.
        """
        entries = {name: child for _, name, child in self._raw.entries(tree)}
        data = self._raw.read(entries[fmt.META.encode()])
        step = fmt.decode_meta(data, fmt.META).counters.step
        old = self._rows_of_step(entries.get(b"ledger"), step)
        new = [self._scrub.row(row) for row in old]
        if new == old:
            return b""

        def body_of(row: Row) -> bytes:
            blob = self._at(tree, fmt.body_path(row))
            return (self._scrub.bodies.get(blob) or self._raw.read(blob)) if blob else b""

        source = fmt.decode_meta(self._scrub.written_json(data), fmt.META).source
        subject = caption.of_step(new, body_of, source.cwd if source else "")
        return display.encode(display.one_line(subject, fmt.SUBJECT))

    def _rows_of_step(self, ledger: bytes | None, step: int) -> list[Row]:
        """The rows of a commit's newest step, in order; they are in its last segments."""
        rows: list[Row] = []
        folders = sorted((item for item in self._raw.entries(ledger) if item[0] == _FOLDER) if ledger else (), key=_key)
        for _, _, folder in reversed(folders):
            for _, name, blob in sorted(self._raw.entries(folder), key=_key, reverse=True):
                segment = fmt.decode_rows(self._raw.read(blob), f"ledger/{name.decode()}")
                own = [row for row in segment if row.step == step]
                if rows and not own:
                    return rows
                rows = own + rows
        return rows

    def _at(self, tree: bytes, path: str) -> bytes | None:
        """The id of the object at `path`; None if there is none."""
        place: bytes | None = tree
        for part in path.encode().split(b"/"):
            inside = self._raw.entries(place) if place else []
            place = next((child for _, name, child in inside if name == part), None)
        return place

    def _changed(self, id: bytes, later: int, children: Mapping[bytes, list[bytes]]) -> bool:
        """Whether the tree of a commit has changed, or that of one of its `later` direct successors."""
        if id in self.roots:
            return True
        return later > 0 and any(self._changed(child, later - 1, children) for child in children.get(id, ()))

    def _with_new_ids(self, data: bytes) -> bytes:
        """The text with the ids of rewritten commits replaced."""
        return _ID.sub(
            lambda match: self.commits.get(bytes.fromhex(match[0].decode()), b"").hex().encode() or match[0], data
        )


def _key(entry: tuple[bytes, bytes, bytes]) -> tuple[int, bytes]:
    """Sorts by the number in the name: `ff` before `100`."""
    return len(entry[1]), entry[1]


def lines(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """JSON Lines, with `change` applied to each line."""
    return b"".join(change(line) + b"\n" for line in data.split(b"\n") if line)


def links(data: bytes) -> tuple[bytes, list[bytes]]:
    """The tree and the parents of a commit."""
    head = data.partition(b"\n\n")[0].split(b"\n")
    tree = bytes.fromhex(head[0].removeprefix(b"tree ").decode())
    parents = [bytes.fromhex(line.removeprefix(b"parent ").decode()) for line in head if line.startswith(b"parent ")]
    return tree, parents


def commits_of(path: Path, tips: Iterable[str]) -> list[bytes]:
    """All commits that the tips reach, parents first."""
    revisions = "".join(f"{tip}\n" for tip in tips).encode()
    order = ("--topo-order", "--reverse")
    listed = program.run(path, "rev-list", *order, "--stdin", data=revisions) if revisions else b""
    return [bytes.fromhex(line.decode()) for line in listed.split()]


def journal_of(path: Path) -> tuple[Head | None, list[tuple[int, Record]]]:
    """A journal's head, and its numbered records. Raises: Damaged."""
    head, records, _, tail = journal.contents(path)
    if tail.damage:
        raise Damaged(f"the journal of {path.name} has records that cannot be read", hint=Phrase("repair"))
    return head, records


def journal_rewritten(path: Path, scrub: Scrub, commits: Mapping[str, str]) -> bytes:
    """The journal's bytes without the content. Its records keep their numbers."""
    head, records = journal_of(path)
    if head is None:
        return path.read_bytes()
    frames = []
    for seq, record in records:
        changes = tuple(_change(change, scrub, commits) for change in record.changes)
        frames.append(encode_record(seq, Record(changes=changes, head=record.head)))
    return b"".join((encode_head(head), *frames))


def _change(change: Change, scrub: Scrub, commits: Mapping[str, str]) -> Change:
    def fresh(data: bytes) -> bytes:
        return scrub.sums.get(hashlib.sha256(data).hexdigest(), data)

    return msgspec.structs.replace(
        change,
        rows=tuple(map(scrub.row, change.rows)),
        bodies=tuple((block, suffix, fresh(data)) for block, suffix, data in change.bodies),
        groups=tuple(map(scrub.group, change.groups)),
        meta=scrub.written_value(change.meta),
        subject=scrub.line(change.subject),
        trailers={name: scrub.line(value) for name, value in change.trailers.items() if name != "Ctxvc-Prompt"},
        text=scrub.line(change.text),
        origin=commits.get(change.origin, change.origin),
        merge=commits.get(change.merge, change.merge),
    )
