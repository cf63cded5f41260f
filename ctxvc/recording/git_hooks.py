"""Git hooks of the project and of the store: how they are installed, and what they do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ctxvc.core import variables
from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused
from ctxvc.recording import log, places
from ctxvc.store import files, timestamp
from ctxvc.store.git import program as git
from ctxvc.store.git.program import git_says
from ctxvc.store.project import links_inbox
from ctxvc.store.project.links_inbox import CodeCommit
from ctxvc.store.purge.search import REMOTES
from ctxvc.store.secrets import push_check
from ctxvc.store.store import Store
from ctxvc.store.trust import contained, trust
from ctxvc.store.verify import verify

#: Targets of `install`: the project's own repository, or the store.
PROJECT = "post-commit"
REWRITE = "post-rewrite"
STORE = "git-hooks"

#: The store's hooks.
HOOKS = ("pre-push", "post-checkout")
TEXTCONV = "diff.ctxvc.textconv"

#: A text that each of our scripts contains.
_MARK = "# ctxvc: "
_PROGRAM = re.compile(r"^program=.*$", re.MULTILINE)

#: A function around a textconv's command, since git appends the file's name.
_FUNCTION = "ctxvc() {{ {}; }}; ctxvc"
_MOST = 5
#: The most commits of one rebase that are posted.
_MOST_REWRITTEN = 1_000


def in_project(folder: Path, program: str, *, uninstall: bool, dry_run: bool) -> list[tuple[Path, bool]]:
    """Installs or removes the project's hooks; returns the path of each and whether that is a change.

    The folder is the one in which git looks for hooks. Hooks that are not ours are never touched.
    Raises: NotFound if there is no repository; Refused.
    """
    output = git_says(folder, "rev-parse", "--path-format=absolute", "--git-path", "hooks", "--git-common-dir")
    if not output:
        raise NotFound(f"{folder} is not in a git repository", hint=Phrase("hook-folder"))
    hooks, common = (Path(line) for line in output.splitlines())
    if git.own_repository(folder) is None:
        raise Refused(
            f"this project's .git refers to {common}, which does not list it as a worktree or submodule",
            hint=(
                "`git worktree repair` fixes a moved worktree; if the repository is yours, add to "
                f"{hooks / PROJECT}: {_line(program)}"
            ),
        )
    top = git_says(folder, "rev-parse", "--show-toplevel").rstrip("\n")
    inside = [common, *([Path(top)] if top else [])]
    if not any(hooks.resolve().is_relative_to(parent.resolve()) for parent in inside):
        raise Refused(
            f"git uses the hooks in {hooks}, outside this project (core.hooksPath)",
            hint=f"to install it there, add to {hooks / PROJECT}: {_line(program)}",
        )
    changes = []
    for name in (PROJECT, REWRITE):
        path, script = hooks / name, None if uninstall else _script(name, program)
        changes.append((path, _install_script(path, script, _line(program, name), dry_run=dry_run)))
    return changes


def in_store(path: Path, program: str, *, uninstall: bool, dry_run: bool) -> list[tuple[Path, bool]]:
    """Installs or removes the store's hooks and its textconv; returns each path and whether that is a change.

    Raises: Refused if a hook there is not ours, or nothing may be added to the store.
    """
    trust.check(path)
    if (path / "hooks").is_symlink():
        raise Refused(
            f"{path / 'hooks'} is a link: links in a store are not followed", hint="replace it with its target"
        )
    changes = []
    for name in HOOKS:
        hook, script = path / "hooks" / name, None if uninstall else _script(name, program)
        changes.append((hook, _install_script(hook, script, _line(program, name), dry_run=dry_run)))
    changes.append((path / "config", _textconv(path, uninstall=uninstall, dry_run=dry_run)))
    return changes


def scripts() -> Path:
    """The folder of the scripts: in the installed package, or in the source's `hooks`."""
    package = Path(__file__).parents[1]
    inside = package / "hooks" / "git"
    return inside if inside.is_dir() else package.parent / "hooks" / "git"


def is_ours(path: Path) -> bool:
    """Whether a hook is one of these scripts, or a link to one of them. Other links are not followed."""
    try:
        if path.is_symlink():
            return path.resolve() == (scripts() / path.name).resolve()
    except (OSError, RuntimeError):  # a loop of links
        return False
    return _MARK in contained.glance(path, flags=os.O_NOFOLLOW).decode("utf-8", "replace")


def others(store: Path) -> list[Path]:
    """Hooks that git would run in the store and that are not these scripts."""
    try:
        paths = sorted((store / "hooks").iterdir())
    except OSError:  # usually there is no such folder
        return []
    return [
        path for path in paths if path.suffix != ".sample" and os.access(path, os.X_OK | os.R_OK) and not is_ours(path)
    ]


def _script(name: str, program: str) -> bytes:
    # A function, since a template would read parts of some paths as groups.
    return _PROGRAM.sub(lambda _: f"program={program}", (scripts() / name).read_text("utf-8")).encode()


def _line(program: str, name: str = PROJECT) -> str:
    """The line to add to a hook that is not ours, for the same effect."""
    return {
        PROJECT: f'{program} hook post-commit "$(git rev-parse HEAD)" || true',
        REWRITE: f"{program} hook post-rewrite || true",
        "pre-push": f'CTXVC_STORE=$(git rev-parse --absolute-git-dir) {program} hook pre-push "$@" || exit 1',
        "post-checkout": f"{program} checkout --redraw . || true",
    }[name]


def _install_script(path: Path, script: bytes | None, line: str, *, dry_run: bool) -> bool:
    """Writes the script to `path`, or removes ours if it is None; returns whether that is a change. Raises: Refused."""
    there = os.path.lexists(path)
    if there and not is_ours(path):
        if script is None:
            return False
        raise Refused(f"a hook already exists: {path}", hint=f"it was not changed; add to it: {line}")
    if script is None:
        if there and not dry_run:
            path.unlink()
        return there
    if there and not path.is_symlink() and path.read_bytes() == script and os.access(path, os.X_OK):
        return False
    if not dry_run:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace(path, script)
            path.chmod(0o755)
        except OSError as error:
            raise CtxvcError(f"cannot write {path}: {error.strerror}", hint="check the folder's permissions") from error
    return True


def _textconv(path: Path, *, uninstall: bool, dry_run: bool) -> bool:
    # The command itself, not a path to a script: moving the script or the store would break `git diff`.
    command = _FUNCTION.format((scripts() / "textconv").read_text("utf-8").splitlines()[-1])
    current = git.run(path, "config", "--get", TEXTCONV, check=False).decode("utf-8", "replace").rstrip("\n")
    ours = current.startswith("ctxvc() { ") or current.endswith("hooks/git/textconv")
    if (current and not ours) or (not current and uninstall) or (current == command and not uninstall):
        return False
    if not dry_run:
        git.run(path, "config", *(("--unset-all", TEXTCONV) if uninstall else (TEXTCONV, command)))
    return True


def before_push(store: Store, remote: str, lines: Iterable[str]) -> None:
    """Checks the commits that git is about to push; each of `lines` is LOCAL-REF LOCAL-ID REMOTE-REF REMOTE-ID.

    Raises: Damaged; Refused with the place of a secret. Then git pushes nothing.
    """
    tips, had = _pushed(store, lines)
    if not tips:
        return
    report = verify.verify(store, deep=False)
    if report.damaged:
        problems = [f"{finding.where}: {finding.what}" for finding in report.findings if finding.level == "damage"]
        raise Damaged(f"not pushed: {'; '.join(problems[:_MOST])}", hint=Phrase("verify-links"))
    push_check.refuse(store, tips, [*had, *_tracked(store, remote)])


def _pushed(store: Store, lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The commits to push, and those of this store that the remote already has."""
    tips, had = [], []
    for line in lines:
        fields = line.split()
        if len(fields) == 4:
            tips += [fields[1]] if fields[1].strip("0") else []
            had += [fields[3]] if fields[3].strip("0") and fields[3] in store.repository else []
    return tips, had


def _tracked(store: Store, remote: str) -> list[str]:
    """The commits of the remote's tracking refs."""
    if not remote:
        return []
    output = git.run(store.path, "for-each-ref", "--format=%(objectname)", f"{REMOTES}{remote}/")
    return output.decode("ascii", "replace").split()


EVENT = "post-commit"

#: The event with which the program links the waiting commits.
LINK = "link"


def after_commit(arguments: Sequence[str], env: Mapping[str, str], folder: Path, hosts: Mapping[str, str]) -> None:
    """Posts the commit in `arguments`, made in `folder`, for a process that links it. Never fails.

    `hosts` maps a host to the environment variable with its session's id, which it sets for the programs that it runs.
    """
    _post(dict.fromkeys(arguments[:1], ""), env, folder, hosts)


def after_rewrite(lines: Iterable[str], env: Mapping[str, str], folder: Path, hosts: Mapping[str, str]) -> None:
    """As `after_commit`, for commits that an amend or a rebase replaced: each line is OLD-ID NEW-ID. Never fails."""
    replaced: dict[str, list[str]] = {}
    for line in lines:
        ids = line.split()[:2]
        if len(ids) == 2 and links_inbox.COMMIT.fullmatch(ids[0]) and len(replaced) < _MOST_REWRITTEN:
            replaced.setdefault(ids[1], []).append(ids[0])
    _post({new: " ".join(old) for new, old in replaced.items()}, env, folder, hosts)


def _post(commits: Mapping[str, str], env: Mapping[str, str], folder: Path, hosts: Mapping[str, str]) -> None:
    """Posts each commit with the ones that it replaces."""
    store: Path | None = None
    try:
        store = places.store(folder, env)
        if store is None or variables.is_recording_off(env):
            return
        if not commits or not all(map(links_inbox.COMMIT.fullmatch, commits)):
            return
        host, recording = next(((host, env[name]) for host, name in hosts.items() if env.get(name)), ("", ""))
        now, head = timestamp.now(), links_inbox.head(store)
        for commit, replaces in commits.items():
            links_inbox.post(store, CodeCommit(commit, str(folder), now, host, recording, head, replaces))
        _start(store)
    # The boundary: whatever goes wrong here, the commit is made.
    except Exception as error:
        if store:
            log.note(store, EVENT, f"{type(error).__name__}: {error}")


def link(arguments: Sequence[str]) -> None:
    """Links the waiting commits of the store named in `arguments`. Never fails: errors go to the log."""
    from ctxvc.store.project import links
    from ctxvc.store.store import Store

    path = Path(arguments[0])
    try:
        with Store(path) as store:
            links.take(store)
    except Exception as error:
        log.note(path, EVENT, f"{type(error).__name__}: {error}")


def _start(store: Path) -> None:
    """Starts a process that outlives this one and its terminal and keeps none of their files open."""
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", "ctxvc", "hook", LINK, str(store)]
    subprocess.Popen(command, cwd="/", stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
