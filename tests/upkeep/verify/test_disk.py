"""What a disk does to a store is found, told with commit and block, and never fails `verify`."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from ctxvc.store.git.objects import Objects, Unreadable
from ctxvc.store.store import Store
from ctxvc.store.verify.finding import Where
from ctxvc.store.verify.history import History
from ctxvc.store.verify.verify import verify
from tests.making.damage import damaged, flip, found, object_at
from tests.making.store import git


def test_a_flipped_byte_in_a_pack_names_the_block_and_its_commit(full: Store) -> None:
    git(full.path, "-c", "repack.writeBitmaps=false", "repack", "-adqn")
    (pack,) = (full.path / "objects" / "pack").glob("*.pack")
    name = git(full.path, "rev-parse", "demo/main:blocks/00/00/B9.txt").strip()
    line = next(line for line in git(full.path, "verify-pack", "-v", str(pack)).splitlines() if line.startswith(name))
    made = git(full.path, "log", "--format=%H", "--diff-filter=A", "demo/main", "--", "*/B9.txt").strip()
    flip(pack, int(line.split()[4]) + int(line.split()[3]) - 3)

    report = damaged(full, "is damaged", block="B9", commit=made, path="blocks/00/00/B9.txt")

    assert any("checksum mismatch" in finding.what for finding in report.findings)


@pytest.mark.parametrize(
    ("revision", "block", "path"),
    [
        ("demo/main:blocks/00/00/B9.txt", "B9", "blocks/00/00/B9.txt"),
        ("demo/main:blocks/00/00/B27-1.png", "B27", ""),
        ("demo/main:archive/00/00/B2.txt", "B2", "blocks/00/00/B2.txt"),
        ("demo/main:ledger/00/00.jsonl", "B1-B63", "ledger/00/00.jsonl"),
        ("demo/main:ledger/groups.jsonl", "", "ledger/groups.jsonl"),
        ("demo/main:ctxvc.json", "", "ctxvc.json"),
        ("demo/main:request/system.txt", "", "request/system.txt"),
        ("demo/main:blocks/00/00", "B1-B63", "blocks/00/00"),
        ("demo/main:archive", "", "archive"),
        ("demo/main:ledger", "", "ledger"),
        ("demo/main^{tree}", "", ""),
        ("demo/main~3:blocks", "", "blocks"),
        ("demo/main~3", "", ""),
        ("demo/main", "", ""),
    ],
)
def test_a_missing_object_is_named_with_what_needs_it(loose: Store, revision: str, block: str, path: str) -> None:
    try:
        lost = object_at(loose, revision)
    except KeyError:
        lost = object_at(loose, revision.replace("blocks/00/00/B27-1", "archive/00/00/B27-1"))
    lost.unlink()

    report = damaged(loose, "is missing", block=block, path=path)

    hit = [finding for finding in report.findings if "is missing" in finding.what and finding.where.commit]
    assert all(finding.where.scope in ("main", "side") for finding in hit) and hit


@pytest.mark.parametrize(
    "path",
    ["ctxvc.json", ".gitattributes", "ledger/00/00.jsonl", "ledger/groups.jsonl", "blocks/00", "archive/00/00/B2.txt"],
)
def test_a_quick_look_finds_what_the_newest_commits_lack(loose: Store, path: str) -> None:
    object_at(loose, f"demo/main:{path}").unlink()

    report = verify(loose, deep=False)

    assert [(finding.level, finding.where.path) for finding in report.findings] == [("damage", path)]


def test_an_unreadable_object_is_told_with_the_oldest_commit_that_needs_it(full: Store) -> None:
    history = History(Objects(full.repository))
    for age, commit in ((5, "e"), (2, "b"), (7, "g")):
        history.note(Unreadable(b"x" * 20, "is missing"), age, Where(commit=commit))

    assert [(age, finding.where.commit) for age, finding in history.broken.values()] == [(2, "b")]


@pytest.mark.parametrize("path", ["", "blocks", "blocks/00/00", "archive/00/00", "ledger/00", "ledger/00/00.jsonl"])
def test_one_missing_object_is_told_once(loose: Store, path: str) -> None:
    for depth in range(11):
        try:
            lost = object_at(loose, f"demo/main~{depth}:{path}")
        except KeyError:
            continue  # nothing of the kind yet, or no more
        data = lost.read_bytes()
        lost.unlink()

        assert [finding.what for finding in found(loose)] == [f"object {lost.parent.name}{lost.name[:10]} is missing"]
        lost.write_bytes(data)


def test_a_damaged_loose_object_is_named(loose: Store) -> None:
    object_at(loose, "demo/main:blocks/00/00/B9.txt").write_bytes(b"garbage")

    damaged(loose, "is damaged", block="B9")


@pytest.mark.timeout(60)
def test_a_loose_object_that_is_cut_short_is_named_and_keeps_nobody_waiting(loose: Store) -> None:
    revisions = ("demo/main:blocks/00/00/B9.txt", "demo/main:ctxvc.json", "demo/main~2", "demo/main~5:blocks")
    for path in [object_at(loose, revision) for revision in revisions]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    damaged(loose, "is damaged", block="B9")


def test_a_loose_object_under_anothers_name_is_found(loose: Store) -> None:
    other = object_at(loose, "demo/main:blocks/00/00/B10.txt")
    object_at(loose, "demo/main:blocks/00/00/B9.txt").write_bytes(other.read_bytes())

    damaged(loose, "its bytes do not match its name", block="B9")


def test_without_any_pack_everything_is_missing_and_nothing_fails(full: Store) -> None:
    shutil.rmtree(full.path / "objects" / "pack")
    full.close()

    report = damaged(Store(full.path), "is missing")

    assert any(finding.where.path == "objects/pack" for finding in report.findings)


def test_whatever_byte_is_flipped_it_is_found_or_harmless_and_nothing_fails(whole: Path, tmp_path: Path) -> None:
    chance = random.Random(11)
    files = [path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size]
    skipped = {"config", ".gitignore", "ctxvc/store.lock", "info/attributes"}
    targets = [path for path in files if str(path) not in skipped]
    for number in range(40):
        path = tmp_path / str(number)
        shutil.copytree(whole, path, symlinks=True)
        target = chance.choice(targets)
        flip(path / target, chance.randrange(1 << 30))
        try:
            store = Store(path)
        except Exception as error:
            assert target.name == "HEAD", (target, error)  # git itself no longer takes it for a repository
            continue
        report = verify(store)
        store.close()
        if target.parts[0] == "objects" and target.suffix in (".pack", ".idx"):
            assert report.damaged, target
        shutil.rmtree(path)
