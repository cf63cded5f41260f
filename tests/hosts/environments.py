"""Environments of Python in which frameworks are installed, in versions of our choice, made once."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hosts.npm import cache

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LISTS = Path(__file__).parent / "environments"
ROOT = Path(__file__).parents[2]
#: The environment that drives a browser, and that of replay's extras, where the others have frameworks.
BROWSER, REPLAY = "browser", "replay"


def names() -> Sequence[str]:
    """The environments of frameworks: each is a list of requirements."""
    return sorted(path.stem for path in _LISTS.glob("*.txt") if path.stem not in (BROWSER, REPLAY))


def requirements(name: str) -> Sequence[str]:
    """What an environment lists. A package that our own tests need too is installed as it is listed."""
    return (_LISTS / f"{name}.txt").read_text().split()


def package(requirement: str) -> str:
    """The name of the package that a requirement is of."""
    match = re.match(r"[\w.-]+", requirement)
    assert match
    return match[0]


def python(name: str) -> Path:
    """The interpreter of an environment, with what it lists and what our own tests need; made if it is not there yet.

    Raises:
        RuntimeError: pip failed; the message ends with its last lines.
    """
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = requirements(name)
    own = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    needed = [*(one for one in own if package(one) not in map(package, listed)), *listed]
    key = "\0".join((sys.version, *needed))
    folder = cache() / f"python-{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            result = subprocess.run(
                [folder / "bin" / "python", "-m", "pip", "install", "-q", *needed],
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode:
                raise RuntimeError(f"pip failed for {name}: {result.stderr[-2000:]}")
            (folder / "complete").touch()
    return folder / "bin" / "python"
