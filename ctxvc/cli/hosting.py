"""Claude Code as this project has it: what its settings say, and whether our hooks run in it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ctxvc.claude_code import settings
from ctxvc.cli.app import App
from ctxvc.core.ledger import wire
from ctxvc.store.locate import project_root

#: Days after which Claude Code deletes a transcript that nobody wrote to, where its settings say nothing.
_KEPT_DAYS = 30.0


class Hosted(NamedTuple):
    """What a file of settings says. `again` is the command that puts our hooks into it; empty where none does."""

    path: Path
    values: dict[str, Any]
    again: str


def read(app: App) -> list[Hosted]:
    """What Claude Code reads: the user's settings, the project's, those that are not shared. The last one counts."""
    own = Path(app.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    project = project_root(app.folder)
    found = []
    for path, again in (
        (own / "settings.json", "ctxvc install claude-code --user"),
        (project / ".claude" / "settings.json", ""),
        (project / settings.LOCAL, "ctxvc install claude-code"),
    ):
        try:
            values = wire.parsed(path.read_bytes(), dict)
        except OSError:
            continue
        found += [Hosted(path, values, again)] if values else []
    return found


def kept_days(read: list[Hosted]) -> float:
    """How long Claude Code keeps a transcript."""
    found = [days for each in read if isinstance(days := each.values.get("cleanupPeriodDays"), int | float)]
    return float(found[-1]) if found else _KEPT_DAYS


def turned_off(read: list[Hosted]) -> Path | None:
    """The file that turns all hooks off; None where they run."""
    said = [each for each in read if isinstance(each.values.get("disableAllHooks"), bool)]
    return said[-1].path if said and said[-1].values["disableAllHooks"] else None


def wanted(read: list[Hosted]) -> bool:
    """Whether the settings have hooks of ours, or our plugin."""
    return any(settings.commands(each.values) or _has_plugin(each.values) for each in read)


def gone(read: list[Hosted]) -> Iterator[tuple[Hosted, str]]:
    """The programs that hooks of ours call and that are not there, with the file that says so."""
    for each in read:
        for program in dict.fromkeys(map(_program, settings.commands(each.values))):
            if not _is_there(program):
                yield each, program


def _has_plugin(values: dict[str, Any]) -> bool:
    plugins = values.get("enabledPlugins")
    if not isinstance(plugins, dict):
        return False
    return any(name.partition("@")[0] == "ctxvc" and on is True for name, on in plugins.items())


def _program(command: str) -> str:
    """What a shell runs for one of our hooks, which end in `PROGRAM hook EVENT`."""
    try:
        program = shlex.split(command)[-3:][0]
    except ValueError:
        return command
    return os.path.expandvars(f"$HOME{program[1:]}" if program.startswith("~/") else program)


def _is_there(program: str) -> bool:
    # Of what only the host knows nothing is said.
    return "$" in program or ("\0" not in program and shutil.which(program) is not None)
