"""The recorder's own process, which hooks start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ctxvc.claude_code import hook, recorder, requests, settings
from ctxvc.cli.importing import project_root
from ctxvc.errors import Refused
from ctxvc.recording import log, places
from ctxvc.store.store import create


def record(words: Sequence[str], env: Mapping[str, str]) -> None:
    """Does what is asked of a store.

    `words` name it, or a project's folder that may need one, with the first request behind it.
    """
    store: Path | None = None
    try:
        store = Path(words[0])
        if len(words) > 1:
            first = requests.decoded(words[1].encode())
            store = _made(Path(words[0]), env) if first and Path(first.transcript).exists() else None
            if first and store:
                requests.post(store, first)
        if store:
            recorder.work(store)
    # The boundary: nobody is there to be told.
    except Exception as error:
        if store:
            log.note(store, hook.RECORD, log.words(error))


def _made(folder: Path, env: Mapping[str, str]) -> Path | None:
    """The store of the project that `folder` is in, a new one if need be; None where there is no place for one.

    A folder that is no project of git is one if the person said so. The home folder is none: a store there would be
    that of every project below it.
    """
    named = env.get("CTXVC_STORE")
    root = project_root(folder)
    if not named and (root in (Path.home(), Path(root.anchor)) or not settings.recorded_here(folder)):
        return None
    path = Path(named).absolute() if named else root / places.FOLDER
    try:
        create(path).close()
    except Refused:  # another hook has made it meanwhile
        return path if places.is_store(path) and (named or not path.is_symlink()) else None
    return path
