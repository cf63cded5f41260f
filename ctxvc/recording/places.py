"""The store that a hook works for, and the files that hooks and the recorder keep in it. Loads nothing heavy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ctxvc.errors import NotFound, Refused
from ctxvc.store.project import locate
from ctxvc.store.trust import contained, seals

#: The prefix of the file name of a request that could not be met and waits for a person.
ASIDE = "aside-"
#: The folder of the compactions that wait for a host.
ANSWERS = "ctxvc/hooks/answers"
#: The most bytes of a file through which hooks and the recorder communicate.
LONGEST = 1 << 20


def store(folder: Path, env: Mapping[str, str]) -> Path | None:
    """The store that the environment names, else that of the project around `folder`; None if there is none."""
    override = env.get("CTXVC_STORE")
    if override:
        path = Path(override).absolute()
        return path if locate.is_store(path) else None
    try:
        return locate.find(folder)
    except (NotFound, Refused):
        return None


def home(store: Path) -> Path:
    """The folder in the store that hooks and the recorder share."""
    return store / "ctxvc" / "hooks"


def lock(store: Path) -> Path:
    """The file that a store's recorder locks while it runs."""
    return home(store) / "recorder.lock"


def handoff(store: Path, transcript: str) -> Path:
    """The text that the next SessionStart after a compaction gives the model; removed once given."""
    return home(store) / "handoff" / _key(transcript)


def so_far(store: Path, transcript: str) -> Path:
    """The text that a SessionStart after a compaction gives the model if the recorder is still at work."""
    return home(store) / "so-far" / _key(transcript)


def summariser(store: Path, transcript: str) -> Path:
    """The text for whoever summarises the conversation: the addresses that a summary should keep naming."""
    return home(store) / "summariser" / _key(transcript)


def offer(store: Path) -> Path:
    """The text about the previous session that a new session may be given."""
    return home(store) / "offer"


def status(store: Path, transcript: str) -> Path:
    """The counts of a transcript's session, for the status line."""
    return home(store) / "standing" / _key(transcript)


def answer(store: Path, transcript: str) -> Path:
    """The compaction that a host was given for a transcript, until the transcript shows whether the host took it."""
    return store / ANSWERS / _key(transcript)


def installed(store: Path, transcript: str) -> Path:
    """What the newest compaction that the host took left out, and the stubs that the host was given."""
    return home(store) / "installed" / _key(transcript)


def compacted(store: Path, transcript: str) -> Path:
    """The time of the newest answer to a compaction, after which nothing else need be handed back."""
    return home(store) / "compacted" / _key(transcript)


def call(store: Path, call_id: str) -> Path:
    """The conversation and the sub-agent in which a host called a tool of ours; removed once the tool has read it."""
    return home(store) / "calls" / _key(call_id)


def aside(store: Path, transcript: str) -> Path:
    """The request about a transcript that could not be met."""
    return home(store) / "requests" / f"{ASIDE}{_key(transcript)}"


def _key(transcript: str) -> str:
    return hashlib.sha256(transcript.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces the file at `path` by `data`, with `mode`; readers see the old or the new one. Raises: OSError."""
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    contained.replace(path.parent, path.name, data, mode, durably=False)


def put(store: Path, path: Path, data: bytes) -> None:
    """Replaces a file in a store by `data` without following links. Raises: OSError, Refused."""
    name = path.relative_to(store).as_posix()
    contained.make_folder(store, name.rpartition("/")[0])
    contained.replace(store, name, data, durably=False)


def write_sealed(store: Path, path: Path, data: bytes) -> None:
    """Replaces a file in a store by `data` under this machine's seal, for `sealed`. Raises: OSError, Refused."""
    name = path.relative_to(store).as_posix().encode()
    put(store, path, seals.seal(store, name + b"\n" + data).encode() + b"\n" + data)


def sealed(store: Path, path: Path, limit: int = LONGEST) -> bytes:
    """The data that this machine wrote to `path`, at most `limit` bytes. Raises: FileNotFoundError if there is none, or
    another machine wrote it."""
    name = path.relative_to(store).as_posix()
    try:
        seal, _, data = contained.read(store, name, limit).partition(b"\n")
    except Refused as error:
        raise FileNotFoundError(str(error)) from error
    if not seals.is_sealed_here(store, name.encode() + b"\n" + data, seal.decode("ascii", "replace")):
        raise FileNotFoundError(f"{path} was not made on this machine")
    return data


def remove(store: Path, path: Path) -> None:
    """Removes a file of a store. Raises: OSError, Refused."""
    contained.remove(store, path.relative_to(store).as_posix())
