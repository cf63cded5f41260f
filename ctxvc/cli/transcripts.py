"""The transcripts of a project's sessions where the programs that wrote them keep them, and what the store lacks."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path
from typing import Literal, NamedTuple

from ctxvc import importers
from ctxvc.cli import hosting
from ctxvc.cli.app import App
from ctxvc.core.ledger import wire
from ctxvc.errors import CtxvcError
from ctxvc.importers.file import Recording
from ctxvc.recording import places
from ctxvc.recording.files import SETTLED
from ctxvc.store.locate import project_root

_DAY = 86_400
#: Bytes behind what was recorded in which a message is looked for.
_TAIL = 4_000_000
#: Bytes in which the last line of an exported session stands.
_LAST = 4096
_MESSAGE = re.compile(rb'"role"\s*:\s*"(?:user|assistant)"')


class Transcript(NamedTuple):
    """A transcript: whether the store has it `whole`, it has `grown` since, or is `missing`.

    `days` is how long it will be there; None where its program deletes nothing.
    """

    path: Path
    format: str
    state: Literal["whole", "grown", "missing"]
    days: float | None


def of_project(app: App) -> list[Transcript]:
    """This project's recorded sessions."""
    projects = dict.fromkeys((project_root(app.folder), app.folder.resolve()))
    found = {path: form for project in projects for form, path in importers.find(project, Path.home(), app.env)[0]}
    known = _known(app)
    kept = hosting.kept_days(hosting.read(app))
    return [
        Transcript(
            path,
            form,
            _state(path, known),
            (path.stat().st_mtime - time.time()) / _DAY + kept if form == "claude-code" else None,
        )
        for path, form in found.items()
    ]


def files_of_project(app: App) -> list[Path]:
    """The files in which programs keep this project's sessions: transcripts, with those of sub-agents and outputs."""
    projects = dict.fromkeys((project_root(app.folder), app.folder.resolve()))
    main = [path for project in projects for _, path in importers.find(project, Path.home(), app.env)[0]]
    files = dict.fromkeys(main)
    for path in main:
        files.update(dict.fromkeys(path.parent.glob("agent-*.jsonl")))
        files.update(dict.fromkeys(file for file in path.with_suffix("").rglob("*") if file.is_file()))
    return list(files)


def by_hooks(app: App, found: list[Transcript]) -> bool:
    """Whether hooks recorded the newest session of Claude Code among them."""
    ours = [each for each in found if each.format == "claude-code"]
    if not ours:
        return False
    newest = max(ours, key=lambda each: each.path.stat().st_mtime)
    try:
        return places.standing(app.store_path(), str(newest.path)).exists()
    except CtxvcError:
        return False  # told elsewhere


def _is_export(path: Path) -> bool:
    """Whether `export` made the file and nobody went on with it: what is in it came from a store.

    Its name tells it from a host's, and the line that it ends with from one that was gone on with.
    """
    try:
        made = uuid.UUID(path.stem).version == 5
    except ValueError:
        return False
    if not made:
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST))
        line = wire.parsed(file.read().rstrip(b"\n").rpartition(b"\n")[2], dict) or {}
    return line.get("type") == "custom-title" and line.get("sessionId") == path.stem


def _state(path: Path, known: dict[str, int]) -> Literal["whole", "grown", "missing"]:
    stem = Recording(path).stem
    # Codex and pi write a time before the id that the recording has.
    offset = max((offset for name, offset in known.items() if stem.endswith(name)), default=None)
    if offset is None:
        return "whole" if _is_export(path) else "missing"
    return "grown" if _goes_on(path, offset) else "whole"


def _goes_on(path: Path, offset: int) -> bool:
    """Whether there is a message behind that place, of a session that is over: before, an open step may wait there."""
    if path.suffix == ".gz" or time.time() - path.stat().st_mtime < SETTLED:
        return False
    with path.open("rb") as file:
        file.seek(offset)
        return _MESSAGE.search(file.read(_TAIL)) is not None


def _known(app: App) -> dict[str, int]:
    """The recordings that are in the store: id → bytes of it that were taken."""
    found: dict[str, int] = {}
    try:
        with app.store() as store:
            for scopes in store.all_tips().values():
                for tip in scopes.values():
                    source = store.reader.meta(tip).source
                    if source and source.id:
                        found[source.id] = max(found.get(source.id, 0), source.offset)
    except CtxvcError:
        return {}  # told elsewhere
    return found
