"""What somebody does who edits: rows, bodies and the ledger's files."""

from __future__ import annotations

import hashlib

import msgspec
import pygit2
import pytest

from ctxvc.store import format as fmt
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify.ledger import IDENTITY
from tests.making.damage import Files, commit_tree, damaged, edit_row, found, head, messages, rewrite, tree_files


@pytest.mark.parametrize("field", IDENTITY)
def test_an_edited_row_is_found_with_its_block_and_commit(full: Store, field: str) -> None:
    other = {
        "kind": "note", "role": "system", "origin": "client", "msg": 99, "step": 99, "turn": 99, "call": "x",
        "tool": "x", "error": True, "ext": "bin", "files": ("1.png",), "bytes": 3, "sha256": "0" * 64,
    }  # fmt: skip
    commit = edit_row(full, "B3", **{field: other[field]})

    damaged(full, f"the row of B3 was edited: different {field}", block="B3", commit=commit, path="ledger/00/00.jsonl")


@pytest.mark.parametrize(
    "fields", [{"ext": "txt\nD ledger"}, {"ext": "a/b"}, {"files": ("../1.png",)}, {"files": ("x",)}]
)
def test_a_row_that_names_a_file_as_none_is_named_is_found(full: Store, fields: dict[str, object]) -> None:
    edit_row(full, "B3", **fields)

    damaged(full, "the row of B3 names a file that cannot be a block's", block="B3")


def test_an_edited_row_is_found_in_the_middle_of_a_history(full: Store) -> None:
    commit = edit_row(full, "B1", depth=4, origin="client")

    report = damaged(full, "different origin", block="B1", commit=commit)

    (finding,) = [finding for finding in report.findings if "different origin" in finding.what]
    assert (finding.where.session, finding.where.scope) == ("demo", "main")  # though `side` has that commit too


def test_a_ledger_edited_in_the_middle_of_a_history_is_found_where_it_was_edited(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(40))  # B1 to B160: the ledger's second file from B64 on

    def edited(files: dict[str, bytes]) -> Files:
        path = "ledger/00/01.jsonl"
        return {path: files[path].replace(b'"id":"B70","kind":"assistant"', b'"id":"B70","kind":"thinking"')}

    commit = rewrite(store, edited, depth=15, each=True)  # step 25, B97 to B100, and every step after it

    (finding,) = found(store)
    assert finding.what == "the row of B70 was edited: different kind, which no verb changes"
    assert (finding.where.commit, finding.where.block, finding.where.path) == (commit, "B70", "ledger/00/01.jsonl")


def test_a_ledger_edited_in_one_commit_and_put_right_in_the_next_is_found(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(12))
    path = "ledger/00/00.jsonl"
    turns = iter([b'"kind":"thinking"'])

    def edited(files: dict[str, bytes]) -> Files:
        kind = next(turns, b'"kind":"assistant"')
        return {path: files[path].replace(b'"id":"B2","kind":"assistant"', b'"id":"B2",' + kind)}

    commit = rewrite(store, edited, depth=5, each=True)

    first, second = found(store)
    assert first.what == second.what == "the row of B2 was edited: different kind, which no verb changes"
    assert [first.where.commit, first.where.block] == [commit, "B2"]
    assert list(store.first_parents(second.where.commit))[1] == commit


@pytest.mark.parametrize("depth", [0, 7])
def test_a_row_put_in_the_middle_of_a_ledger_file_is_found(store: Store, depth: int) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(12))

    def edited(files: dict[str, bytes]) -> Files:
        return {"ledger/00/00.jsonl": files["ledger/00/00.jsonl"].replace(b'"B5"', b'"B9999"', 1)}

    commit = rewrite(store, edited, depth=depth, each=True)

    damaged(store, "out of order", commit=commit, path="ledger/00/00.jsonl")


def test_what_was_received_with_a_block_cannot_be_edited_and_our_own_notes_can(full: Store) -> None:
    edit_row(full, "B3", extra={"ctxvc": {"mark": 1}})
    assert found(full) == []

    edit_row(full, "B3", extra={"citations": []})
    damaged(full, "different extra", block="B3")


def test_a_swapped_body_is_found(full: Store) -> None:
    commit = rewrite(full, lambda files: {"blocks/00/00/B9.txt": files["blocks/00/00/B10.txt"]})

    damaged(full, "the body of B9 was replaced", block="B9", commit=commit, path="blocks/00/00/B9.txt")


def test_a_swapped_body_is_found_where_it_began(full: Store) -> None:
    commit = rewrite(full, {"blocks/00/00/B25.txt": b"never said"}, depth=3)

    damaged(full, "the body of B25 differs from the recorded one", block="B25", commit=commit)


def test_a_body_that_changed_while_it_moved_is_found(full: Store) -> None:
    def edit(files: dict[str, bytes]) -> Files:
        row = fmt.decode_rows(files["ledger/00/00.jsonl"], "")[8]
        rows = fmt.encode_rows(
            msgspec.structs.replace(other, state="archived") if other.id == row.id else other
            for other in fmt.decode_rows(files["ledger/00/00.jsonl"], "")
        )
        return {
            "blocks/00/00/B9.txt": None,
            "archive/00/00/B9.txt": b"never said",
            "ledger/00/00.jsonl": rows,
        }

    damaged(full, "the body changed when B9 moved", block="B9", commit=rewrite(full, edit))


def test_an_image_that_changed_while_its_block_moved_is_found(full: Store) -> None:
    rewrite(full, {"archive/00/00/B27-1.png": b"another picture"}, depth=1)  # where B27 was archived

    damaged(full, "the body changed when B27 moved", block="B27", path="archive/00/00/B27-1.png")


def test_a_body_and_its_row_that_were_both_changed_are_found(full: Store) -> None:
    edit_row(full, "B9", bytes=10, sha256=hashlib.sha256(b"never said").hexdigest())
    rewrite(full, {"blocks/00/00/B9.txt": b"never said"})

    damaged(full, "the row of B9 was edited", block="B9")
    damaged(full, "the body of B9 was replaced", block="B9")


def test_a_swapped_sibling_is_found(full: Store) -> None:
    path = next(path for path in tree_files(full, head(full)) if path.endswith("B27-1.png"))

    rewrite(full, {path: b"another picture"})

    damaged(full, "of B27 was replaced", block="B27", path=path)


def test_a_sibling_that_was_never_the_right_one_is_found(full: Store) -> None:
    rewrite(full, {"blocks/00/00/B27-1.png": b"another picture"}, depth=3)

    damaged(full, "B27-1.png differs from the recorded one", block="B27")


def test_a_row_that_is_gone_with_its_body_is_found(full: Store) -> None:
    def edit(files: dict[str, bytes]) -> Files:
        rows = [row for row in fmt.decode_rows(files["ledger/00/00.jsonl"], "") if row.id != "B9"]
        return {"ledger/00/00.jsonl": fmt.encode_rows(rows), "blocks/00/00/B9.txt": None}

    damaged(full, "the row of B9 is missing", block="B9", commit=rewrite(full, edit))


def test_a_body_that_is_gone_is_found(full: Store) -> None:
    commit = rewrite(full, {"blocks/00/00/B9.txt": None})

    damaged(full, "B9 is missing from where its state requires it", block="B9", commit=commit)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("x", "x"),
        ("a/b/c/d", "a"),
        ("blocks/x", "blocks/x"),
        ("blocks/00/00/B999.txt", "blocks/00/00/B999.txt"),
        ("blocks/00/00/more/x", "blocks/00/00/more"),
        ("ledger/x", "ledger/x"),
        ("ledger/00/x.jsonl", "ledger/00/x.jsonl"),
        ("ledger/0/1.jsonl", "ledger/0/1.jsonl"),
        ("request/x", "request/x"),
    ],
)
def test_a_file_that_no_row_has_is_found(full: Store, path: str, where: str) -> None:
    commit = rewrite(full, {path: b""})

    assert any(
        finding.level == "damage" and (finding.where.path, finding.where.commit) == (where, commit)
        for finding in found(full)
    ), found(full)


@pytest.mark.parametrize("path", ["blocks/00/00/B9.txt", "ledger/00/00.jsonl", "request/system.txt", "ctxvc.json"])
def test_a_link_in_the_place_of_a_file_is_found(full: Store, path: str) -> None:
    repository = full.repository
    index = pygit2.Index()
    index.read_tree(repository[head(full)].tree)
    index.add(pygit2.IndexEntry(path, index[path].id, pygit2.enums.FileMode.LINK))
    commit = commit_tree(full, index.write_tree(repository))

    damaged(full, "ctxvc writes nothing here", commit=commit, path=path)


def test_a_state_that_the_body_did_not_follow_is_found(full: Store) -> None:
    commit = edit_row(full, "B9", state="archived")

    damaged(full, "has no file where its state requires one", block="B9", commit=commit, path="archive/00/00/B9.txt")
    damaged(full, "has a file where its state allows none", block="B9", commit=commit, path="blocks/00/00/B9.txt")


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
    commit = rewrite(full, {"ledger/00/00.jsonl": data})

    report = damaged(full, what, commit=commit, path="ledger/00/00.jsonl", block="B1-B63")

    assert len(report.findings) == 1  # of blocks that nothing can be known of, nothing is said


def test_rows_out_of_order_or_in_the_wrong_file_are_found(full: Store) -> None:
    def turned(files: dict[str, bytes]) -> Files:
        lines = files["ledger/00/00.jsonl"].splitlines(keepends=True)
        return {"ledger/00/00.jsonl": b"".join(reversed(lines))}

    def moved(files: dict[str, bytes]) -> Files:
        return {"ledger/00/01.jsonl": files["ledger/00/00.jsonl"]}

    first = head(full)
    rewrite(full, turned)
    damaged(full, "the rows are out of order", path="ledger/00/00.jsonl")
    full.repository.references.create("refs/heads/demo/main", first, force=True)
    rewrite(full, moved)
    damaged(full, "the row of B1 is in another row's place", block="B1", path="ledger/00/01.jsonl")
