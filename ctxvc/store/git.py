"""git: the program for packs, checks and repacking, libgit2 for reading objects. Nothing else of ours runs git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import pygit2

from ctxvc.errors import CtxvcError, Damaged, NotFound, Refused

#: Configuration that holds for every call of ours, whatever the user's own says.
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.autocrlf=false",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "fastimport.unpackLimit=1",
    "pack.writeReverseIndex=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",  # libgit2 has checked the owner when the store was opened
)
OLDEST = (2, 36)


def environment() -> dict[str, str]:
    """The process environment without anything that could send git elsewhere or change what it writes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


@lru_cache(maxsize=1)
def program() -> str:
    """The path of git. Raises: Refused where there is none."""
    found = shutil.which("git")
    if not found:
        raise Refused("git is not installed", hint="install git 2.36 or newer")
    return found


def version() -> str:
    """What `git --version` says after its name, as in `2.39.5`."""
    answer = subprocess.run([program(), "--version"], capture_output=True, text=True, env=environment(), check=False)
    return answer.stdout.removeprefix("git version ").strip()


def command(git_dir: Path | None, *arguments: str, config: Sequence[str] = ()) -> list[str]:
    """The command line for a call of ours on the store at `git_dir`."""
    settings = [word for item in (*_CONFIG, *config) for word in ("-c", item)]
    where = [f"--git-dir={git_dir}"] if git_dir is not None else []
    return [program(), *settings, *where, *arguments]


def run(
    git_dir: Path | None,
    *arguments: str,
    data: bytes = b"",
    cwd: Path | None = None,
    check: bool = True,
    config: Sequence[str] = (),
    inherit: Sequence[int] = (),
) -> bytes:
    """What git prints.

    `inherit` are locks that the child holds too: if this process dies, nobody comes in its way while it goes on.
    Raises: CtxvcError with git's own words where it fails and `check` is set.
    """
    answer = subprocess.run(
        command(git_dir, *arguments, config=config),
        input=data,
        capture_output=True,
        env=environment(),
        cwd=cwd,
        pass_fds=tuple(inherit),
        check=False,
    )
    if check and answer.returncode:
        words = answer.stderr.decode("utf-8", "replace").strip()
        raise CtxvcError(f"git {arguments[0]} failed: {words[-2000:]}")
    return answer.stdout


def open_repository(path: Path) -> pygit2.Repository:
    """The repository at `path`, for reading.

    Raises: NotFound where there is none, Refused where it belongs to another user or uses what we do not read.
    """
    pygit2.option(pygit2.enums.Option.ENABLE_FSYNC_GITDIR, True)
    try:
        repository = pygit2.Repository(str(path), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError as error:
        words = str(error)
        if "owned by" in words or "owner" in words:
            raise Refused(
                f"the store {path} belongs to another user",
                hint=f"if you trust it: git config --global --add safe.directory {path}",
            ) from error
        if "extension" in words or "unsupported" in words:
            raise Refused(f"the store {path} uses a git feature that is not supported: {words}") from error
        if not path.exists():
            raise NotFound(f"no store at {path}", hint="run `ctxvc init`") from error
        raise Damaged(f"{path} is no git repository: {words}", hint="if it never was one, run `ctxvc init`") from error
    return repository


def config(repository: pygit2.Repository) -> Mapping[str, str]:
    """The repository's own settings, names in lower case; the user's are not in it."""
    path = Path(repository.path) / "config"
    local = pygit2.Config(str(path)) if path.exists() else pygit2.Config()
    return {entry.name.lower(): entry.value or "" for entry in local}
