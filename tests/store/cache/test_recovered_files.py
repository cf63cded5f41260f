"""Blocks as files: read-only, in a place of their own, and gone with whoever asked for them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ctxvc.errors import Refused
from ctxvc.session.session import Session
from ctxvc.store.cache.recovered_files import FOLDER, RecoveredFiles
from ctxvc.store.store import Store
from tests.making.provider import create, damages


@pytest.fixture
def store(tmp_path: Path) -> Path:
    create(tmp_path / ".ctxvc").close()
    return tmp_path / ".ctxvc"


def recovered(store: Path) -> list[Path]:
    return [path for path in (store / FOLDER).rglob("*") if path.is_file()]


def test_a_file_is_read_only_in_a_folder_for_this_user_alone_and_is_made_again(store: Path) -> None:
    files = RecoveredFiles(store)
    path = files.write("B3.txt", b"a\r\n\0\xff")
    assert path.read_bytes() == b"a\r\n\0\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE((store / FOLDER).stat().st_mode) == 0o700
    assert files.write("B3.txt", b"b") == path and path.read_bytes() == b"b"
    path.unlink()
    path.parent.rmdir()
    assert files.write("B3.txt", b"c").read_bytes() == b"c"


def test_the_files_go_with_their_owner_and_others_stay(store: Path) -> None:
    mine, others = RecoveredFiles(store), RecoveredFiles(store)
    mine.write("B3.txt", b"a")
    path = others.write("B3.txt", b"b")
    mine.remove()
    assert recovered(store) == [path]


def test_files_of_an_owner_who_was_killed_are_removed_by_the_next(store: Path) -> None:
    pid = os.fork()
    if not pid:
        RecoveredFiles(store).write("B3.txt", b"left")
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(recovered(store)) == 1
    path = RecoveredFiles(store).write("B4.txt", b"mine")
    assert recovered(store) == [path]


@pytest.mark.parametrize("where", [FOLDER, "ctxvc"])
def test_a_link_in_its_way_is_refused_and_nothing_is_written_behind_it(store: Path, tmp_path: Path, where: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if where == "ctxvc":
        (store / "ctxvc").rename(elsewhere / "was")
    (store / where).symlink_to(elsewhere)
    with pytest.raises(Refused):
        RecoveredFiles(store).write("B3.txt", b"a")
    assert not list(elsewhere.rglob("B3*"))


def test_a_store_with_such_files_opens_and_is_whole(store: Path) -> None:
    with Session.open(store, "s") as session:
        session.append({"role": "user", "content": "Hello."})
        row, path = session.recover_file("B1")
        assert path.read_bytes() == b"Hello." and row.id == "B1"
        assert session.ledger()["B1"].reads == 1
        with Store(store) as opened:
            assert not damages(opened)
    assert recovered(store) == []


def test_a_block_with_a_secrets_mark_goes_into_no_file(store: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    with Session.open(store, "s") as session:
        session.append({"role": "user", "content": f"export GITHUB_TOKEN={secret[:40]}"})
        assert b"REDACTED" in session.body("B1")
        with pytest.raises(Refused, match="has secrets, which are marked"):
            session.recover_file("B1")
    assert recovered(store) == []
