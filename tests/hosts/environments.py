"""Environments of Python in which frameworks are installed, in versions of our choice, made once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
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
            _install(folder, [sys.executable, "-m", "venv"], needed, name)
    return folder / "bin" / "python"


def _install(folder: Path, venv: Sequence[str], needed: Sequence[str | Path], name: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([*venv, folder], check=True)
    result = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "install", "-q", *needed], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"pip failed for {name}: {result.stderr[-2000:]}")
    (folder / "complete").touch()


def tool(name: str, least: tuple[int, int] = (3, 10)) -> Path:
    """The folder of a tool's programs, in an environment of its own with what `tools/NAME.txt` pins; made if need be.

    Raises:
        RuntimeError: pip failed, with its last lines; or there is no Python that is new enough.
    """
    listed = (_LISTS.parent / "tools" / f"{name}.txt").read_bytes()
    interpreter = _interpreter(least)
    key = hashlib.sha256(listed + bytes(Path(interpreter).resolve())).hexdigest()[:12]
    folder = cache() / f"tool-{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(
                folder, [interpreter, "-m", "venv"], ["--no-deps", "-r", _LISTS.parent / "tools" / f"{name}.txt"], name
            )
    return folder / "bin"


def _interpreter(least: tuple[int, int]) -> str:
    """A Python that is new enough: this one, one of pyenv, or one of the search path."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path(pwd.getpwuid(os.getuid()).pw_dir, ".pyenv"))
    names = [f"{least[0]}.{minor}" for minor in range(least[1], least[1] + 3)]
    of_pyenv = [str(path) for name in names for path in sorted(pyenv.glob(f"versions/{name}.*/bin/python"))]
    of_path = [found for name in names if (found := shutil.which(f"python{name}"))]
    own = [sys.executable] if sys.version_info >= least else []
    for candidate in (*own, *of_pyenv, *of_path):
        if not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode:
            return candidate
    raise RuntimeError(f"no Python from {least[0]}.{least[1]} on is here")
