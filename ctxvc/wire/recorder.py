"""Exchanges ──► sessions: beside the path, in a thread of its own. What fails here, no client notices.

A request belongs to the conversation that its client names, else to the one whose newest prompt it begins with.
Sub-agents are scopes; calls beside a conversation, such as for a title, are steps of the scope `side`.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from operator import itemgetter
from pathlib import Path

import msgspec

from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.ledger.ledger import Source
from ctxvc.errors import BadInput, CtxvcError
from ctxvc.forms.form import Form, Prompt, Reply, of
from ctxvc.store.ingest import live_format
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.wire.conversation import Call, Conversation, Likeness
from ctxvc.wire.exchange import Exchange
from ctxvc.wire.senders import Sender, sender

#: The scope of calls beside the conversation, and what the names of sub-agents' scopes begin with, as importers have it.
MAIN, SIDE, AGENT = "main", "side", "agent-"
#: The format of sessions whose client keeps no recordings of its own.
_UNNAMED = "wire"
#: Bytes of exchanges that wait at most; what comes beyond is not recorded.
_MOST_WAITING = 256 << 20
#: Sessions that stay open; the one that was used least recently is closed first.
_OPEN = 16
#: Of the store's sessions of an agent without ids, so many of the newest are asked whether a request goes on from them.
_ASKED = 20
_REDIRECTED = 300
_NONE = Likeness(False, 0)


class Recorder:
    """Records exchanges into a store, one after another. `on_trouble` is told once what kept one from being recorded."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        agent: str = "",
        session: str = "",
        folder: str = "",
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`agent` is the program's name where it is known, `session` the one that all of it belongs to, if any.

        `open_store` is called in the recorder's own thread, when there is something to record.
        """
        self._sessions = _Sessions(open_store, agent, session, folder)
        self._on_trouble = on_trouble
        self._troubled = False
        self._queue: queue.SimpleQueue[Exchange | None] = queue.SimpleQueue()
        self._waiting = 0
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    def record(self, exchange: Exchange) -> None:
        """Takes an exchange; never waits, never raises."""
        size = len(exchange.body) + len(exchange.answer)
        with self._mutex:
            if self._waiting + size > _MOST_WAITING:
                self._trouble("requests come faster than they can be recorded; one was left out")
                return
            self._waiting += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ctxvc-recorder", daemon=True)
                self._thread.start()
            self._queue.put(exchange)

    def close(self) -> None:
        """Records what waits, and closes the store."""
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (exchange := self._queue.get()) is not None:
            self._guarded(lambda exchange=exchange: self._sessions.take(exchange))  # type: ignore[misc]
            with self._mutex:
                self._waiting -= len(exchange.body) + len(exchange.answer)
        self._guarded(self._sessions.close)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except CtxvcError as error:
            self._trouble(str(error))
        except Exception as error:  # a fault of ours must not end the recording of what comes next
            self._trouble(f"{type(error).__name__}: {error}")

    def _trouble(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self._on_trouble(text)


class _Session:
    """A session of the store, with its conversations by scope. `key` is what its client calls it, or what we do."""

    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self.key = key
        self.conversations: dict[str, Conversation] = {}

    @property
    def front(self) -> Conversation | None:
        """The conversation of the newest main line."""
        own = [item for scope, item in self.conversations.items() if scope != SIDE and not scope.startswith(AGENT)]
        return own[-1] if own else None

    def conversation(self, store: Store, scope: str, form: Form) -> Conversation:
        """The conversation of a scope, which is begun where there is none. Raises: CtxvcError."""
        if scope not in self.conversations:
            stored = _stored(store, self.name, scope)
            self.conversations[scope] = Conversation(stored, form, goes_back=scope != SIDE)
        return self.conversations[scope]

    def moved(self, scope: str) -> None:
        """The conversation of that scope may have gone on in another one: both are known from then on."""
        conversation = self.conversations[scope]
        if (now := conversation.stored.scope) != scope:
            self.conversations[now] = conversation
            del self.conversations[scope]
            left = self.conversation(conversation.stored.store, scope, conversation.form)
            self.conversations = {scope: left, **self.conversations}

    def likeness(self, prompt: Prompt) -> Likeness:
        """The most that the prompt has of one of its conversations."""
        return max((item.likeness(prompt) for item in self.conversations.values()), default=_NONE)

    def close(self) -> None:
        """Raises: CtxvcError, after all are closed."""
        failures: list[CtxvcError] = []
        for conversation in self.conversations.values():
            try:
                conversation.close()
            except CtxvcError as error:
                failures.append(error)
        if failures:
            raise failures[0]


class _Sessions:
    """The open sessions, by what their clients call them."""

    def __init__(self, open_store: Callable[[], Store], agent: str, session: str, folder: str) -> None:
        self._open_store = open_store
        self._agent = agent
        self._session = session
        self._folder = folder
        self._store: Store | None = None
        self._open: dict[str, _Session] = {}  # the one that was used last is the last

    @property
    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def take(self, exchange: Exchange) -> None:
        """Records an exchange, if it is a call of a model. Raises: CtxvcError."""
        form = of(exchange.path)
        if form is None or exchange.status >= _REDIRECTED:
            return
        call = Call(exchange=exchange, prompt=form.prompt(exchange.body), reply=_reply(exchange, form))
        session, scope = self._place(call, form, sender(exchange.headers, wire.parsed(exchange.body, dict) or {}))
        conversation = session.conversation(self._opened, scope, form)
        try:
            conversation.take(call)
        finally:
            session.moved(scope)

    def close(self) -> None:
        """Commits what is complete, and closes all files. Raises: CtxvcError."""
        try:
            while self._open:
                self._open.popitem()[1].close()
        finally:
            if self._store:
                self._store.close()
                self._store = None

    # --- whose request it is

    def _place(self, call: Call, form: Form, sender: Sender) -> tuple[_Session, str]:
        """The session and the scope that a call belongs to; the session is the newest of the open ones."""
        session = self._open.get(sender.conversation) if sender.conversation else self._closest(call.prompt)
        session = session or self._found(call, form, sender)
        scope = self._scope(session, call.prompt, sender)
        if not scope:
            session, scope = self._created(call, sender), MAIN
        self._open[session.key] = self._open.pop(session.key, session)
        while len(self._open) > _OPEN:
            self._open.pop(next(iter(self._open))).close()
        return session, scope

    def _closest(self, prompt: Prompt) -> _Session | None:
        """Of the sessions whose client names no conversation, the one whose newest prompt the request begins with."""
        if self._session:
            return self._open.get("")
        unnamed = [session for session in self._open.values() if session.key.startswith(_UNNAMED)]
        likeness, best = max(
            ((session.likeness(prompt), session) for session in unnamed), key=itemgetter(0), default=(_NONE, None)
        )
        if likeness > _NONE:
            return best
        return unnamed[-1] if unnamed else None  # a call beside it, perhaps, or what a tool of its asks

    def _scope(self, session: _Session, prompt: Prompt, sender: Sender) -> str:
        """The scope that a request belongs to; empty where it begins a session of its own."""
        if sender.agent:
            return f"{AGENT}{name_rules.slug(sender.agent)}"
        candidates = [item for item in session.conversations.values() if item.stored.scope != SIDE]
        likeness, best = max(
            ((item.likeness(prompt), item) for item in candidates), key=itemgetter(0), default=(_NONE, None)
        )
        if best and likeness > _NONE:
            return best.stored.scope
        front = session.front
        if front is None or front.is_empty:
            return MAIN if prompt.tools or not sender.conversation else SIDE
        if front.is_framed_as(prompt):
            return front.stored.scope if sender.conversation or self._session else ""
        if not prompt.tools:
            return SIDE
        if front.is_waiting:
            return next(name for number in count(1) if (name := f"{AGENT}{number}") not in session.conversations)
        return front.stored.scope if sender.conversation or self._session else ""

    # --- where it is recorded

    def _found(self, call: Call, form: Form, sender: Sender) -> _Session:
        """The session that has the conversation already, also by another way of recording it, or a new one."""
        store, client = self._opened, sender.client or self._agent or _UNNAMED
        if sender.conversation:
            name = store.session_of(live_format(client), sender.conversation)
            if not name and sender.client and (name := store.session_of(sender.client, sender.conversation)):
                _take_over(store, name, client, sender.conversation)
            return self._resumed(name, sender.conversation, form) if name else self._created(call, sender)
        if self._session:
            return self._resumed(self._session, "", form) if store.tips(self._session) else self._created(call, sender)
        for name in _newest_of(store, live_format(client)):
            session = self._resumed(name, f"{_UNNAMED}{name}", form)
            if session.likeness(call.prompt)[0]:
                return session
            session.close()
        return self._created(call, sender)

    def _resumed(self, name: str, key: str, form: Form) -> _Session:
        session = _Session(name, key)
        scopes = [scope for scope in self._opened.tips(name) if scope != SIDE and not scope.startswith(AGENT)]
        for scope in scopes[-_ASKED:]:
            session.conversations[scope] = Conversation(_stored(self._opened, name, scope), form)
        return session

    def _created(self, call: Call, sender: Sender) -> _Session:
        store, client = self._opened, sender.client or self._agent or _UNNAMED
        identity = sender.conversation or uuid.uuid4().hex
        taken = {name.lower() for name in store.sessions()}
        wish = self._session or name_rules.slug(f"{client}-{identity.replace('-', '')[-8:]}")
        name = next(
            name for number in count(1) if (name := wish if number == 1 else f"{wish}-{number}").lower() not in taken
        )
        source = Source(format=live_format(client), id=identity, agent=self._agent or client, cwd=self._folder)
        store.create_session(name, model=call.prompt.model, source=source)
        key = sender.conversation or ("" if self._session else f"{_UNNAMED}{name}")
        self._open[key] = session = _Session(name, key)
        return session


def _reply(exchange: Exchange, form: Form) -> Reply | None:
    try:
        reply = form.reply(exchange.answer, stream=exchange.stream)
    except BadInput:
        return None
    return reply if exchange.whole else msgspec.structs.replace(reply, whole=False)


def _stored(store: Store, name: str, scope: str) -> StoredSession:
    """The session, in that scope, which is begun where there is none."""
    if scope not in store.tips(name):
        with StoredSession.open(store, name, MAIN) as stored:
            stored.begin_empty(scope)
    return StoredSession.open(store, name, scope)


def _take_over(store: Store, name: str, client: str, conversation: str) -> None:
    """From here on the session is recorded on the wire; nobody reads the client's own recording any more."""
    with StoredSession.open(store, name) as stored:
        source = stored.ledger().meta.source
        assert source is not None
        live = msgspec.structs.replace(source, format=live_format(client), id=conversation, missing=())
        stored.change(subject="recorded on the wire from here on", op="settings", actor="host", meta={"source": live})


def _newest_of(store: Store, format: str) -> Iterator[str]:
    """The names of the newest sessions of a format, newest first."""
    of_format: list[tuple[int, str]] = []
    for name, tips in store.all_tips().items():
        source = store.reader.meta(tips[MAIN]).source if MAIN in tips else None
        if source and source.format == format:
            of_format.append((max(store.commit(tip).commit_time for tip in tips.values()), name))
    return (name for _, name in sorted(of_format, reverse=True)[:_ASKED])


def open_recorder(
    store_path: Path, *, agent: str, session: str = "", cwd: Path, on_trouble: Callable[[str], None]
) -> Recorder:
    """A recorder into the store at that path, which is created where there is none when there is something to record."""

    def open_store() -> Store:
        return Store(store_path) if store_path.exists() else create(store_path)

    return Recorder(open_store, agent=agent, session=session, folder=str(cwd), on_trouble=on_trouble)
