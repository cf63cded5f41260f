"""What a pack has of a ledger is the ledger, whichever way it grew or changed from one commit to the next."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ctxvc.core.ledger.ledger import SEGMENT, Ledger, Meta, Row
from ctxvc.store import format as fmt
from ctxvc.store.git.fast_import import Commit, PackWriter
from ctxvc.store.store import create
from tests.core.ledger.test_ledger import row
from tests.making.store import git, git_bytes


def _versions() -> list[Ledger]:
    """A ledger that grows over the ends of segments, then has a row in the place of another, and grows again."""
    newest = Ledger(Meta(format=fmt.FORMAT, session="s", scope="main"))
    versions = [newest]

    def add(*rows: Row) -> None:
        nonlocal newest
        newest = newest.with_rows(rows)
        versions.append(newest)

    for number in range(SEGMENT - 3, SEGMENT + 3):
        add(row(number))
    add(row(SEGMENT, reads=1))
    add(row(SEGMENT + 3), row(SEGMENT * 2), row(SEGMENT * 2 + 1))
    add(msgspec.structs.replace(row(SEGMENT - 2), state="archived"))
    add(row(SEGMENT * 2 + 2))
    return versions


def test_each_commit_has_the_rows_of_its_ledger(tmp_path: Path) -> None:
    path = tmp_path / ".ctxvc"
    create(path).close()
    versions = _versions()
    before: Ledger | None = None
    with PackWriter(path) as pack:
        for ledger in versions:
            known = {row.id for row in before.rows()} if before else set()
            bodies = tuple((row.id, "", row.id.encode()) for row in ledger.rows() if row.id not in known)
            pack.commit(
                Commit(
                    ref="refs/heads/s/main", before=before, after=ledger, bodies=bodies, message="m\n", actor="a",
                    time=1, now=1,
                )
            )  # fmt: skip
            before = ledger

    commits = git(path, "rev-list", "--reverse", "refs/heads/s/main").split()
    for commit, ledger in zip(commits, versions, strict=True):
        stored = git(path, "ls-tree", "-r", "--name-only", commit, "ledger/").split()
        assert stored == [fmt.segment_path(key) for key in ledger.segments]
        for key, rows in ledger.segments.items():
            assert git_bytes(path, "show", f"{commit}:{fmt.segment_path(key)}") == fmt.encode_rows(rows)
        assert {fmt.block_of_path(name) for name in git(path, "ls-tree", "-r", "--name-only", commit).split()} - {
            ""
        } == {row.id for row in ledger.rows()}
