"""The page of a project's sessions, live: what a browser of this machine asks, and what it is answered.

A store is opened for each request: it may change at any moment, and the server has threads.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from ctxvc.cli.commands.sessions import SessionItem, session_items
from ctxvc.cli.commands.stats import NAMES, answer_of
from ctxvc.cli.output import counted, hint_of, message_of
from ctxvc.cli.page.live_changes import Apply, ChangeRequest, Changes, state_of
from ctxvc.cli.page.pages import session_page, stats_page
from ctxvc.errors import BadInput, CtxvcError, NotFound
from ctxvc.loopback import Request, Response, new_token, text
from ctxvc.report.document import document
from ctxvc.sharing import remotes
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.tables import stats
from ctxvc.tables.stats import Source
from ctxvc.tokens.meter import Meter

#: Seconds between two looks at a session and at the list for news, and until a question for news is answered without.
_LOOK, _LOOK_AT_ALL, _WAIT = 0.3, 2.0, 20.0
#: Seconds after which a list of the sessions is answered, whether or not all are on it: at first, and then.
_LISTING, _LISTING_REST = 0.25, 3.0
#: Milliseconds after which a browser asks for news again.
_RETRY = 50
#: Seconds after its newest commit in which a session counts as running.
_RUNNING = 120
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_Asked = TypeVar("_Asked")
#: Gives the sessions of a remote as far as its indexes were fetched, each with the tips of its scopes there.
Shared = Callable[[], Mapping[str, Mapping[str, str]]]


class Access:
    """Who may ask: whoever has the cookie that the first request with the address's token is given."""

    def __init__(self) -> None:
        self.token = new_token()
        #: A part of the cookie's name: other servers of this machine have cookies too, which know no ports.
        self.port = 0
        self._first = new_token()
        self._lock = threading.Lock()

    @property
    def query(self) -> str:
        """The query of the first request's address."""
        return f"?t={self._first}"

    def credential(self, request: Request) -> str:
        """The token of a request: its cookie's, or ours if it has the address's token, which works once; else empty."""
        pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";"))
        if own := next((value for name, _, value in pairs if name == f"ctxvc-{self.port}"), ""):
            return own
        token = _fields(request.query).get("t", "")
        with self._lock:
            if request.path == "/" and self._first and hmac.compare_digest(token.encode(), self._first.encode()):
                self._first = ""
                return self.token
        return ""

    def welcome(self) -> Response:
        """The response that sets the cookie and leads to the page."""
        cookie = f"ctxvc-{self.port}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        return Response(303, headers=(("Location", "/"), ("Set-Cookie", cookie)))


class Live:
    """The answers to a browser's requests. Without `edit` it changes nothing.

    With `shared` only those sessions are there that it gives, each with the tips of its scopes: what a remote has.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        access: Access,
        *,
        project: str,
        edit: bool,
        shared: Shared | None = None,
        command: str = "ctxvc ui",
    ) -> None:
        self._shared = shared
        self._command = command
        self._store = store
        self._access = access
        self._project = project
        self._changes = Changes() if edit else None
        self._given: dict[str, str] = {}  # session → its state when its page was last given

    def answer(self, request: Request) -> Response:
        """The answer to a request that is allowed."""
        try:
            return self._answer(request, _fields(request.query))
        except NotFound as error:
            return _problem(404, error)
        except BadInput as error:
            return _problem(400, error)
        except CtxvcError as error:
            return _problem(409, error)

    def _answer(self, request: Request, fields: Mapping[str, str]) -> Response:
        match request.method, request.path:
            case "GET", "/":
                if "t" in fields:
                    return self._access.welcome()
                page = document(b"", title=f"ctxvc: {self._project}", live=True)
                return Response(200, page, "text/html; charset=utf-8")
            case "GET", "/api/project":
                return _json({"project": self._project, "edit": self._changes is not None})
            case "GET", "/api/sessions":
                return _json(self._sessions(_LISTING_REST if "rest" in fields else _LISTING))
            case "GET", "/api/stats":
                return self._stats(fields.get("by", "day"))
            case "GET", "/api/report":
                return self._report(fields.get("session", ""))
            case "GET", "/api/events":
                return self._events(fields.get("session", ""), request.headers.get("last-event-id", ""))
            case "POST", "/api/plan" | "/api/apply":
                if self._changes is None:
                    return text(403, "this page only shows: `ctxvc ui --edit` starts one that can change something")
                if request.path == "/api/plan":
                    change = _decoded(request, ChangeRequest)
                    with self._opened(change.session) as stored:
                        return _json(self._changes.plan(stored, change))
                approval = _decoded(request, Apply)
                with self._opened(approval.session) as stored:
                    return _json(self._changes.apply(stored, approval))
        return text(404, "there is no such page")

    def _sessions(self, seconds: float) -> Any:
        with self._store() as store:
            unreadable: list[CtxvcError] = []
            items, unlisted = session_items(store, unreadable, seconds=seconds)
            problems = [message_of(error) for error in unreadable]
            if self._shared:
                shared = self._shared()
                items = [item for item in items if item.name in shared]
                if absent := sum(not store.has(name) for name in shared):
                    problems.append(
                        f"{counted(absent, 'session')} of the remote not here yet: `ctxvc pull` brings what is there"
                    )
        now = time.time()
        return {
            "project": self._project,
            "missing": unlisted,
            "sessions": [_session(item, now) for item in items],
            "problems": problems,
        }

    def _stats(self, by: str) -> Response:
        """The page of what the sessions of the project spent, by this alone. Raises: BadInput."""
        if by not in NAMES:
            raise BadInput(f"stats cannot be grouped by {by[:20]!r}", hint=f"one of {', '.join(NAMES)}")
        with self._store() as store:
            only = self._shared() if self._shared else None
            sessions = stats.summed(store, by, [])  # type: ignore[arg-type]
            source = Source(str(store.path.parent), sessions, remotes.writers(store))
        page = stats_page([answer_of([source], by, only=only)], title=self._project, command=self._command)  # type: ignore[arg-type]
        return _json(page)

    def _report(self, name: str) -> Response:
        with self._opened(name) as stored:
            state = state_of(stored.store, name)
            tips = self._tips(stored)
            meter = Meter(stored.store, stored.ledger().meta.tokenizer)
            page = session_page(stored, meter, tips=tips, command=self._command)
            self._given[name] = state
        return Response(200, msgspec.json.encode(page), "application/json")

    def _events(self, name: str, seen: str) -> Response:
        """Waits for news since what the browser has seen, and ends: the browser asks again at once."""
        seen = seen or self._given.get(name, "")
        until = time.monotonic() + _WAIT
        while True:
            with self._store() as store:
                state = state_of(store, name) if name else _state_of_all(store)
            if state != seen or time.monotonic() > until:
                break
            time.sleep(_LOOK if name else _LOOK_AT_ALL)
        # Who has seen nothing yet learns only where things stand.
        event = ("changed" if name else "sessions") if seen and state != seen else ""
        lines = [f"retry: {_RETRY}", f"id: {state}", *([f"event: {event}", "data: {}"] if event else [])]
        return Response(200, ("\n".join(lines) + "\n\n").encode(), "text/event-stream")

    def _tips(self, stored: StoredSession) -> Sequence[str]:
        """What a remote has of a session, as far as it is here; none without a remote. Raises: NotFound."""
        if not self._shared:
            return ()
        scopes = self._shared()[stored.name]
        tips = [tip for tip in scopes.values() if tip in stored.store.repository]
        if not tips:
            raise NotFound(f"what the remote has of {stored.name} is not here yet", hint="`ctxvc pull` brings it")
        return tips

    @contextmanager
    def _opened(self, name: str) -> Iterator[StoredSession]:
        """A session by its full name. Raises: NotFound, Damaged."""
        with self._store() as store:
            if not name or not store.has(name) or (self._shared and name not in self._shared()):
                raise NotFound(f"no session {name[:80]!r}", hint="reload the list")
            stored = StoredSession.open(store, name)
            try:
                yield stored
            finally:
                stored.leave()


def _state_of_all(store: Store) -> str:
    digest = hashlib.sha256()
    for name, tips in sorted(store.all_tips().items()):
        digest.update(f"{name} {sorted(tips.items())}\n".encode())
    return digest.hexdigest()[:32]


def _session(item: SessionItem, now: float) -> Any:
    return {
        "id": item.name,
        "name": item.name,
        "title": item.title or item.prompt,
        "model": item.model,
        "time": item.updated,
        "blocks": item.blocks,
        "calls": item.steps,
        "percent": item.percent,
        "byProvider": item.by_provider,
        "spent": item.spent_tokens,
        "files": item.files,
        "cost": item.cost,
        "scopes": item.scopes,
        "running": now - _seconds(item.updated) < _RUNNING,
    }


def _json(value: Any) -> Response:
    return Response(200, msgspec.json.encode(value), "application/json")


def _problem(status: int, error: CtxvcError) -> Response:
    answer = {"problem": message_of(error), "hint": hint_of(error)}
    return Response(status, msgspec.json.encode(answer), "application/json")


def _decoded(request: Request, kind: type[_Asked]) -> _Asked:
    """Raises: BadInput."""
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"the request cannot be read: {error}", hint="reload the page") from error


def _fields(query: str) -> dict[str, str]:
    """The fields of a query; the last of a name counts."""
    pairs = (pair.partition("=") for pair in query.split("&"))
    return {_unescaped(name): _unescaped(value) for name, _, value in pairs if name}


def _unescaped(value: str) -> str:
    data = value.replace("+", " ").encode("utf-8", "replace")
    return _ESCAPE.sub(lambda code: bytes([int(code[1], 16)]), data).decode("utf-8", "replace")


def _seconds(updated: str) -> float:
    """The seconds since 1970 of a time as `sessions` has it; 0 if it has none."""
    return datetime.fromisoformat(updated.replace("Z", "+00:00")).timestamp() if updated else 0.0
