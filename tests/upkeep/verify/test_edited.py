"""What somebody does who edits rows, bodies, groups, commits and what a scope says of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pygit2
import pytest

from ctxvc.core.ledger.ledger import Counters, Group
from ctxvc.store import format as fmt
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.store.verify.ledger import IDENTITY
from ctxvc.store.verify.verify import verify
from tests.conftest import Copied
from tests.making.conversation import exchange
from tests.making.damage import (
    Files,
    commit_tree,
    damaged,
    edit_row,
    found,
    head,
    leave_as_group,
    messages,
    rewrite,
    tree_files,
)
from tests.making.store import git

#: Damages a store, and gives the commit in which it is to be seen, or "" where it is in several.
Edit = Callable[[Store], str]
LEDGER, GROUPS = "ledger/00/00.jsonl", "ledger/groups.jsonl"
OTHER = {
    "kind": "note", "role": "system", "origin": "client", "msg": 99, "step": 99, "turn": 99, "call": "x",
    "tool": "x", "error": True, "ext": "bin", "files": ("1.png",), "bytes": 3, "sha256": "0" * 64,
}  # fmt: skip


def row(block: str, **fields: Any) -> Edit:
    return lambda store: edit_row(store, block, **fields)


def files(edit: Files | Callable[[dict[str, bytes]], Files], **options: Any) -> Edit:
    return lambda store: rewrite(store, edit, **options)


def groups(*lines: Group) -> Edit:
    return files({GROUPS: fmt.encode_groups(lines)})


def group(*members: str, **fields: Any) -> Group:
    return Group(id="G1", members=("B5", "B6", "B7", *members), **fields)


def meta(**fields: Any) -> Callable[[dict[str, bytes]], Files]:
    """Another `ctxvc.json`."""
    return lambda held: {
        "ctxvc.json": fmt.encode_meta(msgspec.structs.replace(fmt.decode_meta(held["ctxvc.json"], ""), **fields))
    }


def moved(block: str, data: bytes) -> Callable[[dict[str, bytes]], Files]:
    """The block is archived, with another body."""
    return lambda held: {
        f"blocks/00/00/{block}.txt": None,
        f"archive/00/00/{block}.txt": data,
        LEDGER: fmt.encode_rows(
            msgspec.structs.replace(each, state="archived") if each.id == block else each
            for each in fmt.decode_rows(held[LEDGER], "")
        ),
    }


def dropped(held: dict[str, bytes]) -> Files:
    """B9 is gone, row and body."""
    rows = [each for each in fmt.decode_rows(held[LEDGER], "") if each.id != "B9"]
    return {LEDGER: fmt.encode_rows(rows), "blocks/00/00/B9.txt": None}


def row_and_body(store: Store) -> str:
    edit_row(store, "B9", bytes=10, sha256=hashlib.sha256(b"never said").hexdigest())
    rewrite(store, {"blocks/00/00/B9.txt": b"never said"})
    return ""


def of_ann(parent: str, message: str = "") -> Edit:
    """A person's git makes the newest commit of main again, with this message or the one that it has."""

    def edit(store: Store) -> str:
        words = message or git(store.path, "log", "-1", "--format=%B", "demo/main")
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        made = git(store.path, *who, "commit-tree", "-p", parent, "-m", words, "demo/main^{tree}").strip()
        git(store.path, "update-ref", "refs/heads/demo/main", made)
        return made

    return edit


FEW = meta(counters=Counters(block=3))

#: What is done → how, what is said of it, and at which block and path.
EDITED: dict[str, tuple[Edit, str, str, str]] = {
    **{
        name: (row("B3", **{name: OTHER[name]}), f"the row of B3 was edited: different {name}", "B3", LEDGER)
        for name in IDENTITY
    },
    **{
        f"{name} = {value!r}": (row("B3", **{name: value}), "names a file that cannot be a block's", "B3", "")
        for name, value in (("ext", "txt\nD ledger"), ("ext", "a/b"), ("files", ("../1.png",)), ("files", ("x",)))
    },
    "another citation": (row("B3", extra={"citations": []}), "different extra", "B3", ""),
    "a body": (
        files(lambda held: {"blocks/00/00/B9.txt": held["blocks/00/00/B10.txt"]}),
        "the body of B9 was replaced", "B9", "blocks/00/00/B9.txt",
    ),
    "a body from its beginning": (
        files({"blocks/00/00/B25.txt": b"never said"}, depth=3),
        "the body of B25 differs from the recorded one", "B25", "",
    ),
    "a body that moves": (files(moved("B9", b"never said")), "the body changed when B9 moved", "B9", ""),
    "an image that moves": (
        files({"archive/00/00/B27-1.png": b"another picture"}, depth=1),
        "the body changed when B27 moved", "B27", "archive/00/00/B27-1.png",
    ),
    "an image": (
        files({"archive/00/00/B27-1.png": b"another picture"}), "of B27 was replaced", "B27", "archive/00/00/B27-1.png"
    ),
    "an image from its beginning": (
        files({"blocks/00/00/B27-1.png": b"another picture"}, depth=3),
        "B27-1.png differs from the recorded one", "B27", "",
    ),
    "a row with its body": (row_and_body, "the row of B9 was edited", "B9", ""),
    "a body with its row": (row_and_body, "the body of B9 was replaced", "B9", ""),
    "a block goes": (files(dropped), "the row of B9 is missing", "B9", ""),
    "a body goes": (
        files({"blocks/00/00/B9.txt": None}), "B9 is missing from where its state requires it", "B9", ""
    ),
    "a body does not follow a state": (
        row("B9", state="archived"), "has no file where its state requires one", "B9", "archive/00/00/B9.txt"
    ),
    "a body stays behind a state": (
        row("B9", state="archived"), "has a file where its state allows none", "B9", "blocks/00/00/B9.txt"
    ),
    "rows out of order": (
        files(lambda held: {LEDGER: b"".join(reversed(held[LEDGER].splitlines(keepends=True)))}),
        "the rows are out of order", "", LEDGER,
    ),
    "rows in another file": (
        files(lambda held: {"ledger/00/01.jsonl": held[LEDGER]}),
        "the row of B1 is in another row's place", "B1", "ledger/00/01.jsonl",
    ),
    **{
        f"ctxvc.json: {data!r}": (files({"ctxvc.json": data}), what, "", "ctxvc.json")
        for data, what in (
            (b"{}", "not a ctxvc.json"), (b'{"format":1}', "not a ctxvc.json"), (b'{"format":99}', "has format 99"),
            (None, "there is no ctxvc.json"),
        )
    },
    "counters": (files(FEW), "the counters of block, msg, step, turn went backwards", "", "ctxvc.json"),
    "a counter below blocks": (files(FEW), "B7 exceeds the counter of blocks, 3", "B7", ""),
    "a counter below groups": (files(FEW), "G1 exceeds the counter of groups, 0", "", ""),
    "a counter from early on": (files(FEW, depth=8), "B8 exceeds the counter of blocks, 3", "B8", ""),
    "another's commit": (of_ann("demo/main", "hi"), "created by another program: Ann <ann@example.org>", "", ""),
    "an amended commit": (of_ann("demo/main~1"), "created by another program", "", ""),
    **{
        what: (groups(line), what, "", GROUPS)
        for line, what in (
            (Group(id="G1", members=("B5", "B6")), "B7 is in G1, which does not contain it"),
            (group("B8"), "G1 has B8, which is in no group"),
            (group("B99"), "G1 has B99, which does not exist"),
            (group("G7"), "G1 has G7, which does not exist"),
            (group("B7"), "no members, or a duplicate one"),
            (group(group="G9"), "G1 is in G9, which does not exist"),
            (group(before="B99"), "the stub of G1 needs B99"),
            (group(summary=("x",)), "the stub of G1 needs x"),
            (Group(id="G5", members=("B5", "B6", "B7")), "which does not exist"),
        )
    },
    "a group in one of its level": (
        groups(group(group="G2"), Group(id="G2", members=("G1",))),
        "G2 has level 1 and contains G1 of level 1", "", GROUPS,
    ),
    "a row leaves its group": (row("B5", group=""), "G1 has B5, which is in no group", "", ""),
    "a row enters a group": (row("B9", group="G1"), "B9 is in G1, which does not contain it", "B9", ""),
    "groups that are none": (files({GROUPS: b"[]\n"}), "not a list of groups", "", GROUPS),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITED)
def test_what_was_edited_is_found_at_its_place(full: Store, name: str) -> None:
    edit, what, block, path = EDITED[name]

    damaged(full, what, commit=edit(full), block=block, path=path)


def test_an_edited_row_is_found_in_the_middle_of_a_history(full: Store) -> None:
    commit = edit_row(full, "B1", depth=4, origin="client")

    report = damaged(full, "different origin", block="B1", commit=commit)

    (finding,) = [finding for finding in report.findings if "different origin" in finding.what]
    assert (finding.where.session, finding.where.scope) == ("demo", "main")  # though `side` has that commit too


def demo(store: Store, count: int) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(count))


def test_a_ledger_edited_in_the_middle_of_a_history_is_found_where_it_was_edited(store: Store) -> None:
    demo(store, 40)  # B1 to B160: the ledger's second file from B64 on
    path = "ledger/00/01.jsonl"

    def edited(held: dict[str, bytes]) -> Files:
        return {path: held[path].replace(b'"id":"B70","kind":"assistant"', b'"id":"B70","kind":"thinking"')}

    commit = rewrite(store, edited, depth=15, each=True)  # step 25, B97 to B100, and every step after it

    (finding,) = found(store)
    assert finding.what == "the row of B70 was edited: different kind, which no verb changes"
    assert (finding.where.commit, finding.where.block, finding.where.path) == (commit, "B70", path)


def test_a_ledger_edited_in_one_commit_and_put_right_in_the_next_is_found(store: Store) -> None:
    demo(store, 12)
    turns = iter([b'"kind":"thinking"'])

    def edited(held: dict[str, bytes]) -> Files:
        kind = next(turns, b'"kind":"assistant"')
        return {LEDGER: held[LEDGER].replace(b'"id":"B2","kind":"assistant"', b'"id":"B2",' + kind)}

    commit = rewrite(store, edited, depth=5, each=True)

    first, second = found(store)
    assert first.what == second.what == "the row of B2 was edited: different kind, which no verb changes"
    assert [first.where.commit, first.where.block] == [commit, "B2"]
    assert list(store.first_parents(second.where.commit))[1] == commit


@pytest.mark.parametrize("depth", [0, 7])
def test_a_row_put_in_the_middle_of_a_ledger_file_is_found(store: Store, depth: int) -> None:
    demo(store, 12)

    commit = rewrite(store, lambda held: {LEDGER: held[LEDGER].replace(b'"B5"', b'"B9999"', 1)}, depth=depth, each=True)

    damaged(store, "out of order", commit=commit, path=LEDGER)


def test_our_own_notes_on_a_block_and_attributes_of_another_are_no_damage(full: Store) -> None:
    edit_row(full, "B3", extra={"ctxvc": {"mark": 1}})
    assert found(full) == []

    rewrite(full, {".gitattributes": b"* text=auto\n"})
    assert [(finding.level, finding.where.path) for finding in found(full)] == [("warning", ".gitattributes")]


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("a/b/c/d", "a"),
        ("blocks/00/00/more/x", "blocks/00/00/more"),
        *((path, path) for path in ("x", "blocks/x", "blocks/00/00/B999.txt", "ledger/x", "ledger/00/x.jsonl")),
        *((path, path) for path in ("ledger/0/1.jsonl", "request/x")),
    ],
)
def test_a_file_that_no_row_has_is_found(full: Store, path: str, where: str) -> None:
    commit = rewrite(full, {path: b""})

    assert ("damage", where, commit) in [(it.level, it.where.path, it.where.commit) for it in found(full)]


@pytest.mark.parametrize("path", ["blocks/00/00/B9.txt", LEDGER, "request/system.txt", "ctxvc.json"])
def test_a_link_in_the_place_of_a_file_is_found(full: Store, path: str) -> None:
    index = pygit2.Index()
    index.read_tree(full.repository[head(full)].tree)
    index.add(pygit2.IndexEntry(path, index[path].id, pygit2.enums.FileMode.LINK))

    damaged(full, "ctxvc writes nothing here", commit=commit_tree(full, index.write_tree(full.repository)), path=path)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"not json\n", "not a ledger"),
        (b'{"id":"B1"}\n', "not a ledger"),
        (b"[" * 100_000, "not a ledger"),
        (b'{"id":"B1","extra":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001 + b"\n", ""),
    ],
    ids=["no JSON", "half a row", "lists in lists", "objects in objects"],  # a test's name is in the environment of git
)
def test_a_ledger_that_cannot_be_read_is_found(full: Store, data: bytes, what: str) -> None:
    report = damaged(full, what, commit=rewrite(full, {LEDGER: data}), path=LEDGER, block="B1-B63")

    assert len(report.findings) == 1  # of blocks that nothing can be known of, nothing is said


def test_a_scope_whose_name_moves_the_cursor_is_found_and_not_repeated_raw(full: Store) -> None:
    rewrite(full, meta(scope="main\x1b[2J"))
    rewrite(full, {"blocks/\x1b[2J": b"x"})

    report = damaged(full, "is not a valid session or scope name", path="ctxvc.json")
    assert "\x1b" not in "".join(f"{finding.what} {finding.where}" for finding in report.findings)


def test_a_tree_with_more_paths_than_atoms_takes_no_time(full: Store) -> None:
    repository = full.repository
    tree = repository.TreeBuilder()
    tree.insert("B1.txt", repository.create_blob(b"x"), pygit2.enums.FileMode.BLOB)
    bomb = tree.write()
    for _ in range(40):
        tree = repository.TreeBuilder()
        for number in range(64):
            tree.insert(f"{number:02x}", bomb, pygit2.enums.FileMode.TREE)
        bomb = tree.write()
    root = repository.TreeBuilder(repository[head(full)].tree)
    for name in ("blocks", "archive", "ledger", "request", "more"):
        root.insert(name, bomb, pygit2.enums.FileMode.TREE)
    commit = commit_tree(full, root.write())

    report = verify(full, deep=False)

    assert any("more than 100 faults" in finding.what for finding in report.findings)
    assert {finding.where.commit for finding in report.findings} == {commit}


# --- groups in groups


@pytest.fixture
def nested(copied: Copied, tmp_path: Path) -> Iterator[Store]:
    """G1 of B5 to B7 in G3, and G2 of B9 and B10."""
    with Store(copied(_nested, tmp_path / "nested") / ".ctxvc") as store:
        yield store


def _nested(folder: Path) -> None:
    with create(folder / ".ctxvc") as store:
        demo(store, 4)
        with StoredSession.open(store, "demo") as session:
            leave_as_group(session, "B5", "B6", "B7", name="G1")
            leave_as_group(session, "B9", "B10", name="G2")
            inner = msgspec.structs.replace(session.ledger().groups["G1"], group="G3")
            outer = Group(id="G3", members=("G1",), level=2, stub="[archived G3]", removed_by="user")
            session.change(subject="again", op="archive", actor="user", groups=[inner, outer])
            session.append(*exchange(5))  # the newest commit leaves the groups as they were
        assert found(store) == []


def line(name: str, **fields: Any) -> Edit:
    """Another line for a group, or none without fields."""

    def edit(held: dict[str, bytes]) -> Files:
        lines = fmt.decode_groups(held[GROUPS], "")
        lines[name] = msgspec.structs.replace(lines[name], **fields)
        return {GROUPS: fmt.encode_groups(each for each in lines.values() if fields or each.id != name)}

    return files(edit)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (line("G1", group=""), "G3 has G1, which is in no group"),
        (line("G1", group="G2"), "G1 is in G2, which does not contain it"),
        (line("G1", level=2), "G3 has level 2 and contains G1 of level 2"),
        (line("G3", level=1), "G3 has level 1 and contains G1 of level 1"),
        (line("G1"), "G3 has G1, which does not exist"),
        (line("G3"), "G1 is in G3, which does not exist"),
        (line("G3", members=("G1", "G2")), "G3 has G2, which is in no group"),
        (line("G2", members=("B9",)), "B10 is in G2, which does not contain it"),
        (line("G2", members=("B9", "B10", "B11")), "G2 has B11, which is in no group"),
        (line("G2"), "B9 is in G2, which does not exist"),
        (row("B9", group=""), "G2 has B9, which is in no group"),
        (row("B9", group="G1"), "G2 has B9, which is in G1"),
        (row("B9", group="G1"), "B9 is in G1, which does not contain it"),
        (row("B1", group="G2"), "B1 is in G2, which does not contain it"),
        (row("B1", group="G9"), "B1 is in G9, which does not exist"),
    ],
)
def test_groups_in_groups_that_disagree_are_found(nested: Store, edit: Edit, what: str) -> None:
    damaged(nested, what, commit=edit(nested), path=GROUPS)


def test_a_group_whose_line_stands_there_twice_counts_as_the_last_one_says(nested: Store) -> None:
    whole, lines = head(nested), tree_files(nested, head(nested))[GROUPS]
    other = lines.splitlines(keepends=True)[0].replace(b'"B5",', b"")

    rewrite(nested, {GROUPS: other + lines})
    assert found(nested) == []

    nested.repository.references.create("refs/heads/demo/main", whole, force=True)
    rewrite(nested, {GROUPS: lines + other})
    damaged(nested, "B5 is in G1, which does not contain it", commit=head(nested), block="B5")
