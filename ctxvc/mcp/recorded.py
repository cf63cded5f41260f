"""Reads a store and writes notes into it, for a host's tools.

Each call opens the store for itself: several servers, hooks and people may use it at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ctxvc.agent.tools import phrases
from ctxvc.agent.tools.tools import ERROR
from ctxvc.agent.tools.why import explanation
from ctxvc.core import project_notes as noted
from ctxvc.core.display import one_line
from ctxvc.core.ledger import notes as noting
from ctxvc.core.prompt.recover import NoRoom
from ctxvc.core.view import model_dashboard
from ctxvc.errors import BadInput, Conflict, CtxvcError, NotFound, Phrase, render
from ctxvc.inspection.window_percent import occupancy
from ctxvc.mcp import offer, prompts, resources
from ctxvc.mcp import search as searching
from ctxvc.mcp.contract import Content, Page, Wrong
from ctxvc.phrases import MODEL
from ctxvc.session import project_notes
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.read.address import Resolved
from ctxvc.store.read.session_name import by_recency, resolve
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter

if TYPE_CHECKING:
    from ctxvc.mcp.recordings import Recordings

#: Tokens of the dashboard.
BOARD = 4_000
#: The most notes in a list, and the most other sessions that `status` names.
LISTED = 50
SESSIONS = 20
#: Seconds that a call waits for the first recording.
_PATIENCE = 5.0

#: What a call may change: nothing, the count of readings, or the notes.
Change: TypeAlias = Literal["none", "reading", "note"]
_TRIES = 16  # to count a reading while others do
_CHANGES: Mapping[str, Change] = {"note": "note", "recover": "reading"}


class Recorded:
    """Serves calls and resources as `options` say."""

    def __init__(self, options: Recordings) -> None:
        self._options = options
        self._default = options.default
        self._is_there = False

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct:
        """The result of a tool. Raises: Wrong."""
        self._check_allowed(arguments)
        with self._session(getattr(arguments, "session", ""), meta, change=_CHANGES.get(name, "none")) as session:
            match arguments:
                case offer.NoteArguments(project=True):
                    return _project_note(session, arguments)
                case offer.NotesArguments(project=True):
                    return _project_notes(session, arguments)
                case offer.NoteArguments():
                    return _note(session, arguments)
                case offer.NotesArguments():
                    return _notes(session, arguments)
                case offer.RecoverArguments():
                    return _recover(session, arguments)
                case offer.SearchArguments():
                    return searching.search(session, arguments)
                case offer.StatusArguments():
                    return _status(session)
                case offer.WhyArguments():
                    explained = explanation(session.stored, arguments.target, self._options.explain)
                    return offer.Why(target=arguments.target, answer=explained.lines, addresses=explained.addresses)
        raise AssertionError(name)

    def _check_allowed(self, arguments: msgspec.Struct) -> None:
        """Raises: Wrong for what needs a person's permission and has none."""
        match arguments:
            case offer.NoteArguments(project=True) | offer.NotesArguments(project=True):
                if not self._options.project_notes:
                    raise Wrong("this server gives no notes of the project; a person has to start it so that it does")
            case offer.SearchArguments(all_projects=False, project="") | offer.RecoverArguments(project=""):
                pass
            case offer.SearchArguments() | offer.RecoverArguments():
                if not self._options.all_projects:
                    raise Wrong("this server reads no other project; a person has to start it so that it does")

    def resources(self, cursor: str, meta: Mapping[str, Any]) -> Page:
        """A page of the resources; only the dashboard if nothing is recorded yet. Raises: Wrong for a bad cursor."""
        if not cursor and not self._has_sessions():
            return Page([offer.BOARD], "")
        try:
            with self._session("", meta) as session:
                return resources.page(session, cursor)
        except Wrong:
            if cursor:
                raise
            return Page([offer.BOARD], "")  # a client lists resources before its conversation is recorded

    def contents(self, uri: str, meta: Mapping[str, Any]) -> Sequence[Content]:
        """The text of a resource. Raises: Wrong."""
        if uri == offer.DASHBOARD:
            with self._session("", meta) as session:
                return [Content(uri, _dashboard(session))]
        if not uri.startswith(offer.BLOCK):
            raise Wrong(f"there is no resource {one_line(uri, 100)}")
        with self._session("", meta, change="reading") as session:
            return list(resources.texts(session, uri))

    def prompt(self, name: str, arguments: Mapping[str, str], meta: Mapping[str, Any]) -> str:
        """The text of a prompt. Raises: Wrong."""
        with self._session(arguments.get("session", ""), meta) as session:
            return prompts.text(name, arguments, session)

    def completions(self, argument: str, beginning: str) -> Sequence[str]:
        """The names with this beginning of sessions, newest first, or of scopes; empty if there is no store."""
        try:
            with Store(self._options.find()) as store:
                names: Sequence[str] = []
                if argument == "session":
                    names = by_recency(store)
                elif argument == "scope" and store.sessions():
                    names = StoredSession.open(store).scopes()
        except CtxvcError:
            return []
        return [name for name in names if name.startswith(beginning)]

    def _has_sessions(self) -> bool:
        if not self._is_there:
            with suppress(CtxvcError), Store(self._options.find()) as store:
                self._is_there = bool(store.sessions())
        return self._is_there

    def _await_first(self) -> None:
        """Waits for a first recording, if one is coming: a client may call before its first message is written."""
        until = time.monotonic() + _PATIENCE
        while not self._has_sessions() and self._options.is_coming() and time.monotonic() < until:
            time.sleep(0.05)

    @contextmanager
    def _session(self, name: str, meta: Mapping[str, Any], *, change: Change = "none") -> Iterator[Session]:
        """Opens the session of a call for its duration. Raises: Wrong."""
        self._await_first()
        try:
            with Store(self._options.find()) as store:
                if not store.sessions():
                    raise NotFound("nothing is recorded yet", hint=Phrase("import-sessions"))
                session = Session(self._opened(store, name, meta, change))
                try:
                    yield session
                finally:
                    session.stored.leave() if change == "none" else session.close()
        except CtxvcError as error:
            raise Wrong(_error_text(error)) from error

    def _opened(self, store: Store, name: str, meta: Mapping[str, Any], change: Change) -> StoredSession:
        """The session and scope of a call. Raises: NotFound."""
        if name:
            return StoredSession.open(store, resolve(store, name))
        if self._default:
            self._default = resolve(store, self._default)  # `-1` is the same session in later calls
            return StoredSession.open(store, self._default)
        session, scope = self._options.of_call(store, meta)
        stored = StoredSession.open(store, session)
        if not scope or scope == stored.scope:
            return stored
        if scope in stored.scopes():
            return StoredSession.open(store, stored.name, scope)
        if change == "note":  # it must not go into another scope
            raise NotFound(
                f"the scope {scope} of this call is not recorded yet",
                hint="call again in a moment, or name the session to write into its current scope",
            )
        return stored


def _note(session: Session, call: offer.NoteArguments) -> offer.Noted:
    if len(call.text) > offer.NOTE:
        raise BadInput(
            f"the note has {len(call.text):,} characters; at most {offer.NOTE:,} are allowed", hint="shorten it"
        )
    written = session.note(call.text, labels=call.labels, supersedes=call.supersedes)
    superseded = [block for block, by in noting.superseded(session.ledger()).items() if by == written.block]
    return offer.Noted(session=session.name, scope=session.scope, block=written.block, superseded=superseded)


def _notes(session: Session, call: offer.NotesArguments) -> offer.Notes:
    all_notes = session.notes(call.scope, label=call.label)
    newest = [
        offer.NoteItem(
            block=item.block, step=item.step, text=item.text, labels=list(item.labels), superseded=item.superseded
        )
        for item in all_notes[-LISTED:]
    ]
    older = len(all_notes) - len(newest)
    return offer.Notes(session=session.name, scope=call.scope or session.scope, notes=newest, older=older)


def _project_note(session: Session, call: offer.NoteArguments) -> offer.Noted:
    note = project_notes.add(
        session.store, call.text, actor="agent", name=call.name, labels=call.labels,
        learned=(session.name, session.scope, session.ledger().meta.counters.step), root=session.store.path.parent,
    )  # fmt: skip
    place, _, block = note.address.partition(":")
    name, _, scope = place.partition("/")
    return offer.Noted(session=name, scope=scope, block=block, superseded=list(note.about.replaces))


def _project_notes(session: Session, call: offer.NotesArguments) -> offer.Notes:
    all_notes = [note for note in project_notes.notes(session.store) if not call.label or call.label in note.labels]
    fitting = noted.fitting(all_notes, call.about)
    chosen = fitting[:LISTED]
    digests = project_notes.digests(session.store.path.parent, chosen)
    items = [
        offer.NoteItem(
            block=note.address,
            step=note.about.step,
            text=note.text,
            labels=list(note.labels),
            superseded="",
            name=note.about.name,
            learned=f"{note.about.session}/{note.about.scope}" if note.about.session else "",
            changed=note.stale(digests),
        )
        for note in chosen
    ]
    return offer.Notes(session="", scope="", notes=items, older=len(fitting) - len(items))


def _recover(session: Session, call: offer.RecoverArguments) -> offer.Recovered:
    """The part that is read. Each of several simultaneous readings of a block is counted: a conflict is retried."""
    if call.project:
        with searching.other_project(session.store, call.project) as store:
            return _reading(session, call, searching.in_store(store, call.address))
    for _ in range(_TRIES - 1):
        with suppress(Conflict):
            return _reading(session, call)
    return _reading(session, call)


def _reading(session: Session, call: offer.RecoverArguments, elsewhere: Resolved | None = None) -> offer.Recovered:
    """Reads and counts once. Raises: Conflict if another reading was counted meanwhile, and as `Session.recover`."""
    try:
        part = session.recover(
            call.address,
            lines=call.lines,
            chars=call.chars,
            grep=call.grep or None,
            path=call.path,
            most=call.max_tokens,
            bounded=False,
            elsewhere=elsewhere,
        )
    except NoRoom as error:  # not for lack of room, which is the host's: max_tokens was too small
        raise NoRoom(str(error), hint="ask for more max_tokens") from error
    following = render(part.call or "", MODEL)
    return offer.Recovered(
        address=call.address,
        header=part.heading(MODEL),
        content=part.content,
        complete=part.complete,
        next=f"{following} project {call.project}" if following and call.project else following,
    )


def _status(session: Session) -> offer.Status:
    rows = list(session.ledger().rows())
    snapshot = revision.now(session.stored, session.scope)
    meter = Meter(session.store, snapshot.ledger.meta.tokenizer)
    window = occupancy(session.store, snapshot, meter, meter.costs(snapshot))
    return offer.Status(
        session=session.name,
        scope=session.scope,
        scopes=session.scopes(),
        steps=session.ledger().meta.counters.step,
        blocks=len(rows),
        blocks_out_of_recorded_prompt=sum(not row.present for row in rows),
        recorded_prompt_tokens=session.used(),
        prompt_tokens=window.tokens,
        prompt_counted_by="provider" if window.by_provider else "estimate",
        unrecorded_tokens=window.unrecorded,
        window=window.window,
        notes=sum(row.kind == "note" for row in rows),
        other_sessions=[other for other in session.store.sessions() if other != session.name][:SESSIONS],
    )


def _dashboard(session: Session) -> str:
    ledger = session.ledger()
    notes, older = model_dashboard.recent_notes(ledger, session.stored.body)
    count = Meter(session.store, ledger.meta.tokenizer).count
    return model_dashboard.full_text(session.dashboard(), notes, older, cap=BOARD, count=count)


def _error_text(error: CtxvcError) -> str:
    return one_line("; ".join(filter(None, (phrases.message(error), phrases.hint(error)))), ERROR)
