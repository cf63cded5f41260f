"""git: the program for packs, checks and repacking, libgit2 for reading objects. Nothing else of ours runs git."""

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

import pygit2

from ctxvc.errors import CtxvcError, Damaged, NotFound, Phrase, Refused
from ctxvc.store import contained, identity, trust
from ctxvc.store.git import config as gitconfig

#: Settings that hold for every call of ours on a repository, whoever made it: git starts no program, reaches no other
#: machine, and looks into no repository further inside. What a store may set besides is for `trust` to say.
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

#: Verbs that turn no file of a folder into what git would store. Any other starts what `filter.*` names for that.
_WITHOUT_FILTERS = frozenset({"rev-parse", "log", "show", "diff-tree", "ls-files", "config", "cat-file"})

#: verb → what keeps it from the programs that show a difference.
_PLAIN = {
    **dict.fromkeys(("log", "show", "diff", "diff-tree"), ("--no-ext-diff", "--no-textconv")),
    "blame": ("--no-textconv",),
}
_FILTER = re.compile(r"(?i)(filter\..*)\.(clean|smudge|process|required)", re.DOTALL)

#: More filters than this do not fit into a child's environment.
_MOST_FILTERS = 200

#: Seconds for a question about the project: a pipe in the place of a file must not keep us waiting.
PATIENCE = 60.0

#: Configuration that holds for every call of ours, whatever the user's own says.
_CONFIG = (
    *_ALONE,
    "pack.packSizeLimit=0",
    "core.autocrlf=false",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "fastimport.unpackLimit=1",
    "pack.writeReverseIndex=false",
    "safe.directory=*",  # libgit2 has checked the owner when the store was opened
)
OLDEST = (2, 36)

#: That folder and no other: libgit2 would look for a `.git` in it first.
_EXACTLY = pygit2.enums.RepositoryOpenFlag.NO_SEARCH | pygit2.enums.RepositoryOpenFlag.NO_DOTGIT
_LEVELS = (pygit2.enums.ConfigLevel.SYSTEM, pygit2.enums.ConfigLevel.XDG, pygit2.enums.ConfigLevel.GLOBAL)
_settings_lock = threading.Lock()


def advice(*words: str | Path) -> str:
    """A command line of git's that a person is told to run on a store: it runs no hook and no monitor of the store's.

    What has its own way to run a program besides, as a filter, is for `trust` to find.
    """
    quoted = (shlex.quote(str(word)) for word in words)
    return " ".join(("git", "-c core.hooksPath=/dev/null", "-c core.fsmonitor=false", *quoted))


def environment() -> dict[str, str]:
    """The process environment without anything that could send git elsewhere or change what it writes."""
    return {
        **_surroundings(),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": "/dev/null/none",  # what is no file at all is passed over without a word
    }


def _surroundings() -> dict[str, str]:
    """What every child of ours gets: no repository of whoever started us, no network, nobody who could answer."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **surroundings,
        "GIT_ALLOW_PROTOCOL": "",  # comes before any `protocol.*` of the repository
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


@lru_cache(maxsize=1)
def program() -> str:
    """The path of git. Raises: Refused where there is none."""
    path = shutil.which("git")
    if not path:
        raise Refused("git is not installed", hint="install git 2.36 or newer")
    return path


def version() -> str:
    """What `git --version` says after its name, as in `2.39.5`."""
    answer = subprocess.run([program(), "--version"], capture_output=True, text=True, env=environment(), check=False)
    return answer.stdout.removeprefix("git version ").strip()


def command(git_dir: Path | None, *arguments: str, config: Sequence[str] = ()) -> list[str]:
    """The command line for a call of ours on the store at `git_dir`.

    Raises: Refused where the store's settings could run or redirect something (`trust.check`), Damaged.
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
        stderr = answer.stderr.decode("utf-8", "replace").strip()
        raise CtxvcError(f"git {arguments[0]} failed: {stderr[-2000:]}")
    return answer.stdout


def in_checkout(folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    """What git prints in a checkout of a store.

    Which store that is, is read from the folder once and then held to: nothing in the store can lead git to another.
    Raises: Refused where the folder is no checkout of a store; CtxvcError with git's own words where it fails.
    """
    return in_worktree(_linked(folder), folder, *arguments, data=data)


def in_worktree(git_dir: Path, folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    """The same where it is known that the store has the folder as `git_dir`, which is `STORE/worktrees/NAME`."""
    store = git_dir.parent.parent
    trust.check(store)
    answer = subprocess.run(
        command(None, *arguments),
        input=data,
        capture_output=True,
        env={
            **environment(),
            "GIT_DIR": str(git_dir),
            "GIT_COMMON_DIR": str(store),
            "GIT_WORK_TREE": str(folder.absolute()),
        },
        cwd=folder,
        check=False,
    )
    if answer.returncode:
        stderr = answer.stderr.decode("utf-8", "replace").strip()
        raise CtxvcError(f"git {arguments[0]} failed: {stderr[-2000:]}")
    return answer.stdout


def _linked(folder: Path) -> Path:
    """What a store keeps of the checkout in `folder`. Raises: Refused."""
    git_dir = contained.pointer(folder / ".git", folder)
    if git_dir is None or git_dir.parent.name != "worktrees" or not (git_dir.parent.parent / "ctxvc").is_dir():
        raise Refused(f"{folder} is no checkout of a store", hint=Phrase("make-checkout"))
    return git_dir


def of_project(folder: Path, verb: str, *arguments: str, at: Sequence[str] = (), personal: bool = True) -> bytes | None:
    """What git prints of the repository around `folder`, which may be anybody's; None where it fails.

    No program that its settings name is run, and nothing is fetched. Of the person's own settings those count that say
    whose repositories they trust; without `personal` none does, and everybody's are. `at` are options of git itself
    that say where the repository is.
    """
    env = _surroundings() if personal else environment()
    # To be told where hooks are starts none.
    alone = [setting for setting in _ALONE if verb != "rev-parse" or not setting.startswith("core.hooksPath")]
    settings = ["core.quotePath=false", *alone, *([] if personal else ["safe.directory=*"])]
    before = [program(), "--no-pager", *(word for item in settings for word in ("-c", item)), *at]
    try:
        if verb not in _WITHOUT_FILTERS:
            env |= _without_filters(folder, before, env)
        return _asked([*before, verb, *_PLAIN.get(verb, ()), *arguments], folder, env)
    except (OSError, subprocess.TimeoutExpired):
        return None


def own_repository(folder: Path) -> Path | None:
    """The repository of the project that `folder` is in; None where there is none, or another project's is named.

    A `.git` file, or a `commondir`, can name any repository of the person's. It counts where that one says so too: as
    git registers a linked worktree, or a submodule.
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
    """The folder that a repository's own settings say is its work tree: a submodule's do."""
    try:
        data = identity.read_plain(git_dir / "config", trust.LARGEST) or b""
        values = [setting.value for setting in gitconfig.settings(data) if setting.key == "core.worktree"]
    except (CtxvcError, ValueError):
        return None
    return Path(git_dir, values[-1]).resolve() if values and values[-1] else None


def _asked(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> bytes | None:
    answer = subprocess.run(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE
    )
    return None if answer.returncode else answer.stdout


def _without_filters(folder: Path, before: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Variables by which no filter that any settings name does anything: an empty command is none to git.

    Raises: OSError where there are too many; then git is not asked.
    """
    listed = _asked([*before, "config", "--includes", "--list", "--name-only", "-z"], folder, env) or b""
    filters = {name[1] for key in os.fsdecode(listed).split("\0") if (name := _FILTER.fullmatch(key))}
    if len(filters) > _MOST_FILTERS:
        raise OSError(errno.E2BIG, "too many filters", str(folder))
    empty = [(f"{name}.{what}", "") for name in sorted(filters) for what in ("clean", "smudge", "process")]
    overrides = [*empty, *((f"{name}.required", "false") for name in sorted(filters))]
    env = {"GIT_CONFIG_COUNT": str(len(overrides))}
    for number, (key, value) in enumerate(overrides):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def open_repository(path: Path) -> pygit2.Repository:
    """The repository at `path`, for reading; no configuration but its own counts.

    Raises: NotFound where there is none, CtxvcError where this user may not read it, Refused where it belongs to
    another user or uses what we do not read, Damaged.
    """
    pygit2.option(pygit2.enums.Option.ENABLE_FSYNC_GITDIR, True)
    if not os.path.lexists(path):
        raise NotFound(f"no store at {path}", hint=Phrase("init"))
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
        message = str(error)
        if "extension" in message or "unsupported" in message:
            raise Refused(f"the store {path} uses a git feature that is not supported: {message}") from error
        raise Damaged(f"{path} is no git repository: {message}", hint=Phrase("init-anew")) from error


def _open(path: Path, *, trusted: bool = False) -> pygit2.Repository:
    """The repository, with its own configuration loaded and no other. `trusted`: whoever owns it.

    Raises: pygit2.GitError.
    """
    trust.check(path)
    with _own_settings_only(trusted):
        repository = pygit2.Repository(str(path), _EXACTLY)
        _ = repository.config  # loaded now, while the others are out of sight, and kept
    return repository


@contextmanager
def _own_settings_only(trusted: bool) -> Iterator[None]:
    """Inside, libgit2 looks for no configuration of the user or the system, in this process.

    A broken `~/.gitconfig` is no reason to be without the store, and what a sound one says must not count.
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
    """Whether the user's own settings (`safe.directory`) allow a repository that another user owns."""
    try:
        with _settings_lock:
            pygit2.Repository(str(path), _EXACTLY)
    except pygit2.GitError:
        return False
    return True


def _of_another(error: pygit2.GitError) -> bool:
    return "owned by" in str(error) or "owner" in str(error)


def _closed(path: Path) -> str:
    """The first part of the store that this user may not read; empty where there is none."""
    for name in ("", "HEAD", "config", "objects", "objects/pack", "refs", "refs/heads", "packed-refs"):
        entry = path / name
        if os.path.lexists(entry) and not os.access(entry, os.R_OK | (os.X_OK if entry.is_dir() else 0)):
            return str(entry)
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


def git_says(folder: Path, verb: str, *words: str) -> str:
    """What git prints; nothing where it fails. Bytes that are no text come as `os.fsdecode` gives them.

    The person's own settings count here, in which they say whose repositories they trust; no program that settings
    name is run (`git.of_project`). What a hook of git inherits does not count: it names the repository, and perhaps an
    index, of whoever runs the hook.
    """
    return os.fsdecode(of_project(folder, verb, *words) or b"")
