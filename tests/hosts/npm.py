"""Packages of npm that the tests run against, installed once from the lock files beside this module."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
from pathlib import Path

_LOCKS = Path(__file__).parent / "npm_locks"
#: Names the folder in which packages are kept between runs.
CACHE = "CTXVC_HOSTS_CACHE"


def cache() -> Path:
    """The folder for what is installed once; tests change HOME, so the account's own home is asked for."""
    return Path(os.environ.get(CACHE) or Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache", "ctxvc-hosts"))


def installed(name: str) -> Path:
    """The `node_modules` folder of the lock file `npm_locks/NAME/`, installed if it is not there yet.

    Raises:
        RuntimeError: npm failed; the message ends with its last lines.
        FileNotFoundError: npm is not on PATH.
    """
    source = _LOCKS / name
    lock = (source / "package-lock.json").read_bytes()
    folder = cache() / f"{name}-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(source, folder)
            result = subprocess.run(
                ["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True, check=False
            )
            if result.returncode:
                raise RuntimeError(f"npm ci failed for {name}: {result.stderr[-2000:]}")
            (folder / "complete").touch()
    return folder / "node_modules"
