"""The `post-commit` hook of a project: a code commit is linked to the session and the step that it came from.

The hook itself leaves a small file and loads next to nothing; a process of its own makes the link, a moment later. It
never fails: a commit is made by then, and nobody waits for us.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from ctxvc.recording import log, places
from ctxvc.store import links_inbox
from ctxvc.store.links_inbox import Told

EVENT = "post-commit"
#: Started as this event, the program makes links of what waits.
LINK = "link"
#: host → the variable in which it names its session to what it runs.
HOSTS = {"claude-code": "CLAUDE_CODE_SESSION_ID"}
#: Set to `off`, nothing is recorded, and nothing is linked.
RECORDING = "CTXVC_RECORDING"


def after_commit(words: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
    """Leaves the commit that `words` name, made in `folder`, for a process that links it. Never fails."""
    store: Path | None = None
    try:
        store = _store(folder, env)
        if store is None or env.get(RECORDING, "").lower() in ("off", "0", "no"):
            return
        if not words or not links_inbox.COMMIT.fullmatch(words[0]):
            return
        host, recording = next(((host, env[name]) for host, name in HOSTS.items() if env.get(name)), ("", ""))
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        links_inbox.post(store, Told(words[0], str(folder), now, host, recording, links_inbox.head(store)))
        _start(store)
    # The boundary: whatever it is, the commit is made.
    except Exception as error:
        if store:
            log.note(store, EVENT, f"{type(error).__name__}: {error}")


def link(words: Sequence[str]) -> None:
    """Makes links of what waits in the store that `words` name. Never fails: nobody is there to be told."""
    from ctxvc.store import links
    from ctxvc.store.store import Store

    path = Path(words[0])
    try:
        with Store(path) as store:
            links.take(store)
    except Exception as error:
        log.note(path, EVENT, f"{type(error).__name__}: {error}")


def _store(folder: Path, env: Mapping[str, str]) -> Path | None:
    named = env.get("CTXVC_STORE")
    if not named:
        return places.find(folder)
    path = Path(named).absolute()
    return path if places.is_store(path) else None


def _start(store: Path) -> None:
    """A process that outlives this one and its terminal, and holds none of their files."""
    nothing = subprocess.DEVNULL
    words = [sys.executable, "-m", "ctxvc", "hook", LINK, str(store)]
    subprocess.Popen(words, cwd="/", stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
