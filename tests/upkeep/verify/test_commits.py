"""What a scope's files and commits say of themselves, and who made them."""

from __future__ import annotations

import msgspec
import pygit2
import pytest

from ctxvc.core.ledger.ledger import Counters
from ctxvc.store import format as fmt
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.damage import Files, commit_tree, damaged, found, head, rewrite
from tests.making.store import git


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"{}", "not a ctxvc.json"),
        (b'{"format":1}', "not a ctxvc.json"),
        (b'{"format":99}', "has format 99"),
        (None, "there is no ctxvc.json"),
    ],
)
def test_a_ctxvc_json_that_is_none_is_found(full: Store, data: bytes | None, what: str) -> None:
    commit = rewrite(full, {"ctxvc.json": data})

    damaged(full, what, commit=commit, path="ctxvc.json")


def test_a_scope_whose_name_moves_the_cursor_is_found_and_not_repeated_raw(full: Store) -> None:
    def edit(files: dict[str, bytes]) -> Files:
        meta = fmt.decode_meta(files["ctxvc.json"], "")
        return {"ctxvc.json": fmt.encode_meta(msgspec.structs.replace(meta, scope="main\x1b[2J"))}

    rewrite(full, edit)
    rewrite(full, {"blocks/\x1b[2J": b"x"})

    report = damaged(full, "is not a valid session or scope name", path="ctxvc.json")
    assert "\x1b" not in "".join(f"{finding.what} {finding.where}" for finding in report.findings)


def test_a_counter_that_would_give_a_number_out_twice_is_found(full: Store) -> None:
    def edit(files: dict[str, bytes]) -> Files:
        meta = fmt.decode_meta(files["ctxvc.json"], "")
        return {"ctxvc.json": fmt.encode_meta(msgspec.structs.replace(meta, counters=Counters(block=3)))}

    rewrite(full, edit)

    damaged(full, "the counters of block, msg, step, turn went backwards", path="ctxvc.json")
    damaged(full, "B7 exceeds the counter of blocks, 3", block="B7")
    damaged(full, "G1 exceeds the counter of groups, 0")


def test_a_block_beyond_the_counter_is_found(full: Store) -> None:
    def edit(files: dict[str, bytes]) -> Files:
        meta = fmt.decode_meta(files["ctxvc.json"], "")
        return {"ctxvc.json": fmt.encode_meta(msgspec.structs.replace(meta, counters=Counters(block=3)))}

    rewrite(full, edit, depth=len(git(full.path, "rev-list", "demo/main").split()) - 3)

    damaged(full, "B8 exceeds the counter of blocks, 3", block="B8")


def test_attributes_of_another_are_a_warning(full: Store) -> None:
    rewrite(full, {".gitattributes": b"* text=auto\n"})

    assert [(finding.level, finding.where.path) for finding in found(full)] == [("warning", ".gitattributes")]


def test_a_commit_of_somebody_else_on_a_scope_is_found(full: Store) -> None:
    full.repository.references.create("refs/heads/demo/main", head(full), force=True)
    made = git(full.path, *_as("Ann"), "commit-tree", "-p", "demo/main", "-m", "hello", "demo/main^{tree}").strip()
    git(full.path, "update-ref", "refs/heads/demo/main", made)

    damaged(full, "created by another program: Ann <ann@example.org>", commit=made)


def test_an_amended_commit_is_found_though_it_keeps_our_words(full: Store) -> None:
    words = git(full.path, "log", "-1", "--format=%B", "demo/main")
    made = git(full.path, *_as("Ann"), "commit-tree", "-p", "demo/main~1", "-m", words, "demo/main^{tree}").strip()
    git(full.path, "update-ref", "refs/heads/demo/main", made)

    damaged(full, "created by another program", commit=made)


def _as(name: str) -> list[str]:
    return ["-c", f"user.name={name}", "-c", f"user.email={name.lower()}@example.org"]


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
