"""Claude Code on this machine: its settings, whether our hooks run in it, and a project's transcripts, of any agent."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ctxvc import importers
from ctxvc.claude_code import settings
from ctxvc.core.ledger import wire
from ctxvc.errors import CtxvcError
from ctxvc.importers.claude_code import FORMAT
from ctxvc.importers.protocol import State
from ctxvc.recording import places
from ctxvc.recording.files import SETTLED
from ctxvc.store.project.locate import project_root
from ctxvc.store.store import Store

#: Days without a change after which Claude Code deletes a transcript, unless its settings differ.
_KEPT_DAYS = 30.0
_DAY = 86_400
#: The first release whose compaction a plugin can replace.
COMPACTED_SINCE = (2, 1, 287)
_RELEASE = re.compile(rb'"version":\s?"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,5})"')
_CONVERSATION = re.compile(r"[0-9A-Za-z-]{1,64}")
#: The bytes at a transcript's end that are searched for its release.
_TAIL = 256 * 1024
Owner = Literal["user", "team", "project"]


class SettingsFile(NamedTuple):
    """A settings file and its owner. Our hooks go into the user's, or into the project's unshared one."""

    path: Path
    values: dict[str, Any]
    owner: Owner


class Transcript(NamedTuple):
    """A recorded session, and how much of it the store has.

    `days` is the time until its program deletes the file; None if it never does.
    """

    path: Path
    format: str
    state: State
    days: float | None


def settings_files(env: Mapping[str, str], folder: Path) -> list[SettingsFile]:
    """The settings that apply in `folder`: the user's, the project's, its unshared ones. The last takes precedence."""
    user = Path(env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    project = project_root(folder)
    files = []
    owners: tuple[tuple[Path, Owner], ...] = (
        (user / "settings.json", "user"),
        (project / ".claude" / "settings.json", "team"),
        (project / settings.LOCAL, "project"),
    )
    for path, owner in owners:
        try:
            values = wire.parsed(path.read_bytes(), dict)
        except OSError:
            continue
        files += [SettingsFile(path, values, owner)] if values else []
    return files


def kept_days(files: Iterable[SettingsFile]) -> float:
    """The days for which Claude Code keeps a transcript."""
    periods = [days for file in files if isinstance(days := file.values.get("cleanupPeriodDays"), int | float)]
    return float(periods[-1]) if periods else _KEPT_DAYS


def turned_off(files: Iterable[SettingsFile]) -> Path | None:
    """The file that turns all hooks off; None if they run."""
    decisive = [file for file in files if isinstance(file.values.get("disableAllHooks"), bool)]
    return decisive[-1].path if decisive and decisive[-1].values["disableAllHooks"] else None


def has_hooks(files: Iterable[SettingsFile]) -> bool:
    """Whether the settings have hooks of ours, or our plugin."""
    return any(settings.commands(file.values) or _has_plugin(file.values) for file in files)


def missing_programs(files: Iterable[SettingsFile]) -> Iterator[tuple[SettingsFile, str]]:
    """The missing programs that hooks of ours call, each with the file that names it."""
    for file in files:
        for program in dict.fromkeys(map(_program, settings.commands(file.values))):
            if not _is_there(program):
                yield file, program


def _has_plugin(values: dict[str, Any]) -> bool:
    plugins = values.get("enabledPlugins")
    if not isinstance(plugins, dict):
        return False
    return any(name.partition("@")[0] == "ctxvc" and on is True for name, on in plugins.items())


def _program(command: str) -> str:
    """The program that a shell runs for one of our hooks, which end in `PROGRAM hook EVENT`."""
    try:
        program = shlex.split(command)[-3:][0]
    except ValueError:
        return command
    return os.path.expandvars(f"$HOME{program[1:]}" if program.startswith("~/") else program)


def _is_there(program: str) -> bool:
    # A variable that only the host sets may name any program.
    return "$" in program or ("\0" not in program and shutil.which(program) is not None)


def transcripts(env: Mapping[str, str], folder: Path, projects: Sequence[Path], store: Path | None) -> list[Transcript]:
    """The recorded sessions of `projects`, of any program, with how much of each the store at `store` has."""
    positions = _positions(store) if store else {}
    days = kept_days(settings_files(env, folder))
    sessions = []
    for name, path in _recordings(env, projects):
        importer = importers.importer(name)
        age = importer.stamp(path).age
        state = importer.state(path, positions)
        if state == "grown" and age < SETTLED:
            state = "whole"  # the open step of a running session may wait
        sessions.append(Transcript(path, name, state, days - age / _DAY if name == FORMAT else None))
    return sessions


def newest_release(sessions: Iterable[Transcript]) -> tuple[int, ...]:
    """The release of Claude Code that wrote the end of the newest session; empty if unknown."""
    paths = [transcript.path for transcript in sessions if transcript.format == FORMAT]
    return _release(max(paths, key=lambda path: path.stat().st_mtime)) if paths else ()


def _release(transcript: Path) -> tuple[int, ...]:
    """The release that wrote a transcript's end; empty if unknown."""
    with transcript.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        releases = _RELEASE.findall(file.read())
    return tuple(map(int, releases[-1])) if releases else ()


def recorded_by_hooks(sessions: Iterable[Transcript], store: Path | None) -> bool:
    """Whether hooks recorded the newest session of Claude Code in `sessions`."""
    paths = [transcript.path for transcript in sessions if transcript.format == FORMAT]
    if not paths or not store:
        return False
    newest = max(paths, key=lambda path: path.stat().st_mtime)
    return places.status(store, str(newest)).exists()


def transcript_of(env: Mapping[str, str], conversation: str) -> Path | None:
    """The transcript of a conversation, the newest of several; None if there is none."""
    if not _CONVERSATION.fullmatch(conversation):
        return None
    config = Path(env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    files = (config / "projects").glob(f"*/{conversation}.jsonl")
    return max(files, key=lambda path: path.stat().st_mtime, default=None)


def takes_prompts(env: Mapping[str, str], folder: Path, store: Path, transcript: Path) -> bool:
    """Whether a conversation's client installs our prompt when it compacts.

    Its release must let plugins do that, and it must have our plugin, not just hooks in its settings.
    """
    if _release(transcript) < COMPACTED_SINCE:
        return False
    if places.compacted(store, str(transcript)).exists():
        return True
    return not any(settings.commands(file.values) for file in settings_files(env, folder))


def _recordings(env: Mapping[str, str], projects: Sequence[Path]) -> list[tuple[str, Path]]:
    recordings = [item for project in projects for item in importers.find(project, Path.home(), env)[0]]
    return list(dict.fromkeys(recordings))


def _positions(store: Path) -> dict[str, int]:
    """id → position of the recordings in the store; empty if it cannot be read."""
    positions: dict[str, int] = {}
    try:
        with Store(store) as opened:
            for scopes in opened.all_tips().values():
                for tip in scopes.values():
                    source = opened.reader.meta(tip).source
                    if source and source.id:
                        positions[source.id] = max(positions.get(source.id, 0), source.offset)
    except CtxvcError:
        return {}  # `doctor` reports the damage elsewhere
    return positions
