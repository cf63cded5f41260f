"""Many refs at once: one list, that stock git reads, and in which nothing is replaced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.errors import Conflict, Damaged
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep import packed_refs


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / ".ctxvc") as store:
        store.create_session("here")
        yield store


def git(store: Store, *arguments: str) -> str:
    command = ["git", f"--git-dir={store.path}", "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_stock_git_agrees_with_the_list_and_goes_on_with_it(store: Store) -> None:
    commit = store.tips("here")["main"]
    git(store, "tag", "-a", "-m", "a tag", "friday", commit)
    git(store, "pack-refs", "--all")
    tags = git(store, "show-ref", "-d", "--tags")

    store.add_refs({f"refs/heads/{name}/{scope}": commit for name in ("a", "b-c", "b") for scope in ("main", "x/y")})

    assert store.sessions() == ["a", "b", "b-c", "here"] and store.tips("b") == {"main": commit, "x/y": commit}
    assert git(store, "show-ref", "-d", "--tags") == tags and tags.count("\n") == 2
    assert not git(store, "fsck", "--full", "--strict")
    git(store, "update-ref", "-d", "refs/heads/b/main", commit)
    git(store, "pack-refs", "--all")
    assert set(store.tips("b")) == {"x/y"} and store.tips("a")["main"] == commit
    assert not list(store.path.glob("packed-refs.*"))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("ref", ["refs/heads/here/main", "refs/heads/here", "refs/heads/here/main/below"])
def test_what_is_in_the_way_stays_and_nothing_is_added(store: Store, ref: str, packed: bool) -> None:
    commit = store.tips("here")["main"]
    if packed:
        git(store, "pack-refs", "--all")
    before = git(store, "show-ref")

    with pytest.raises(Conflict):
        store.add_refs({"refs/heads/new/main": commit, ref: commit})

    assert git(store, "show-ref") == before and not store.has("new")


def test_a_lock_that_a_killed_writer_left_is_removed(store: Store) -> None:
    (store.path / packed_refs.LOCK).write_bytes(b"half of a li")

    store.add_refs({"refs/heads/new/main": store.tips("here")["main"]})

    assert store.has("new") and not (store.path / packed_refs.LOCK).exists()


def test_a_file_that_is_no_list_is_not_replaced(store: Store) -> None:
    commit = store.tips("here")["main"]
    (store.path / packed_refs.FILE).write_bytes(b"not a list\n")

    with pytest.raises(Damaged, match="not a list"):
        packed_refs.add(store.path, {"refs/heads/new/main": commit})

    assert (store.path / packed_refs.FILE).read_bytes() == b"not a list\n"
    assert not (store.path / packed_refs.LOCK).exists()
