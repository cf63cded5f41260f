"""`install`: lets a program record its sessions by itself."""

from __future__ import annotations

import difflib
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.importing import project_root
from ctxvc.cli.output import safe
from ctxvc.errors import BadInput
from ctxvc.recording import json_text, places, settings


@command("install", "ctxvc install claude-code --user")
@click.argument("program", metavar="claude-code", type=click.Choice(["claude-code"]))
@click.option("--user", "where", flag_value="user", help="For all projects of this user, in ~/.claude/settings.json.")
@click.option("--project", "where", flag_value="project", default=True,
              help="For this project, in .claude/settings.local.json, which is not shared (the default).")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--uninstall", is_flag=True, help="Take it out again.")
@json_option
@click.pass_obj
def install(app: App, program: str, where: str, dry_run: bool, uninstall: bool) -> None:  # noqa: ARG001 - the only one
    """Let a program record its sessions by itself.

    Adds hooks, and a status line where there is none, to the settings of Claude Code. What is there stays as it is, and
    the file as it was is kept beside it. Doing it again changes nothing. Instead of this, Claude Code can load the
    plugin: it lies in the folder that `ctxvc install claude-code --dry-run --json` names as `plugin`.
    """
    path = _settings_file(app, where)
    before = _text(path)
    held = _parsed(before, path)
    wanted = settings.removed(held) if uninstall else settings.installed(held, _program())
    after = before if wanted == held else _edited(before, wanted, path)
    changed = after != before
    backup = path.with_name(f"{path.name}.before-ctxvc")
    if changed and not dry_run:
        path.parent.mkdir(parents=True, exist_ok=True)
        if before:
            places.write(backup, before.encode("utf-8", "surrogateescape"))
        # A file that is a link stays one.
        places.write(Path(path).resolve(), after.encode("utf-8", "surrogateescape"))
    answer = schemas.Installed(
        path=str(path),
        changed=changed,
        backup=str(backup) if changed and before and not dry_run else "",
        plugin=str(plugin_folder()),
        diff=list(_diff(before, after, path)) if changed else [],
    )
    _tell(app, answer, dry_run=dry_run, uninstall=uninstall)


def plugin_folder() -> Path:
    """Where the plugin for Claude Code lies: in the installed package, or in the source's `hooks`."""
    package = Path(__file__).parents[1]
    inside = package / "hooks" / "claude-code"
    return inside if inside.is_dir() else package.parent / "hooks" / "claude-code"


def _settings_file(app: App, where: str) -> Path:
    if where == "user":
        return Path(app.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "settings.json"
    return project_root(app.folder.resolve()) / ".claude" / "settings.local.json"


def _program() -> str:
    """How a shell runs this program: hooks may have another search path than the person's terminal."""
    found = shutil.which("ctxvc")
    beside = Path(sys.executable).with_name("ctxvc")
    return shlex.quote(str(beside if beside.is_file() else found or "ctxvc"))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise _unreadable(path, str(error)) from error


def _parsed(words: str, path: Path) -> dict[str, Any]:
    """Raises: BadInput."""
    try:
        value = json.loads(words.removeprefix("\ufeff")) if words.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(value, dict):
        raise _unreadable(path, "it is no object")
    return value


def _edited(before: str, wanted: dict[str, Any], path: Path) -> str:
    """Raises: BadInput."""
    try:
        return json_text.edited(before if before.strip() else "{}\n", wanted)
    except ValueError as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is not JSON: {why}", hint="mend it by hand; nothing was changed")


def _diff(before: str, after: str, path: Path) -> Iterator[str]:
    yield from difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="")


def _tell(app: App, answer: schemas.Installed, *, dry_run: bool, uninstall: bool) -> None:
    if app.output.json:
        app.output.value(answer)
        return
    if not answer.changed:
        app.output.say(f"nothing to change in {safe(answer.path)}")
        return
    if dry_run:
        app.output.lines(safe(line) for line in answer.diff)
        return
    done = "taken out of" if uninstall else "added to"
    app.output.say(f"hooks {done} {safe(answer.path)}")
    if answer.backup:
        app.output.say(f"as it was: {safe(answer.backup)}")
    if not uninstall:
        app.output.say("sessions that begin from now on are recorded; `ctxvc doctor` shows what went wrong")
        app.output.say("for notes, search and recovery inside a session: claude mcp add ctxvc -- ctxvc mcp")
