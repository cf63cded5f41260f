"""Sessions that were written for other agents: what the store keeps of them, so that they come back as scopes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ctxvc import importers
from ctxvc.core.recording.continued import Continued, prints
from ctxvc.core.recording.events import Event, Opened
from ctxvc.errors import BadInput
from ctxvc.importers.file import Recording
from ctxvc.store import exports
from ctxvc.store.read.revision import Snapshot, settled
from ctxvc.store.store import Store


def remember(store: Store, snapshot: Snapshot, format: str, id: str, files: Mapping[PurePosixPath, bytes]) -> bool:
    """Keeps what a session with this id was written from: an import of it, which may know it by another, goes on from
    that commit.

    What somebody said in an open step is in no commit: such a session becomes one of its own. `format` is empty for an
    agent whose recordings are not read. Returns whether no session had the id before, as far as it is known.
    """
    if exports.written_session(store, format, id):
        return False
    commit = settled(store, snapshot)
    events: list[Event] = []
    names = {id}
    if format and commit:
        with tempfile.TemporaryDirectory(prefix="ctxvc-written-") as folder:
            for name, data in files.items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_bytes(data)
            recording = Recording(Path(folder) / next(iter(files)))
            with suppress(BadInput):  # there is nothing yet that an import would take
                for suffix, conversation in importers.conversations(recording, format):
                    events += conversation
                    names |= {
                        f"{event.source}{suffix}" for event in events if isinstance(event, Opened) and event.source
                    }
    parts = tuple(item for _, item in prints(events))
    for own_id in names:
        exports.remember_session(store, format, own_id, Continued(commit=commit, parts=parts))
    return True
