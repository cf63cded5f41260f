"""What a disk, a crash or a person's git does to a store is found, told with its place, and never fails `verify`."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Counters
from ctxvc.store.git.objects import Objects, Unreadable
from ctxvc.store.log.journal import Change, Record, encode_record, frame, parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.store.verify import verify as check
from ctxvc.store.verify.finding import Where
from ctxvc.store.verify.history import History
from ctxvc.store.verify.verify import verify
from tests.making.conversation import human
from tests.making.damage import DAMAGED, NO_REPOSITORY, SOUND, checked, damaged, flip, found, head, messages, object_at
from tests.making.processes import ended
from tests.making.store import archive, git, start


def told(store: Store) -> set[tuple[str, str]]:
    """Level and path of each finding."""
    return {(finding.level, finding.where.path) for finding in found(store)}


# --- in order


def test_a_store_with_everything_in_it_has_nothing_wrong_with_it(full: Store, store: Store) -> None:
    report = verify(full)

    assert report.findings == ()
    assert (report.sessions, report.scopes, report.commits) == (1, 2, 13)
    assert report.blocks == 32  # 24 + 4 in main, 4 in side; those of the open step are in no commit yet
    assert verify(full, deep=False).findings == ()
    assert found(store) == [], "nor one with nothing in it"


def test_it_stays_in_order_through_every_verb(full: Store) -> None:
    def changed(block: str, **fields: object) -> None:
        rows = [msgspec.structs.replace(session.ledger()[block], **fields)]
        session.change(subject="x", op="pin", actor="user", rows=rows)

    bodies = verify(full).bytes
    with StoredSession.open(full, "demo") as session:
        archive(session, "B9")
        archive(session, "B33")
        assert session.waiting() > 2, "for an open step"
        assert found(full) == []
        session.append(human("never mind"))
        changed("B1", state="pinned")
        changed("B4", state="masked", reads=2)
        for number in range(4):
            changed("B2", state="archived" if number % 2 else "visible")
        session.change(subject="cut", op="mask", actor="user", meta={"cuts": (1, 2)})

    report = verify(full)
    assert report.findings == ()
    assert report.bytes == bodies + len("and now") + len("wait") + len('{"cmd":"open"}'), "a body is read once"


def test_eight_hundred_blocks_are_counted_and_in_order(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(200))
        before = verify(store)
    progress: list[tuple[int, int]] = []

    report = verify(store, lambda done, total: progress.append((done, total)))

    assert before.findings == report.findings == ()
    assert (report.blocks, report.commits) == (800, 201)
    assert progress[-1] == (201, 201) and [done for done, _ in progress] == sorted(done for done, _ in progress)


@pytest.mark.slow
def test_nothing_seems_wrong_while_another_process_writes_and_merges_packs(store: Store) -> None:
    store.create_session("demo")
    with start("writer.py", store.path, "demo", "main", "w", 60, 1) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdout.readline()
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        threading.Thread(target=writer.stdout.read).start()
        looks = 0
        while writer.poll() is None:
            assert found(store) == []
            looks += 1

    assert looks > 2
    assert verify(store).blocks == 240


# --- objects


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
        ("demo/main:archive/00/00/B27-1.png", "B27", ""),
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
    object_at(loose, revision).unlink()

    report = damaged(loose, "is missing", block=block, path=path)

    places = [finding.where for finding in report.findings if "is missing" in finding.what and finding.where.commit]
    assert places and all(place.scope in ("main", "side") for place in places)


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
        history.note(age, Unreadable(b"x" * 20, "is missing"), Where(commit=commit))

    assert [(age, finding.where.commit) for age, finding in history.broken.values()] == [(2, "b")]


@pytest.mark.parametrize("path", ["", "blocks", "blocks/00/00", "archive/00/00", "ledger/00", "ledger/00/00.jsonl"])
def test_one_missing_object_is_told_once(loose: Store, path: str) -> None:
    for depth in range(0, 11, 3):
        try:
            lost = object_at(loose, f"demo/main~{depth}:{path}")
        except KeyError:
            continue  # nothing of the kind yet, or no more
        data = lost.read_bytes()
        lost.unlink()

        assert [finding.what for finding in found(loose)] == [f"object {lost.parent.name}{lost.name[:10]} is missing"]
        lost.write_bytes(data)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("left", ["garbage", "a half", "another's"])
def test_a_damaged_loose_object_is_named_and_keeps_nobody_waiting(loose: Store, left: str) -> None:
    revisions = ("demo/main:blocks/00/00/B9.txt", "demo/main:ctxvc.json", "demo/main~2", "demo/main~5:blocks")
    block, *others = [object_at(loose, revision) for revision in revisions]
    match left:
        case "garbage":
            block.write_bytes(b"garbage")
        case "a half":
            for path in (block, *others):
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case _:
            block.write_bytes(object_at(loose, "demo/main:blocks/00/00/B10.txt").read_bytes())

    damaged(loose, "its bytes do not match its name" if left == "another's" else "is damaged", block="B9")


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
        # In a process of its own, as a command is: what libgit2 makes of a damaged pack is not to end this one.
        code = ended(checked, str(path))
        if code == NO_REPOSITORY:
            assert target.name == "HEAD", target  # git itself no longer takes it for one
            continue
        assert code in (SOUND, DAMAGED), (target, code)
        if target.parts[0] == "objects" and target.suffix in (".pack", ".idx"):
            assert code == DAMAGED, target
        shutil.rmtree(path)


# --- refs, and files beside them


def to_main(*names: str) -> Callable[[Store], object]:
    return lambda store: [store.repository.references.create(name, head(store), force=True) for name in names]


@pytest.mark.parametrize(
    ("change", "what", "path"),
    [
        (
            lambda store: (store.path / "refs/heads/demo/torn").touch(),
            "the branch is unreadable",
            "refs/heads/demo/torn",
        ),
        (
            to_main("refs/heads/demo/other", "refs/heads/demo/main@laptop"),  # only the first is no line of main
            "the branch points to a commit of demo/main",
            "refs/heads/demo/other",
        ),
        (lambda store: git(store.path, "update-ref", "-d", "refs/heads/demo/main"), "has no scope main", ""),
    ],
)
def test_a_ref_that_leads_elsewhere_is_found(
    full: Store, change: Callable[[Store], object], what: str, path: str
) -> None:
    change(full)

    report = damaged(full, what, path=path)
    assert what != "the branch points to a commit of demo/main" or len(report.findings) == 1


def test_a_replaced_object_and_a_branch_to_nothing_are_found(full: Store) -> None:
    git(full.path, "replace", "demo/main", "demo/main~1")
    damaged(full, "git shows another object", path=f"refs/replace/{head(full)}")

    git(full.path, "replace", "-d", head(full))
    (full.path / "refs/heads/demo/main").write_text("12345678" * 5 + "\n")
    report = damaged(full, "is missing", commit="12345678" * 5)
    assert any(finding.where.scope == "main" for finding in report.findings)


@pytest.mark.parametrize("deep", [True, False])
def test_a_list_of_refs_that_cannot_be_read_is_found(full: Store, deep: bool) -> None:
    git(full.path, "pack-refs", "--all")
    (full.path / "packed-refs").write_text("not a list of refs\n")

    findings = verify(full, deep=deep).findings

    assert any("the refs cannot be read" in finding.what for finding in findings), findings


def test_folders_that_may_not_be_read_are_found(full: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real, names = os.walk, os.listdir

    def walk(top: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
        if onerror is not None:
            onerror(PermissionError(13, "Permission denied", str(top / "demo")))
        return real(top)

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


def test_a_branch_or_tag_of_a_persons_own_is_left_alone_and_a_head_of_no_scope_a_warning(full: Store) -> None:
    git(full.path, "branch", "mine", "demo/main")
    git(full.path, "tag", "here", "demo/main~1")
    assert found(full) == []

    (full.path / "HEAD").write_text("ref: refs/heads/demo/none\n")
    (full.path / "refs/ctxvc/demo").mkdir(parents=True, exist_ok=True)
    (full.path / "refs/ctxvc/demo/HEAD").write_text(head(full) + "\n")
    assert told(full) == {("warning", "HEAD"), ("warning", "refs/ctxvc/demo/HEAD")}


def test_a_store_that_others_may_enter_and_what_killed_writers_left_are_warnings(full: Store) -> None:
    full.path.chmod(0o755)
    (full.path / "ctxvc/journal/demo").chmod(0o644)
    left = ("objects/pack/tmp_pack_x", "refs/heads/demo/main.lock")
    for name in left:
        (full.path / name).touch(mode=0o600)

    assert told(full) == {("warning", path) for path in (".", "ctxvc/journal/demo", *left)}


# --- journals


def append(store: Store, seq: int, change: Change) -> None:
    with open(store.journal_path("demo"), "ab") as stream:
        stream.write(encode_record(seq, Record(changes=(change,))))


@pytest.mark.parametrize("origin", ["", ":1", "12" * 20])
def test_a_record_of_a_scope_from_nowhere_does_no_harm(full: Store, origin: str) -> None:
    with StoredSession.open(full, "demo") as session:
        rows = (session.ledger()["B1"],)
    append(full, 1000, Change("new", "scope", "agent", Counters(block=35), rows=rows, origin=origin))

    assert all(finding.level == "damage" for finding in found(full))


def test_a_torn_tail_is_a_warning_that_names_the_last_good_record(full: Store) -> None:
    data = full.journal_path("demo").read_bytes()
    frames, _ = parse(data)
    full.journal_path("demo").write_bytes(data + data[frames[-1].start : frames[-1].end - 3])

    (finding,) = found(full)

    assert finding.level == "warning" and finding.where.session == "demo"
    assert f"a crash left {frames[-1].end - frames[-1].start - 3} bytes after record {frames[-1].seq}" in finding.what
    assert "(scope main, step 9, B33; scope main, step 9, B34-B35)" in finding.what


def test_damage_in_a_journal_names_the_record_before_it_or_what_it_contained(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        session.append(human("one more thing"), scope="side")
        session.append(human("and another"), scope="side")
    journal = full.journal_path("demo")
    data = journal.read_bytes()
    frames, _ = parse(data)
    assert len(frames) == 4
    flip(journal, frames[2].end - 5)
    damaged(full, f"bytes after record {frames[1].seq} (scope main, step", path="ctxvc/journal/demo")

    journal.write_bytes(data[: frames[1].end])
    flip(journal, -5)
    what = "which contained B33 of scope main, B34-B35 of scope main, cannot be read"
    assert "after its beginning" in damaged(full, what, path="ctxvc/journal/demo").findings[0].what


def test_a_journal_of_nonsense_or_without_a_head_or_session_is_damage(full: Store) -> None:
    journal = full.journal_path("demo")
    shutil.copy(journal, full.journal_path("lost"))
    damaged(full, "it has records, but the session has no scope", path="ctxvc/journal/lost")

    with open(journal, "ab") as stream:
        stream.write(frame(1000, b"\x93nonsense"))
    damaged(full, "record 1000", path="ctxvc/journal/demo")

    journal.write_bytes(b"what is this?")
    damaged(full, "the header is unreadable", path="ctxvc/journal/demo")


def test_a_record_whose_body_is_another_is_damage(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        row = session.ledger()["B1"]
    fresh = msgspec.structs.replace(row, id="B77")
    change = Change("main", "step", "agent", Counters(block=77), rows=(fresh,), bodies=(("B77", "", b"another"),))
    append(full, 1000, change)
    damaged(full, "record 1000 has a body for B77 that does not match its row", block="B77")

    append(full, 1001, msgspec.structs.replace(change, rows=(msgspec.structs.replace(row, id="B78"),), bodies=()))
    damaged(full, "record 1001 has the row of B78 but no body", block="B78")

    append(full, 1001, msgspec.structs.replace(change, rows=(), bodies=()))
    damaged(full, "record 1001 comes after record 1001")


def test_bytes_that_were_set_aside_are_damage_until_somebody_accepts_that(full: Store) -> None:
    names = {"demo~unreadable-120": "damage", "demo~unreadable-12ab.accepted": "warning"}
    names |= {"demo.unreadable-120": "damage", "demo.unreadable-12ab.accepted": "warning"}  # of an earlier version
    for name, level in names.items():
        path = full.journal_path(name)
        path.write_bytes(b"x")
        path.chmod(0o600)
        assert [(finding.level, finding.where.session) for finding in found(full)] == [(level, "demo")]
        path.unlink()
