"""The Parquet table of sessions, which `export`, `sql` and `pull --watch` bring up to date."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

from ctxvc.cli.answers.shared import Answer, described
from ctxvc.cli.app import App, raise_unreadable
from ctxvc.cli.output import counted, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.errors import CtxvcError, Refused
from ctxvc.report.share import clean_of
from ctxvc.sharing import remotes
from ctxvc.store.objects import is_address
from ctxvc.store.store import Store
from ctxvc.store.timestamp import seconds_of
from ctxvc.store.trust import identity
from ctxvc.store.trust.known_stores import TABLE
from ctxvc.tables import parquet


def export(app: App, place: str, since: str, *, text: bool, all_projects: bool) -> ExportedTable:
    """Writes what is new in this store, or in all, into a folder or to an address in an object store.

    Raises: as `parquet.export`; Damaged for what is unreadable, when the rest is written.
    """
    folder = place.rstrip("/") if is_address(place) else app.path(Path(place))
    unreadable: list[CtxvcError] = []
    seconds = seconds_of(since, time.time()) if since else 0
    if all_projects:
        exports = [_update(store, folder, unreadable, seconds, text=text) for store in app.all_stores(unreadable)]
    else:
        with app.store() as store:
            exports = [_update(store, folder, unreadable, seconds, text=text)]
    raise_unreadable(unreadable)
    updated, files, sessions = (sum(one[at] for one in exports) for at in range(3))
    return ExportedTable(folder=str(folder), sessions=sessions, updated=updated, files=files)


def refreshed(store: Store, unreadable: list[CtxvcError]) -> tuple[str, str]:
    """The store's own table, up to date: its folder, and the name of the store's files in it. Raises: Refused if the
    store is read-only."""
    if not os.access(store.cache_path, os.W_OK):
        hint = "`ctxvc export --format parquet -o DIR` writes one elsewhere, which `ctxvc sql --from DIR` asks"
        raise Refused(f"{store.path} is read-only, and the table is kept in it", hint=hint)
    _update(store, store.path / TABLE, unreadable)
    return str(store.path / TABLE), identity.store_id(store.path)


def sentence(answer: ExportedTable) -> str:
    """A sentence on what was written, for people."""
    written = f"{counted(answer.updated, 'session')} written anew" if answer.files else "nothing new"
    return f"{safe(answer.folder)}: {written}, {answer.sessions:,} in it"


def _update(
    store: Store, place: Path | str, unreadable: list[CtxvcError], since: float = 0, *, text: bool = False
) -> parquet.Exported:
    request = parquet.Request(remotes.writers(store), lambda session: clean_of(store, session), text, since)
    with Progress("reading", format=lambda number: f"{number:,} sessions") as bar:
        if isinstance(place, str):
            return parquet.export_objects(store, place, request, unreadable, bar.reach)
        return parquet.export(store, place, request, unreadable, bar.reach)


class ExportedTable(Answer, frozen=True, kw_only=True, tag="ctxvc.export_table/1"):
    """`export --format parquet`"""

    folder: Annotated[str, described("the folder, or the address in an object store")]
    sessions: Annotated[int, described("sessions of the stores in the folder")]
    updated: Annotated[int, described("those of them that are new or have changed")]
    files: Annotated[int, described("files that were written")]
