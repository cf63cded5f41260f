"""Where a store lies and what the recorder keeps in it, found without loading what reads stores."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

FOLDER = ".ctxvc"
#: What the name of a request begins with that waits for a person.
ASIDE = "aside-"


def find(folder: Path) -> Path | None:
    """The store of the project that `folder` is in, as `store.find` finds it; None where there is none."""
    for parent in (folder, *folder.parents):
        if is_store(parent / FOLDER):
            return parent / FOLDER
        if parent.name == FOLDER and is_store(parent):
            return parent
    main = _main_worktree(folder)
    return main / FOLDER if main and is_store(main / FOLDER) else None


def is_store(path: Path) -> bool:
    """Whether a store lies at `path`."""
    return (path / "HEAD").is_file() and (path / "ctxvc").is_dir()


def _main_worktree(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        dot_git = parent / ".git"
        if dot_git.is_file():
            pointer = dot_git.read_text(errors="replace").removeprefix("gitdir:").strip()
            linked = Path(parent, pointer).resolve()
            common = linked.parent.parent  # <main>/.git/worktrees/<name>
            return common.parent if common.name == ".git" and _points_back(linked, dot_git) else None
        if dot_git.is_dir():
            return None
    return None


def _points_back(linked: Path, dot_git: Path) -> bool:
    try:
        pointer = (linked / "gitdir").read_text(errors="replace").strip()
    except OSError:
        return False
    return bool(pointer) and Path(linked, pointer).resolve() == dot_git.resolve()


def home(store: Path) -> Path:
    """The folder in the store that hooks and the recorder share."""
    return store / "ctxvc" / "hooks"


def lock(store: Path) -> Path:
    """What the recorder of a store holds while it lives."""
    return home(store) / "recorder.lock"


def handoff(store: Path, transcript: str) -> Path:
    """What the next SessionStart after a compaction gives back; gone once it was given."""
    return home(store) / "handoff" / _key(transcript)


def so_far(store: Path, transcript: str) -> Path:
    """What a SessionStart after a compaction gives back where the recorder has not come to its end yet."""
    return home(store) / "so-far" / _key(transcript)


def offer(store: Path) -> Path:
    """What a new session may be told of the one before it."""
    return home(store) / "offer"


def standing(store: Path, transcript: str) -> Path:
    """How far a transcript is recorded, for the status line."""
    return home(store) / "standing" / _key(transcript)


def aside(store: Path, transcript: str) -> Path:
    """What was asked about a transcript and could not be done."""
    return home(store) / "requests" / f"{ASIDE}{_key(transcript)}"


def _key(transcript: str) -> str:
    return hashlib.sha256(transcript.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """The file at `path` holds `data`, whole, with that mode; readers see the old or the new one. Raises: OSError."""
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
