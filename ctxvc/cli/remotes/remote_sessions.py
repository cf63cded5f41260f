"""`sessions --remote`: everybody's sessions, from the indexes on a remote; and those that came from there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated

from ctxvc.cli.answers.shared import (
    Answer,
    Item,
    ScopeName,
    SessionName,
    TimeText,
    TokenCount,
    described,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App
from ctxvc.cli.output import Cell, Column, Guess, Styled, Timestamp, counted, safe
from ctxvc.core.ledger import name_rules
from ctxvc.errors import CtxvcError, Unreachable
from ctxvc.sharing import indexes, remotes
from ctxvc.sharing.index import SessionEntry
from ctxvc.sharing.indexes import Indexes
from ctxvc.sharing.pull import Arrival
from ctxvc.sharing.remotes import Remote
from ctxvc.store.purge import carried
from ctxvc.store.store import Store

#: The most sessions that a note names.
_NAMED = 5
#: The states of sessions that a pull takes in.
_ELSEWHERE = ("not here", "newer there")


def show(app: App, name: str, *, notes: bool) -> None:
    """Prints the sessions on a remote; with `notes`, also those that only have the project's notes. Offline, they are
    those last fetched, which a remark says.
    """
    with app.store() as store:
        remote = remotes.find(store, name)
        theirs = fetched(app, remote)
        items = [item for item in _items(store, theirs) if notes or not name_rules.has_project_notes(item.name)]
    answer = RemoteSessions(remote=remote.name, items=items, ignored=list(theirs.ignored))
    app.output.answer(answer, table_of(RemoteSession, items))
    if app.output.json:
        return
    for reason in theirs.ignored[:20]:
        app.output.note(f"left out: {safe(reason)}")
    if any(item.state in _ELSEWHERE for item in items):
        app.output.note("`ctxvc show SESSION --remote` lists its blocks; `ctxvc pull --only SESSION` takes it in; then "
                        "`log`, `grep --all`, `ask` and `why` have it")  # fmt: skip


def note_missing(app: App, store: Store, *, fresh: bool = False) -> None:
    """Prints which sessions of remotes a search of this store did not cover, and how to take one in.

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
        elsewhere = [item for item in _items(store, theirs) if item.state in _ELSEWHERE]
        if elsewhere:
            names = ", ".join(item.name for item in elsewhere[:_NAMED]) + (", …" if len(elsewhere) > _NAMED else "")
            count = f"{counted(len(elsewhere), 'session')} of {remote.name}"
            pull = f"`ctxvc pull --only {elsewhere[0].name}` takes one in"
            app.output.note(safe(f"not searched: {count}, which are not here or newer there: {names}; {pull}"))


def names(app: App, store: Store, name: str) -> Collection[str]:
    """The names of a remote's sessions. Prints which of them are not here, or longer there.

    Raises: NotFound if there is no such remote; as `indexes.fetch`.
    """
    theirs = indexes.newest(fetched(app, remotes.find(store, name)))
    note_missing(app, store)
    return theirs


def tips(remote: Remote) -> Mapping[str, Mapping[str, str]]:
    """Each session of a remote → the tips of its scopes there, by the indexes fetched last."""
    return {name: one.entry.scopes for name, one in indexes.newest(indexes.cached(remote.address)).items()}


def fetched(app: App, remote: Remote) -> Indexes:
    """A remote's indexes; offline, those last fetched, with a note. Raises: as `indexes.fetch`."""
    try:
        return indexes.fetch(remote.address, ask=app.may_ask)
    except Unreachable as error:
        theirs = indexes.cached(remote.address)
        if not theirs.clones:
            raise
        app.output.note(f"{safe(str(error))}: this list is the one fetched last")
        return theirs


def _items(store: Store, theirs: Indexes) -> list[RemoteSession]:
    """Each session once, by the clone that has the newest of it."""
    erased = carried.own(store).erased
    items = [
        struct_of(
            RemoteSession,
            newest.entry,
            name=name,
            clone=newest.clone,
            clones=list(newest.clones),
            scopes=len(newest.entry.scopes),
            state=_state(store, newest.entry, erased),
        )
        for name, newest in indexes.newest(theirs).items()
    ]
    return sorted(items, key=lambda item: item.updated, reverse=True)


def _state(store: Store, session: SessionEntry, erased: frozenset[str]) -> str:
    if not erased.isdisjoint(session.scopes.values()):
        return "purged here"
    if not store.has(session.name):
        return "not here"
    return "here" if all(tip in store.repository for tip in session.scopes.values()) else "newer there"


def _place(state: str) -> Cell:
    return Styled(state, "" if state == "here" else "yellow")


class RemoteSession(Item, frozen=True, kw_only=True):
    """A session on a remote, as the clone lists it that has the newest of it."""

    TABLE = "name title clones updated tokens state"

    name: Annotated[SessionName, Column("session", least=12)]
    title: Annotated[
        str,
        described("the recording's title, or the beginning of the first human message"),
        Column("title", least=24),
    ]
    clone: Annotated[str, described("the clone that has the newest of it")]
    clones: Annotated[
        list[str], described("all clones that have it there"), Column("clones", least=8, rank=1, cell=", ".join)
    ]
    updated: Annotated[str, described("time of the newest commit"), Column("updated", cell=Timestamp)]
    started: TimeText
    tokens: Annotated[TokenCount, Column("tokens", right=True, rank=2, cell=Guess)]
    scopes: Annotated[int, described("number of scopes")]
    state: Annotated[
        str, described("`here`, `not here`, `newer there`, or `purged here`"), Column("state", cell=_place)
    ]


class RemoteSessions(Answer, frozen=True, kw_only=True, tag="ctxvc.remote_sessions/1"):
    """`sessions --remote`"""

    remote: str
    items: list[RemoteSession]
    ignored: Annotated[list[str], described("what was left out of an index, and why")]


#: The most sessions that are named.
MOST = 20


class PulledSession(Item, frozen=True, kw_only=True):
    """A session that came in or went on."""

    session: SessionName
    clone: Annotated[str, described("the clone that pushed it")]
    created: Annotated[bool, described("whether it is new in this store")]
    scopes: Annotated[list[ScopeName], described("its scopes that moved")]
    apart: Annotated[list[ScopeName], described("new lines of scopes that grew in both clones")]


def pulled_items(arrivals: Iterable[Arrival]) -> list[PulledSession]:
    """The sessions that came in, as an answer has them."""
    return [struct_of(PulledSession, arrival, created=arrival.is_new) for arrival in arrivals]


def pulled_lines(place: str, pulled: list[PulledSession]) -> Iterator[str]:
    """The lines on what came in from a place, for people."""
    new = sum(item.created for item in pulled)
    yield safe(f"from {place}: {counted(new, 'new session')}, {len(pulled) - new} continued")
    for item in pulled[:MOST]:
        yield safe(f"  {item.session}: {', '.join(item.scopes[:8])} of {item.clone}")
        for scope in item.apart:
            base = scope.partition("@")[0]
            join = f"`ctxvc goto {scope} --session {item.session}` joins them"
            yield safe(f"    {base} grew here and there: theirs is {scope}; {join}")
    if len(pulled) > MOST:
        yield f"  and {len(pulled) - MOST} more"
