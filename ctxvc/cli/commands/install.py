"""`install`: puts hooks in place, so that sessions are recorded and code is linked automatically."""

from __future__ import annotations

import difflib
import json
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click

from ctxvc.claude_code import settings
from ctxvc.cli import hosts
from ctxvc.cli.answers.shared import Answer, Item, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import safe
from ctxvc.errors import BadInput, Refused
from ctxvc.recording import git_hooks, places
from ctxvc.store.project.locate import project_root

CLAUDE_CODE = "claude-code"
#: Agents that need nothing of ours in place → what is true of each, and what keeps it inside a budget.
_WRAPPED = {
    **dict.fromkeys(("pi", "opencode"), "its requests pass through ctxvc where that is asked for"),
    **dict.fromkeys(("codex", "gemini", "copilot"), "no extension may change its prompt"),
}
_TARGETS = (CLAUDE_CODE, git_hooks.PROJECT, git_hooks.STORE)


class _Target(click.Choice[str]):
    """What can be installed; only those are offered, but agents that need nothing are known too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in _WRAPPED else super().convert(value, param, ctx)


@command("install", "ctxvc install claude-code --user")
@click.argument("target", metavar="WHAT", type=_Target(_TARGETS))
@click.option("--user", "where", flag_value="user", help="For all projects of this user, in ~/.claude/settings.json.")
@click.option("--project", "where", flag_value="project", default=True,
              help="For this project, in .claude/settings.local.json, which is not shared (default).")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--uninstall", is_flag=True, help="Remove it again.")
@json_option
@click.pass_context
def install(ctx: click.Context, target: str, where: str, dry_run: bool, uninstall: bool) -> None:
    """WHAT is `claude-code`: hooks in Claude Code's settings record its sessions automatically, with a status line if
    there is none yet. A backup of the file is kept next to it. Alternatively, Claude Code can load the plugin, in the
    folder that `ctxvc install claude-code --dry-run --json` names as `plugin`. Or WHAT is `post-commit`: commits of
    this project, even if amended or rebased, are linked to the session that made them, for `ctxvc why`. Or `git-hooks`,
    for this store: it is checked before a push, checkouts show their dashboard, and `git diff` shows calls readably.
    Other agents need no installation: `ctxvc wrap` runs them.

    Existing hooks and settings are kept, and repeating the command changes nothing.
    """
    app = ctx.ensure_object(App)
    if target in (git_hooks.PROJECT, git_hooks.STORE) and where == "user":
        raise click.UsageError(f"{target} is for one project: leave out --user", ctx)
    if target in _WRAPPED:
        raise Refused(
            f"{target} has nothing to install: {_WRAPPED[target]}",
            hint=f"`ctxvc wrap {target}` records it; with --budget, it also keeps prompts inside one",
        )
    if target == git_hooks.PROJECT:
        app.store_path()  # without a store there is nothing to link to
        changes = git_hooks.in_project(app.folder, _program(), uninstall=uninstall, dry_run=dry_run)
    elif target == git_hooks.STORE:
        changes = git_hooks.in_store(app.store_path(), _program(), uninstall=uninstall, dry_run=dry_run)
    else:
        _claude_code(app, where, dry_run=dry_run, uninstall=uninstall)
        return
    answer = InstalledHooks(items=[InstalledHook(path=str(path), changed=new) for path, new in changes])
    app.output.answer(answer, _hook_lines(answer, dry_run=dry_run, uninstall=uninstall))


def _hook_lines(answer: InstalledHooks, *, dry_run: bool, uninstall: bool) -> Iterator[str]:
    would = "would be " if dry_run else ""
    state = f"{would}removed" if uninstall else f"{would}installed"
    for item in answer.items:
        yield f"{state if item.changed else 'nothing to change'}: {safe(item.path)}"


def _claude_code(app: App, where: str, *, dry_run: bool, uninstall: bool) -> None:
    if where == "user":
        path = Path(app.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "settings.json"
    else:
        path = project_root(app.folder.resolve()) / settings.LOCAL
    before = _text(path)
    current = _parsed(before, path)
    desired = settings.removed(current) if uninstall else settings.installed(current, _program())
    after = before if desired == current else _edited(before, desired, path)
    changed = after != before
    backup = path.with_name(f"{path.name}.before-ctxvc")
    # With hooks of ours in it, the file is no longer the original: an earlier backup stays.
    keeps = changed and before != "" and not uninstall and settings.removed(current) == current
    if changed and not dry_run:
        _write(path, after, backup if keeps else None)
        if uninstall and _bytes(backup) == after.encode():
            backup.unlink()
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="")
    answer = Installed(
        path=str(path),
        changed=changed,
        backup=str(backup) if keeps and not dry_run else "",
        plugin=str(hosts.hooks_folder() / "claude-code"),
        diff=list(diff) if changed else [],
    )
    _print(app, answer, dry_run=dry_run, uninstall=uninstall)


def _program() -> str:
    """The shell command for this program: hooks may have another search path than the person's terminal."""
    on_path = shutil.which("ctxvc")
    sibling = Path(sys.executable).with_name("ctxvc")
    return shlex.quote(str(sibling if sibling.is_file() else on_path or "ctxvc"))


def _write(path: Path, text: str, backup: Path | None) -> None:
    """Replaces the settings with `text`, keeping their mode, and the old ones in `backup`. Raises: Refused, OSError."""
    path = path.resolve()  # a symbolic link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    if not mode & stat.S_IWUSR:
        raise Refused(f"{path} is not writable", hint=f"chmod u+w {shlex.quote(str(path))}; nothing was changed")
    if backup:
        places.write(backup, _bytes(path), mode)
    places.write(path, text.encode(), mode)


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError as error:
        raise _unreadable(path, str(error)) from error


def _parsed(text: str, path: Path) -> dict[str, Any]:
    """Raises: BadInput."""
    try:
        value = json.loads(text.removeprefix("\ufeff")) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(value, dict):
        raise _unreadable(path, "not an object")
    return value


def _edited(before: str, desired: dict[str, Any], path: Path) -> str:
    """Raises: BadInput."""
    try:
        return settings.edited(before if before.strip() else "{}\n", desired)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is not JSON: {why}", hint="fix it by hand; nothing was changed")


def _print(app: App, answer: Installed, *, dry_run: bool, uninstall: bool) -> None:
    if app.output.json:
        app.output.value(answer)
        return
    if not answer.changed:
        app.output.say(f"nothing to change in {safe(answer.path)}")
        return
    if dry_run:
        app.output.lines(safe(line) for line in answer.diff)
        return
    change = "taken out of" if uninstall else "added to"
    app.output.say(f"hooks {change} {safe(answer.path)}")
    if answer.backup:
        app.output.say(f"backup: {safe(answer.backup)}")
    if not uninstall:
        app.output.say("sessions started from now on are recorded; `ctxvc doctor` shows any errors")
        app.output.say("for notes, search and recovery inside a session:")
        app.output.say(f"claude mcp add ctxvc -- {_program()} mcp")


class Installed(Answer, frozen=True, kw_only=True, tag="ctxvc.install/1"):
    """`install`"""

    path: Annotated[str, described("the settings file")]
    changed: Annotated[bool, described("whether it changed, or with --dry-run would change")]
    backup: Annotated[str, described("backup of the former settings; empty if none was written")]
    plugin: Annotated[str, described("folder of the plugin that Claude Code can load instead")]
    diff: Annotated[list[str], described("lines of the difference")]


class InstalledHook(Item, frozen=True, kw_only=True):
    """A file with one of our hooks or settings."""

    path: str
    changed: Annotated[bool, described("whether it changed, or with --dry-run would change")]


class InstalledHooks(Answer, frozen=True, kw_only=True, tag="ctxvc.install_hooks/1"):
    """`install post-commit`, `install git-hooks`"""

    items: list[InstalledHook]
