"""Hostile surroundings: a user's git settings, inherited variables, the project's own git, and newer stores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.wire import text_part
from ctxvc.errors import CtxvcError, Damaged, NotFound, Refused
from ctxvc.store import store as store_module
from ctxvc.store import store as stores
from ctxvc.store.files import locked
from ctxvc.store.git import program as programs
from ctxvc.store.git.fast_import import LATEST, Commit, epoch
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import locate
from ctxvc.store.read import session_name
from ctxvc.store.store import Store
from ctxvc.store.verify.verify import verify
from tests.making.conversation import human, reply
from tests.making.store import CRLF, ROOT, afresh, commits, complaints, contents, git, git_bytes, write_everything


def is_right(path: Path) -> None:
    assert afresh(path)["B1"] == CRLF
    assert len(commits(path)) == 3
    assert complaints(path) == ""
    assert len(git(path, "rev-parse", "demo/main").strip()) == 40


HOSTILE_ENVIRONMENT = {
    "GIT_DIR": "{elsewhere}", "GIT_WORK_TREE": "{elsewhere}", "GIT_COMMON_DIR": "{elsewhere}",
    "GIT_INDEX_FILE": "{elsewhere}/index", "GIT_OBJECT_DIRECTORY": "{elsewhere}/objects",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "{elsewhere}/objects", "GIT_NAMESPACE": "elsewhere",
    "GIT_DEFAULT_HASH": "sha256", "GIT_DEFAULT_REF_FORMAT": "reftable", "GIT_TEMPLATE_DIR": "{elsewhere}",
    "GIT_CONFIG": "{elsewhere}/config", "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "core.autocrlf",
    "GIT_CONFIG_VALUE_0": "true", "GIT_CONFIG_KEY_1": "core.bare", "GIT_CONFIG_VALUE_1": "false",
    "GIT_CONFIG_PARAMETERS": "'core.compression'='0'", "GIT_QUARANTINE_PATH": "{elsewhere}/objects",
    "GIT_AUTHOR_DATE": "never", "GIT_COMMITTER_DATE": "never", "GIT_TRACE": "2",
}  # fmt: skip


def test_inherited_git_variables_send_nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(["git", "init", "-q", elsewhere], check=True)
    before = sorted(found for found in elsewhere.rglob("*"))
    with monkeypatch.context() as hostile:
        for name, value in HOSTILE_ENVIRONMENT.items():
            hostile.setenv(name, value.format(elsewhere=elsewhere / ".git"))
        path = write_everything(tmp_path / "project")
        assert afresh(path)["B1"] == CRLF

    is_right(path)
    assert sorted(found for found in elsewhere.rglob("*")) == before


HOSTILE_CONFIG = """
[core]
    autocrlf = true
    eol = crlf
    hooksPath = {hooks}
    bare = false
    compression = 0
    fsyncMethod = batch
    sharedRepository = all
    attributesFile = {hooks}/attributes
[init]
    templateDir = {hooks}/template
    defaultBranch = odd
    defaultObjectFormat = sha256
[safe]
    bareRepository = explicit
[fastimport]
    unpackLimit = 100000
[commit]
    gpgSign = true
[gc]
    auto = 1
[i18n]
    commitEncoding = latin1
[transfer]
    hideRefs = refs/heads
[log]
    date = iso
"""


def test_a_user_s_git_settings_and_hooks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "template" / "hooks").mkdir(parents=True)
    fired = tmp_path / "fired"
    for folder in (home, home / "template" / "hooks"):
        for name in [
            "reference-transaction",
            "post-update",
            "update",
            "pre-commit",
            "post-index-change",
            "pre-auto-gc",
        ]:
            hook = folder / name
            hook.write_text(f"#!/bin/sh\necho {name} >> {fired}\nexit 1\n")
            hook.chmod(0o755)
    (home / "attributes").write_text("* text eol=crlf ident\n")
    (home / ".gitconfig").write_text(HOSTILE_CONFIG.format(hooks=home))
    (home / "git").mkdir()
    shutil.copy(home / ".gitconfig", home / "git" / "config")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))

    path = write_everything(tmp_path / "project")

    is_right(path)
    assert not fired.exists(), fired.read_text()
    assert not (path / "hooks").exists()
    assert list((path / "objects").glob("[0-9a-f][0-9a-f]")) == [], "no loose objects"
    assert git_bytes(path, "show", "demo/main:blocks/00/00/B1.txt") == CRLF


BROKEN_SETTINGS: dict[str, Callable[[Path], object]] = {
    "a file of garbage": lambda found: found.write_text("[core\n\0 garbage"),
    "a folder in its place": lambda found: found.mkdir(),
    "no end of includes": lambda found: found.write_text(f"[include]\n\tpath = {found}\n"),
}


@pytest.mark.parametrize(
    ("name", "broken"), [*((".gitconfig", how) for how in BROKEN_SETTINGS), ("git/config", "a folder in its place")]
)
def test_broken_settings_of_the_user_s_git_are_no_reason_to_be_without_the_store(
    tmp_path: Path, name: str, broken: str
) -> None:
    home = tmp_path / "home"
    (home / "git").mkdir(parents=True)
    BROKEN_SETTINGS[broken](home / name)

    # In a process of its own: libgit2 looks for the home once.
    result = in_home(home, WRITES, tmp_path / ".ctxvc")

    assert (result.returncode, result.stderr) == (0, "")
    is_right(tmp_path / ".ctxvc")


WRITES = """
import sys
from collections.abc import Callable
from pathlib import Path
import pygit2
from tests.making.store import write_everything
before = pygit2.settings.search_path[pygit2.enums.ConfigLevel.GLOBAL]
write_everything(Path(sys.argv[1]).parent)
assert pygit2.settings.search_path[pygit2.enums.ConfigLevel.GLOBAL] == before, "the program's own use of libgit2"
assert pygit2.settings.owner_validation
"""
OPENS = """
import sys
from collections.abc import Callable
from pathlib import Path
from ctxvc.errors import CtxvcError
from ctxvc.store.store import Store
try:
    with Store(Path(sys.argv[1])) as store:
        print(store.sessions())
except CtxvcError as error:
    print(type(error).__name__, error, error.hint, sep="; ")
"""


def in_home(home: Path, code: str, path: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", code, str(path)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a store to another user")
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            "[safe]\n\tdirectory = /elsewhere\n",
            "Refused; the store {path} belongs to another user; if you trust it: git config --global",
        ),
        ("[safe]\n\tdirectory = {path}\n", "['demo']"),
        ("[safe]\n\tdirectory = *\n", "['demo']"),
        ("[safe]\n\tdirectory = {path}\n[core\n", "Refused; the store {path} belongs to another user; "),
    ],
)
def test_a_store_of_another_user_is_refused_unless_the_settings_allow_it(
    path: Path, tmp_path: Path, settings: str, told: str
) -> None:
    for found in (path, *path.rglob("*")):
        os.chown(found, 12345, 12345)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(settings.format(path=path))

    answer = in_home(home, OPENS, path)

    assert answer.stderr == ""
    assert answer.stdout.startswith(told.format(path=path))


@pytest.mark.parametrize("name", [".", "HEAD", "config", "objects", "objects/pack", "refs", "refs/heads"])
def test_what_may_not_be_read_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(programs.os, "access", lambda found, _: found != path / name)  # root may read everything

    with pytest.raises(CtxvcError) as told:
        Store(path)

    assert str(told.value) == f"cannot read {path / name}: permission denied"
    assert told.value.hint == "check the store's owner and permissions"


def project(tmp_path: Path) -> Path:
    """A project under git, with a store in it."""
    root = tmp_path / "project"
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    (root / "code.py").write_text("print()\n")
    write_everything(root)
    return root


def in_project(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=root, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("excluded", [True, False])
def test_the_project_s_git_neither_adds_nor_shows_nor_cleans_the_store(tmp_path: Path, excluded: bool) -> None:
    """Without the line in `exclude` the store's own `.gitignore` is enough."""
    root = project(tmp_path)
    exclude = root / ".git" / "info" / "exclude"
    assert exclude.read_text().splitlines().count(".ctxvc/") == 1
    if not excluded:
        exclude.write_text("")

    assert in_project(root, "status", "--porcelain") == "?? code.py\n"
    in_project(root, "add", "-A")
    in_project(root, "clean", "-fd")
    in_project(root, "commit", "-qm", "first")

    assert in_project(root, "ls-files") == "code.py\n"
    is_right(root / ".ctxvc")


def test_the_store_is_found_from_anywhere_in_the_project_and_from_its_linked_worktrees(tmp_path: Path) -> None:
    root = project(tmp_path)
    in_project(root, "add", "-A")
    in_project(root, "commit", "-qm", "first")
    in_project(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "linked" / "c").mkdir()

    for start in (root, deep, root / ".ctxvc", tmp_path / "linked", tmp_path / "linked" / "c"):
        assert locate.find(start) == root / ".ctxvc", start
    with pytest.raises(NotFound) as missing:
        locate.find(tmp_path)
    assert "ctxvc init" in missing.value.hint
    (root / ".ctxvc" / "HEAD").unlink()
    with pytest.raises(Damaged, match="HEAD"):
        locate.find(deep)


@pytest.mark.parametrize("name", ["no project", "with space 'and\" quotes", "ümläut-文-%25", "-dash\nnew line"])
def test_a_store_works_wherever_it_is(tmp_path: Path, name: str) -> None:
    is_right(write_everything(tmp_path / name))


def test_a_working_folder_that_is_gone_stops_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(human("still"), reply("here"))
        assert session.waiting() == 0


# --- what is newer, or not ours


def refused(path: Path) -> Refused:
    with pytest.raises(Refused) as refusal:
        with Store(path) as store, StoredSession.open(store, "demo") as session:
            session.append(human("never"))
    assert refusal.value.hint or "not supported" in str(refusal.value)
    return refusal.value


def test_a_newer_store_or_scope_is_refused(path: Path) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        newer = Commit(
            ref="refs/heads/demo/main", before=session.ledger(),
            after=Ledger(meta=msgspec.structs.replace(session.ledger().meta, format=3)), message="newer\n",
            actor="user", time=0, now=0, parent=session.tip(),
        )  # fmt: skip
        with locked(store.lock_path("demo")) as lock:
            store.write([newer], lock)
    assert "format 3" in str(refused(path))

    git(path, "config", "ctxvc.format", "4")
    assert "format 4" in str(refused(path))


@pytest.mark.parametrize("extension", ["partialClone", "objectFormat", "refStorage", "preciousObjects", "somethingNew"])
def test_a_store_with_an_extension_that_we_do_not_read_is_refused(path: Path, extension: str) -> None:
    value = {"objectFormat": "sha256", "refStorage": "reftable", "preciousObjects": "true"}.get(extension, "origin")
    with (path / "config").open("a") as config:
        config.write(f"[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\t{extension} = {value}\n")
    refused(path)


def test_the_worktree_extension_that_sparse_checkouts_set_is_read(path: Path) -> None:
    git(path, "config", "core.repositoryFormatVersion", "1")
    git(path, "config", "extensions.worktreeConfig", "true")
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        session.append(human("one"), reply("two"))


def test_a_repository_that_is_no_store_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "other.git"], check=True)
    with pytest.raises(Refused, match="not a ctxvc store"):
        Store(tmp_path / "other.git")
    with pytest.raises(NotFound):
        Store(tmp_path / "nothing")


DAMAGED = {
    "an empty ref": lambda path: (path / "refs/heads/demo/main").write_text(""),
    "a ref of garbage": lambda path: (path / "refs/heads/demo/main").write_bytes(b"\xff\0garbage"),
    "a ref to nothing": lambda path: (path / "refs/heads/demo/main").write_text("1" * 40 + "\n"),
    "an empty HEAD": lambda path: (path / "HEAD").write_text(""),
    "an empty config": lambda path: (path / "config").write_text(""),
    "a config of garbage": lambda path: (path / "config").write_bytes(b"[core\n\xff"),
    "a pack of garbage": lambda path: [_spoil(found) for found in (path / "objects/pack").glob("*.pack")],
    "an index of garbage": lambda path: [_spoil(found) for found in (path / "objects/pack").glob("*.idx")],
    "no packs": lambda path: shutil.rmtree(path / "objects/pack"),
    "no objects": lambda path: shutil.rmtree(path / "objects"),
    "no lock folder": lambda path: shutil.rmtree(path / "ctxvc/lock"),
    "a journal that is a folder": lambda path: (path / "ctxvc/journal/demo").mkdir(),
}


def _spoil(found: Path) -> None:
    found.chmod(0o600)
    data = bytearray(found.read_bytes())
    for at in range(8, len(data), 3):
        data[at] ^= 0x55
    found.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_store_gives_an_error_in_words(path: Path, damage: object) -> None:
    assert callable(damage)
    damage(path)
    with pytest.raises(CtxvcError):
        with Store(path) as store, StoredSession.open(store, "demo") as session:
            session.append(human("one"), reply("two"))
            session.flush()


def test_a_store_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks while it is made sees none; who makes one meanwhile keeps his; a failure leaves nothing."""
    place = tmp_path / ".ctxvc"
    furnish = store_module._furnish

    def meanwhile(path: Path) -> None:
        furnish(path)
        assert not place.exists()
        place.mkdir()
        (place / "file").write_text("another's")

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "_furnish", meanwhile)
        with pytest.raises(Refused, match="not empty"):
            store_module.create(place)

    assert [path.name for path in tmp_path.rglob("*")] == [".ctxvc", "file"]


def test_a_store_is_not_made_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        store_module.create(tmp_path)
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(CtxvcError):
        store_module.create(tmp_path / "file" / ".ctxvc")


def test_the_refs_of_one_session_are_those_among_all(store: Store) -> None:
    for name in ("a", "a-b", "b"):
        store.create_session(name)
        with StoredSession.open(store, name) as session:
            session.open_scope("try", "another way")
    for pack in (("pack-refs", "--all"), ("branch", "a/later", "a/main"), ("branch", "-D", "a-b/main")):
        git(store.path, *pack)
        everything = store.all_tips()
        assert {name: store.tips(name) for name in everything} == everything
    assert [store.tips(name) for name in ("c", "", "..", "a/main", "\0")] == [{}] * 5

    torn = store.path / "refs" / "heads" / "b" / "torn"
    torn.parent.mkdir(exist_ok=True)
    torn.write_bytes(b"")
    assert store.tips("a") == everything["a"]  # what another session lost stops none
    with pytest.raises(Damaged):
        store.tips("b")


# --- bytes that are no text in what git keeps of a store, and wrong clocks


def appended(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as stream:
        stream.write(data)


@pytest.mark.parametrize("name", ["HEAD", "refs/ctxvc/demo/HEAD"])
@pytest.mark.parametrize("target", [b"refs/heads/d\xe9mo/main", b"refs/heads/demo/\xff", b"\xc3\xa9"])
def test_a_current_scope_in_other_bytes_counts_as_none(path: Path, name: str, target: bytes) -> None:
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(b"ref: %s\n" % target)

    try:
        with Store(path) as store, StoredSession.open(store) as session:
            session.append(human("one"), reply("two"))
            assert (session.name, session.scope) == ("demo", "main")
    except Damaged as error:
        assert target == b"\xc3\xa9" and str(path / name) in str(error) and "ref: refs/heads/" in error.hint


@pytest.mark.parametrize("name", ["../x", "..", "", "/", "demo/", "demo/main\0", "a\0b", "\udc80", "x" * 10_000])
def test_a_name_that_no_session_can_have_is_that_of_none(store: Store, name: str) -> None:
    """Also where git's library raises for it, or reads it only up to a NUL."""
    assert not store.has(name) and store.tips(name) == {} and store.current_scope(name) == "main"
    with pytest.raises(NotFound, match="no session"):
        session_name.resolve(store, name)


def test_a_head_of_garbage_is_damage_that_says_how_to_write_it(path: Path) -> None:
    (path / "HEAD").write_bytes(b"\xff\xfe\n")

    with Store(path) as store:
        with pytest.raises(Damaged, match="HEAD cannot be read") as failure:
            store.current_session()
        assert "ref: refs/heads/SESSION/SCOPE" in failure.value.hint
        assert verify(store).damaged


@pytest.mark.parametrize("text", [b"[user]\n\tname = Ren\xe9\n", b'[remote "x"]\n\turl = /srv/caf\xe9\n'])
def test_a_setting_in_other_bytes_is_read_over(path: Path, text: bytes) -> None:
    appended(path / "config", text)

    with Store(path) as store, StoredSession.open(store) as session:
        session.append(human("one"), reply("two"))
        assert r"\xe9" in "".join(programs.config(store.repository).values())
    assert len(afresh(path)) == 2


@pytest.mark.parametrize("text", [b'[remote "\xe9"]\n\turl = x\n', b"[ctx\xe9]\n\tname = x\n", b"[core\n"])
def test_a_setting_that_cannot_be_read_is_named(path: Path, text: bytes) -> None:
    appended(path / "config", text)

    with pytest.raises(Damaged, match=r"config.*(not text|not a setting)") as failure:
        Store(path)
    assert failure.value.hint


@pytest.mark.parametrize("ref", [b"refs/heads/demo/caf\xe9", b"refs/heads/caf\xe9/main", b"refs/heads/\xc3\xa9/main"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_whose_name_is_in_other_bytes_is_left_alone_and_told(path: Path, ref: bytes, packed: bool) -> None:
    tip = git(path, "rev-parse", "demo/main").strip().encode()
    if packed:
        appended(path / "packed-refs", b"%s %s\n" % (tip, ref))
    else:
        appended(Path(os.fsdecode(os.fsencode(path) + b"/" + ref)), tip + b"\n")

    with Store(path) as store:
        assert (store.sessions(), list(store.tips("demo"))) == (["demo"], ["main"])
        (finding,) = verify(store).findings
        assert finding.level == "warning" and finding.where.path.startswith("refs/heads/")
        with StoredSession.open(store) as session:
            session.append(human("one"), reply("two"))
            assert len(contents(session)) == 2


@pytest.mark.parametrize("now", [-(1 << 40), -5, 0, (1 << 32) + 7, LATEST, LATEST + 1, 1 << 63])
def test_a_clock_that_is_wrong_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    monkeypatch.setattr(stores.clock, "time", lambda: now)
    with stores.create(tmp_path / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            session.append(human("one"), reply("two"))
            assert session.flush_failure is None
        assert verify(store).findings == ()
    assert complaints(store.path) == ""
    assert int(git(store.path, "log", "-1", "--format=%ct", "demo/main")) == min(max(now, 1), LATEST)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("1969-12-31T23:59:59Z", 0), ("0001-01-01T00:00:00+14:00", 0), ("2106-02-07T06:28:17Z", (1 << 32) + 1),
     ("9999-12-31T23:59:59-14:00", LATEST), ("nonsense", None)],
)  # fmt: skip
def test_a_recorded_time_that_git_cannot_hold_becomes_the_nearest(path: Path, time: str, seconds: int | None) -> None:
    with Store(path) as store, StoredSession.open(store, "demo") as session:
        message = Message(role="user", parts=(text_part("when?", "user", "human"),), time=time)
        session.append(message, Message(role="assistant", parts=(text_part("then", "assistant", "model"),), time=time))
        assert session.flush_failure is None

    made = int(git(path, "log", "-1", "--format=%at", "demo/main"))
    assert made == seconds if seconds is not None else made > 1_700_000_000
    assert complaints(path) == ""


SPELLINGS = (
    "2026-03-01T12:00:00Z", "2026-03-01 12:00:00", "20260301T120000Z", "2026-03-01T12:00:00.5Z", "2026-03-01T12:00",
    "2026-03-01T13:00:00+01:00", "2026-03-01T13:00:00+0100", "2026-03-01T12:00:00,123456789Z", "2026-03-01t12:00:00z",
)  # fmt: skip
NO_TIME = ("", "2026-W10", "2026-13-01T00:00:00Z", "2026-02-30", "12:00", "2026-03-01T12:00:00 no")


def test_a_time_is_read_alike_by_every_python_and_what_is_none_takes_the_default() -> None:
    assert {epoch(time, 7) for time in SPELLINGS} == {1_772_366_400}
    assert {epoch(time, 7) for time in NO_TIME} == {7}
