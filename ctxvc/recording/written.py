"""Sessions written for other agents: what the store keeps about them, so that they come back as scopes."""

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
    """Records what a session with this id was written from, so that an import of it, perhaps under another id,
    continues from that commit.

    What an open step contains is not committed: such a session becomes a separate one. `format` is empty for an agent
    whose recordings are not read. Returns False if a session is already recorded with this id; then nothing changes.
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
            with suppress(BadInput):  # nothing yet that an import would take
                for suffix, conversation in importers.conversations(recording, format):
                    events += conversation
                    names |= {
                        f"{event.source}{suffix}" for event in events if isinstance(event, Opened) and event.source
                    }
    parts = tuple(item for _, item in prints(events))
    for own_id in names:
        exports.remember_session(store, format, own_id, Continued(commit=commit, parts=parts))
    return True
