"""Transcripts of other programs → events. One module a format: `FORMAT`, `sniff(head)`, `events(recording)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ctxvc.core.recording.events import Event
from ctxvc.errors import BadInput, BadName, Phrase
from ctxvc.importers.file import Recording

#: format → its module; asked in this order, the surest marks first.
_MODULES = {
    "ctxvc-trajectory": "trajectory",
    "claude-code": "claude_code.read",
    "codex": "codex.read",
    "pi": "pi",
    "anthropic-messages": "anthropic_messages",
    "openai-chat": "openai_chat",
}
FORMATS = tuple(_MODULES)
#: Endings of files that `import FOLDER` looks into.
ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


def detect(recording: Recording) -> str:
    """The format of a file. Raises: BadInput where it is none that we know."""
    head = recording.head()
    for name in FORMATS:
        if _module(name).sniff(head):
            return name
    raise BadInput(
        f"{recording.path}: no transcript of a known format" if head else f"{recording.path}: the file is empty",
        hint=Phrase("name-format", formats=", ".join(FORMATS)),
    )


def conversations(recording: Recording, format: str) -> Iterator[tuple[str, Iterator[Event]]]:
    """The conversations of a file as (suffix of the name, events); nearly always one, with an empty suffix.

    Raises: BadName for an unknown format; BadInput, also while events are taken.
    """
    module = _module(format)
    if format == "openai-chat":
        yield from module.conversations(recording)
    elif format == "claude-code":
        yield "", module.own_events(recording)
    else:
        yield "", module.events(recording)


def beside(path: Path, format: str) -> list[Path]:
    """The transcripts of sub-agents that belong to the one at `path`."""
    if format != "claude-code":
        return []
    found: list[Path] = _module(format).subagent_files(path)
    return found


def find(project: Path, home: Path, env: Mapping[str, str]) -> tuple[list[tuple[str, Path]], list[Path]]:
    """This project's recorded sessions as (format, file), oldest first, and the folders that were looked into."""
    files: list[tuple[str, Path]] = []
    looked: list[Path] = []
    for name in ("claude-code", "codex", "pi"):
        module = _module(name)
        for folder in module.folders(project, home, env):
            looked.append(folder)
            files += [(name, path) for path in _transcripts(folder, name) if _of_project(module, path, project)]
    return sorted(files, key=lambda item: (item[1].stat().st_mtime, item[1])), looked


def _transcripts(folder: Path, format: str) -> Iterator[Path]:
    """A format's main transcripts in a folder of its program."""
    if format == "codex":
        yield from sorted(folder.rglob("*.jsonl"))
    else:
        yield from (path for path in sorted(folder.glob("*.jsonl")) if not path.name.startswith("agent-"))


def _of_project(module: ModuleType, path: Path, project: Path) -> bool:
    """Whether a transcript is this project's, where the format can tell."""
    if not hasattr(module, "is_of_project"):
        return True
    try:
        return bool(module.is_of_project(Recording(path).head(), str(project)))
    except BadInput:
        return False


def _module(name: str) -> ModuleType:
    if name not in _MODULES:
        raise BadName(f"unknown format {name[:40]!r}", hint=f"one of: auto, {', '.join(FORMATS)}")
    return import_module(f"ctxvc.importers.{_MODULES[name]}")
