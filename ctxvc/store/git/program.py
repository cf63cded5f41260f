"""Runs git: the program for packs, checks and repacking, libgit2 for reading objects.

Other modules get git's command line from here.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO

import pygit2

from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused
from ctxvc.store.git import config_parser
from ctxvc.store.trust import contained, identity, trust

#: Settings for every call on any repository: git starts no program, contacts no other machine, and does not look into
#: nested repositories. `trust` decides which settings a store may add.
_ALONE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=false",
    "core.sshCommand=false",
    "core.gitProxy=false",
    "core.alternateRefsCommand=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "credential.helper=",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "log.showSignature=false",
    "commit.gpgSign=false",
    "gpg.program=false",
    "maintenance.auto=false",
    "gc.auto=0",
)

#: Verbs that convert no file from a folder to its stored form. Others start programs that `filter.*` names.
_WITHOUT_FILTERS = frozenset({"rev-parse", "log", "show", "diff-tree", "ls-files", "config", "cat-file", "patch-id"})

#: verb → options that stop it from running the diff programs named in settings.
_PLAIN = {
    **dict.fromkeys(("log", "show", "diff", "diff-tree"), ("--no-ext-diff", "--no-textconv")),
    "blame": ("--no-textconv",),
}
_FILTER = re.compile(r"(?i)(filter\..*)\.(clean|smudge|process|required)", re.DOTALL)

#: With more filters than this, the settings do not fit into a child's environment.
_MOST_FILTERS = 200

#: Timeout in seconds for a question about the project: a pipe in place of a file must not block us.
PATIENCE = 60.0

#: Settings for every call on a store, whatever the user's own configuration says.
_CONFIG = (
    *_ALONE,
    "pack.packSizeLimit=0",
    "core.autocrlf=false",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "fastimport.unpackLimit=1",
    "pack.writeReverseIndex=false",
    "safe.directory=*",  # libgit2 checked the owner when the store was opened
)
OLDEST = (2, 36)
_TYPES = ("blob", "tree", "commit", "tag")

#: Opens exactly that folder: libgit2 would look for a `.git` in it first.
_EXACTLY = pygit2.enums.RepositoryOpenFlag.NO_SEARCH | pygit2.enums.RepositoryOpenFlag.NO_DOTGIT
_LEVELS = (pygit2.enums.ConfigLevel.SYSTEM, pygit2.enums.ConfigLevel.XDG, pygit2.enums.ConfigLevel.GLOBAL)
_settings_lock = threading.Lock()


def advice(*arguments: str | Path) -> str:
    """A git command line that a person can run on a store; it starts no hook and no file system monitor.

    `trust` detects settings that could run a program in another way, such as filters.
    """
    quoted = (shlex.quote(str(word)) for word in arguments)
    return " ".join(("git", "-c core.hooksPath=/dev/null", "-c core.fsmonitor=false", *quoted))


def environment() -> dict[str, str]:
    """The process environment without variables that redirect git or change its output."""
    return {
        **_surroundings(),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": "/dev/null/none",  # git silently skips a path that cannot exist
    }


def _surroundings() -> dict[str, str]:
    """Environment variables for every child: no repository of the calling process, no network, no prompt for input."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **surroundings,
        "GIT_ALLOW_PROTOCOL": "",  # takes precedence over any `protocol.*` of the repository
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


@lru_cache(maxsize=1)
def program() -> str:
    """The path of git. Raises: Refused if it is not installed."""
    path = shutil.which("git")
    if not path:
        raise Refused("git is not installed", hint="install git 2.36 or newer")
    return path


def version() -> str:
    """git's version, such as `2.39.5`."""
    answer = subprocess.run([program(), "--version"], capture_output=True, text=True, env=environment(), check=False)
    return answer.stdout.removeprefix("git version ").strip()


def command(git_dir: Path | None, *arguments: str, config: Sequence[str] = ()) -> list[str]:
    """The command line for a call on the store at `git_dir`.

    Raises: Refused if the store's settings could run or redirect something (`trust.check`), Damaged.
    """
    if git_dir is not None:
        trust.check(git_dir)
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
    variables: Mapping[str, str] = {},
) -> bytes:
    """Runs git; returns its output.

    `inherit` are locks that the child also holds: if this process dies, no other process interferes with the child.
    `variables` are added to its environment. Raises: CtxvcError with git's own message if it fails and `check` is set.
    """
    answer = subprocess.run(
        command(git_dir, *arguments, config=config),
        input=data,
        capture_output=True,
        env={**environment(), **variables},
        cwd=cwd,
        pass_fds=tuple(inherit),
        check=False,
    )
    if answer.returncode and check:
        stderr = answer.stderr.decode("utf-8", "replace").strip()
        raise CtxvcError(f"git {arguments[0]} failed: {stderr[-2000:]}")
    return answer.stdout


def packed(index: Path) -> list[str]:
    """The ids of the objects in the pack of this index, in pack order."""
    listed = run(None, "show-index", data=index.read_bytes()).decode("ascii").splitlines()
    places = sorted((int(place), name) for place, name, *_ in map(str.split, listed))
    return [name for _, name in places]


def objects(answers: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Type and bytes of each object requested from `cat-file --batch`; ("", b"") if it is missing or incomplete."""
    while line := answers.readline():
        fields = line.decode("utf-8", "replace").split()
        if len(fields) == 3 and fields[1] in _TYPES and fields[2].isdigit():
            data = answers.read(int(fields[2]) + 1)
            yield (fields[1], data[:-1]) if len(data) > int(fields[2]) else ("", b"")
        else:
            yield "", b""


def in_checkout(folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    """Runs git in a checkout of a store; returns its output.

    The folder's store is determined once and then fixed: nothing in the store can lead git to another.
    Raises: Refused if the folder is not a checkout of a store; CtxvcError with git's own message if it fails.
    """
    return in_worktree(_linked(folder), folder, *arguments, data=data)


def in_worktree(git_dir: Path, folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    """As `in_checkout`, for a folder that is known to be the worktree of `git_dir`, `STORE/worktrees/NAME`."""
    store = git_dir.parent.parent
    trust.check(store)
    places = {"GIT_DIR": str(git_dir), "GIT_COMMON_DIR": str(store), "GIT_WORK_TREE": str(folder.absolute())}
    return run(None, *arguments, data=data, cwd=folder, variables=places)


def _linked(folder: Path) -> Path:
    """git's folder in the store for the checkout in `folder`. Raises: Refused."""
    git_dir = contained.pointer(folder / ".git", folder)
    if git_dir is None or git_dir.parent.name != "worktrees" or not (git_dir.parent.parent / "ctxvc").is_dir():
        raise Refused(f"{folder} is not a checkout of a store", hint=Phrase("make-checkout"))
    return git_dir


def of_project(
    folder: Path, verb: str, *arguments: str, at: Sequence[str] = (), personal: bool = True, data: bytes = b""
) -> bytes | None:
    """Runs git on the repository around `folder`, which may be foreign; returns its output, or None if it fails.

    No program that its settings name is run, and nothing is fetched. Of the person's own settings only the list of
    trusted owners counts; without `personal` not even that, and all owners are trusted. `at` are options of git itself
    that locate the repository; `data` is its input.
    """
    if not at and not _may_be_in_a_repository(folder):
        return None  # git would say the same, at the cost of a process
    env = _surroundings() if personal else environment()
    # Querying the hooks folder starts no hook.
    alone = [setting for setting in _ALONE if verb != "rev-parse" or not setting.startswith("core.hooksPath")]
    settings = ["core.quotePath=false", *alone, *([] if personal else ["safe.directory=*"])]
    before = [program(), "--no-pager", *(word for item in settings for word in ("-c", item)), *at]
    try:
        if verb not in _WITHOUT_FILTERS:
            env |= _without_filters(folder, before, env)
        return _output([*before, verb, *_PLAIN.get(verb, ()), *arguments], folder, env, data)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _may_be_in_a_repository(folder: Path) -> bool:
    """Whether git could find a repository: `folder` or one above it has a `.git`, or a bare repository's `HEAD`."""
    here = folder.resolve()
    return any(os.path.lexists(place / name) for place in (here, *here.parents) for name in (".git", "HEAD"))


def own_repository(folder: Path) -> Path | None:
    """The repository of the project that `folder` is in; None if there is none or `.git` names another project's.

    A `.git` file or a `commondir` can name any repository of the person's. It counts only if that repository agrees, by
    registering the folder as a linked worktree or a submodule.
    """
    answer = of_project(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if not answer:
        return None
    common = Path(os.fsdecode(answer.removesuffix(b"\n"))).resolve()
    here = folder.resolve()
    for parent in (here, *here.parents):
        dot_git = parent / ".git"
        if os.path.lexists(dot_git):
            return common if _agree(common, dot_git) else None
    return common if here.is_relative_to(common) else None  # a bare one


def _agree(common: Path, dot_git: Path) -> bool:
    if not dot_git.is_file():
        return common == dot_git
    linked = contained.pointer(dot_git, dot_git.parent)
    if linked is None:
        return False
    if contained.is_worktree(linked, dot_git):
        return common == linked.parent.parent
    return common == linked and _work_tree(common) == dot_git.parent


def _work_tree(git_dir: Path) -> Path | None:
    """The work tree named in a repository's own settings, as in a submodule's."""
    try:
        data = identity.read_plain(git_dir / "config", trust.LARGEST) or b""
        values = [setting.value for setting in config_parser.settings(data) if setting.key == "core.worktree"]
    except (CtxvcError, ValueError):
        return None
    return Path(git_dir, values[-1]).resolve() if values and values[-1] else None


def _output(arguments: Sequence[str], folder: Path, env: Mapping[str, str], data: bytes = b"") -> bytes | None:
    answer = subprocess.run(
        arguments, cwd=folder, env=env, input=data, capture_output=True, check=False, timeout=PATIENCE
    )
    return None if answer.returncode else answer.stdout


def _without_filters(folder: Path, before: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that disable the filters in all settings: git treats an empty command as none.

    Raises: OSError if there are too many; git is then not started.
    """
    listed = _output([*before, "config", "--includes", "--list", "--name-only", "-z"], folder, env) or b""
    filters = {name[1] for key in os.fsdecode(listed).split("\0") if (name := _FILTER.fullmatch(key))}
    if len(filters) > _MOST_FILTERS:
        raise OSError(errno.E2BIG, "too many filters", str(folder))
    empty = [(f"{name}.{what}", "") for name in sorted(filters) for what in ("clean", "smudge", "process")]
    overrides = [*empty, *((f"{name}.required", "false") for name in sorted(filters))]
    env = {"GIT_CONFIG_COUNT": str(len(overrides))}
    for number, (key, value) in enumerate(overrides):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


#: Bytes of a pack that libgit2 maps at once.
_WINDOW = 32 << 20


def open_repository(path: Path) -> pygit2.Repository:
    """Opens the repository at `path` for reading, with no configuration but its own.

    Raises: NotFound if there is none, CtxvcError if this user may not read it, Refused if it belongs to another user or
    uses an unsupported feature, Damaged.
    """
    pygit2.option(pygit2.enums.Option.ENABLE_FSYNC_GITDIR, True)
    # libgit2 would map 8 GB of packs in windows of 1 GB, and keep 256 MB of objects.
    pygit2.settings.mwindow_size, pygit2.settings.mwindow_mapped_limit = _WINDOW, 8 * _WINDOW
    pygit2.settings.cache_max_size(_WINDOW)
    if not os.path.lexists(path):
        raise NotFound(f"no store at {path}", hint=Phrase("init"))
    if closed := _closed(path):
        # libgit2 accepts a folder as a repository even if some of these are missing.
        raise CtxvcError(f"cannot read {closed}: permission denied", hint="check the store's owner and permissions")
    try:
        try:
            return _open(path)
        except pygit2.GitError as error:
            if not re.search("owned by|owner", str(error)):
                raise
            if not _is_safe(path):
                raise Refused(
                    f"the store {path} belongs to another user",
                    hint=f"if you trust it: git config --global --add safe.directory {path}",
                ) from error
            return _open(path, trusted=True)
    except pygit2.GitError as error:
        message = str(error)
        if "extension" in message or "unsupported" in message:
            raise Refused(f"the store {path} uses a git feature that is not supported: {message}") from error
        raise Damaged(f"{path} is not a git repository", hint=Phrase("init-anew")) from error


def _open(path: Path, *, trusted: bool = False) -> pygit2.Repository:
    """Opens the repository with its own configuration only. `trusted` accepts any owner.

    Raises: pygit2.GitError.
    """
    trust.check(path)
    with _own_settings_only(trusted):
        repository = pygit2.Repository(str(path), _EXACTLY)
        _ = repository.config  # loads and caches it while the others are hidden
    return repository


@contextmanager
def _own_settings_only(trusted: bool) -> Iterator[None]:
    """Hides the user's and the system's configuration from libgit2 in this process.

    A broken `~/.gitconfig` must not make the store unusable, and the settings of a valid one must not count.
    """
    settings = pygit2.settings
    with _settings_lock:
        search_paths = {level: settings.search_path[level] for level in _LEVELS}
        owners = settings.owner_validation
        try:
            for level in _LEVELS:
                settings.search_path[level] = ""
            settings.owner_validation = owners and not trusted
            yield
        finally:
            settings.owner_validation = owners
            for level, where in search_paths.items():
                settings.search_path[level] = where


def _is_safe(path: Path) -> bool:
    """Whether the user's own settings (`safe.directory`) trust this repository of another user."""
    try:
        with _settings_lock:
            pygit2.Repository(str(path), _EXACTLY)
    except pygit2.GitError:
        return False
    return True


def _closed(path: Path) -> str:
    """The path of the first part of the store that this user may not read; empty if none."""
    for name in ("", "HEAD", "config", "objects", "objects/pack", "refs", "refs/heads", "packed-refs"):
        entry = path / name
        if os.path.lexists(entry) and not os.access(entry, os.R_OK | (os.X_OK if entry.is_dir() else 0)):
            return str(entry)
    return ""


def config(repository: pygit2.Repository) -> Mapping[str, str]:
    """The repository's own settings, with names in lower case, without the user's. Raises: Damaged."""
    path = Path(repository.path) / "config"
    local = pygit2.Config(str(path)) if path.exists() else pygit2.Config()
    try:
        return {entry.raw_name.decode("utf-8").lower(): _text(entry.raw_value) for entry in local}
    except UnicodeDecodeError as error:  # newer versions of pygit2 raise this for any name
        name = error.object.decode("utf-8", "backslashreplace")
        raise Damaged(f"{path}: the name of a setting is not text: {name}", hint="remove that line") from error


def _text(raw: bytes | None) -> str:
    """The text of a configuration value, with invalid UTF-8 escaped."""
    return (raw or b"").decode("utf-8", "backslashreplace")


def git_says(folder: Path, verb: str, *arguments: str) -> str:
    """git's output, decoded by `os.fsdecode`; empty if it fails.

    The person's own settings count here, since they list trusted owners; no program that settings name is run
    (`of_project`). The environment in which git runs a hook is dropped: it names the repository, and perhaps the index,
    of the process that runs the hook.
    """
    return os.fsdecode(of_project(folder, verb, *arguments) or b"")
