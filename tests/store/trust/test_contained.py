"""Files in a store are reached through no link, seals hold for one store and machine, and worktrees on two words."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ctxvc.claude_code import requests
from ctxvc.claude_code.requests import Request
from ctxvc.cli.commands import doctor
from ctxvc.errors import Refused
from ctxvc.recording import places
from ctxvc.store import store as store_module
from ctxvc.store import worktrees
from ctxvc.store.checkout import checkout, place
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import links_inbox, locate
from ctxvc.store.purge import search
from ctxvc.store.store import Store
from ctxvc.store.trust import contained, seals, trust
from ctxvc.tokens.count import CountCache
from tests.making.conversation import exchange
from tests.making.store import git
from tests.store import hostile


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "folder" / "file").write_text("theirs")
    return tmp_path / "outside"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", "a//b", "a/./b", "a\0b", "a\nb", "x" * 300])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    for use in (contained.read, contained.remove, contained.remove_tree):
        with pytest.raises(Refused):
            use(tmp_path, name)
    with pytest.raises(Refused):
        contained.replace(tmp_path, name, b"x")


@pytest.mark.parametrize(
    "use",
    [
        lambda top: contained.read(top, "way/file"),
        lambda top: contained.replace(top, "way/file", b"ours"),
        lambda top: contained.remove(top, "way/file"),
        lambda top: contained.remove_tree(top, "way/file"),
        lambda top: contained.make_folder(top, "way/new"),
        lambda top: contained.names(top, "way"),
        lambda top: contained.move(top, "own", "way/file"),
        lambda top: contained.opened(top, "link", os.O_WRONLY | os.O_CREAT),
        contained.examine,
    ],
)
def test_no_link_is_followed(tmp_path: Path, outside: Path, use: Callable[[Path], object]) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "own").write_text("ours")
    (top / "way").symlink_to(outside / "folder")
    (top / "link").symlink_to(outside / "new")
    with pytest.raises(Refused, match="is a link"):
        use(top)

    assert (outside / "folder" / "file").read_text() == "theirs" and len(list(outside.rglob("*"))) == 2


def test_what_is_removed_is_a_link_and_not_what_it_leads_to(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "top" / "a" / "b" / "way").symlink_to(outside / "folder")
    (tmp_path / "top" / "link").symlink_to(outside / "folder")
    contained.remove_tree(tmp_path, "top/a")
    contained.remove_tree(tmp_path, "top/link")
    contained.remove_tree(tmp_path, "top/not there")

    assert list((tmp_path / "top").iterdir()) == [] and (outside / "folder" / "file").exists()


def test_a_pipe_is_not_waited_for_and_a_second_name_not_written_to(tmp_path: Path, outside: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "second").hardlink_to(outside / "folder" / "file")
    with pytest.raises(Refused, match="pipe"):
        contained.read(tmp_path, "pipe")
    with pytest.raises(Refused, match="second hard link"):
        contained.opened(tmp_path, "second", os.O_WRONLY | os.O_APPEND)

    assert contained.read(tmp_path, "second") == b"theirs" and contained.glance(tmp_path / "pipe") == b""


@pytest.fixture
def without_rights() -> Iterator[Path]:
    """A folder that everybody can reach; inside, nobody's permissions are passed over, also where tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        was = os.geteuid()
        (Path(name) / "closed").mkdir()
        (Path(name) / "closed" / "cache").symlink_to("/etc")
        (Path(name) / "closed").chmod(0o311)
        if was == 0:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(was)
            (Path(name) / "closed").chmod(0o700)


def test_a_folder_that_may_be_entered_and_not_listed_is_refused(without_rights: Path) -> None:
    assert (without_rights / "closed" / "cache" / "passwd").exists()  # by its name, a link in it leads out
    with pytest.raises(Refused, match="closed: permission denied"):
        contained.examine(without_rights)


def test_a_file_that_goes_meanwhile_ends_the_look_at_no_other(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "top").mkdir()
    for number in range(20):
        (tmp_path / "top" / f"file{number}").write_text("ours")
    (tmp_path / "top" / "link").symlink_to(outside)
    check = contained._check

    def meanwhile(store: Path, name: str, entry: os.DirEntry[str]) -> None:
        if name != "link":
            raise FileNotFoundError
        check(store, name, entry)

    monkeypatch.setattr(contained, "_check", meanwhile)
    with pytest.raises(Refused, match="is a link"):
        contained.examine(tmp_path / "top")


@pytest.mark.parametrize("name", ["logs/HEAD", "logs/refs/heads/demo/main", "worktrees/w/logs/HEAD"])
def test_a_log_of_gits_with_a_second_name_is_refused(path: Path, outside: Path, name: str) -> None:
    """git adds to a log that is there, whatever the settings say."""
    (path / name).parent.mkdir(parents=True)
    os.link(outside / "folder" / "file", path / name)
    with pytest.raises(Refused, match=f"{name} has a second hard link"):
        Store(path)


# --- seals


@pytest.fixture
def place_of_seals(tmp_path: Path) -> Path:
    """What a seal needs of a store."""
    (tmp_path / "a" / "ctxvc").mkdir(parents=True)
    return tmp_path / "a"


def test_a_seal_holds_for_its_words_its_store_and_its_machine(
    place_of_seals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b" / "ctxvc").mkdir(parents=True)
    text = seals.seal(place_of_seals, b"words")
    assert not seals.is_sealed_here(tmp_path / "b", b"words", text)  # it has no id
    seals.seal(tmp_path / "b", b"words")
    moved = place_of_seals.rename(tmp_path / "c")

    assert seals.is_sealed_here(moved, b"words", text)
    assert not seals.is_sealed_here(moved, b"other words", text)
    assert not seals.is_sealed_here(tmp_path / "b", b"words", text)
    assert not seals.is_sealed_here(moved, b"words", "é")
    assert not trust.is_sealed_here(trust.store_id(moved), b"words", text)  # it finishes no purge
    monkeypatch.setenv("HOME", str(tmp_path / "another"))
    assert not seals.is_sealed_here(moved, b"words", text)


def test_requests_and_code_commits_of_a_store_that_was_moved_are_done(path: Path, tmp_path: Path) -> None:
    requests.post(path, Request("Stop", "/t/mine.jsonl"))
    links_inbox.post(path, links_inbox.CodeCommit("a" * 40, "/t", "2026-03-01T12:00:00Z"))
    moved = path.rename(tmp_path / "moved")

    assert [request.transcript for _, request in requests.pending(moved)] == ["/t/mine.jsonl"]
    assert [told and told.commit for _, told in links_inbox.pending(moved)] == ["a" * 40]


def test_without_a_data_folder_a_seal_holds_too(
    place_of_seals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder can be made below this")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = seals.seal(place_of_seals, b"words")

    assert seals.is_sealed_here(place_of_seals, b"words", text)
    (tmp_path / f"ctxvc-{os.getuid()}").chmod(0o777)  # somebody else may have put a key there
    assert not seals.is_sealed_here(place_of_seals, b"words", text)


def test_a_key_lies_in_the_persons_own_data_folder_or_in_the_private_temporary_one(
    place_of_seals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With somebody else's home, as under sudo, or none at all, nothing is made in a home."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    private = tmp_path / f"ctxvc-{os.geteuid()}" / "key"

    linked = tmp_path / "linked" / ".local" / "share"
    linked.mkdir(parents=True)
    (tmp_path / "disk").mkdir(mode=0o700)
    (linked / "ctxvc").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("HOME", str(tmp_path / "linked"))
    seals.seal(place_of_seals, b"words")
    assert (tmp_path / "disk" / "key").exists() and not private.exists()

    passwd = tmp_path / "of passwd"
    passwd.mkdir()
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: str(path).replace("~", str(passwd)))
    text = seals.seal(place_of_seals, b"words")
    assert private.exists() and list(passwd.iterdir()) == []
    assert seals.is_sealed_here(place_of_seals, b"words", text)

    private.unlink()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    monkeypatch.setenv("HOME", str(theirs))
    real, owner = os.geteuid(), theirs.stat().st_uid
    monkeypatch.setattr("ctxvc.store.trust.identity.os.geteuid", lambda: real + 1)
    assert owner == real
    with pytest.raises(OSError, match="no place for a key"):
        seals.seal(place_of_seals, b"words")
    assert list(theirs.iterdir()) == []


def test_only_requests_of_this_machine_are_obeyed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests.post(path, Request("Stop", "/t/mine.jsonl"))
    for number, data in enumerate(
        (requests.encoded(Request("Stop", "/t/theirs.jsonl")), b"0" * 64 + b'\n["Stop","/t",""]')
    ):
        places.put(path, path / "ctxvc" / "hooks" / "requests" / f"{number}", data)

    assert [request.transcript for _, request in requests.pending(path)] == ["/t/mine.jsonl"]
    assert len(contained.names(path, requests.FOLDER)) == 3  # another version, or another home, may want them
    assert [found.name for found in requests.foreign(path)] == ["0", "1"]
    monkeypatch.setenv("HOME", str(tmp_path / "another"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert requests.pending(path) == []
    assert len(requests.foreign(path)) == len(contained.names(path, requests.FOLDER)) == 3


# --- worktrees


@pytest.fixture
def out(store: Store, tmp_path: Path) -> Path:
    with StoredSession.open(store, "demo") as session:
        session.append(*exchange(1))
        session.append(*exchange(2))
    return Path(checkout(store, "demo", "main", tmp_path / "out", dashboard="# now\n").path)


def test_a_checkout_is_removed_file_by_file_and_what_is_a_persons_stays(store: Store, out: Path) -> None:
    assert [worktree.folder for worktree in worktrees.listed(store.path)] == [out]
    (out / "thesis.txt").write_text("years of work")
    assert not worktrees.remove(store.path, out)
    assert [found.name for found in out.iterdir()] == ["thesis.txt"]


def test_a_checkout_with_nothing_else_in_it_goes(store: Store, out: Path) -> None:
    assert worktrees.remove(store.path, out) and not out.exists()
    assert worktrees.missing(store.path) == ["out"] and worktrees.remove(store.path, out)


@pytest.mark.parametrize("other", ["gitdir", "commondir", "config.worktree", "ctxvc-seal", ".git", "a link"])
def test_a_checkout_of_which_a_side_says_otherwise_stays(store: Store, out: Path, outside: Path, other: str) -> None:
    linked = store.path / "worktrees" / "out"
    texts = {
        "gitdir": f"{outside}/.git\n", "commondir": f"{outside}\n",
        "config.worktree": f"[core]\n\tworktree = {outside}\n", "ctxvc-seal": "0" * 64, ".git": f"gitdir: {outside}\n",
    }  # fmt: skip
    if other in texts:
        ((out if other == ".git" else linked) / other).write_text(texts[other])
    else:
        linked.rename(linked.with_name("elsewhere"))
        linked.symlink_to("elsewhere")
    before = sorted(out.rglob("*"))

    assert not worktrees.remove(store.path, out) and sorted(out.rglob("*")) == before


@pytest.mark.parametrize("before", [" ", "gitdir: ", "gitdir:", "\t"])
def test_git_reads_of_a_checkout_what_was_looked_at_and_no_other_settings(
    store: Store, out: Path, outside: Path, before: str
) -> None:
    """To git what stands before `../..` is a part of the path: it would take `worktrees/out` for the repository."""
    linked = store.path / "worktrees" / "out"
    (linked / "commondir").write_text(f"{before}../..\n")
    for name in (f"{before}..", "objects", "refs"):
        (linked / name).mkdir(exist_ok=True)
    (linked / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n\texcludesFile = {outside}\n")
    assert Path(git(linked, "rev-parse", "--git-common-dir").rstrip("\n")) == linked
    assert worktrees.at(store.path, out) is None and not worktrees.remove(store.path, out)


def test_what_is_removed_is_listed_by_git_with_the_stores_own_settings(
    store: Store, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.path / "worktrees" / "out" / "commondir").write_text("elsewhere\n")
    worktree = worktrees.Worktree("out", out)
    monkeypatch.setattr(worktrees, "at", lambda *_: worktree)  # as if it had been changed after the look
    assert worktrees.remove(store.path, out) and not out.exists()


def test_a_worktree_of_git_alone_is_none_that_ctxvc_made(store: Store, out: Path, tmp_path: Path) -> None:
    git(store.path, "worktree", "add", "-q", "--detach", str(tmp_path / "by-hand"), "demo/main")
    by_hand = worktrees.at(store.path, tmp_path / "by-hand")

    assert by_hand and not worktrees.is_made_here(store.path, by_hand)
    assert not worktrees.remove(store.path, by_hand.folder) and (by_hand.folder / "ctxvc.json").exists()


@pytest.mark.parametrize(
    ("session", "scope"),
    [("..", "main"), ("demo", "../.."), ("/etc", "x"), ("a\nb", "c"), ("demo", "a/../c"), ("demo", "a//c")],
)
def test_a_store_cannot_say_where_its_checkouts_go(store: Store, session: str, scope: str) -> None:
    with pytest.raises(Refused):
        place(store, session, scope)
    assert place(store, "demo", "a/b/c") == store.path / "checkout" / "demo" / "a%2Fb%2Fc", "in no folder of a store's"


def test_a_checkout_in_the_store_is_not_made_through_a_link_inside_another(store: Store, outside: Path) -> None:
    inside = store.path / "checkout" / "demo" / "other"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(outside / "folder")
    (outside / "folder").chmod(0o755)
    for folder in (inside / "link" / "new", inside / "link"):
        with pytest.raises(Refused):
            checkout(store, "demo", "main", folder)

    assert [found.name for found in (outside / "folder").iterdir()] == ["file"]
    assert stat.S_IMODE((outside / "folder").stat().st_mode) == 0o755
    (inside / "own").mkdir(mode=0o755)
    assert checkout(store, "demo", "main", inside / "own").files
    assert stat.S_IMODE((inside / "own").stat().st_mode) == 0o700


# --- which store is found


def test_a_store_that_a_project_only_links_to_is_not_taken(path: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".ctxvc").symlink_to(path)
    with pytest.raises(Refused, match="is a link") as refused:
        locate.find(project)
    assert f"CTXVC_STORE={path}" in refused.value.hint
    with pytest.raises(Refused, match="is a link"):
        store_module.create(project / ".ctxvc")

    assert places.store(project, {}) is None


def test_a_folder_that_only_claims_to_be_a_worktree_has_not_that_projects_store(path: Path, tmp_path: Path) -> None:
    main, far = tmp_path / "main", tmp_path / "far"
    linked = main / ".git" / "worktrees" / "w"
    linked.mkdir(parents=True)
    path.rename(main / ".ctxvc")
    far.mkdir()
    (far / ".git").write_text(f"gitdir: {linked}\n")
    assert contained.main_worktree(far) is None
    (linked / "gitdir").write_text(f"{far}/.git\n")
    assert contained.main_worktree(far) == main and places.store(far, {}) == main / ".ctxvc"


def test_the_projects_list_of_what_git_leaves_out_is_not_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    exclude = tmp_path / "project" / ".git" / "info" / "exclude"
    exclude.unlink()
    exclude.symlink_to(outside / "folder" / "file")
    store_module.create(tmp_path / "project" / ".ctxvc").close()

    assert (outside / "folder" / "file").read_text() == "theirs"


# --- the cache, and what a person is advised


def test_a_cache_of_counts_leads_sqlite_to_no_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at what stands beside it, SQLite removes the file that its journal names."""
    world = hostile.World(tmp_path)
    for unguarded in (False, True):
        (world.store / "ctxvc" / "cache").mkdir(parents=True, exist_ok=True)
        world.outside.mkdir(exist_ok=True)
        (world.outside / "victim").write_text("theirs")
        hostile._hot_journal(world)
        cache = CountCache(world.store / "ctxvc" / "cache" / "tokens.sqlite")
        if unguarded:
            monkeypatch.setattr(cache._database, "_check", lambda: None)
        cache.put_many("o200k_base", {b"0" * 32: 3})
        cache.get_many("o200k_base", [b"0" * 32])

        assert (world.outside / "victim").exists() is not unguarded


def test_a_cache_answers_with_counts_only(tmp_path: Path) -> None:
    cache = CountCache(tmp_path / "tokens.sqlite")
    cache.put_many("t", {b"a" * 32: 7})
    assert cache.get_many("t", [b"a" * 32]) == {b"a" * 32: 7}
    with closing(sqlite3.connect(tmp_path / "tokens.sqlite")) as db:
        db.execute("INSERT INTO counts VALUES (?, 't', 'many'), (?, 't', -3)", (b"b" * 32, b"c" * 32))
        db.commit()
    assert cache.get_many("t", [b"a" * 32, b"b" * 32, b"c" * 32]) == {b"a" * 32: 7}
    with closing(sqlite3.connect(tmp_path / "tokens.sqlite")) as db:
        db.execute("CREATE VIEW other AS SELECT 1")
    assert cache.get_many("t", [b"a" * 32]) == {} and not (tmp_path / "tokens.sqlite").exists()


def test_a_folder_that_the_store_claims_is_not_written_to_nor_advised_to_be_cleaned(
    store: Store, out: Path, tmp_path: Path
) -> None:
    (store.path / "worktrees" / "out" / "ctxvc-seal").write_text("0" * 64)  # as in a project that came as an archive
    before = {found: found.lstat().st_mtime_ns for found in out.rglob("*")}
    with pytest.raises(Refused, match="not a checkout of this store"):
        checkout(store, "demo", "main", out)
    with pytest.raises(Refused, match="did not make on this machine") as refused:
        list(search.checkouts(store))
    told = [(item.found, item.mend) for item in doctor._checkouts(store)]

    assert told == [("1 worktree that ctxvc did not create on this machine", "")]
    assert "worktrees/out" in refused.value.hint
    assert {found: found.lstat().st_mtime_ns for found in out.rglob("*")} == before
