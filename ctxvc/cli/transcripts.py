"""The transcripts of a project's sessions where the programs that wrote them keep them, and what the store lacks."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ctxvc import importers
from ctxvc.cli.app import App
from ctxvc.cli.importing import project_root
from ctxvc.core import wire
from ctxvc.errors import BadInput, CtxvcError
from ctxvc.importers.reading import Recording
from ctxvc.importing import SETTLED
from ctxvc.recording import places, settings

_DAY = 86_400
#: Days after which Claude Code deletes a transcript that nobody wrote to, where its settings say nothing.
_KEPT_DAYS = 30.0
#: Bytes behind what was recorded in which a message is looked for.
_TAIL = 4_000_000
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
    kept = kept_days(app)
    return [
        Transcript(
            path,
            form,
            _state(path, known),
            (path.stat().st_mtime - time.time()) / _DAY + kept if form == "claude-code" else None,
        )
        for path, form in found.items()
    ]


def kept_days(app: App) -> float:
    """How long Claude Code keeps a transcript."""
    found = [days for each in _settings(app) if isinstance(days := each.get("cleanupPeriodDays"), int | float)]
    return float(found[-1]) if found else _KEPT_DAYS


def hooked(app: App) -> bool:
    """Whether Claude Code runs our hooks here: its settings say so, or they have run, as those of a plugin do."""
    try:
        if places.home(app.store_path()).is_dir():
            return True
    except CtxvcError:
        pass  # told elsewhere
    return any(_has_ours(each) for each in _settings(app))


def _settings(app: App) -> list[dict[str, Any]]:
    """What Claude Code reads: the user's settings, the project's, those that are not shared. The last one counts."""
    own = Path(app.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    project = project_root(app.folder) / ".claude"
    found = []
    for path in (own / "settings.json", project / "settings.json", project / "settings.local.json"):
        try:
            value = wire.parsed(path.read_bytes(), dict)
        except OSError:
            continue
        found += [value] if value else []
    return found


def _has_ours(value: dict[str, Any]) -> bool:
    try:
        return settings.removed(value) != value
    except BadInput:
        return False


def _state(path: Path, known: dict[str, int]) -> Literal["whole", "grown", "missing"]:
    stem = Recording(path).stem
    # Codex and pi write a time before the id that the recording has.
    offset = max((offset for name, offset in known.items() if stem.endswith(name)), default=None)
    if offset is None:
        return "missing"
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
