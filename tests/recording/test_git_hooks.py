"""The scripts in `hooks/`, run by the programs that they are for."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ctxvc.cli.main import cli
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.core.recording.events import Event, Opened, Said
from ctxvc.recording import git_hooks, log
from ctxvc.store.checkout import checkout
from ctxvc.store.git import allowlist
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import code_history, links, links_inbox
from ctxvc.store.store import Store
from tests.docs.console import matches, steps
from tests.making.conversation import human, reply

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / "hooks"
#: Made up, of a form that everybody knows; in two pieces, so that nobody finds it here.
SECRET = "ghp_" + "R7tK2mQ9xW4vB8nJ6cY3hL5sD1fG0zP" + "aUeTx"


def test_a_plain_checkout_of_another_commit_redraws_the_dashboard(store: Store, tmp_path: Path, program: Path) -> None:
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        for number in (1, 2):
            session.append(human(f"question {number}"), reply("answer"))
        session.finish()
    folder = Path(checkout(store, folder=tmp_path / "out", dashboard="# now\n").path)
    (store.path / "hooks").mkdir(exist_ok=True)
    (store.path / "hooks" / "post-checkout").symlink_to(HOOKS / "git" / "post-checkout")

    result = in_git(folder, "checkout", "-q", "HEAD~1")

    assert result.stdout == ""
    page = (folder / "DASHBOARD.md").read_text()
    assert "question 1" in page and "question 2" not in page


# --- what `ctxvc install` puts in place


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `ctxvc`, before the others in PATH; and a name for whoever commits."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ctxvc").write_text(f'#!/bin/sh\nexec {sys.executable} -m ctxvc "$@"\n')
    (folder / "ctxvc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(HOOKS.parent))
    Path.home().joinpath(".gitconfig").write_text("[user]\n\tname = a\n\temail = a@b\n")
    # The tests' own ctxvc, not one that may be installed beside this interpreter.
    monkeypatch.setattr("ctxvc.cli.commands.install._program", lambda: str(folder / "ctxvc"))
    return folder


@pytest.fixture
def project(store: Store, program: Path) -> Path:
    """A repository with a store in it, and a session in that."""
    folder = store.path.parent
    in_git(folder, "init", "-q", ".")
    store.create_session("demo")
    with StoredSession.open(store, "demo") as session:
        session.append(human("go"), reply("gone"))
        session.finish()
    return folder


def recorded(*messages: Message) -> list[Event]:
    """The recording of a session of `pi`."""
    return [Opened(format="pi", source="s"), *(Said(message=each, end=end) for end, each in enumerate(messages, 1))]


def in_git(folder: Path, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=check
    )


def ctxvc(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-C", str(folder), *arguments])


def install(folder: Path, *arguments: str) -> dict[str, bool]:
    result = ctxvc(folder, "install", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return {item["path"]: item["changed"] for item in json.loads(result.stdout)["items"]}


def commit(folder: Path, name: str, **env: str) -> str:
    (folder / name).write_text("x = 1\n")
    in_git(folder, "add", name)
    in_git(folder, "commit", "-q", "-m", f"add {name}", **env)
    return in_git(folder, "rev-parse", "HEAD").stdout.strip()


def linked(store: Store, commit: str, whole: Callable[[links.Link], bool] = bool) -> links.Link:
    """The commit's link, which comes a moment after the commit, once it is `whole` and no commit is waiting."""
    until = time.monotonic() + 30
    while not (found := [link for link in links.find(store, commit) if whole(link)]) or links_inbox.pending(store.path):
        assert time.monotonic() < until, log.entries(store.path)
        time.sleep(0.05)
    return found[0]


def test_commits_of_the_project_are_linked_and_no_more_when_that_is_taken_out(store: Store, project: Path) -> None:
    path, rewrite = install(project, "post-commit")
    assert path == str(project / ".git" / "hooks" / "post-commit")
    assert rewrite == str(project / ".git" / "hooks" / "post-rewrite")
    assert install(project, "post-commit") == {path: False, rewrite: False}

    link = linked(store, commit(project, "a.py"))
    assert (link.session, link.scope, link.step, link.files) == ("demo", "main", 1, ("a.py",))
    answer = json.loads(ctxvc(project, "why", "HEAD", "--json").stdout)
    assert (answer["origin"], answer["committed"]["session"], answer["committed"]["step"]) == ("unknown", "demo", 1)
    in_git(project, "worktree", "add", "-q", "../beside")
    name = commit(project.parent / "beside", "b.py", CLAUDE_CODE_SESSION_ID="a-session", CLAUDECODE="1")
    beside = linked(store, name)
    assert (beside.host, beside.recording, beside.session) == ("claude-code", "a-session", "")

    assert install(project, "post-commit", "--uninstall") == {path: True, rewrite: True}
    name = commit(project, "c.py")
    assert not Path(path).exists() and not links.find(store, name) and not links_inbox.pending(store.path)


def test_an_amended_or_rebased_commit_keeps_its_link_with_and_without_the_hook(store: Store, project: Path) -> None:
    commit(project, "a.py")
    in_git(project, "checkout", "-q", "-b", "onto")
    commit(project, "c.py")
    in_git(project, "checkout", "-q", "-")
    install(project, "post-commit")
    made = commit(project, "b.py", CLAUDE_CODE_SESSION_ID="a-session", CLAUDECODE="1")
    assert linked(store, made).patch
    in_git(project, "rebase", "-q", "onto")
    rebased = in_git(project, "rev-parse", "HEAD").stdout.strip()

    link = linked(store, rebased, whole=lambda link: bool(link.replaces))  # git runs `post-commit` first

    assert rebased != made and (link.recording, link.replaces, link.files) == ("a-session", (made,), ("b.py",))
    (project / ".git" / "hooks" / "post-rewrite").unlink()
    (project / ".git" / "hooks" / "post-commit").unlink()
    in_git(project, "commit", "-q", "--amend", "-m", "another message")
    found = links.of_patch(store, code_history.patch_id(project, "HEAD"))
    assert found is not None and found.recording == "a-session"


@pytest.mark.parametrize("spoil", ["program", "store", "spool", "off"])
def test_whatever_is_wrong_with_us_a_commit_is_made_at_once(
    store: Store, project: Path, program: Path, spoil: str
) -> None:
    install(project, "post-commit")
    env = {}
    if spoil == "spool":
        (store.path / "ctxvc" / "committed").write_text("in the way")
    elif spoil == "off":
        env = {"CTXVC_RECORDING": "off"}
    else:
        (program / "ctxvc" if spoil == "program" else store.path / "HEAD").unlink()
    (project / "a.py").write_text("x = 1\n")
    in_git(project, "add", "a.py")

    done = in_git(project, "commit", "-q", "-m", "x", **env)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    if spoil == "spool":
        assert any("post-commit" in entry for entry in log.entries(store.path))


def test_a_hook_of_somebody_else_stays_and_the_refusal_says_what_to_add(project: Path) -> None:
    path = project / ".git" / "hooks" / "post-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\necho mine\n")

    result = ctxvc(project, "install", "post-commit")

    assert result.exit_code == 1 and "a hook already exists" in result.stderr
    assert 'hook post-commit "$(git rev-parse HEAD)"' in result.stderr
    assert path.read_text() == "#!/bin/sh\necho mine\n"
    assert install(project, "post-commit", "--uninstall")[str(path)] is False
    assert path.exists()


def test_hooks_go_where_git_looks_for_them_and_never_outside_the_project(project: Path, tmp_path: Path) -> None:
    in_git(project, "config", "core.hooksPath", ".githooks")
    hooks = {str(project / ".githooks" / name): True for name in ("post-commit", "post-rewrite")}
    assert install(project, "post-commit", "--dry-run") == hooks
    assert not (project / ".githooks").exists()
    assert install(project, "post-commit") == hooks

    (Path.home() / ".gitconfig").write_text(f"[core]\n\thooksPath = {tmp_path}/all\n")
    in_git(project, "config", "--unset", "core.hooksPath")
    result = ctxvc(project, "install", "post-commit")
    assert result.exit_code == 1 and "core.hooksPath" in result.stderr
    assert not (tmp_path / "all").exists()
    assert ctxvc(tmp_path, "install", "post-commit").exit_code == 1
    assert ctxvc(project, "install", "post-commit", "--user").exit_code == 2


def test_the_stores_hooks_come_and_go_together(store: Store, project: Path) -> None:
    before = (store.path / "config").read_text()
    (store.path / "hooks").mkdir(exist_ok=True)
    (store.path / "hooks" / "post-checkout").symlink_to(HOOKS / "git" / "post-checkout")

    done = install(project, "git-hooks")

    assert [Path(path).name for path in done] == ["pre-push", "post-checkout", "config"]
    assert all(done.values()) and not any(install(project, "git-hooks").values())
    assert (HOOKS / "git" / "post-checkout").is_file() and not (store.path / "hooks" / "post-checkout").is_symlink()
    assert all(install(project, "git-hooks", "--uninstall").values())
    assert (store.path / "config").read_text().rstrip() == before.rstrip()
    assert list((store.path / "hooks").iterdir()) == []


def test_calls_are_readable_after_install_wherever_the_store_is_moved(store: Store, project: Path) -> None:
    with StoredSession.open(store, "demo") as session:
        call = call_part("Bash", "c1", b'{"command":"ls \xc3\xa4","limit":3}')
        session.append(Message(role="assistant", parts=(call,), key="a2"))
        session.finish()
    install(project, "git-hooks")
    store.close()
    moved = store.path.rename(project / "it's moved")

    shown = in_git(project, f"--git-dir={moved}", "log", "-p", "-1", "--format=", "demo/main").stdout

    assert '+    "command": "ls ä",\n+    "limit": 3\n' in shown


def test_a_project_that_only_names_another_repository_changes_nothing_in_it(project: Path, tmp_path: Path) -> None:
    exclude, hooks = project / ".git" / "info" / "exclude", project / ".git" / "hooks" / "post-commit"
    before = exclude.read_bytes()
    for name in ("pointer", "link", "common"):
        (tmp_path / name).mkdir()
    (tmp_path / "pointer" / ".git").write_text(f"gitdir: {project / '.git'}\n")
    (tmp_path / "link" / ".git").symlink_to(project / ".git")
    in_git(tmp_path / "common", "init", "-q")
    (tmp_path / "common" / ".git" / "commondir").write_text(f"{project / '.git'}\n")
    for name in ("pointer", "link", "common"):
        assert ctxvc(tmp_path / name, "init").exit_code == 0
        result = ctxvc(tmp_path / name, "install", "post-commit")
        assert result.exit_code == 1 and "does not list it as a worktree" in result.stderr

    assert exclude.read_bytes() == before and not hooks.exists()


def test_a_repository_apart_from_its_project_gets_no_hook_by_itself(tmp_path: Path) -> None:
    apart = tmp_path / "apart.git"
    in_git(tmp_path, "init", "-q", f"--separate-git-dir={apart}", "work")
    assert ctxvc(tmp_path / "work", "init").exit_code == 0

    refused = ctxvc(tmp_path / "work", "install", "post-commit")
    assert refused.exit_code == 1 and not (apart / "hooks" / "post-commit").exists()
    assert f"add to {apart / 'hooks' / 'post-commit'}: " in " ".join(refused.stderr.split())
    assert ctxvc(tmp_path / "work", "sessions").exit_code == 0


def test_worktrees_and_submodules_of_a_project_are_its_own(project: Path, tmp_path: Path) -> None:
    commit(project, "a.py")
    in_git(project, "worktree", "add", "-q", str(tmp_path / "linked"))
    allow = ("-c", "protocol.file.allow=always")
    in_git(project, *allow, "submodule", "--quiet", "add", str(project), "sub")
    (project / "sub" / "below").mkdir()
    for folder, hooks in (
        (tmp_path / "linked", project / ".git" / "hooks"),
        (project / "sub" / "below", project / ".git" / "modules" / "sub" / "hooks"),
    ):
        result = ctxvc(folder, "install", "post-commit")
        assert result.exit_code == 0, result.stderr
        assert (hooks / "post-commit").exists()
    assert ctxvc(project / "sub", "init").exit_code == 0
    assert b".ctxvc/" in (project / ".git" / "modules" / "sub" / "info" / "exclude").read_bytes()


def test_git_log_in_a_project_runs_no_module_of_the_project(store: Store, project: Path) -> None:
    with StoredSession.open(store, "demo") as session:
        session.append(Message(role="assistant", parts=(call_part("Bash", "c1", b'{"command":"ls"}'),), key="a2"))
        session.finish()
    (project / "json").mkdir()
    (project / "json" / "__init__.py").touch()
    (project / "json" / "tool.py").write_text(f"open({str(project / 'ran')!r}, 'w')")
    (old,) = allowlist.OLD_TEXTCONVS
    log = (f"--git-dir={store.path}", "log", "-p", "-1", "--format=", "demo/main")
    in_git(project, f"--git-dir={store.path}", "config", allowlist.TEXTCONV, old)
    in_git(project, *log)
    assert (project / "ran").exists()
    (project / "ran").unlink()

    Store(store.path).close()  # what was installed before is no reason to refuse the store
    assert ctxvc(project, "doctor").stdout.count("ctxvc install git-hooks") == 1
    install(project, "git-hooks")

    assert '+    "command": "ls"\n' in in_git(project, *log).stdout and not (project / "ran").exists()
    assert "ctxvc install git-hooks" not in ctxvc(project, "doctor").stdout


def test_a_push_of_a_sound_store_goes_through_and_one_with_a_secret_or_damage_does_not(
    store: Store, project: Path, tmp_path: Path
) -> None:
    install(project, "git-hooks")
    in_git(project, "init", "-q", "--bare", str(tmp_path / "remote.git"))
    git_dir = f"--git-dir={store.path}"
    in_git(project, git_dir, "remote", "add", "origin", str(tmp_path / "remote.git"))
    ingest(store, recorded(human(f"the key is {SECRET}"), reply("thanks")), name="other", final=True, redact=False)

    done = in_git(project, git_dir, "push", "-q", "--all", "origin", check=False)

    assert done.returncode != 0
    assert "this would send secrets" in done.stderr and "other/main:B1" in done.stderr
    assert SECRET not in done.stderr
    assert in_git(project, git_dir, "ls-remote", "origin").stdout == ""
    in_git(project, git_dir, "push", "-q", "origin", "demo/main")  # what has none may go
    assert "demo/main" in in_git(project, git_dir, "ls-remote", "origin").stdout
    in_git(project, git_dir, "push", "-q", "origin", ":demo/main")  # to delete sends nothing

    (store.path / "ctxvc" / "journal" / "demo").write_bytes(b"nonsense, and more of it than a head is long" * 9)
    done = in_git(project, git_dir, "push", "-q", "origin", "demo/main", check=False)
    assert done.returncode != 0 and "not pushed" in done.stderr
    assert "demo" not in in_git(project, git_dir, "ls-remote", "origin").stdout


def test_every_script_says_that_it_is_ours_is_executable_and_is_installed_or_a_setting() -> None:
    names = {path.name for path in git_hooks.scripts().iterdir()}

    assert names == {git_hooks.PROJECT, git_hooks.REWRITE, *git_hooks.HOOKS, "textconv"}
    for name in names:
        path = git_hooks.scripts() / name
        assert git_hooks.is_ours(path) and os.access(path, os.X_OK)
        assert subprocess.run(["sh", "-n", path], check=False).returncode == 0


def test_the_page_on_why_does_what_it_says(store: Store, project: Path, program: Path) -> None:
    content = "def login(user, password):\n    return bool(password) and check(user, password)\n"
    written = json.dumps({"file_path": "/src/app/login.py", "content": content}).encode()
    call = (text_part("I write it.", "assistant", "model"), call_part("Write", "c1", written))
    said = (
        human("Add a login, please"),
        Message(role="assistant", parts=call, key="a1"),
        Message(role="user", parts=(result_part("ok", "c1"),), key="r1"),
        reply("The login is there; it refuses empty passwords."),
    )
    ingest(store, recorded(*said), name="work", final=True)
    store.set_current_scope("work", "main")
    (project / "login.py").write_text(content)
    in_git(project, "add", "login.py")

    for command, output in steps(ROOT / "docs" / "how-to" / "find-out-why.md"):
        name, *words = shlex.split(command)
        if name == "ctxvc":
            answer = ctxvc(project, *words)
            assert (answer.exit_code, answer.stderr) == (0, ""), (command, answer.stderr)
            printed = answer.stdout
        else:
            assert name == "git"
            printed = in_git(project, *words).stdout
        text = "".join(line.rstrip() + "\n" for line in printed.splitlines())
        assert matches(output, text), f"$ {command}\n{text}\n--- the page says:\n{output}"
        if command.startswith("git commit"):
            linked(store, in_git(project, "rev-parse", "HEAD").stdout.strip())
