"""Finds the session and the scope in which an exchange is recorded.

A request belongs to the conversation that its client names, or else to the one whose newest prompt it begins with.
Sub-agents are scopes; calls beside a conversation, such as for a title or a summary, are steps of the scope `side`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from operator import itemgetter
from typing import Any

import msgspec

from ctxvc.core.ledger import name_rules
from ctxvc.core.ledger.ledger import Source
from ctxvc.core.recording.continued import Continued, beginning
from ctxvc.core.recording.events import Exported
from ctxvc.errors import BadInput, CtxvcError
from ctxvc.forms.form import Form, Prompt, Reply, call, of
from ctxvc.store import exports
from ctxvc.store.format import live_format
from ctxvc.store.ingest import base_of
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.wire import trouble
from ctxvc.wire.conversation import AGENT, SIDE, Call, Conversation, Likeness, is_recorded
from ctxvc.wire.exchange import Answered, Exchange, Managed, Management, Requested
from ctxvc.wire.managed import ManagedConversation, tools_of
from ctxvc.wire.senders import Sender, asks_for_summary, sender

#: The scope of the conversation itself.
MAIN = "main"
#: The name for clients without any other.
_UNKNOWN = "wire"
#: The most sessions that stay open; the least recently used one is closed first.
_OPEN = 16
#: How many of the newest sessions of an agent are tried for a request without an id or with a new one; and the most
#: messages with which a request with a new id is not a fork.
_ASKED, _NEW = 20, 2
_REDIRECTED = 300
#: The end of the path with which the Messages API counts a prompt.
_COUNT = "/count_tokens"
_NONE = Likeness(False, 0)
_CONTINUED = "another agent went on from here"


class _Session:
    """A session of the store, with its conversations by scope. `key` is its client's id for it, or ours."""

    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self.key = key
        self.conversations: dict[str, Conversation] = {}

    @property
    def front(self) -> Conversation | None:
        """The newest conversation whose scope is neither `side` nor a sub-agent's; None if there is none."""
        own = [item for scope, item in self.conversations.items() if scope != SIDE and not scope.startswith(AGENT)]
        return own[-1] if own else None

    def conversation(self, store: Store, scope: str, form: Form, management: Management | None = None) -> Conversation:
        """The conversation of a scope, created if missing. Raises: CtxvcError."""
        if scope in self.conversations and self.conversations[scope].form is not form:
            self.conversations.pop(scope).close()  # its client has changed its provider
        if scope not in self.conversations:
            stored = _stored(store, self.name, scope)
            self.conversations[scope] = (
                ManagedConversation(stored, form, management)
                if management and scope != SIDE
                else Conversation(stored, form, goes_back=scope != SIDE)
            )
        return self.conversations[scope]

    def moved(self, scope: str) -> None:
        """Updates the conversations if the one of this scope has continued in another: both are kept then."""
        conversation = self.conversations[scope]
        if (now := conversation.line) != scope:
            self.conversations[now] = conversation
            del self.conversations[scope]
            management = conversation.management if isinstance(conversation, ManagedConversation) else None
            stays = self.conversation(conversation.stored.store, scope, conversation.form, management)
            self.conversations = {scope: stays, **self.conversations}

    def closest(self, prompt: Prompt) -> tuple[Likeness, Conversation | None]:
        """The conversation that the prompt shares most with, and how much; None if it shares nothing with any."""
        if prompt.continues:
            best = next((item for item in reversed(self.conversations.values()) if item.is_continued_by(prompt)), None)
            return Likeness(best is not None, 0), best
        related = [item for item in reversed(self.conversations.values()) if item.line != SIDE]
        related = [item for item in related if item.is_framed_as(prompt)]
        pairs = [(item.likeness(prompt), item) for item in related]
        # A sub-agent that begins like an earlier one is a new one.
        pairs = [pair for pair in pairs if pair[0].goes_on or not pair[1].line.startswith(AGENT)]
        likeness, best = max(pairs, key=itemgetter(0), default=(_NONE, None))
        if likeness == _NONE:
            best = next((item for item in related if item.has_calls_of(prompt)), None)
        return likeness, best

    def new_agent(self) -> str:
        """The name of a scope for a sub-agent without a name of its own."""
        return next(name for number in count(1) if (name := f"{AGENT}{number}") not in self.conversations)

    def close(self) -> None:
        """Closes all conversations. Raises: CtxvcError, after all are closed."""
        failures: list[CtxvcError] = []
        for conversation in self.conversations.values():
            try:
                conversation.close()
            except CtxvcError as error:
                failures.append(error)
        if failures:
            raise failures[0]


class Sessions:
    """The sessions in which exchanges are recorded. For one thread.

    `agent` is the program that sends them, if known: without ids of its own, everything it sends is one session, with
    the id `run`, by which another recorder of the same run finds it. `session` is the session for everything, if any.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        agent: str,
        session: str,
        folder: str,
        run: str = "",
        management: Management | None = None,
    ) -> None:
        self._management = management
        self._managed: dict[int, ManagedConversation] = {}  # number of a pending request → its conversation
        self._open_store = open_store
        self._agent = agent
        self._session = session
        self._run = run or uuid.uuid4().hex
        self._folder = folder
        self._store: Store | None = None
        self._open: dict[str, _Session] = {}  # the most recently used one is last

    @property
    def store(self) -> Store:
        """The store, opened when it is first used. Raises: CtxvcError."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def request(self, requested: Requested) -> Managed:
        """The request that goes to the model. Raises: CtxvcError if the client's own must go instead."""
        counts = requested.path.endswith(_COUNT)
        form = of(requested.path.removesuffix(_COUNT))
        if self._management is None or form is None or trouble.is_paused(self.store.path):
            return Managed()
        if counts:
            return self._count_body(requested, form.prompt(requested.body))
        prompt = _prompt(requested, form)
        session, scope = self._place(prompt, form, _sender(requested))
        conversation = session.conversation(self.store, scope, form, self._management)
        try:
            if not isinstance(conversation, ManagedConversation):
                return Managed()
            if prompt.continues:
                return Managed(body=conversation.continued(requested.body, prompt))
            self._managed[requested.number] = conversation
            return conversation.request(requested, prompt)
        finally:
            session.moved(scope)

    def _count_body(self, requested: Requested, prompt: Prompt) -> Managed:
        """What goes to the provider if a client asks for the size of its prompt; records nothing."""
        conversation = _sender(requested).conversation
        session = self._open.get(conversation) if conversation else self._unnamed(prompt)
        best = session.closest(prompt)[1] if session else None
        return best.count_body(requested, prompt) if isinstance(best, ManagedConversation) else Managed()

    def answer(self, answered: Answered) -> Managed:
        """The continuation for the model after an answer, empty if there is none. Raises: CtxvcError."""
        conversation = self._managed.get(answered.number)
        return conversation.answer(answered) if conversation and answered.status < _REDIRECTED else Managed()

    def take(self, exchange: Exchange) -> None:
        """Records an exchange, if it is a call of a model. Raises: CtxvcError."""
        conversation = self._managed.pop(exchange.number, None)
        form = _form(exchange)
        if form is None:
            return
        sent = conversation.prompt_of(exchange.number) if conversation else None
        call = _call(exchange, form, sent)
        if conversation and sent:
            conversation.finish(call)
            return
        session, scope = self._place(call.prompt, form, _sender(exchange))
        try:
            session.conversation(self.store, scope, form, self._management).take(call)
        finally:
            session.moved(scope)

    def has(self, exchange: Exchange) -> bool:
        """Whether an exchange is among the newest steps of a scope in the newest sessions. Raises: CtxvcError."""
        form = _form(exchange)
        if form is None:
            return False
        call = _call(exchange, form)
        newest = {self._session: self.store.tips(self._session)} if self._session else self.store.all_tips()
        names = sorted(newest, key=lambda name: _changed(self.store, newest[name]), reverse=True)[:_ASKED]
        return any(is_recorded(self.store, name, scope, call, form) for name in names for scope in newest[name])

    def unfinished(self) -> list[Exchange]:
        """The exchanges that are not on disk yet, because their reply broke off and may be asked for again."""
        conversations = (item for session in self._open.values() for item in session.conversations.values())
        return [item.unfinished.exchange for item in conversations if item.unfinished]

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

    def _place(self, prompt: Prompt, form: Form, sender: Sender) -> tuple[_Session, str]:
        """The session and the scope that a prompt belongs to; the session is the newest of the open ones."""
        session = self._open.get(sender.conversation) if sender.conversation else self._unnamed(prompt)
        session = session or self._stored(prompt, form, sender)
        scope = self._scope(session, prompt, sender)
        if not scope:
            session, scope = self._created(prompt, sender), MAIN
        self._open[session.key] = self._open.pop(session.key, session)
        while len(self._open) > _OPEN:
            self._open.pop(next(iter(self._open))).close()
        return session, scope

    def _unnamed(self, prompt: Prompt) -> _Session | None:
        """Of the open sessions without a client's id, the one that the prompt shares most with, else the newest."""
        if self._session:
            return self._open.get("")
        unnamed = [session for session in self._open.values() if session.key.startswith(f"{_UNKNOWN}/")]
        pairs = [(session.closest(prompt)[0], number, session) for number, session in enumerate(unnamed)]
        return max(pairs, key=itemgetter(0, 1))[2] if pairs else None

    def _scope(self, session: _Session, prompt: Prompt, sender: Sender) -> str:
        """The scope of a request; empty if it begins a session of its own."""
        if sender.agent:
            return f"{AGENT}{name_rules.slug(sender.agent)}"
        front = session.front
        if front is None or front.is_empty:
            return MAIN if prompt.tools or not sender.conversation else SIDE
        if asks_for_summary(prompt):
            return SIDE
        _, best = session.closest(prompt)
        if best or prompt.continues:
            return (best or front).line
        if not prompt.tools and (front.has_tools or not front.has_system(prompt)):
            return SIDE
        if front.is_waiting or not front.is_framed_as(prompt):
            return session.new_agent()
        return front.line if sender.conversation or self._agent or self._session else ""

    # --- where it is recorded

    def _stored(self, prompt: Prompt, form: Form, sender: Sender) -> _Session:
        """The session that already has the conversation, also if recorded in another way, or a new one."""
        client = self._client(sender)
        if sender.conversation:
            name = self.store.session_of(live_format(client), sender.conversation)
            if not name and (name := self.store.session_of(client, sender.conversation)):
                _take_over(self.store, name, client, sender.conversation)
            if name:
                return self._resumed(name, sender.conversation, form)
            written = exports.written_session(self.store, client, sender.conversation)
            if written and (session := self._continued(written, prompt, form, sender)):
                return session
            if len(prompt.messages) <= _NEW:
                return self._created(prompt, sender)
        elif self._session:
            is_there = bool(self.store.tips(self._session))
            return self._resumed(self._session, "", form) if is_there else self._created(prompt, sender)
        elif self._agent and (name := self.store.session_of(live_format(client), self._run)):
            return self._resumed(name, f"{_UNKNOWN}/{name}", form)
        for name in _newest(self.store, live_format(client)):
            session = self._resumed(name, sender.conversation or f"{_UNKNOWN}/{name}", form)
            if any(_goes_on(item, prompt, sender) for item in session.conversations.values()):
                return session
            session.close()
        newest = exports.written_sessions(self.store) if len(prompt.messages) > _NEW else ()
        for written in filter(lambda item: _beginning(item, prompt, form) is not None, newest):
            if session := self._continued(written, prompt, form, sender):
                return session
        return self._created(prompt, sender)

    def _resumed(self, name: str, key: str, form: Form) -> _Session:
        session = _Session(name, key)
        scopes = [scope for scope in self.store.tips(name) if scope != SIDE and not scope.startswith(AGENT)]
        scopes.sort(key=lambda scope: scope == self.store.current_scope(name))  # that one is the front
        for scope in scopes[-_ASKED:]:
            session.conversation(self.store, scope, form, self._management)
        return session

    def _continued(self, written: Continued, prompt: Prompt, form: Form, sender: Sender) -> _Session | None:
        """The session that was written for the client and that the conversation continues, in a scope of its own.

        A prompt that does not begin with all that was written, as after a compaction, is an edit by the client.
        """
        store, client, identity = self.store, self._client(sender), self._identity(sender)
        base = base_of(store, Exported(commit=written.commit, end=0), client, identity, store.all_tips())
        if base is None:
            return None
        if base.scope not in store.tips(base.session):  # it exists if a recorder was killed right after the fork
            origin = store.reader.meta(base.commit)
            with StoredSession.open(store, base.session, origin.scope) as stored:
                stored.fork(base.scope, _CONTINUED, commit=base.commit, source=identity)
        store.set_current_scope(base.session, base.scope)
        _take_over(store, base.session, client, identity)
        session = _Session(base.session, sender.conversation or f"{_UNKNOWN}/{base.session}")
        conversation = session.conversation(store, base.scope, form, self._management)
        if count := _beginning(written, prompt, form):
            conversation.goes_on_after(prompt, count)
        return session

    def _created(self, prompt: Prompt, sender: Sender) -> _Session:
        client, identity = self._client(sender), self._identity(sender)
        wish = self._session or name_rules.slug(f"{client}-{identity.replace('-', '')[-8:]}")
        in_use = {name.lower() for name in self.store.sessions()}
        names = (wish if number == 1 else f"{wish}-{number}" for number in count(1))
        name = next(name for name in names if name.lower() not in in_use)
        source = Source(format=live_format(client), id=identity, agent=self._agent or client, cwd=self._folder)
        self.store.create_session(name, model=prompt.model, source=source, **_frame(prompt, self._management))
        session = _Session(name, sender.conversation or ("" if self._session else f"{_UNKNOWN}/{name}"))
        self._open[session.key] = session
        return session

    def _identity(self, sender: Sender) -> str:
        return sender.conversation or (self._run if self._agent else uuid.uuid4().hex)

    def _client(self, sender: Sender) -> str:
        return sender.client or self._agent or _UNKNOWN


def _goes_on(conversation: Conversation, prompt: Prompt, sender: Sender) -> bool:
    """Whether a prompt continues a conversation in the store, or repeats its newest prompt."""
    if conversation.likeness(prompt).goes_on:
        return True
    is_again = len(prompt.messages) > _NEW and conversation.prints == prompt.prints
    return not sender.conversation and (is_again or conversation.has_calls_of(prompt))


def _beginning(written: Continued, prompt: Prompt, form: Form) -> int | None:
    return beginning(written, [form.reader().messages([message]) for message in prompt.messages])


def _form(exchange: Exchange) -> Form | None:
    """The form of an exchange that is a successful call of a model; None for any other."""
    return of(exchange.path) if exchange.status < _REDIRECTED else None


def _call(exchange: Exchange, form: Form, prompt: Prompt | None = None) -> Call:
    return Call(exchange=exchange, prompt=prompt or _prompt(exchange, form), reply=_reply(exchange, form))


def _frame(prompt: Prompt, management: Management | None) -> dict[str, Any]:
    """The system prompt and tools of a new managed session, whose first prompt is counted before it goes out."""
    if management is None:
        return {}
    return {"system": prompt.system, "tools": [*prompt.tools, *tools_of(management, prompt)] or None}


def _sender(request: Requested | Exchange) -> Sender:
    return sender(request.headers, request.body)


def _prompt(exchange: Requested | Exchange, form: Form) -> Prompt:
    prompt = form.prompt(exchange.body)
    if prompt.model or not (requested := call(exchange.path)):
        return prompt
    return msgspec.structs.replace(prompt, model=requested.model)  # Gemini's requests name it only there


def _reply(exchange: Exchange, form: Form) -> Reply | None:
    try:
        reply = form.reply(exchange.answer, stream=exchange.stream)
    except BadInput:
        return None
    return reply if exchange.whole else msgspec.structs.replace(reply, complete=False)


def _stored(store: Store, name: str, scope: str) -> StoredSession:
    """The session, in that scope, which is created if missing."""
    if scope not in store.tips(name):
        with StoredSession.open(store, name, MAIN) as stored:
            stored.begin_empty(scope)
    return StoredSession.open(store, name, scope)


def _take_over(store: Store, name: str, client: str, conversation: str) -> None:
    """Has the scope recorded on the wire from here on; the client's own recording is no longer read."""
    sources = {scope: store.reader.meta(tip).source for scope, tip in store.tips(name).items()}
    scope = next((scope for scope, source in sources.items() if source and source.id == conversation), MAIN)
    with StoredSession.open(store, name, scope) as stored:
        source = stored.ledger().meta.source or Source(format="", id="")
        live = msgspec.structs.replace(source, format=live_format(client), id=conversation, missing=())
        stored.change(subject="recorded on the wire from here on", op="settings", actor="host", meta={"source": live})


def _changed(store: Store, tips: Mapping[str, str]) -> int:
    """The time of the newest of these commits, in seconds since 1970; 0 if there is none."""
    return max((store.commit(tip).commit_time for tip in tips.values()), default=0)


def _newest(store: Store, format: str) -> Iterator[str]:
    """The names of the newest sessions of a format, newest first."""
    of_format: list[tuple[int, str]] = []
    for name, tips in store.all_tips().items():
        source = store.reader.meta(tips[MAIN]).source if MAIN in tips else None
        if source and source.format == format:
            of_format.append((_changed(store, tips), name))
    return (name for _, name in sorted(of_format, reverse=True)[:_ASKED])
