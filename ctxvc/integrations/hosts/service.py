"""The answers of `ctxvc serve`: one request of a host's extension, one answer (docs/serve.md)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.agent.tools import phrases, why
from ctxvc.agent.tools.definitions import definitions
from ctxvc.core import display
from ctxvc.core.ledger import name_rules, wire
from ctxvc.core.policy import Policy, Terms
from ctxvc.errors import BadInput, CtxvcError, NotFound, Refused
from ctxvc.importers import pi as pi_recording
from ctxvc.integrations.hosts import opencode, pi
from ctxvc.integrations.hosts.conversation import TOOLS, HostConversation
from ctxvc.integrations.hosts.lookup import HostSession, conversation
from ctxvc.integrations.hosts.message import Host
from ctxvc.store.store import Store

#: The version of the protocol.
PROTOCOL = 1
#: The most bytes of a request, and of an id in one.
LARGEST = 256 << 20
_LONGEST_ID = 500
#: Conversations that stay open; the one that was used least recently is closed first.
_OPEN = 8
#: What stands before the names of our tools in a host, which has tools of its own.
PREFIX = "context_"
HOSTS: Mapping[str, Host] = {module.NAME: module for module in (pi, opencode)}


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first request: whose extension this is, and of which version of ctxvc."""

    host: str
    version: str
    protocol: int = 0


class OfSession(msgspec.Struct, frozen=True, kw_only=True):
    """What a request about a session of the host says of it."""

    session: str


class Messages(OfSession, frozen=True, kw_only=True):
    """The messages of the host's next request, or some that it summarises.

    `parent` is the session it was forked from, if known.
    """

    messages: list[dict[str, Any]]
    parent: str = ""
    model: str = ""
    window: int = 0
    reserve: int = 0
    system: str = ""
    tools: list[dict[str, Any]] = []


class Edits(OfSession, frozen=True, kw_only=True):
    """Messages that the host keeps, to be kept as they were sent."""

    messages: list[dict[str, Any]]


class Tool(OfSession, frozen=True, kw_only=True):
    """A call of one of our tools."""

    tool: str
    arguments: dict[str, Any] = {}
    call: str = ""


class Service:
    """What one client is answered. It holds no lock from one request to the next."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        policy: Callable[[], Policy],
        *,
        version: str,
        folder: Path,
        explain: why.Explain,
        budget: int = 0,
    ) -> None:
        """`policy` gives the one that the person set, or the usual one, and `budget` the most tokens they allow.
        `explain` is asked why code is as it is.
        """
        self._open_store = open_store
        self._policy = policy
        self._version = version
        self._folder = folder
        self._explain = explain
        self._budget = budget
        self._host: Host | None = None
        self._store: Store | None = None
        self._conversations: OrderedDict[str, HostConversation] = OrderedDict()

    def close(self) -> None:
        """Commits what is complete, and closes all files."""
        for open_conversation in self._conversations.values():
            open_conversation.close()
        self._conversations.clear()
        if self._store:
            self._store.close()

    def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to a request, an error too: what was wrong and what to do, in `error` and `hint`."""
        number: Any = None
        try:
            request = _parsed(line)
            number = request.get("id")
            number = number if isinstance(number, int | str) else None
            return {"id": number, **self._answer(str(request.get("verb")), request)}
        except CtxvcError as error:
            hint = phrases.hint(error) or ""
            return {"id": number, "error": display.one_line(phrases.message(error), 500), "hint": hint}

    def _answer(self, verb: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "hello":
            return self._hello(_fields(request, Hello))
        if self._host is None:
            raise BadInput("the first request is not `hello`", hint="send `hello` first")
        match verb:
            case "messages":
                return self._messages(self._host, _fields(request, Messages))
            case "edits":
                edits = _fields(request, Edits)
                return {"messages": self._conversation(edits.session).edits(edits.messages)}
            case "summary":
                messages = _fields(request, Messages)
                return {"messages": self._recorded(self._host, messages).sent(messages.messages)}
            case "tool":
                call = _fields(request, Tool)
                tool = call.tool.removeprefix(PREFIX)
                answer = self._conversation(call.session).answer(tool, call.arguments, call.call, self._explain)
                return {"text": answer.text, "is_error": answer.error}
            case "compact":
                messages = _fields(request, Messages)
                compacted = self._recorded(self._host, messages)
                return {"freed": compacted.compact(messages.messages), **_state(compacted)}
            case "status":
                return _state(self._conversation(_fields(request, OfSession).session))
        raise BadInput(
            f"there is no verb {verb[:40]!r}", hint="hello, messages, summary, edits, tool, compact or status"
        )

    def _hello(self, hello: Hello) -> dict[str, Any]:
        if hello.version != self._version or hello.protocol != PROTOCOL:
            raise Refused(
                f"the extension is of ctxvc {hello.version[:40]}, and this is {self._version}",
                hint="install the extension again, by the program of this version",
            )
        if hello.host not in HOSTS:
            raise BadInput(f"there is no host {hello.host[:40]!r}", hint=f"there are {', '.join(HOSTS)}")
        about = {"version": self._version, "protocol": PROTOCOL}
        try:
            self._store = self._store or self._open_store()
        except NotFound:
            return {**about, "store": "", "tools": []}  # nothing is recorded in this project
        self._host = HOSTS[hello.host]
        own_tools = [*definitions(Terms(tools=TOOLS, folds=False)), *why.definitions()]
        tools = [{**tool, "name": PREFIX + tool["name"]} for tool in own_tools]
        return {**about, "store": str(self._store.path), "tools": tools}

    def _recorded(self, host: Host, request: Messages) -> HostConversation:
        """The conversation, with the model and the window that the host has now."""
        if request.session in self._conversations:
            recorded = self._conversation(request.session)
        else:
            recorded = self._opened(host, request)
        window = min(filter(None, (request.window, self._budget)), default=0)
        recorded.resize(request.model[:_LONGEST_ID], max(window, 0), max(request.reserve, 0))
        return recorded

    def _messages(self, host: Host, request: Messages) -> dict[str, Any]:
        prompt = self._recorded(host, request).prompt(request.messages)
        return {"messages": prompt.messages, "used": prompt.used, "budget": prompt.budget, "edited": prompt.edited}

    def _opened(self, host: Host, request: Messages) -> HostConversation:
        assert self._store is not None
        if not request.session or len(request.session) > _LONGEST_ID:
            raise BadInput("the session has no id of a usual length", hint="give the host's own id")
        host_session = HostSession(
            source=request.session,
            name=_name(host, request.session),
            parent=request.parent,
            model=request.model[:_LONGEST_ID],
            folder=str(self._folder),
            system=request.system,
            tools=request.tools,
        )
        opened = conversation(host, self._store, host_session, request.messages, self._policy())
        while len(self._conversations) >= _OPEN:
            _, oldest = self._conversations.popitem(last=False)
            oldest.close()
        self._conversations[request.session] = opened
        return opened

    def _conversation(self, session: str) -> HostConversation:
        if session not in self._conversations:
            raise BadInput("this session has sent no messages yet", hint="send `messages` first")
        self._conversations.move_to_end(session)
        return self._conversations[session]


def _name(host: Host, session: str) -> str:
    """The name of a new session: for pi the one that an import would give it."""
    if host.NAME == pi.NAME:
        return pi_recording.session_name(session)
    return f"{host.NAME}-{name_rules.slug(session[-8:])}"


def _state(open_conversation: HostConversation) -> dict[str, Any]:
    session = open_conversation.session
    view = session.view()
    absent = sum(not row.present for row in view.ledger.rows())
    return {
        "session": session.name,
        "scope": session.scope,
        "used": view.used,
        "budget": view.budget.effective,
        "blocks": len(view.ledger),
        "archived": absent,
    }


def _parsed(line: bytes) -> dict[str, Any]:
    """Raises: BadInput for a line that is no request."""
    try:
        value = wire.parse(line)
    except ValueError as error:
        raise BadInput(f"not JSON: {error}", hint="send one JSON object a line") from error
    if not isinstance(value, dict):
        raise BadInput("not an object", hint="send one JSON object a line")
    return value


def _fields(request: Mapping[str, Any], kind: type[Any]) -> Any:
    """Raises: BadInput."""
    fields = kind.__struct_fields__
    try:
        return msgspec.convert({name: request[name] for name in fields if request.get(name) is not None}, kind)
    except msgspec.ValidationError as error:
        raise BadInput(str(error)[:200], hint=f"it has {', '.join(fields)}") from error
