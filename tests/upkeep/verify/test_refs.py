"""Refs and files that no session has, or that lead nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxvc.store.store import Store
from ctxvc.store.verify import verify as check
from ctxvc.store.verify.verify import verify
from tests.making.damage import damaged, found, head
from tests.making.store import git


def test_a_branch_that_cannot_be_read_is_found(full: Store) -> None:
    (full.path / "refs/heads/demo/torn").write_bytes(b"")

    damaged(full, "the branch is unreadable", path="refs/heads/demo/torn")


@pytest.mark.parametrize("deep", [True, False])
def test_a_list_of_refs_that_cannot_be_read_is_found(full: Store, deep: bool) -> None:
    git(full.path, "pack-refs", "--all")
    (full.path / "packed-refs").write_text("not a list of refs\n")

    findings = verify(full, deep=deep).findings

    assert any("the refs cannot be read" in finding.what for finding in findings), findings


def test_folders_that_may_not_be_read_are_found(full: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.walk

    def walk(top: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
        if onerror is not None:
            onerror(PermissionError(13, "Permission denied", str(top / "demo")))
        return real(top)

    names = os.listdir

    def listdir(folder: Path) -> list[str]:
        if folder.name == "journal":
            raise PermissionError(13, "Permission denied", str(folder))
        return names(folder)

    monkeypatch.setattr(check.os, "walk", walk)
    monkeypatch.setattr(check.os, "listdir", listdir)

    assert {(finding.what, finding.where.path) for finding in found(full)} == {
        ("its refs cannot be read: Permission denied", "refs/heads/demo"),
        ("the journals cannot be read: Permission denied", "ctxvc/journal"),
    }


def test_a_branch_that_points_to_nothing_is_found(full: Store) -> None:
    (full.path / "refs/heads/demo/main").write_text("12345678" * 5 + "\n")

    report = damaged(full, "is missing", commit="12345678" * 5)

    assert any(finding.where.scope == "main" for finding in report.findings)


def test_a_branch_that_points_to_another_scope_is_found(full: Store) -> None:
    full.repository.references.create("refs/heads/demo/other", head(full), force=True)
    full.repository.references.create("refs/heads/demo/main@laptop", head(full), force=True)

    damaged(full, "the branch points to a commit of demo/main", path="refs/heads/demo/other")
    assert len(found(full)) == 1


def test_a_session_without_its_main_scope_is_found(full: Store) -> None:
    git(full.path, "update-ref", "-d", "refs/heads/demo/main")

    damaged(full, "has no scope main")


def test_a_branch_or_tag_of_a_persons_own_is_left_alone(full: Store) -> None:
    git(full.path, "branch", "mine", "demo/main")
    git(full.path, "tag", "here", "demo/main~1")

    assert found(full) == []


def test_an_object_that_git_shows_in_the_place_of_another_is_found(full: Store) -> None:
    git(full.path, "replace", "demo/main", "demo/main~1")

    damaged(full, "git shows another object", path=f"refs/replace/{head(full)}")


def test_a_head_that_names_no_scope_is_a_warning(full: Store) -> None:
    (full.path / "HEAD").write_text("ref: refs/heads/demo/none\n")
    (full.path / "refs/ctxvc/demo").mkdir(parents=True, exist_ok=True)
    (full.path / "refs/ctxvc/demo/HEAD").write_text(head(full) + "\n")

    assert {(finding.level, finding.where.path) for finding in found(full)} == {
        ("warning", "HEAD"),
        ("warning", "refs/ctxvc/demo/HEAD"),
    }


def test_a_store_that_others_may_enter_is_a_warning(full: Store) -> None:
    full.path.chmod(0o755)
    (full.path / "ctxvc/journal/demo").chmod(0o644)

    assert [(finding.level, finding.where.path) for finding in found(full)] == [
        ("warning", "."),
        ("warning", "ctxvc/journal/demo"),
    ]


def test_what_killed_writers_left_is_a_warning(full: Store) -> None:
    for name in ("objects/pack/tmp_pack_x", "refs/heads/demo/main.lock"):
        (full.path / name).touch(mode=0o600)

    assert {(finding.level, finding.where.path) for finding in found(full)} == {
        ("warning", "objects/pack/tmp_pack_x"),
        ("warning", "refs/heads/demo/main.lock"),
    }
