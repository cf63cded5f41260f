"""Sessions of Gemini CLI, as an importer; `read` has it."""

from ctxvc.importers.gemini_cli.read import (
    ENDINGS,
    FORMAT,
    GROWS,
    beside,
    conversations,
    events,
    files,
    folders,
    recordings,
    sniff,
    stamp,
    state,
)

__all__ = [
    "ENDINGS",
    "FORMAT",
    "GROWS",
    "beside",
    "conversations",
    "events",
    "files",
    "folders",
    "recordings",
    "sniff",
    "stamp",
    "state",
]
