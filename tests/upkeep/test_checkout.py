"""A checkout: exact files of what is in the prompt, which moves forward and which nothing in it can harm."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pygit2
import pytest

from ctxvc.errors import NotFound, Refused
from ctxvc.store.checkout import Move, checkout, person_changes, place, take
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.conftest import Copied
from tests.making.conversation import exchange, human, raw, reply, result, results
from tests.making.damage import commit_tree, converse, found, head, leave_as_group
from tests.making.store import archive, git

TEXT = b"one\r\ntwo\r\n$Id$ \xc3\xa9\n"


@pytest.fixture
def full(tmp_path: Path, copied: Copied) -> Iterator[Store]:
    """24 blocks of talk, an image, and one block of line ends that no setting may touch: B29."""
    with Store(copied(_full, tmp_path / "project" / ".ctxvc")) as store:
        yield store


def _full(path: Path) -> None:
    with create(path) as store:
        store.create_session("demo", system="You help.")
        with StoredSession.open(store, "demo") as session:
            converse(session)
            session.append(raw(TEXT, ext="txt"))
            session.append(*exchange(30))
            archive(session, "B2", "B6")


@pytest.fixture
def folder(full: Store, tmp_path: Path) -> Path:
    return Path(checkout(full, folder=tmp_path / "out", dashboard="# now\n").path)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name != ".git"}


def shell(folder: Path, *arguments: str) -> str:
    """What stock git says in the folder, as a person with settings of their own."""
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    answer = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return answer.stdout


def recover(session: StoredSession, *blocks: str) -> None:
    rows = [msgspec.structs.replace(session.ledger()[block], reads=1) for block in blocks]
    session.change(subject=f"recover {blocks[0]}", op="recover", actor="agent", rows=rows)


def swap(path: str) -> str:
    top, rest = path.split("/", 1)
    return {"blocks": "archive", "archive": "blocks"}[top] + "/" + rest


def move(folder: Path, path: str) -> None:
    (folder / swap(path)).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).rename(folder / swap(path))


def git_move(folder: Path, path: str) -> None:
    (folder / swap(path)).parent.mkdir(parents=True, exist_ok=True)
    shell(folder, "mv", "--sparse", path, swap(path))


def committed(folder: Path, path: str) -> None:
    git_move(folder, path)
    shell(folder, "commit", "-q", "-m", "I do not need this")


# --- what is in it


def test_it_holds_what_is_in_the_prompt_and_nothing_that_left_it(full: Store, folder: Path) -> None:
    held = files(folder)

    assert {"ctxvc.json", "ledger/00/00.jsonl", "request/system.txt", ".gitattributes", "DASHBOARD.md"} <= held
    assert {"blocks/00/00/B1.txt", "blocks/00/00/B27.json", "blocks/00/00/B27-1.png"} <= held
    assert not any(path.startswith("archive/") for path in held)
    assert (folder / "DASHBOARD.md").read_text() == "# now\n"
    assert shell(folder, "status", "--porcelain") == ""
    assert shell(folder, "rev-parse", "HEAD").strip() == head(full)
    assert subprocess.run(["git", "symbolic-ref", "-q", "HEAD"], cwd=folder, check=False).returncode == 1  # detached


def test_it_says_what_it_made_and_is_private(full: Store, tmp_path: Path) -> None:
    made = checkout(full, "demo", "main", tmp_path / "out")

    assert (made.session, made.scope, made.commit) == ("demo", "main", head(full))
    assert made.files == len(files(tmp_path / "out"))
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700


def test_bytes_are_exact_whatever_the_users_settings_say_and_no_hook_of_theirs_runs(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = f"[core]\nautocrlf = true\neol = crlf\nattributesFile = {tmp_path}/attributes\nhooksPath = {tmp_path}\n"
    (tmp_path / "gitconfig").write_text(settings)
    (tmp_path / "attributes").write_text("* text ident\n")
    (tmp_path / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "post-checkout").chmod(0o755)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))

    folder = Path(checkout(full, folder=tmp_path / "out").path)
    assert (folder / "blocks/00/00/B29.txt").read_bytes() == TEXT
    assert not (tmp_path / "ran").exists()

    (folder / "blocks/00/00/B29.txt").unlink()
    shell(folder, "checkout", "--", ".")  # the person's own git, with these settings
    assert (folder / "blocks/00/00/B29.txt").read_bytes() == TEXT
    assert shell(folder, "status", "--porcelain") == ""


def test_without_a_folder_it_goes_into_the_store(full: Store) -> None:
    made = checkout(full)

    assert Path(made.path) == place(full, "demo", "main") == full.path / "checkout" / "demo" / "main"
    assert (Path(made.path) / "blocks/00/00/B1.txt").read_bytes() == b"question 1"
    assert found(full) == []


def test_a_link_that_somebody_put_into_a_scope_becomes_no_link(full: Store, tmp_path: Path) -> None:
    index = pygit2.Index()
    index.read_tree(full.repository[head(full)].tree)
    link = full.repository.create_blob(b"/etc/passwd")
    index.add(pygit2.IndexEntry("blocks/00/00/B1.txt", link, pygit2.enums.FileMode.LINK))
    commit_tree(full, index.write_tree(full.repository))

    folder = Path(checkout(full, folder=tmp_path / "out").path)

    assert (folder / "blocks/00/00/B1.txt").read_bytes() == b"/etc/passwd"
    assert not (folder / "blocks/00/00/B1.txt").is_symlink()


def test_a_folder_that_holds_something_else_is_refused(full: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").touch()
    with create(tmp_path / "other") as other:
        other.create_session("demo")
        checkout(other, folder=tmp_path / "theirs")

    for folder in (tmp_path / "mine", tmp_path / "theirs", tmp_path / "mine" / "work.txt"):
        with pytest.raises(Refused, match="is not empty and not a checkout of this store"):
            checkout(full, folder=folder)
    with pytest.raises(NotFound, match="no scope demo/none"):
        checkout(full, "demo", "none", tmp_path / "out")
    with pytest.raises(NotFound, match="not a checkout of"):
        person_changes(full, tmp_path / "theirs")
    assert not (tmp_path / "out").exists()


# --- moving forward


def test_running_it_again_makes_it_again_or_moves_it_forward(full: Store, folder: Path) -> None:
    shutil.rmtree(folder)
    checkout(full, folder=folder, dashboard="# now\n")
    with StoredSession.open(full, "demo") as session:
        session.append(*exchange(40))
        archive(session, "B10")
        recover(session, "B2")
    before = files(folder)

    made = checkout(full, folder=folder, dashboard="# later\n")

    came = {*(f"blocks/00/00/B{number}.txt" for number in (34, 35, 37)), "blocks/00/00/B36.json"}
    assert files(folder) - before == {"archive/00/00/B2.txt", *came}
    assert before - files(folder) == {"blocks/00/00/B10.txt"}
    assert made.commit == head(full) and (folder / "DASHBOARD.md").read_text() == "# later\n"
    assert shell(folder, "status", "--porcelain") == ""
    assert not person_changes(full, folder)


def test_it_can_show_another_scope_and_come_back_from_an_older_commit(full: Store, folder: Path) -> None:
    git(full.path, "update-ref", "refs/heads/demo/main@laptop", "demo/main~3")
    shell(folder, "checkout", "-q", "--detach", "HEAD~3")
    assert not person_changes(full, folder)

    assert checkout(full, "demo", "main@laptop", folder).commit == head(full, "main@laptop")
    assert checkout(full, "demo", "main", folder).commit == head(full)
    assert not (folder / "blocks/00/00/B2.txt").exists()


# --- what a person does


B1, OUT = "blocks/00/00/B1.txt", "archive/00/00/B1.txt"
CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda at: (at / B1).write_text("no"), f"{B1}: edited"),
    "edited and staged": (lambda at: [(at / B1).write_text("no"), shell(at, "add", ".")], f"{B1}: edited"),
    "edited and committed": (
        lambda at: [(at / "ctxvc.json").write_text("{}"), shell(at, "commit", "-qam", "x")],
        "ctxvc.json: edited",
    ),
    "removed": (lambda at: (at / B1).unlink(), f"{B1}: removed"),
    "removed by git": (lambda at: shell(at, "rm", "-q", "ledger/00/00.jsonl"), "ledger/00/00.jsonl: removed"),
    "added": (lambda at: (at / "notes.txt").touch(), "notes.txt: added"),
    "added among the blocks": (lambda at: (at / "blocks/00/00/B99.txt").touch(), "blocks/00/00/B99.txt: added"),
    "a link": (lambda at: [(at / B1).unlink(), (at / B1).symlink_to("/etc/passwd")], f"{B1}: edited"),
    "copied": (
        lambda at: [(at / "archive/00/00").mkdir(parents=True), shutil.copy(at / B1, at / OUT)],
        f"{OUT}: added",
    ),
    "moved and edited": (lambda at: [move(at, B1), (at / OUT).write_text("no")], f"{OUT}: added"),
    "moved elsewhere": (lambda at: (at / B1).rename(at / "blocks/00/B1.txt"), "blocks/00/B1.txt: added"),
    "moved without its image": (lambda at: move(at, "blocks/00/00/B27.json"), "blocks/00/00/B27.json: removed"),
    "a commit of no change": (lambda at: shell(at, "commit", "-q", "--allow-empty", "-m", "x"), "a separate commit"),
}


def test_what_a_person_changed_is_named_kept_and_not_taken(full: Store, folder: Path) -> None:
    tips = full.all_tips()
    for change, (make, words) in CHANGES.items():
        make(folder)
        changed = {path: (folder / path).read_bytes() for path in files(folder)}

        with pytest.raises(Refused) as refusal:
            checkout(full, folder=folder)
        with pytest.raises(Refused) as taken:
            take(full, folder)

        assert words in str(refusal.value) and words in str(taken.value), change
        assert {path: (folder / path).read_bytes() for path in files(folder)} == changed, change
        assert full.all_tips() == tips

        # What the hint says really is the way back.
        undo = refusal.value.hint.removeprefix("to undo it: ")
        subprocess.run(undo, shell=True, check=True, capture_output=True, cwd="/")
        assert not person_changes(full, folder), change
        assert checkout(full, folder=folder).commit == head(full)


def test_a_persons_commit_and_reset_move_no_scope(full: Store, folder: Path) -> None:
    tips = full.all_tips()
    (folder / "blocks/00/00/B1.txt").write_text("no")
    shell(folder, "commit", "-qam", "mine")
    assert full.all_tips() == tips

    shell(folder, "reset", "-q", "--hard", "HEAD~4")
    assert full.all_tips() == tips
    assert found(full) == []
    assert checkout(full, folder=folder).commit == head(full)


@pytest.mark.parametrize("way", [move, git_move, committed])
def test_a_pure_move_is_taken_as_an_archive_by_the_user(
    full: Store, folder: Path, way: Callable[[Path, str], None]
) -> None:
    way(folder, "blocks/00/00/B4.txt")
    before = head(full)
    changes = person_changes(full, folder)
    assert (changes.session, changes.scope, changes.base) == ("demo", "main", before)
    assert changes.moves == (Move("B4", "archive"),) and changes.others == ()
    with pytest.raises(Refused, match="B4: moved"):
        checkout(full, folder=folder)

    take(full, folder)

    with StoredSession.open(full, "demo") as session:
        row = session.ledger()["B4"]
        assert (row.state, row.removed_by) == ("archived", "user")
        assert session.body(row) == b"out 1"
    shown = git(full.path, "show", "--format=%an%n%B", "--name-status", "demo/main")
    assert shown.startswith("user\narchive B4\n") and "Ctxvc-Op: archive" in shown
    assert "R100\tblocks/00/00/B4.txt\tarchive/00/00/B4.txt" in shown
    assert shell(folder, "rev-parse", "HEAD").strip() == head(full) != before
    assert shell(folder, "status", "--porcelain") == ""
    assert not person_changes(full, folder)
    assert not (folder / "archive/00/00/B4.txt").exists()
    assert found(full) == []


def test_a_block_moves_with_its_image_and_several_are_one_commit(full: Store, folder: Path) -> None:
    for path in ("blocks/00/00/B27.json", "blocks/00/00/B27-1.png", "blocks/00/00/B8.txt", "blocks/00/00/B1.txt"):
        move(folder, path)

    assert take(full, folder).moves == tuple(Move(block, "archive") for block in ("B1", "B27", "B8"))

    assert git(full.path, "log", "-1", "--format=%s", "demo/main").strip() == "archive B1, B27, B8"
    assert found(full) == []


def test_a_recovered_block_can_be_moved_back(full: Store, tmp_path: Path) -> None:
    with StoredSession.open(full, "demo") as session:
        recover(session, "B6")
    folder = Path(checkout(full, folder=tmp_path / "out").path)
    move(folder, "archive/00/00/B6.txt")
    move(folder, "blocks/00/00/B4.txt")

    assert take(full, folder).moves == (Move("B6", "restore"), Move("B4", "archive"))

    with StoredSession.open(full, "demo") as session:
        row = session.ledger()["B6"]
        assert (row.state, row.stub, row.removed_by, row.reads) == ("visible", "", "", 1)
    assert git(full.path, "log", "-2", "--format=%s", "demo/main").split("\n")[:2] == ["restore B6", "archive B4"]
    assert (folder / "blocks/00/00/B6.txt").exists()
    assert found(full) == []


def test_a_move_that_a_blocks_state_forbids_is_refused(full: Store, tmp_path: Path) -> None:
    with StoredSession.open(full, "demo") as session:
        rows = [msgspec.structs.replace(session.ledger()["B1"], state="pinned")]
        session.change(subject="pin", op="pin", actor="user", rows=rows)
        leave_as_group(session, "B8", "B9")
        recover(session, "B6", "B8")
    folder = Path(checkout(full, folder=tmp_path / "out").path)
    tip = head(full)

    move(folder, "blocks/00/00/B1.txt")
    with pytest.raises(Refused, match="cannot archive B1: it is pinned"):
        take(full, folder)
    move(folder, "archive/00/00/B1.txt")
    move(folder, "archive/00/00/B8.txt")
    with pytest.raises(Refused, match="cannot move B8 alone: it left as part of G1"):
        take(full, folder)
    assert head(full) == tip


def test_a_move_that_came_too_late_is_refused_and_others_are_taken_though_the_scope_went_on(
    full: Store, folder: Path
) -> None:
    move(folder, "blocks/00/00/B4.txt")
    move(folder, "blocks/00/00/B9.txt")
    with StoredSession.open(full, "demo") as session:
        session.append(*exchange(60))
        archive(session, "B9")
    tip = head(full)
    with pytest.raises(Refused, match="B9 has changed since this checkout was made: it is now archived"):
        take(full, folder)
    assert head(full) == tip

    move(folder, "archive/00/00/B9.txt")
    take(full, folder)
    assert not {"blocks/00/00/B4.txt", "blocks/00/00/B9.txt"} & files(folder)
    assert shell(folder, "rev-parse", "HEAD").strip() == head(full)
    assert not person_changes(full, folder)


@pytest.mark.parametrize("way", [move, git_move])
def test_moves_that_are_taken_in_the_middle_of_a_step_show_once_it_is_complete(
    full: Store, tmp_path: Path, way: Callable[[Path, str], None]
) -> None:
    session = StoredSession.open(full, "demo")
    recover(session, "B6")
    folder = Path(checkout(full, folder=tmp_path / "out").path)
    before = files(folder)
    session.append(human("and"), reply("wait", "open"))
    way(folder, "blocks/00/00/B4.txt")
    way(folder, "archive/00/00/B6.txt")

    assert len(take(full, folder).moves) == 2

    session.refresh()
    assert [session.ledger()[block].state for block in ("B4", "B6")] == ["archived", "visible"]
    assert files(folder) == before, "the folder is the newest commit, and nothing is left behind"
    assert not person_changes(full, folder) and not take(full, folder)
    assert shell(folder, "status", "--porcelain") == ""
    checkout(full, folder=folder)
    session.append(results(result("open", "done")))
    session.close()
    checkout(full, folder=folder)
    after = files(folder)
    assert "blocks/00/00/B6.txt" in after
    assert not {"blocks/00/00/B4.txt", "archive/00/00/B4.txt", "archive/00/00/B6.txt"} & after
    assert found(full) == []


def test_a_large_scope_shows_only_what_is_in_the_prompt(store: Store, tmp_path: Path) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(*(said for number in range(250) for said in exchange(number)))
        rows = [row for row in session.ledger().rows() if row.number <= 980]
        gone = [msgspec.structs.replace(row, state="archived", removed_by="guard") for row in rows]
        session.change(subject="archive", op="archive", actor="guard", rows=gone)

    made = checkout(store, folder=tmp_path / "out")

    assert made.files == 20 + 16 + 2 == len(files(tmp_path / "out"))  # bodies, ledger, ctxvc.json, .gitattributes
