"""A store from elsewhere is only data: which of its settings count, who accepts them, and what none can start."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ctxvc.agent import files as agent_files
from ctxvc.cli.main import cli
from ctxvc.errors import CtxvcError, Damaged, NotFound, Refused
from ctxvc.recording import git_hooks, places
from ctxvc.store import checkout
from ctxvc.store.git import allowlist
from ctxvc.store.git import program as git
from ctxvc.store.git.config_parser import Setting
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import code_history
from ctxvc.store.project import locate as stores
from ctxvc.store.project.locate import project_root
from ctxvc.store.store import Store, create
from ctxvc.store.trust import trust
from tests.making.conversation import exchange
from tests.making.store import ROOT, opened
from tests.making.store import git as git_of
from tests.store.hostile import DANGEROUS

HARMLESS = [
    ("core.repositoryformatversion", "0"), ("core.fsync", "all"), ("core.sharedrepository", "0600"),
    ("core.autocrlf", "false"), ("core.logallrefupdates", "false"), ("core.symlinks", None),
    ("core.precomposeunicode", "true"), ("extensions.worktreeconfig", "true"), ("gc.auto", "0"),
    ("gc.pruneexpire", "2.weeks.ago"), ("pack.windowmemory", "100m"), ("maintenance.auto", "false"),
    ("receive.denynonfastforwards", "true"), ("user.name", "Ada; $(Lovelace) `x`"), ("branch.main.remote", "origin"),
    ("branch.a/b.merge", "refs/heads/demo/main"), ("remote.origin.url", "https://me:pw@example.org/x.git"),
    ("remote.origin.url", "ssh://git@example.org:22/x"), ("remote.origin.url", "file:///srv/x"),
    ("remote.origin.url", "git://example.org/x"), ("remote.origin.url", "git@example.org:x.git"),
    ("remote.origin.url", "/srv/with space/x"), ("remote.origin.url", "../x"),
    ("remote.origin.pushurl", "https://example.org/x"), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
    ("remote.origin.tagopt", "--no-tags"), ("ctxvc.format", "1"), ("ctxvc.redact", "false"),
]  # fmt: skip

#: A command of each kind that starts git, or opens what libgit2 reads.
COMMANDS = [
    "status", "sessions", "log --graph", "grep x", "blame B1", "why abcdef12", "verify", "gc", "checkout", "export",
    "purge --text question --yes", "install git-hooks", "import x.jsonl", "watch --once", "note -m x",
]  # fmt: skip


def run(*arguments: str, folder: Path) -> Result:
    """Runs `ctxvc` with these words in this process."""
    return CliRunner().invoke(cli, ["-C", str(folder), *arguments])


def lower(key: str) -> str:
    first, _, rest = key.partition(".")
    name, dot, last = rest.rpartition(".")
    return f"{first.lower()}.{name}{dot}{last.lower()}"


def test_only_what_runs_nothing_and_leads_nowhere_may_be_set() -> None:
    assert [key for key, value in HARMLESS if not allowlist.is_harmless(Setting(key, value))] == []
    assert [key for key, value in DANGEROUS if allowlist.is_harmless(Setting(lower(key), value))] == []


def test_the_textconv_that_may_be_set_is_the_one_that_install_sets(path: Path) -> None:
    git_hooks.in_store(path, "ctxvc", uninstall=False, dry_run=False)

    with Store(path) as store:
        assert git.config(store.repository)[allowlist.TEXTCONV] in allowlist.TEXTCONVS


@pytest.mark.parametrize(("key", "name"), [("core.protectNTFS", "git~1"), ("core.protectHFS", ".g\u200cit")])
def test_a_store_cannot_have_names_taken_that_another_file_system_reads_as_dot_git(
    path: Path, key: str, name: str
) -> None:
    blob = git.run(path, "hash-object", "-w", "--stdin", data=b"[core]\n").decode().strip()
    arguments = ("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}/config")
    git.run(path, "config", key, "false")

    with pytest.raises(CtxvcError, match="git update-index failed"):
        git.run(path, *arguments)
    git.run(path, *arguments, config=[f"{key}=false"])


# --- stores whose settings are hostile


@pytest.fixture
def mark(program: Path) -> Path:
    """The trace that `program` leaves; not there yet."""
    found = program.parent / "mark"
    found.unlink(missing_ok=True)
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that leaves a trace; also as every hook of git, in a folder of its own."""
    folder = tmp_path_factory.mktemp("programs")
    hooks = ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-commit")
    for name in ("program", *hooks):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {folder}/mark\ncat\n")
        (folder / name).chmod(0o755)
    return folder / "program"


def poison(path: Path, key: str, value: str, program: Path) -> None:
    """git writes the setting into the file."""
    words = value.replace("MARK", str(program)).replace("FOLDER", str(program.parent))
    before = path.read_bytes() if path.exists() else b""
    if (before, key, words) not in _poisoned:
        subprocess.run(["git", "config", "--file", path, key, words], check=True)
        _poisoned[before, key, words] = path.read_bytes()
    path.write_bytes(_poisoned[before, key, words])


_poisoned: dict[tuple[bytes, str, str], bytes] = {}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_what_a_store_names(path: Path, program: Path, mark: Path, command: str) -> None:
    project = path.parent
    subprocess.run(["git", "init", "-q", project], check=True)
    pristine = (path / "config").read_bytes()
    place = COMMANDS.index(command)  # all of them for the first command, for each of the others an eighth
    for key, value in DANGEROUS[place % 8 :: 8] if place else DANGEROUS:
        (path / "config").write_bytes(pristine)
        poison(path / "config", key, value, program)

        result = run(*command.split(), folder=project)

        assert not mark.exists(), f"{key} = {value} was run"
        assert result.exit_code == 1, (key, result.stdout, result.stderr)
        assert lower(key).split("\n")[0][:40] in result.stderr or "promisor" in key.lower(), (key, result.stderr)
        assert str(path / "config") in result.stderr or "extensions." in result.stderr
        assert "hint: " in result.stderr


def test_doctor_says_it_as_a_problem(path: Path, program: Path, mark: Path) -> None:
    poison(path / "config", "core.sshCommand", "MARK", program)

    result = run("doctor", "--json", folder=path.parent)

    told = [item for item in json.loads(result.stdout)["items"] if item["check"] == "store"]
    assert [item["level"] for item in told] == ["problem"]
    assert "core.sshcommand" in told[0]["found"]
    assert "ctxvc trust" in told[0]["mend"]
    assert not mark.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["SessionStart"], ["Stop"], ["post-commit", "1" * 40], ["pre-push", "origin", "x"],
        ["statusline"],
    ],
)  # fmt: skip
def test_no_hook_runs_what_a_store_names(path: Path, program: Path, mark: Path, words: list[str]) -> None:
    for key, value in (("core.fsmonitor", "MARK"), ("core.hooksPath", "FOLDER"), ("remote.origin.url", "ext::MARK")):
        poison(path / "config", key, value, program)
    (path.parent / "transcript.jsonl").write_text("")
    told = {"cwd": str(path.parent), "transcript_path": str(path.parent / "transcript.jsonl"), "session_id": "s"}
    told = {**told, "hook_event_name": words[0], "source": "startup", "trigger": "auto"}

    result = subprocess.run(
        [sys.executable, "-m", "ctxvc", "hook", *words], cwd=path.parent, env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=json.dumps(told) if words[0][0].isupper() or words[0] == "statusline" else "", capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert (result.returncode, "Traceback" in result.stderr) == (int(words[0] == "pre-push"), False), result.stderr
    assert not mark.exists()


def test_hooks_are_not_put_where_a_link_leads(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (path / "hooks").symlink_to(tmp_path / "elsewhere")
    assert run("install", "git-hooks", folder=path.parent).exit_code == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_git_is_started_and_a_repository_opened_in_one_place() -> None:
    opening = re.compile(r"git\.program\(|pygit2\.(Repository|init_repository|clone_repository)\(|\[\"git\"")
    package = Path(git.__file__).parents[1]
    assert [file for file in package.rglob("*.py") if opening.search(file.read_text())] == [Path(git.__file__)]


@pytest.mark.parametrize("file", ["config.worktree", "worktrees/x/config.worktree"])
def test_settings_of_worktrees_are_settings(path: Path, program: Path, file: str) -> None:
    (path / file).parent.mkdir(parents=True, exist_ok=True)
    (path / file).touch()
    poison(path / file, "core.fsmonitor", "MARK", program)

    with pytest.raises(Refused, match=rf"{file} sets core\.fsmonitor"):
        Store(path)
    with pytest.raises(Refused, match=rf"{file} sets core\.fsmonitor"):
        git.run(path, "rev-parse", "HEAD")


def test_settings_are_looked_at_for_every_call_not_once(path: Path, program: Path) -> None:
    with Store(path) as store:
        poison(path / "config", "core.fsmonitor", "MARK", program)
        with pytest.raises(Refused), StoredSession.open(store, "demo") as session:
            session.append(*exchange(1))
            session.flush()


def test_a_file_of_settings_that_is_none_is_not_waited_for(path: Path, tmp_path: Path) -> None:
    config = (path / "config").read_bytes()
    (tmp_path / "elsewhere").write_bytes(config)
    for spoil in (
        lambda file: file.symlink_to(tmp_path / "elsewhere"),
        os.mkfifo,
        lambda file: file.write_bytes(config + b"#" * trust.LARGEST),
    ):
        (path / "config").unlink()
        spoil(path / "config")
        with pytest.raises(Refused, match="config"):
            Store(path)


def test_a_store_is_not_led_to_another_repository(path: Path, tmp_path: Path, program: Path) -> None:
    evil = tmp_path / "evil.git"
    subprocess.run(["git", "init", "-q", "--bare", evil], check=True)
    poison(evil / "config", "core.fsmonitor", "MARK", program)
    shutil.copytree(evil, path / ".git")
    with Store(path) as store:
        assert Path(store.repository.path) == path
    (path / "commondir").write_text(str(evil))
    with pytest.raises(Refused, match="another repository"):
        Store(path)


def test_a_checkout_is_not_led_to_another_repository(path: Path, tmp_path: Path, program: Path, mark: Path) -> None:
    evil = tmp_path / "evil.git"
    subprocess.run(["git", "clone", "-q", "--bare", path, evil], check=True)
    poison(evil / "config", "core.fsmonitor", "MARK", program)
    folder = tmp_path / "out"
    with Store(path) as store:
        with StoredSession.open(store, "demo") as session:
            session.append(*exchange(1))
        checkout.checkout(store, folder=folder)
        (linked,) = (path / "worktrees").iterdir()
        (linked / "commondir").write_text(str(evil))
        subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
        assert mark.exists(), "git itself was led there"
        mark.unlink()
        for look in (checkout.person_changes, lambda store, folder: checkout.checkout(store, folder=folder)):
            with pytest.raises((NotFound, Refused)):
                look(store, folder)
    assert not mark.exists()


def test_a_repository_inside_a_checkout_is_not_looked_into(
    path: Path, tmp_path: Path, program: Path, mark: Path
) -> None:
    folder = tmp_path / "out"
    with opened(path) as session:
        session.append(*exchange(1))
    with Store(path) as store:
        checkout.checkout(store, folder=folder)
        inner = folder / "blocks" / "inner"
        project(inner, program)
        subprocess.run(["git", "add", "blocks/inner"], cwd=folder, capture_output=True, check=True)
        (inner / "code.txt").write_text("changed\n")
        mark.unlink(missing_ok=True)
        subprocess.run(["git", "diff", "--raw", "HEAD"], cwd=folder, capture_output=True, check=True)
        assert mark.exists(), "git itself looks into it"
        mark.unlink()
        checkout.person_changes(store, folder)
    assert not mark.exists()


# --- the project's own repository


def project(root: Path, program: Path) -> None:
    """A repository with a commit, whose settings then name a program wherever they can."""
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    (root / "code.txt").write_text("one\n")
    (root / ".gitattributes").write_text("*.txt filter=x diff=x\n")
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "first"], cwd=root, check=True)
    (root / "code.txt").write_text("two\n")
    other = root / ".git" / "more"
    for key, value in [
        *((key, "MARK") for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "pager.log", "gpg.program")),
        *((key, "MARK") for key in ("diff.external", "diff.x.textconv", "diff.x.command")),
        *(("core.hooksPath", "FOLDER"), ("credential.helper", "!MARK"), ("alias.blame", "!MARK")),
        *(("log.showSignature", "true"), ("remote.origin.url", "ext::MARK"), ("remote.origin.promisor", "true")),
        *(("protocol.ext.allow", "always"), ("core.repositoryFormatVersion", "1")),
        *(("extensions.partialClone", "origin"), ("include.path", str(other))),
    ]:
        poison(root / ".git" / "config", key, value, program)
    for what in ("clean", "smudge"):
        poison(other, f"filter.x=y.{what}", "MARK", program)
        poison(other, f"filter.x.{what}", "MARK", program)
    poison(other, "filter.x.required", "true", program)


@pytest.fixture
def hostile(tmp_path: Path, program: Path, mark: Path) -> Path:
    root = tmp_path / "hostile"
    project(root, program)
    subprocess.run(["git", "diff"], cwd=root, capture_output=True, check=False)
    assert mark.exists(), "git itself runs what the project names"
    mark.unlink()
    return root


MISSING = "1" * 40


@pytest.mark.parametrize(
    "command",
    ["init", "import", "why HEAD", "why code.txt:1", f"why {MISSING}", "install post-commit --dry-run", "doctor",
     "watch --once"],
)  # fmt: skip
def test_no_command_runs_what_a_project_names(hostile: Path, mark: Path, command: str) -> None:
    if command != "init":
        create(hostile / ".ctxvc").close()

    result = run(*command.split(), folder=hostile)

    assert not mark.exists(), mark.read_text()
    assert "bug" not in result.stderr


def test_nothing_that_asks_a_project_runs_what_it_names(hostile: Path, mark: Path) -> None:
    for ask in (
        lambda root: agent_files.below(root, root),
        agent_files.top,
        lambda root: code_history.changed(root, "HEAD"),
        lambda root: code_history.changed(root, MISSING),
        lambda root: code_history.patch_id(root, "HEAD"),
        lambda root: code_history.patch_id(root, MISSING),
        lambda root: code_history.versions(root, code_history.history(root, "code.txt", "HEAD"), 0),
        lambda root: code_history.history(root, "code.txt", MISSING),
        lambda root: code_history.name_in_project(root / "code.txt"),
        lambda root: git.of_project(root, "blame", "--", "code.txt"),
        lambda root: git.of_project(root, "diff"),
        lambda root: git.of_project(root, "log", "-p"),
        lambda root: git.of_project(root, "show", MISSING),
        lambda root: git.of_project(root, "status"),
    ):
        ask(hostile)
        assert not mark.exists(), (inspect.getsource(ask), mark.read_text())


def test_a_hostile_project_is_read_all_the_same(hostile: Path) -> None:
    assert git.of_project(hostile, "blame", "--porcelain", "--", "code.txt")
    assert code_history.changed(hostile, "HEAD") == [".gitattributes", "code.txt"]
    assert agent_files.below(hostile, hostile) == {".gitattributes", "code.txt"}
    assert agent_files.top(hostile) == hostile


def test_more_filters_than_can_be_switched_off_are_not_asked(hostile: Path, mark: Path) -> None:
    lines = "".join(f'[filter "f{number}"]\n\tclean = {mark}\n' for number in range(5_000))
    with (hostile / ".git" / "config").open("a") as config:
        config.write(lines)

    assert git.of_project(hostile, "blame", "--", "code.txt") is None


def test_a_work_tree_elsewhere_gets_no_store(tmp_path: Path) -> None:
    root, other = tmp_path / "project", tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "-C", root, "config", "core.worktree", other], check=True)

    run("import", folder=root)

    assert not (other / ".ctxvc").exists()


def test_a_folder_cannot_name_the_repository_of_somebody_else_as_its_own(tmp_path: Path) -> None:
    """A linked worktree counts where git's registration leads back to it."""
    mine, folder = tmp_path / "mine", tmp_path / "folder"
    subprocess.run(["git", "init", "-q", mine], check=True)
    create(mine / ".ctxvc").close()
    folder.mkdir()
    for pointer in (mine / ".git", mine / ".git" / "worktrees" / "x"):
        (folder / ".git").write_text(f"gitdir: {pointer}\n")
        with pytest.raises(NotFound):
            stores.find(folder)
        assert places.store(folder, {}) is None
        assert project_root(folder) == folder


# --- what a person accepts


@pytest.fixture
def foreign(path: Path, program: Path) -> Path:
    """A store that sets what a person may accept."""
    poison(path / "config", "core.sshCommand", "MARK", program)
    return path


def is_open(path: Path) -> bool:
    try:
        Store(path).close()
    except Refused:
        return False
    return True


def test_what_was_accepted_counts_until_a_file_changes(foreign: Path, program: Path) -> None:
    shown = run("trust", folder=foreign.parent)
    assert shown.exit_code == 1
    assert f"config: core.sshcommand = {program}" in shown.stdout
    assert not is_open(foreign)

    assert run("trust", "--yes", folder=foreign.parent).exit_code == 0
    assert is_open(foreign)
    assert run("trust", folder=foreign.parent).exit_code == 0
    listed = json.loads(run("trust", "--list", "--json", folder=foreign.parent).stdout)["items"]
    assert [(item["store"], item["items"][0]["key"]) for item in listed] == [(str(foreign), "core.sshcommand")]

    accepted = (foreign / "config").read_bytes()
    git_of(foreign, "config", "core.sshCommand", "another")
    assert not is_open(foreign)
    (foreign / "config").write_bytes(accepted)
    assert not is_open(foreign), "it was forgotten"
    assert json.loads(run("trust", "--list", "--json", folder=foreign.parent).stdout)["items"] == []


def test_doctor_remembers_what_was_accepted(foreign: Path) -> None:
    trust.accept(foreign, trust.look(foreign))

    told = json.loads(run("doctor", "--json", folder=foreign.parent).stdout)["items"]

    assert [item["found"] for item in told if item["check"] == "settings"] == ["you accepted core.sshcommand in config"]


def test_what_was_accepted_can_be_revoked(foreign: Path) -> None:
    run("trust", "--yes", folder=foreign.parent)

    changes = [
        json.loads(run("trust", "--revoke", "--json", folder=foreign.parent).stdout)["changed"] for _ in range(2)
    ]
    assert [bool(change) for change in changes] == [True, False]
    assert not is_open(foreign)


def test_a_moved_store_is_known_again_and_a_copy_or_one_on_another_machine_is_not(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust.accept(foreign, trust.look(foreign))
    copy = Path(shutil.copytree(foreign, tmp_path / "copy", symlinks=True))
    assert not is_open(copy)
    assert is_open(foreign)

    foreign.rename(tmp_path / "moved")
    assert is_open(tmp_path / "moved")
    assert [each.path for each in trust.accepted()] == [str(tmp_path / "moved")]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_open(tmp_path / "moved")


def test_what_changes_between_the_look_and_the_yes_is_not_accepted(foreign: Path) -> None:
    survey = trust.look(foreign)
    git_of(foreign, "config", "core.sshCommand", "another")
    trust.accept(foreign, survey)
    assert not is_open(foreign)


@pytest.mark.parametrize("key", ["include.path", "core.worktree", "remote.origin.promisor", "extensions.partialClone"])
def test_some_settings_nobody_can_accept(path: Path, program: Path, key: str) -> None:
    poison(path / "config", key, "MARK", program)

    result = run("trust", "--yes", folder=path.parent)

    assert result.exit_code == 1
    assert lower(key) in result.stderr
    assert not is_open(path)


def test_a_checkout_takes_back_nothing_that_was_accepted(foreign: Path, tmp_path: Path) -> None:
    git_of(foreign, "config", "extensions.worktreeConfig", "true")
    (foreign / "config.worktree").write_text("[core]\n\tbare = true\n")
    git_of(foreign, "config", "--unset", "core.bare")
    trust.accept(foreign, trust.look(foreign))
    with Store(foreign) as store:
        checkout.checkout(store, folder=tmp_path / "out")
    assert is_open(foreign)


def test_what_is_shown_cannot_move_a_cursor(path: Path) -> None:
    with (path / "config").open("a", encoding="utf-8") as config:
        config.write('[alias]\n\tx = "!\x1b[2J\\n\u202efine"\n')

    result = run("trust", folder=path.parent)

    assert "alias.x = !\\x1b[2J\\n\\u202efine" in result.stdout


def test_borrowed_objects_are_a_setting_too(path: Path, tmp_path: Path) -> None:
    (path / "objects" / "info").mkdir(exist_ok=True)
    (path / "objects" / "info" / "alternates").write_text(f"{tmp_path}/private/objects\n")
    with pytest.raises(Refused, match="borrows objects") as refusal:
        Store(path)
    assert "ctxvc trust" in refusal.value.hint
    trust.accept(path, trust.look(path))
    assert is_open(path)


# --- the person's data folder


@pytest.mark.parametrize("home", [None, "", "relative", "/dev/null", "/proc/self"])
def test_without_a_data_folder_all_works_but_trust(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    with create(tmp_path / "project" / ".ctxvc") as store:
        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            session.append(*exchange(1))
    assert [run(name, folder=tmp_path / "project").exit_code for name in ("verify", "status", "trust")] == [0, 0, 0]
    poison(tmp_path / "project" / ".ctxvc" / "config", "core.sshCommand", "MARK", program)

    result = run("trust", "--yes", folder=tmp_path / "project")

    assert result.exit_code == 1
    assert "cannot store anything for you" in result.stderr
    assert "set HOME" in result.stderr


def test_what_is_remembered_is_private_and_a_data_folder_that_others_may_write_to_is_none(path: Path) -> None:
    seal = trust.seal(trust.make_id(path), b"x")
    folder = trust.data_folder()
    kept = [folder, *folder.rglob("*")]
    assert {stat.st_mode & 0o077 for stat in map(Path.stat, kept)} == {0}
    assert (folder / "seals" / seal) in kept

    folder.chmod(0o777)
    with pytest.raises(Refused, match="others may write"):
        trust.data_folder()
    folder.chmod(0o700)


def test_a_seal_holds_for_one_store_one_content_one_machine_and_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = trust.make_id(path)
    seal = trust.seal(name, b"what")

    assert trust.is_sealed_here(name, b"what", seal)
    assert not trust.is_sealed_here(name, b"What", seal)
    assert not trust.is_sealed_here("0" * 32, b"what", seal)
    assert not trust.is_sealed_here(name, b"what", "../../key")
    with monkeypatch.context() as patch:
        patch.setenv("HOME", str(tmp_path))
        assert not trust.is_sealed_here(name, b"what", seal)
    trust.break_seal(seal)
    assert not trust.is_sealed_here(name, b"what", seal)


RACE = """
import sys
from pathlib import Path
from ctxvc.store.trust import known_stores; from ctxvc.store.trust import trust
path = Path(sys.argv[1])
sys.stdin.read(1)
name = trust.make_id(path)
for number in range(5):
    known_stores.remember_made(path)
print(name, trust.seal(name, b"x"))
"""


def test_processes_that_begin_at_once_agree(path: Path) -> None:
    arguments = [sys.executable, "-c", RACE, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(arguments, cwd=ROOT, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for process in running:
        process.stdin.write("x")
        process.stdin.flush()
    answers = {process.communicate()[0] for process in running}

    assert len(answers) == 1
    name, seal = answers.pop().split()
    assert trust.store_id(path) == name
    assert trust.is_sealed_here(name, b"x", seal)


def test_an_id_that_is_none_is_said_and_a_store_from_before_needs_none(path: Path) -> None:
    (path / "ctxvc" / "id").write_text("../../x\n")
    assert trust.store_id(path) == ""
    with pytest.raises(Damaged, match="not a store's id"):
        trust.make_id(path)

    (path / "ctxvc" / "id").unlink()
    with opened(path) as session:
        session.append(*exchange(1))
    assert not (path / "ctxvc" / "id").exists()


def test_a_broken_record_is_as_none(foreign: Path) -> None:
    trust.accept(foreign, trust.look(foreign))
    for file in (trust.data_folder() / "stores").iterdir():
        file.write_text("{")
    assert not is_open(foreign)
    trust.accept(foreign, trust.look(foreign))
    assert is_open(foreign)
