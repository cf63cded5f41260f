"""The project's own git, as the person has set it up: for reading, and for where its hooks lie."""

from __future__ import annotations

import os
from pathlib import Path

from ctxvc.store.git import program


def git_says(folder: Path, verb: str, *words: str) -> str:
    """What git prints; nothing where it fails. Bytes that are no text come as `os.fsdecode` gives them.

    The person's own settings count here, in which they say whose repositories they trust; no program that settings
    name is run (`git.of_project`). What a hook of git inherits does not count: it names the repository, and perhaps an
    index, of whoever runs the hook.
    """
    return os.fsdecode(program.of_project(folder, verb, *words) or b"")
