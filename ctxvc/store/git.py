"""git: the program for packs, checks and repacking, libgit2 for reading objects. Nothing else of ours runs git."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

_LEVELS = (pygit2.enums.ConfigLevel.SYSTEM, pygit2.enums.ConfigLevel.XDG, pygit2.enums.ConfigLevel.GLOBAL)
_settings_lock = threading.Lock()


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
    """The repository at `path`, for reading; no configuration but its own counts.

    Raises: NotFound where there is none, CtxvcError where this user may not read it, Refused where it belongs to
    another user or uses what we do not read, Damaged.
    """
    pygit2.option(pygit2.enums.Option.ENABLE_FSYNC_GITDIR, True)
    if not os.path.lexists(path):
        raise NotFound(f"no store at {path}", hint="run `ctxvc init`")
    if closed := _closed(path):
        # libgit2 takes some of these for a repository without them.
        raise CtxvcError(
            f"cannot read {closed}: permission denied", hint="check who owns the store, and its permissions"
        )
    try:
        try:
            return _open(path)
        except pygit2.GitError as error:
            if not _of_another(error):
                raise
            if not _is_safe(path):
                raise Refused(
                    f"the store {path} belongs to another user",
                    hint=f"if you trust it: git config --global --add safe.directory {path}",
                ) from error
            return _open(path, trusted=True)
    except pygit2.GitError as error:
        words = str(error)
        if "extension" in words or "unsupported" in words:
            raise Refused(f"the store {path} uses a git feature that is not supported: {words}") from error
        raise Damaged(f"{path} is no git repository: {words}", hint="if it never was one, run `ctxvc init`") from error


def _open(path: Path, *, trusted: bool = False) -> pygit2.Repository:
    """The repository, with its own configuration loaded and no other. `trusted`: whoever owns it.

    Raises: pygit2.GitError.
    """
    with _own_settings_only(trusted):
        repository = pygit2.Repository(str(path), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        _ = repository.config  # loaded now, while the others are out of sight, and kept
    return repository


@contextmanager
def _own_settings_only(trusted: bool) -> Iterator[None]:
    """Inside, libgit2 looks for no configuration of the user or the system, in this process.

    A broken `~/.gitconfig` is no reason to be without the store, and what a sound one says must not count.
    """
    settings = pygit2.settings
    with _settings_lock:
        held = {level: settings.search_path[level] for level in _LEVELS}
        owners = settings.owner_validation
        try:
            for level in _LEVELS:
                settings.search_path[level] = ""
            settings.owner_validation = owners and not trusted
            yield
        finally:
            settings.owner_validation = owners
            for level, where in held.items():
                settings.search_path[level] = where


def _is_safe(path: Path) -> bool:
    """Whether the user's own settings (`safe.directory`) allow a repository that another user owns."""
    try:
        with _settings_lock:
            pygit2.Repository(str(path), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError:
        return False
    return True


def _of_another(error: pygit2.GitError) -> bool:
    return "owned by" in str(error) or "owner" in str(error)


def _closed(path: Path) -> str:
    """The first part of the store that this user may not read; empty where there is none."""
    for name in ("", "HEAD", "config", "objects", "objects/pack", "refs", "refs/heads", "packed-refs"):
        found = path / name
        if os.path.lexists(found) and not os.access(found, os.R_OK | (os.X_OK if found.is_dir() else 0)):
            return str(found)
    return ""


def config(repository: pygit2.Repository) -> Mapping[str, str]:
    """The repository's own settings, names in lower case; the user's are not in it. Raises: Damaged."""
    path = Path(repository.path) / "config"
    local = pygit2.Config(str(path)) if path.exists() else pygit2.Config()
    try:
        return {entry.raw_name.decode("utf-8").lower(): _shown(entry.raw_value) for entry in local}
    except UnicodeDecodeError as error:  # newer versions of pygit2 do so for each name, even where nobody asks for it
        name = error.object.decode("utf-8", "backslashreplace")
        raise Damaged(f"{path}: the name of a setting is no text: {name}", hint="remove that line") from error


def _shown(raw: bytes | None) -> str:
    """Text of a configuration, which is of any bytes: what is no UTF-8 is shown by its numbers."""
    return (raw or b"").decode("utf-8", "backslashreplace")
