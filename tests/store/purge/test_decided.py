"""A purge that was decided: finished by itself where it was decided, elsewhere by a person, and within the store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli
from ctxvc.errors import CtxvcError, NotFound, Refused
from ctxvc.store import checkout, files
from ctxvc.store.files import locked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge import apply as purge_apply
from ctxvc.store.purge import purge
from ctxvc.store.purge.purge import PurgeRequest
from ctxvc.store.store import Store, create
from ctxvc.store.trust import trust
from tests.making.conversation import human
from tests.making.processes import KILLED, ended
from tests.making.store import ROOT, contents, decide, git
from tests.store.killed import purge_killed
from tests.store.purge.test_purge import SECRET, fill, sound
from tests.store.test_redaction import everything


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A store whose purge was decided and killed, and the home of who decided it. Not to be written to."""
    home, path = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("waiting") / ".ctxvc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.delenv("XDG_DATA_HOME", raising=False)
        with create(path) as store:
            store.create_session("demo")
            with StoredSession.open(store, "demo") as session:
                fill(session, steps=1)
                session.append(human(f"waits with {SECRET}"))
        decide(path, SECRET)
    yield path, home


@pytest.fixture
def own(waiting: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store on the machine where it was decided."""
    monkeypatch.setenv("HOME", str(shutil.copytree(waiting[1], tmp_path / "home")))
    return Path(shutil.copytree(waiting[0], tmp_path / "own" / ".ctxvc", symlinks=True))


@pytest.fixture
def foreign(waiting: tuple[Path, Path], tmp_path: Path) -> Path:
    """The store on another machine."""
    return Path(shutil.copytree(waiting[0], tmp_path / "foreign" / ".ctxvc", symlinks=True))


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(cli, ["-C", str(folder), *arguments])


def standing(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for locks."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "lock" not in str(path)}


def state_of(path: Path) -> dict[str, Any]:
    answer = json.loads((path / purge_apply.FOLDER / purge_apply.STATE).read_text())
    assert isinstance(answer, dict)
    return answer


def is_erased(path: Path) -> bool:
    with Store(path) as store, StoredSession.open(store, "demo", "main") as session:
        assert len(contents(session)) >= 8
    sound(path)
    return SECRET.encode() not in everything(path)


def test_where_it_was_decided_it_is_finished_by_whatever_comes_next(own: Path) -> None:
    assert run("sessions", folder=own.parent).exit_code == 0
    assert is_erased(own)
    assert not (own / purge_apply.FOLDER).exists()
    assert list((trust.data_folder() / trust.SEALS).iterdir()) == []


def test_each_step_is_on_the_disk_before_the_next_begins(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, bool, int]] = []
    sync = files.sync_folder

    def noted(folder: Path) -> None:
        packs = len(list((own / "objects" / "pack").glob("*.pack")))
        steps.append((folder.relative_to(own).as_posix(), purge_apply.pending(own), packs))
        sync(folder)

    before = len(list((own / "objects" / "pack").glob("*.pack")))
    monkeypatch.setattr(files, "sync_folder", noted)
    purge_apply.complete(own)
    assert before > 1
    assert steps == [("ctxvc/journal", True, before), ("objects/pack", True, 1), ("ctxvc/purge", False, 1)]


@pytest.mark.parametrize(
    "words", [["status"], ["verify"], ["gc"], ["purge", "--text", SECRET, "--yes"], ["note", "-m", "x"]]
)
def test_elsewhere_nothing_of_it_is_done_and_the_person_is_told(foreign: Path, words: list[str]) -> None:
    before = standing(foreign.parent)

    result = run(*words, folder=foreign.parent)

    assert result.exit_code == 1
    assert "that was not decided on this machine" in result.stderr
    assert "ctxvc purge --finish" in result.stderr
    assert "--discard" in result.stderr
    assert standing(foreign.parent) == before


def test_a_person_finishes_it_elsewhere(foreign: Path) -> None:
    before = standing(foreign.parent)
    told = run("purge", "--finish", folder=foreign.parent)
    assert told.exit_code == 1
    assert "refs/heads/demo/main" in told.stdout
    assert standing(foreign.parent) == before

    assert run("purge", "--finish", "--yes", folder=foreign.parent).exit_code == 0
    assert is_erased(foreign)
    assert run("purge", "--finish", folder=foreign.parent).exit_code == 1  # none waits


def test_a_person_discards_it(foreign: Path) -> None:
    assert run("purge", "--discard", folder=foreign.parent).exit_code == 1
    assert run("purge", "--discard", "--yes", folder=foreign.parent).exit_code == 0
    with Store(foreign) as store, StoredSession.open(store, "demo", "main") as session:
        assert len(contents(session)) >= 8
    assert SECRET.encode() in everything(foreign)
    with Store(foreign) as store:
        purge.purge(store, PurgeRequest(texts=(SECRET,)))
    assert is_erased(foreign)


def test_what_is_begun_can_only_be_finished(own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (own / purge_apply.FOLDER / "journal" / "demo").replace(own / "ctxvc" / "journal" / "demo")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Refused, match="only be finished"):
        purge_apply.discard(own)
    assert purge_apply.finish(own).begun
    assert is_erased(own)


# --- what is not as it was decided


def changed(name: str, value: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        state = {**state_of(path), name: value}
        (path / purge_apply.FOLDER / purge_apply.STATE).write_text(json.dumps(state))

    return change


def swapped(name: str) -> Callable[[Path], None]:
    def swap(path: Path) -> None:
        (found,) = path.glob(name)
        found.chmod(0o600)
        found.write_bytes(found.read_bytes()[:-1] + b"x")

    return swap


def staged_pack(path: Path) -> str:
    return str(state_of(path)["pack"])


CHANGES = {
    "a ref": changed("refs", {"refs/heads/demo/main": "1" * 40}),
    "fewer refs": changed("refs", {}),
    "a ref that goes": changed("gone", ["refs/remotes/origin/x"]),
    "no journal": changed("journals", []),
    "a file": changed("files", ["ctxvc/hooks/requests/x"]),
    "a remote": changed("remotes", {"origin": ["1" * 40]}),
    "a checkout": changed("checkouts", ["/tmp/somewhere"]),
    "no sums": changed("sums", {}),
    "the format": changed("format", 1),
    "no seal": changed("seal", ""),
    "another seal": changed("seal", "0" * 64),
    "the journal that is staged": swapped("ctxvc/purge/journal/demo"),
    "another store's id": lambda path: (path / "ctxvc" / "id").write_text("0" * 32 + "\n"),
    "no id": lambda path: (path / "ctxvc" / "id").unlink(),
    "the pack": lambda path: swapped(f"objects/pack/{staged_pack(path)}.pack")(path),
    "the index of the pack": lambda path: swapped(f"objects/pack/{staged_pack(path)}.idx")(path),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_not_as_this_machine_decided_it_is_not_done(own: Path, change: Callable[[Path], None]) -> None:
    change(own)
    before = standing(own)
    with pytest.raises(CtxvcError):
        Store(own)
    assert standing(own) == before


def test_what_was_done_once_is_not_done_again_from_a_copy(own: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(own, tmp_path / "copy", symlinks=True)
    Store(own).close()
    with pytest.raises(Refused, match="not decided on this machine"):
        Store(Path(copy))


BAD_REFS = (
    "HEAD", "refs/../config", "refs/heads/x\ndelete refs/heads/demo/main", "refs/heads/.x", "refs/heads/x.lock"
)  # fmt: skip
BAD_FILES = (
    "../victim", "/victim", "ctxvc/hooks/requests/../../../../victim", "config", "ctxvc/secrets/key",
    "ctxvc/hooks/requests", "objects/pack/x", "ctxvc/journal/demo",
)  # fmt: skip
OUTSIDE = {
    "pack": ["../../x", "/etc/passwd", "pack-" + "g" * 40, ""],
    "refs": [*({name: "1" * 40} for name in BAD_REFS), {"refs/heads/x": "ref: HEAD"}],
    "gone": [["refs/heads/demo/main"], ["refs/remotes/../heads/demo/main"], ["HEAD"]],
    "journals": [["../../../x"], ["/x"], ["a/b"], [".."], [""]],
    "files": [[name] for name in BAD_FILES],
    "remotes": [{"origin": ["../x"]}],
    "sums": [{"../../victim": "0" * 64}],
    "format": [3, -1],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_outside_the_store_is_refused_whoever_wants_it(foreign: Path, name: str) -> None:
    victim = foreign.parent / "victim"
    victim.write_text("mine")
    for value in OUTSIDE[name]:
        changed(name, value)(foreign)
        before = standing(foreign.parent)
        for arguments in (["status"], ["purge", "--finish", "--yes"]):
            result = run(*arguments, folder=foreign.parent)
            assert result.exit_code in (1, 3), (value, result.stderr)
            assert "bug" not in result.stderr
            assert standing(foreign.parent) == before, value
    if name != "format":
        assert run("purge", "--discard", "--yes", folder=foreign.parent).exit_code == 0
        assert run("status", folder=foreign.parent).exit_code == 0
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b"null", b'{"format": 2}', b"\xff", b'{"format":' + b"9" * 5_000 + b"}", None]
)
def test_what_cannot_be_read_can_be_discarded_and_a_pipe_is_not_waited_for(foreign: Path, data: bytes | None) -> None:
    state = foreign / purge_apply.FOLDER / purge_apply.STATE
    state.unlink()
    os.mkfifo(state) if data is None else state.write_bytes(data)
    told = run("status", folder=foreign.parent)
    assert told.exit_code == 1
    if data is not None:
        assert "--discard" in told.stderr
        assert run("purge", "--discard", "--yes", folder=foreign.parent).exit_code == 0
        assert run("status", folder=foreign.parent).exit_code == 0


@pytest.mark.parametrize(
    "name",
    [
        "ctxvc/purge", "ctxvc/purge/journal", "ctxvc/journal", "ctxvc/cache", "ctxvc/hooks", "objects/pack",
        "refs/heads", "refs/heads/demo", "refs/ctxvc",
    ],
)  # fmt: skip
@pytest.mark.parametrize("machine", ["own", "foreign"])
def test_no_link_is_followed(request: pytest.FixtureRequest, tmp_path: Path, machine: str, name: str) -> None:
    own: Path = request.getfixturevalue(machine)
    elsewhere = tmp_path / "elsewhere"
    if (own / name).exists():
        shutil.move(own / name, elsewhere)
    else:
        elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    (own / name).symlink_to(elsewhere)
    before = standing(elsewhere)

    for arguments in (["status"], ["purge", "--finish", "--yes"], ["purge", "--discard", "--yes"]):
        assert run(*arguments, folder=own.parent).exit_code in (1, 3)
        assert standing(elsewhere) == before


def test_packed_refs_are_not_written_through_a_link(foreign: Path, tmp_path: Path) -> None:
    git(foreign, "pack-refs", "--all")
    (foreign / "packed-refs").rename(tmp_path / "packed")
    (foreign / "packed-refs").symlink_to(tmp_path / "packed")
    before = (tmp_path / "packed").read_bytes()

    for arguments in (["purge", "--finish", "--yes"], ["purge", "--discard", "--yes"]):
        assert run(*arguments, folder=foreign.parent).exit_code == 1
        assert (tmp_path / "packed").read_bytes() == before


def test_a_setting_that_could_run_a_program_is_refused_before_a_purge_is_finished(foreign: Path) -> None:
    with (foreign / "config").open("a") as file:
        file.write("[core]\n\tfsmonitor = true\n")
    for arguments in (["purge", "--finish"], ["purge", "--finish", "--yes"], ["purge", "--discard", "--yes"]):
        told = run(*arguments, folder=foreign.parent)
        assert told.exit_code == 1
        assert "core.fsmonitor" in told.stderr
    assert purge_apply.pending(foreign)


def checked_out(project: Path, folder: Path) -> Path:
    """A store with a secret, and the folder where its scope is checked out. Gives the store."""
    path = project / ".ctxvc"
    with create(path) as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            fill(session, steps=1)
            session.flush()
        checkout.checkout(store, "demo", "main", folder)
        checkout.checkout(store, "demo", "main")
    assert SECRET.encode() in b"".join(standing(folder).values())
    return path


@pytest.mark.parametrize("inside", [True, False])
def test_a_checkout_that_a_moved_store_lost_sight_of_is_told(tmp_path: Path, inside: bool) -> None:
    project, new = tmp_path / "project", tmp_path / "new"
    folder = (project if inside else tmp_path) / "view"
    checked_out(project, folder)
    project.rename(new)
    text = f"{folder} may still have it"

    assert text in run("purge", "--text", SECRET, folder=new).stdout
    result = run("purge", "--text", SECRET, "--yes", folder=new)
    assert result.exit_code == 0
    assert text in result.stdout
    assert "object and file of the store: none" in result.stdout
    assert "checkout/demo" not in result.stdout  # that one goes
    assert is_erased(new / ".ctxvc")


@pytest.mark.parametrize(
    ("inside", "words"),
    [(True, ["status"]), (False, ["status"]), (True, ["doctor"]), (False, ["purge", "--finish", "--yes"])],
)
def test_finished_after_a_move_a_purge_tells_what_is_not_gone(tmp_path: Path, inside: bool, words: list[str]) -> None:
    project, new = tmp_path / "project", tmp_path / "new"
    folder = (project if inside else tmp_path) / "view"
    decide(checked_out(project, folder), SECRET)
    project.rename(new)

    result = run(*words, folder=new)
    assert f"{folder} may still have" in result.stdout + result.stderr
    assert "checkout/demo/main may still have" not in result.stdout + result.stderr
    assert not purge_apply.pending(new / ".ctxvc")
    assert SECRET.encode() in b"".join(standing(new / "view" if inside else folder).values())


def test_a_checkout_that_goes_is_not_told(tmp_path: Path) -> None:
    path = checked_out(tmp_path / "project", tmp_path / "view")
    decide(path, SECRET)
    with Store(path) as store:
        assert store.remaining == ()
    assert not (tmp_path / "view").exists()


def test_folders_that_another_machine_names_stay(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    changed("checkouts", [str(tmp_path / "mine")])(foreign)

    told = run("purge", "--finish", folder=foreign.parent)
    assert f"{tmp_path}/mine (not deleted: delete it yourself)" in told.stdout
    assert run("purge", "--finish", "--yes", folder=foreign.parent).exit_code == 0
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_what_came_in_meanwhile_by_plain_git_is_not_lost(own: Path) -> None:
    who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    commit = git(own, *who, "commit-tree", "-m", "x", "demo/main^{tree}").strip()
    git(own, "update-ref", "refs/heads/mine", commit)
    with pytest.raises(Refused, match="refs/heads/mine leads to something that the purge removes"):
        Store(own)
    git(own, "cat-file", "-e", commit)


# --- laws


def test_done_twice_is_done_once(own: Path) -> None:
    copy = state_of(own)
    staged = (own / purge_apply.FOLDER / "journal" / "demo").read_bytes()
    with locked(own / "ctxvc" / "store.lock") as lock:
        purge_apply.apply(own, lock)
        once = standing(own)
        (own / purge_apply.FOLDER / "journal").mkdir(parents=True)
        (own / purge_apply.FOLDER / "journal" / "demo").write_bytes(staged)
        (own / purge_apply.FOLDER / "journal" / "demo").chmod(0o600)
        (own / purge_apply.FOLDER / purge_apply.STATE).write_text(json.dumps(copy))
        purge_apply.apply(own, lock)
    assert standing(own) == once
    assert is_erased(own)


def test_whoever_comes_while_it_is_at_work_waits_for_it(foreign: Path) -> None:
    """Without a seal, too: who decided it is finishing it right now."""
    arguments = [sys.executable, "-c", WORKING, str(foreign)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        Store(foreign).close()  # refused, were it still waiting
    assert process.returncode == 0 and is_erased(foreign)


WORKING = """
import sys, time
from pathlib import Path
from ctxvc.store.purge import apply as decided
from ctxvc.store.files import locked
path = Path(sys.argv[1])
with locked(path / "ctxvc" / "store.lock") as lock:
    print("holds", flush=True)
    time.sleep(0.4)
    decided.apply(path, lock)
"""


def test_without_a_data_folder_a_purge_works_and_only_a_killed_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/dev/null")
    for name in ("whole", "killed"):
        with create(tmp_path / name / ".ctxvc") as store:
            store.create_session("demo")
            with StoredSession.open(store, "demo") as session:
                fill(session, steps=1)
    with Store(tmp_path / "whole" / ".ctxvc") as store:
        purge.purge(store, PurgeRequest(texts=(SECRET,)))
    assert is_erased(tmp_path / "whole" / ".ctxvc")

    decide(tmp_path / "killed" / ".ctxvc", SECRET)
    told = run("status", folder=tmp_path / "killed")
    assert told.exit_code == 1
    assert "cannot store anything for you" in told.stderr
    assert run("purge", "--finish", "--yes", folder=tmp_path / "killed").exit_code == 0
    assert is_erased(tmp_path / "killed" / ".ctxvc")


@pytest.mark.parametrize("number", [0, 6, 12, 18, 24])
def test_killed_while_a_person_finishes_it_it_can_be_finished(foreign: Path, number: int) -> None:
    code = ended(purge_killed, str(foreign), number)
    assert code in (0, KILLED)
    try:
        purge_apply.finish(foreign)
    except NotFound:
        assert code == 0 or number > 9
    assert is_erased(foreign)
