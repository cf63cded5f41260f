"""Recordings of other programs → events. One module or package a format, each with an `IMPORTER`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput, BadName, Phrase

if TYPE_CHECKING:
    from ctxvc.importers.file import Recording
    from ctxvc.importers.protocol import Conversations, Importer

#: In the order in which `detect` asks them, the surest marks first. Each is a module, imported when it is needed.
FORMATS = (
    "ctxvc-trajectory",
    "qwen-code",
    "claude-code",
    "codex",
    "copilot-cli",
    "gemini-cli",
    "opencode",
    "pi",
    "swe-agent",
    "mini-swe-agent",
    "openhands",
    "langgraph",
    "langchain",
    "hf-trace",
    "langsmith",
    "langfuse",
    "openai-responses",
    "otel-genai",
    "anthropic-messages",
    "openai-chat",
)

#: How databases begin, and the number of bytes within which they name their tables.
DATABASE = b"SQLite format 3\0"
_TABLES = 1 << 20

#: The hosts that have a window of their own, by the format of their recordings.
HOSTS = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "copilot-cli": "Copilot CLI",
    "gemini-cli": "Gemini CLI",
    "openhands": "OpenHands",
    "opencode": "opencode",
    "pi": "pi",
    "qwen-code": "Qwen Code",
}


def importer(format: str) -> Importer:
    """The importer of a format. Raises: BadName for an unknown one."""
    if format not in FORMATS:
        raise BadName(
            f"unknown format {format[:40]!r}{meant(format, FORMATS)}", hint=f"one of: auto, {', '.join(FORMATS)}"
        )
    return cast("Importer", import_module(f"ctxvc.importers.{format.replace('-', '_')}").IMPORTER)


def detect(recording: Recording) -> str:
    """The format of a file. Raises: BadInput if it is unknown."""
    head = recording.head()
    if not head:
        raise BadInput(f"{recording.path}: the file is empty", hint="its program has written nothing to it yet")
    if head.startswith(DATABASE):
        head = recording.head(_TABLES)  # the statements that made the tables may come late
    for name in FORMATS:
        if importer(name).sniff(head):
            return name
    raise BadInput(
        f"{recording.path}: not a transcript in a known format",
        hint=Phrase("name-format", formats=", ".join(FORMATS)),
    )


def conversations(recording: Recording, format: str) -> Conversations:
    """The conversations of a recording. Raises: BadName for an unknown format; BadInput, also while events are read."""
    yield from importer(format).conversations(recording)


def endings() -> tuple[str, ...]:
    """The endings of file names that `import FOLDER` looks for."""
    return tuple(dict.fromkeys(ending for name in FORMATS for ending in importer(name).endings))


def inner_folders(names: Collection[str], folders: Collection[str] = ()) -> frozenset[str]:
    """The folders that belong to a recording among the files `names` beside them, and have no recordings of their own.

    `folders` are the names of the folders there.
    """
    # Gemini CLI names the file of a session after its start and the first eight characters of the id.
    sessions = {name.removesuffix(".jsonl")[-8:] for name in names if name.startswith("session-")}
    own = {folder for folder in folders if folder[:8] in sessions}
    return frozenset(own | ({"subagents", "events"} if "base_state.json" in names else {"subagents"}))


def find(project: Path, home: Path, env: Mapping[str, str]) -> tuple[list[tuple[str, Path]], list[Path]]:
    """This project's recordings as (format, file), oldest first, and the folders that were searched."""
    recordings: list[tuple[str, Path]] = []
    folders: list[Path] = []
    for name in FORMATS:
        own = importer(name)
        for folder in own.folders(project, home, env):
            folders.append(folder)
            recordings += [(name, path) for path in own.recordings(folder, project)]
    return sorted(recordings, key=lambda item: (item[1].stat().st_mtime, item[1])), folders
