"""`verify` finds every kind of damage, says which commit and block it hits, and never fails itself."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pygit2
import pytest

from ctxvc.core.ledger.ledger import Counters, Group, Row
from ctxvc.store import format as fmt
from ctxvc.store.git.objects import Objects, Unreadable
from ctxvc.store.log.journal import Change, Record, encode_record, frame, parse
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.store.verify import verify as check
from ctxvc.store.verify.finding import Where
from ctxvc.store.verify.groups import disagreements
from ctxvc.store.verify.history import History
from ctxvc.store.verify.ledger import IDENTITY
from ctxvc.store.verify.verify import verify
from tests.making.conversation import exchange, human
from tests.making.damage import (
    Files,
    damaged,
    edit_row,
    everything,
    flip,
    found,
    head,
    leave_as_group,
    messages,
    object_at,
    rewrite,
    tree_files,
    unpack,
)
from tests.making.store import archive, git, start


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it, to be copied."""
    path = tmp_path_factory.mktemp("whole") / ".ctxvc"
    with create(path) as store:
        everything(store)
    return path


@pytest.fixture
def full(whole: Path, tmp_path: Path) -> Store:
    """A store of this test's own with everything in it."""
    shutil.copytree(whole, tmp_path / ".ctxvc", symlinks=True)
    return Store(tmp_path / ".ctxvc")


# --- stores in order


def test_a_new_store_has_nothing_wrong_with_it(store: Store) -> None:
    assert found(store) == []


def test_a_store_with_everything_in_it_has_nothing_wrong_with_it(full: Store) -> None:
    report = verify(full)

    assert report.findings == ()
    assert (report.sessions, report.scopes, report.commits) == (1, 2, 13)
    assert report.blocks == 32  # 24 + 4 in main, 4 in side; those of the open step are in no commit yet
    assert verify(full, deep=False).findings == ()


def test_it_stays_in_order_through_every_verb(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        for number in range(3):
            session.append(*exchange(number))
            assert found(store) == []
        session.change(subject="pin", op="pin", actor="user", rows=[_with(session, "B1", state="pinned")])
        session.change(subject="mask", op="mask", actor="user", rows=[_with(session, "B4", state="masked", reads=2)])
        session.change(subject="cut", op="mask", actor="user", meta={"cuts": (1, 2)})

    assert found(store) == []


def _with(session: object, block: str, **fields: object) -> object:
    return msgspec.structs.replace(session.ledger()[block], **fields)  # type: ignore[attr-defined]


def test_eight_hundred_blocks_are_counted_and_in_order(store: Store) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(200))
        before = verify(store)
    told: list[tuple[int, int]] = []

    report = verify(store, lambda done, total: told.append((done, total)))

    assert before.findings == report.findings == ()
    assert (report.blocks, report.commits) == (800, 201)
    assert told[-1] == (201, 201) and [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_body_is_read_once_however_often_it_moved(full: Store) -> None:
    bytes_of_bodies = verify(full).bytes
    with StoredSession.open(full, "demo") as session:
        for number in range(6):
            state = "archived" if number % 2 else "visible"
            session.change(subject="x", op="archive", actor="user", rows=[_with(session, "B2", state=state)])  # type: ignore[list-item]

    assert verify(full).bytes == bytes_of_bodies


# --- what a disk does


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
def test_a_missing_object_is_named_with_what_needs_it(full: Store, revision: str, block: str, path: str) -> None:
    unpack(full)
    try:
        lost = object_at(full, revision)
    except subprocess.CalledProcessError:
        lost = object_at(full, revision.replace("blocks/00/00/B27-1", "archive/00/00/B27-1"))
    lost.unlink()

    report = damaged(full, "is missing", block=block, path=path)

    hit = [finding for finding in report.findings if "is missing" in finding.what and finding.where.commit]
    assert all(finding.where.scope in ("main", "side") for finding in hit) and hit


@pytest.mark.parametrize(
    "path",
    ["ctxvc.json", ".gitattributes", "ledger/00/00.jsonl", "ledger/groups.jsonl", "blocks/00", "archive/00/00/B2.txt"],
)
def test_a_quick_look_finds_what_the_newest_commits_lack(full: Store, path: str) -> None:
    unpack(full)
    object_at(full, f"demo/main:{path}").unlink()

    report = verify(full, deep=False)

    assert [(finding.level, finding.where.path) for finding in report.findings] == [("damage", path)]


def test_an_unreadable_object_is_told_with_the_oldest_commit_that_needs_it(full: Store) -> None:
    history = History(Objects(full.repository))
    for age, commit in ((5, "e"), (2, "b"), (7, "g")):
        history.note(Unreadable(b"x" * 20, "is missing"), age, Where(commit=commit))

    assert [(age, finding.where.commit) for age, finding in history.broken.values()] == [(2, "b")]


@pytest.mark.parametrize("path", ["", "blocks", "blocks/00/00", "archive/00/00", "ledger/00", "ledger/00/00.jsonl"])
def test_one_missing_object_is_told_once(full: Store, path: str) -> None:
    unpack(full)
    for depth in range(11):
        try:
            lost = object_at(full, f"demo/main~{depth}:{path}")
        except subprocess.CalledProcessError:
            continue  # nothing of the kind yet, or no more
        data = lost.read_bytes()
        lost.unlink()

        assert [finding.what for finding in found(full)] == [f"object {lost.parent.name}{lost.name[:10]} is missing"]
        lost.write_bytes(data)


def test_a_damaged_loose_object_is_named(full: Store) -> None:
    unpack(full)
    object_at(full, "demo/main:blocks/00/00/B9.txt").write_bytes(b"garbage")

    damaged(full, "is damaged", block="B9")


@pytest.mark.timeout(60)
def test_a_loose_object_that_is_cut_short_is_named_and_keeps_nobody_waiting(full: Store) -> None:
    unpack(full)
    revisions = ("demo/main:blocks/00/00/B9.txt", "demo/main:ctxvc.json", "demo/main~2", "demo/main~5:blocks")
    for path in [object_at(full, revision) for revision in revisions]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    damaged(full, "is damaged", block="B9")


def test_a_loose_object_under_anothers_name_is_found(full: Store) -> None:
    unpack(full)
    other = object_at(full, "demo/main:blocks/00/00/B10.txt")
    object_at(full, "demo/main:blocks/00/00/B9.txt").write_bytes(other.read_bytes())

    damaged(full, "its bytes do not match its name", block="B9")


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


# --- what somebody does who edits


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
    commit = _commit_tree(full, index.write_tree(repository))

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


@pytest.mark.parametrize(
    ("group", "what"),
    [
        (Group(id="G1", members=("B5", "B6")), "B7 is in G1, which does not contain it"),
        (Group(id="G1", members=("B5", "B6", "B7", "B8")), "G1 has B8, which is in no group"),
        (Group(id="G1", members=("B5", "B6", "B7", "B99")), "G1 has B99, which does not exist"),
        (Group(id="G1", members=("B5", "B6", "B7", "G7")), "G1 has G7, which does not exist"),
        (Group(id="G1", members=("B5", "B6", "B7", "B7")), "no members, or a duplicate one"),
        (Group(id="G1", members=("B5", "B6", "B7"), group="G9"), "G1 is in G9, which does not exist"),
        (Group(id="G1", members=("B5", "B6", "B7"), before="B99"), "the stub of G1 needs B99"),
        (Group(id="G1", members=("B5", "B6", "B7"), summary=("x",)), "the stub of G1 needs x"),
        (Group(id="G5", members=("B5", "B6", "B7")), "which does not exist"),
    ],
)
def test_a_group_that_its_members_know_nothing_of_is_found(full: Store, group: Group, what: str) -> None:
    commit = rewrite(full, {"ledger/groups.jsonl": fmt.encode_groups([group])})

    damaged(full, what, commit=commit, path="ledger/groups.jsonl")


def test_a_group_inside_one_of_its_own_level_is_found(full: Store) -> None:
    groups = [Group(id="G1", members=("B5", "B6", "B7"), group="G2"), Group(id="G2", members=("G1",))]

    rewrite(full, {"ledger/groups.jsonl": fmt.encode_groups(groups)})

    damaged(full, "G2 has level 1 and contains G1 of level 1")


def test_a_row_that_left_its_group_by_itself_is_found(full: Store) -> None:
    edit_row(full, "B5", group="")
    damaged(full, "G1 has B5, which is in no group")

    edit_row(full, "B9", group="G1")
    damaged(full, "B9 is in G1, which does not contain it", block="B9")


def _nested(store: Store) -> None:
    """G1 of B5 to B7 in G3, and G2 of B9 and B10."""
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*messages(4))
        leave_as_group(session, "B5", "B6", "B7", name="G1")
        leave_as_group(session, "B9", "B10", name="G2")
        inner = msgspec.structs.replace(session.ledger().groups["G1"], group="G3")
        outer = Group(id="G3", members=("G1",), level=2, stub="[archived G3]", removed_by="user")
        session.change(subject="again", op="archive", actor="user", groups=[inner, outer])
        session.append(*exchange(5))  # the newest commit leaves the groups as they were


@pytest.mark.parametrize(
    ("name", "fields", "what"),
    [
        ("G1", {"group": ""}, "G3 has G1, which is in no group"),
        ("G1", {"group": "G2"}, "G1 is in G2, which does not contain it"),
        ("G1", {"level": 2}, "G3 has level 2 and contains G1 of level 2"),
        ("G3", {"level": 1}, "G3 has level 1 and contains G1 of level 1"),
        ("G1", None, "G3 has G1, which does not exist"),
        ("G3", None, "G1 is in G3, which does not exist"),
        ("G3", {"members": ("G1", "G2")}, "G3 has G2, which is in no group"),
        ("G2", {"members": ("B9",)}, "B10 is in G2, which does not contain it"),
        ("G2", {"members": ("B9", "B10", "B11")}, "G2 has B11, which is in no group"),
        ("G2", None, "B9 is in G2, which does not exist"),
    ],
)
def test_groups_in_groups_that_disagree_are_found(
    store: Store, name: str, fields: dict[str, object] | None, what: str
) -> None:
    _nested(store)
    assert found(store) == []

    def edit(files: dict[str, bytes]) -> Files:
        groups = fmt.decode_groups(files["ledger/groups.jsonl"], "")
        if fields is None:
            del groups[name]
        else:
            groups[name] = msgspec.structs.replace(groups[name], **fields)
        return {"ledger/groups.jsonl": fmt.encode_groups(groups.values())}

    damaged(store, what, commit=rewrite(store, edit), path="ledger/groups.jsonl")


@pytest.mark.parametrize(
    ("block", "group", "what"),
    [
        ("B9", "", "G2 has B9, which is in no group"),
        ("B9", "G1", "G2 has B9, which is in G1"),
        ("B9", "G1", "B9 is in G1, which does not contain it"),
        ("B1", "G2", "B1 is in G2, which does not contain it"),
        ("B1", "G9", "B1 is in G9, which does not exist"),
    ],
)
def test_a_row_that_changes_its_group_by_itself_is_found(store: Store, block: str, group: str, what: str) -> None:
    _nested(store)

    damaged(store, what, commit=edit_row(store, block, group=group), path="ledger/groups.jsonl")


def test_a_group_whose_line_stands_there_twice_counts_as_the_last_one_says(store: Store) -> None:
    _nested(store)

    path = "ledger/groups.jsonl"
    whole, lines = head(store), tree_files(store, head(store))[path]
    other = lines.splitlines(keepends=True)[0].replace(b'"B5",', b"")

    rewrite(store, {path: other + lines})
    assert found(store) == []

    store.repository.references.create("refs/heads/demo/main", whole, force=True)
    rewrite(store, {path: lines + other})
    damaged(store, "B5 is in G1, which does not contain it", commit=head(store), block="B5")


def test_one_group_of_twenty_thousand_blocks_is_looked_through_once(store: Store) -> None:
    """Twice as many blocks in a group take about twice as long, and not four times."""
    took = []
    for size in (10_000, 20_000):
        names = [f"B{number}" for number in range(1, size + 1)]
        row = Row(id="B1", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=1, sha256="0" * 64)
        rows = {name: msgspec.structs.replace(row, id=name, group="G1") for name in names}
        group = Group(id="G1", members=tuple(names))
        runs = []
        for _ in range(3):  # the best of three has no collection of garbage in it
            start = time.process_time()
            assert (
                list(disagreements({}, {"G1": group}, {"G1"}, {k: (None, v) for k, v in rows.items()}, rows.get)) == []
            )
            runs.append(time.process_time() - start)
        took.append(min(runs))

    assert took[1] < 3 * took[0] + 0.05


def test_groups_that_cannot_be_read_are_found(full: Store) -> None:
    rewrite(full, {"ledger/groups.jsonl": b"[]\n"})

    damaged(full, "not a list of groups", path="ledger/groups.jsonl")


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


def _commit_tree(store: Store, tree: pygit2.Oid, message: str = "x\n\nCtxvc-Op: step\n") -> str:
    who = pygit2.Signature("ctxvc", "ctxvc@ctxvc", 1, 0)
    made = store.repository.create_commit(None, who, who, message, tree, [head(store)])
    store.repository.references.create("refs/heads/demo/main", made, force=True)
    return str(made)


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
    commit = _commit_tree(full, root.write())

    report = verify(full, deep=False)

    assert any("more than 100 faults" in finding.what for finding in report.findings)
    assert {finding.where.commit for finding in report.findings} == {commit}


# --- refs and files


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


# --- journals


def _journal(store: Store) -> Path:
    return store.journal_path("demo")


def test_a_verb_that_waits_for_an_open_step_is_in_order(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        archive(session, "B9")
        archive(session, "B33")
        assert session.waiting() > 2

    assert found(full) == []


@pytest.mark.parametrize("origin", ["", ":1", "12" * 20])
def test_a_record_of_a_scope_from_nowhere_does_no_harm(full: Store, origin: str) -> None:
    with StoredSession.open(full, "demo") as session:
        rows = (session.ledger()["B1"],)
    _append(full, 1000, Change("new", "scope", "agent", Counters(block=35), rows=rows, origin=origin))

    assert all(finding.level == "damage" for finding in found(full))


def test_a_torn_tail_is_a_warning_that_names_the_last_good_record(full: Store) -> None:
    data = _journal(full).read_bytes()
    frames, _ = parse(data)
    _journal(full).write_bytes(data + data[frames[-1].start : frames[-1].end - 3])

    (finding,) = found(full)

    assert finding.level == "warning" and finding.where.session == "demo"
    assert f"a crash left {frames[-1].end - frames[-1].start - 3} bytes after record {frames[-1].seq}" in finding.what
    assert "(scope main, step 9, B33; scope main, step 9, B34-B35)" in finding.what


def test_a_whole_record_that_cannot_be_read_is_damage(full: Store) -> None:
    flip(_journal(full), -5)

    report = damaged(
        full, "which contained B33 of scope main, B34-B35 of scope main, cannot be read", path="ctxvc/journal/demo"
    )

    assert "after its beginning" in report.findings[0].what


def test_damage_in_the_middle_of_a_journal_names_the_record_before_it(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        session.append(human("one more thing"), scope="side")
        session.append(human("and another"), scope="side")
    frames, _ = parse(_journal(full).read_bytes())
    assert len(frames) == 4
    flip(_journal(full), frames[2].end - 5)

    damaged(full, f"bytes after record {frames[1].seq} (scope main, step", path="ctxvc/journal/demo")


def test_a_journal_without_a_head_is_damage(full: Store) -> None:
    _journal(full).write_bytes(b"what is this?")

    damaged(full, "the header is unreadable", path="ctxvc/journal/demo")


def test_a_record_of_nonsense_is_damage(full: Store) -> None:
    with open(_journal(full), "ab") as stream:
        stream.write(frame(1000, b"\x93nonsense"))

    damaged(full, "record 1000", path="ctxvc/journal/demo")


def test_a_record_whose_body_is_another_is_damage(full: Store) -> None:
    with StoredSession.open(full, "demo") as session:
        row = session.ledger()["B1"]
    fresh = msgspec.structs.replace(row, id="B77")
    change = Change("main", "step", "agent", Counters(block=77), rows=(fresh,), bodies=(("B77", "", b"another"),))
    _append(full, 1000, change)
    damaged(full, "record 1000 has a body for B77 that does not match its row", block="B77")

    _append(full, 1001, msgspec.structs.replace(change, rows=(msgspec.structs.replace(row, id="B78"),), bodies=()))
    damaged(full, "record 1001 has the row of B78 but no body", block="B78")

    _append(full, 1001, msgspec.structs.replace(change, rows=(), bodies=()))
    damaged(full, "record 1001 comes after record 1001")


def _append(store: Store, seq: int, change: Change) -> None:
    with open(_journal(store), "ab") as stream:
        stream.write(encode_record(seq, Record(changes=(change,))))


def test_records_of_a_session_that_has_no_scope_are_damage(full: Store) -> None:
    shutil.copy(_journal(full), full.journal_path("lost"))

    damaged(full, "it has records, but the session has no scope", path="ctxvc/journal/lost")


def test_bytes_that_were_set_aside_are_damage_until_somebody_accepts_that(full: Store) -> None:
    names = {"demo~unreadable-120": "damage", "demo~unreadable-12ab.accepted": "warning"}
    names |= {"demo.unreadable-120": "damage", "demo.unreadable-12ab.accepted": "warning"}  # of an earlier version
    for name, level in names.items():
        path = full.journal_path(name)
        path.write_bytes(b"x")
        path.chmod(0o600)
        assert [(finding.level, finding.where.session) for finding in found(full)] == [(level, "demo")]
        path.unlink()


# --- while others write


@pytest.mark.slow
def test_nothing_seems_wrong_while_another_process_writes_and_merges_packs(store: Store) -> None:
    store.create_session("demo")
    with start("writer.py", store.path, "demo", "main", "w", 60, 1) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdout.readline()
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        threading.Thread(target=writer.stdout.read).start()
        looked = 0
        while writer.poll() is None:
            assert found(store) == []
            looked += 1

    assert looked > 2
    assert verify(store).blocks == 240
