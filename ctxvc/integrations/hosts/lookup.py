"""Where a host's conversation is recorded: as it was left, as a fork of another one, or as a new session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, NamedTuple

from ctxvc.agent.tools.definitions import definitions
from ctxvc.core import display
from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.ledger import Source
from ctxvc.core.policy import Policy, Terms
from ctxvc.integrations.conversation import Conversation
from ctxvc.integrations.hosts.conversation import TOOLS, HostConversation, by_record
from ctxvc.integrations.hosts.message import Host, key_of, name_of
from ctxvc.session.session import Session
from ctxvc.store.format import live_format
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: Of the scopes of a host's other sessions, so many of the newest are asked whether this one was forked from them.
_ASKED = 20
_FORKED = "the host's session {source} goes on from here"


class HostSession(NamedTuple):
    """A host's session: its id there, that of the one it was forked from if the host says so, and what it runs with.

    `name` is for a new session of the store. `system` and `tools` are the model's besides the messages.
    """

    source: str
    name: str
    parent: str = ""
    model: str = ""
    folder: str = ""
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()


class _Scope(NamedTuple):
    """A scope with a host's conversation, and the host's id of it."""

    session: str
    scope: str
    source: str
    time: int


class _Shared(NamedTuple):
    """A scope that begins as some messages do: so many of them, the last of which ends with the block `block`.

    `more` are the messages that the scope has besides.
    """

    scope: _Scope
    messages: int
    more: int
    block: int


def conversation(
    host: Host, store: Store, host_session: HostSession, raw: Sequence[Mapping[str, Any]], policy: Policy
) -> HostConversation:
    """The conversation of the host's session, whose messages are `raw`. Raises: CtxvcError."""
    scopes = sorted(_scopes(store, live_format(host.NAME)), key=lambda scope: -scope.time)
    own = [scope for scope in scopes if scope.source == host_session.source]
    if own:
        best = _closest(host, store, own, raw)
        return HostConversation(host, _session(store, best.scope.session, best.scope.scope, policy))
    parents = [scope for scope in scopes if scope.source == host_session.parent] or scopes[:_ASKED]
    if parents and (best := _closest(host, store, parents, raw)).messages:
        return HostConversation(host, _fork(store, best, host_session.source, policy))
    return HostConversation(host, _new(host, store, host_session, policy))


def _scopes(store: Store, format: str) -> Iterator[_Scope]:
    for session, tips in store.all_tips().items():
        for scope, tip in tips.items():
            source = store.reader.meta(tip).source
            if source and source.format == format:
                yield _Scope(session, scope, source.id, store.commit(tip).commit_time)


def _closest(host: Host, store: Store, scopes: Sequence[_Scope], raw: Sequence[Mapping[str, Any]]) -> _Shared:
    """The scope that has most of what the messages begin with; of several, the one with the fewest others."""
    keys = list(filter(None, (name_of(host, message) for message in raw)))
    shared = [_shared(store, scope, keys) for scope in scopes]
    return max(shared, key=lambda item: (item.messages, -item.more))


def _shared(store: Store, scope: _Scope, keys: Sequence[str]) -> _Shared:
    """How far a scope begins as messages with these keys do."""
    stored = StoredSession.open(store, scope.session, scope.scope)
    stored.leave()
    ends = {key_of(record): rows[-1].number for record, rows in by_record(stored.ledger().rows())}
    common = list(takewhile(ends.__contains__, keys))
    block = max((ends[key] for key in common), default=0)
    return _Shared(scope, len(common), len(ends) - len(common), block)


def _fork(store: Store, shared: _Shared, source: str, policy: Policy) -> Session:
    """A session on a new scope, which goes on from the last step that both have."""
    origin = shared.scope
    with _session(store, origin.session, origin.scope, policy) as session:
        commit = Conversation(session).commit_before(shared.block)
        scopes = session.scopes()
        name = next(name for number in count(1) if (name := f"fork-{number}") not in scopes)
        text = _FORKED.format(source=display.one_line(source, 80))
        session.stored.fork(name, text, commit=commit, source=source)
    return _session(store, origin.session, name, policy)


def _new(host: Host, store: Store, host_session: HostSession, policy: Policy) -> Session:
    in_use = {name.lower() for name in store.sessions()}
    slug = name_rules.slug(host_session.name)
    name = next(name for number in count(1) if (name := slug if number == 1 else f"{slug}-{number}") not in in_use)
    recorded = Source(
        format=live_format(host.NAME),
        id=host_session.source,
        agent=host.NAME,
        cwd=host_session.folder,
        missing=host.MISSING,
    )
    tools = definitions(Terms(tools=TOOLS, folds=False), own=host_session.tools)
    store.create_session(
        name, model=host_session.model, source=recorded, system=host_session.system or None, tools=tools
    )
    return _session(store, name, "main", policy)


def _session(store: Store, name: str, scope: str, policy: Policy) -> Session:
    session = Session(StoredSession.open(store, name, scope), policy=policy)
    session.resume()
    return session
