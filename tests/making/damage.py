"""Stores to check, and the hands that damage them: a disk's, and those of somebody who edits what we wrote."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pygit2

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.ledger.wire import part
from ctxvc.store import format as fmt
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify.finding import Finding
from ctxvc.store.verify.verify import Report, verify
from tests.making.conversation import exchange, human, reply, results
from tests.making.store import add_scope, archive, archived

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

#: path in a scope's tree → its bytes; None takes the file away.
Files = dict[str, bytes | None]
Edit = Callable[[dict[str, bytes]], Files]


def picture(call: str) -> Part:
    """A result of text and an image: a body that names a sibling file."""
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": "here"}, {"type": "image", "source": source}]
    return part({"type": "tool_result", "tool_use_id": call, "content": content}, "user", "tool")


def converse(session: StoredSession, steps: int = 6) -> None:
    """Steps of four blocks each, then one whose result (B4·steps + 3) has an image."""
    for number in range(1, steps + 1):
        session.append(*exchange(number))
    session.append(human("show me"), reply("", "picture"), results(picture("picture")), reply("a dot"))


def leave_as_group(session: StoredSession, *ids: str, name: str = "G1") -> None:
    """The blocks are archived together."""
    rows = [archived(session.ledger()[block], stub="", group=name, level=1) for block in ids]
    group = Group(id=name, members=ids, stub=f"[archived {name}]", removed_by="user")
    session.change(subject=f"archive as {name}", op="archive", actor="user", rows=rows, groups=[group])


def everything(store: Store) -> None:
    """A session with all that a scope can hold: archived blocks, a group, an image, a second scope, an open step."""
    if not store.sessions():
        store.create_session("demo", system="You help.", tools=[{"name": "sh"}])
    with StoredSession.open(store, "demo") as session:
        converse(session)
        archive(session, "B2", "B27")
        leave_as_group(session, "B5", "B6", "B7")
        add_scope(session, "side")
        session.append(*exchange(90), scope="side")
        session.append(human("and now"), reply("wait", "open"))


def found(store: Store) -> list[Finding]:
    return list(verify(store).findings)


def damaged(store: Store, what: str, *, block: str = "", commit: str = "", path: str = "") -> Report:
    """The report, once it is sure that it has damage with these words in it and at this place."""
    report = verify(store)
    hits = [finding for finding in report.findings if finding.level == "damage" and what in finding.what]
    assert hits, [f"{finding.what} ({finding.where})" for finding in report.findings]
    places = [(finding.where.block, finding.where.commit, finding.where.path) for finding in hits]
    assert any(block in (place[0], "") and commit in (place[1], "") and path in (place[2], "") for place in places), (
        places
    )
    return report


def head(store: Store, scope: str = "main") -> str:
    return store.tips("demo")[scope]


def tree_files(store: Store, commit: str) -> dict[str, bytes]:
    """Everything that a commit holds."""
    found: dict[str, bytes] = {}

    def gather(tree: pygit2.Tree, at: str) -> None:
        for entry in tree:
            path = f"{at}{entry.name}"
            if isinstance(entry, pygit2.Tree):
                gather(entry, f"{path}/")
            else:
                found[path] = store.repository[entry.id].read_raw()

    gather(store.reader.tree(commit), "")
    return found


def rewrite(
    store: Store,
    edit: Files | Callable[[dict[str, bytes]], Files],
    *,
    scope: str = "main",
    depth: int = 0,
    each: bool = False,
) -> str:
    """Rewrites the commit `depth` below a scope's tip, as its maker would have: message, names and times are kept.

    The files of `edit`, or that it makes of what is there, replace those of that commit and of all above it; with
    `each`, it is asked again for each of those. Gives the commit's new id.
    """
    repository = store.repository
    line = list(zip(range(depth + 1), store.first_parents(head(store, scope)), strict=False))
    parents = [str(parent) for parent in repository[line[-1][1]].parent_ids]
    changed: Files | None = None
    first = ""
    for _, old in reversed(line):
        if changed is None or each:
            changed = edit(tree_files(store, old)) if callable(edit) else edit
        commit = repository[old]
        index = pygit2.Index()
        index.read_tree(commit.tree)
        for path, data in changed.items():
            if data is None:
                index.remove(path)
            else:
                index.add(pygit2.IndexEntry(path, repository.create_blob(data), pygit2.enums.FileMode.BLOB))
        tree = index.write_tree(repository)
        new = repository.create_commit(None, commit.author, commit.committer, commit.message, tree, parents)
        parents = [str(new)]
        first = first or str(new)
    repository.references.create(f"refs/heads/demo/{scope}", parents[0], force=True)
    return first


def edit_row(store: Store, block: str, *, depth: int = 0, scope: str = "main", **fields: object) -> str:
    """Rewrites a commit with another row for a block; gives the new commit."""

    return rewrite(store, lambda files: dict([_with_row(files, block, fields)]), scope=scope, depth=depth)


def _with_row(files: dict[str, bytes], block: str, fields: dict[str, object]) -> tuple[str, bytes]:
    path = fmt.segment_path(int(block[1:]) // 64)
    rows: list[Row] = [
        msgspec.structs.replace(row, **fields) if row.id == block else row for row in fmt.decode_rows(files[path], path)
    ]
    return path, fmt.encode_rows(rows)


def unpack(store: Store) -> None:
    """All objects are loose files afterwards, so that one can be taken away."""
    folder = store.path / "objects" / "pack"
    for pack in list(folder.glob("*.pack")):
        data = pack.read_bytes()
        for name in (pack, pack.with_suffix(".idx")):
            name.unlink()
        subprocess.run(["git", f"--git-dir={store.path}", "unpack-objects", "-q"], input=data, check=True)


def object_at(store: Store, revision: str) -> Path:
    """The loose file of an object. Raises: KeyError if the revision names none."""
    name = str(pygit2.Repository(str(store.path)).revparse_single(revision).id)
    path = store.path / "objects" / name[:2] / name[2:]
    path.chmod(0o600)
    return path


def flip(path: Path, at: int) -> None:
    """One byte of the file is another."""
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0x41
    path.chmod(0o600)
    path.write_bytes(data)


#: How a process ends that has checked a store.
SOUND, DAMAGED, NO_REPOSITORY = 0, 3, 4


def checked(path: str) -> None:
    """Ends the process with what there is to say of the store."""
    try:
        store = Store(Path(path))
    except Exception:
        sys.exit(NO_REPOSITORY)
    sys.exit(DAMAGED if verify(store).damaged else SOUND)


def messages(count: int) -> list[Message]:
    """`count` steps of four blocks."""
    return [said for number in range(count) for said in exchange(number)]


def commit_tree(store: Store, tree: pygit2.Oid, message: str = "x\n\nCtxvc-Op: step\n") -> str:
    """The id of a commit of ours with this tree, which is main's tip from now on."""
    who = pygit2.Signature("ctxvc", "ctxvc@ctxvc", 1, 0)
    made = store.repository.create_commit(None, who, who, message, tree, [head(store)])
    store.repository.references.create("refs/heads/demo/main", made, force=True)
    return str(made)
