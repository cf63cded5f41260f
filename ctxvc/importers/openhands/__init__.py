"""Conversations of OpenHands, as an importer; `read` has it."""

from ctxvc.importers.openhands.read import (
    ENDINGS,
    FORMAT,
    GROWS,
    beside,
    conversations,
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
    "files",
    "folders",
    "recordings",
    "sniff",
    "stamp",
    "state",
]
