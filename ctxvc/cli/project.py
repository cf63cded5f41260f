"""The project's own git, as the person has set it up: for reading, and for where its hooks lie."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ctxvc.store import git


def git_says(folder: Path, *words: str) -> str:
    """What git prints; nothing where it fails. Bytes that are no text come as `os.fsdecode` gives them.

    The person's own settings count here, in which they say whose repositories they trust. What a hook of git inherits
    does not: it names the repository, and perhaps an index, of whoever runs the hook.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        [git.program(), "--no-pager", "-c", "core.quotePath=false", *words],
        cwd=folder,
        env={**env, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return "" if done.returncode else os.fsdecode(done.stdout)
