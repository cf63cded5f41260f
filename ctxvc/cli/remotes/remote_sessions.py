"""`sessions --remote`: everybody's sessions, from the indexes on a remote."""

from __future__ import annotations

from collections.abc import Mapping

from ctxvc.cli.answers.shared import RemoteSession, RemoteSessions, struct_of, table_of
from ctxvc.cli.app import App
from ctxvc.cli.output import counted, safe
from ctxvc.errors import CtxvcError, Unreachable
from ctxvc.sharing import browse, indexes, remotes
from ctxvc.sharing.index import SessionEntry
from ctxvc.sharing.indexes import Indexes
from ctxvc.sharing.remotes import Remote
from ctxvc.store.store import Store

#: The most sessions that a note names.
_NAMED = 5


def show(app: App, name: str) -> None:
    """Prints the sessions on a remote; offline, those last fetched, with a note."""
    with app.store() as store:
        remote = remotes.find(store, name)
        theirs = fetched(app, remote)
        items = _items(store, theirs)
    answer = RemoteSessions(remote=remote.name, items=items, ignored=list(theirs.ignored))
    app.output.answer(answer, table_of(RemoteSession, items))
    if app.output.json:
        return
    for reason in theirs.ignored[:20]:
        app.output.note(f"left out: {safe(reason)}")
    if any(item.state != "here" for item in items):
        app.output.note("`ctxvc show SESSION --remote` lists its blocks; `ctxvc pull --only SESSION` takes it in; then "
                        "`log`, `grep --all`, `ask` and `why` have it")  # fmt: skip


def note_missing(app: App, store: Store, *, fresh: bool = False) -> None:
    """Notes which sessions of remotes a search of this store did not have, and how to take one in.

    With `fresh`, as they are there now; else as they were fetched last, without a network. Raises: with `fresh`, as
    `indexes.fetch`; NotFound if there is no remote.
    """
    try:
        sources = remotes.every(store)
    except CtxvcError:
        sources = []
    if fresh and not sources:
        remotes.find(store)
    for remote in sources:
        if not remotes.is_ours(store, remote):
            continue
        try:
            theirs = fetched(app, remote) if fresh else indexes.cached(remote.address)
        except CtxvcError:
            if fresh:
                raise
            continue  # a search is not for remotes: without a cache there is nothing to note
        elsewhere = [item for item in _items(store, theirs) if item.state != "here"]
        if elsewhere:
            names = ", ".join(item.name for item in elsewhere[:_NAMED]) + (", …" if len(elsewhere) > _NAMED else "")
            count = f"{counted(len(elsewhere), 'session')} of {remote.name}"
            pull = f"`ctxvc pull --only {elsewhere[0].name}` takes one in"
            app.output.note(safe(f"not searched, since not here or longer there: {count}: {names}; {pull}"))


def tips(remote: Remote) -> Mapping[str, Mapping[str, str]]:
    """The sessions of a remote as its indexes were fetched last, each with the tips of its scopes there."""
    return {name: one.entry.scopes for name, one in browse.newest(indexes.cached(remote.address)).items()}


def fetched(app: App, remote: Remote) -> Indexes:
    """A remote's indexes; offline, those last fetched, with a note. Raises: as `indexes.fetch`."""
    try:
        return indexes.fetch(remote.address, ask=app.may_ask)
    except Unreachable as error:
        theirs = indexes.cached(remote.address)
        if not theirs.clones:
            raise
        app.output.note(f"{safe(str(error))}: this is what was there the last time")
        return theirs


def _items(store: Store, theirs: Indexes) -> list[RemoteSession]:
    """Each session once, by the clone that has the newest of it."""
    items = [
        struct_of(
            RemoteSession,
            newest.entry,
            name=name,
            clone=newest.clone,
            clones=list(newest.clones),
            scopes=len(newest.entry.scopes),
            state=_state(store, newest.entry),
        )
        for name, newest in browse.newest(theirs).items()
    ]
    return sorted(items, key=lambda item: item.updated, reverse=True)


def _state(store: Store, session: SessionEntry) -> str:
    if not store.has(session.name):
        return "not here"
    return "here" if all(tip in store.repository for tip in session.scopes.values()) else "newer there"
