"""The store as a host's tools read it and write notes into it.

Each call opens the store for itself: several servers, hooks and people may be at work on it at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ctxvc.agent.tools import phrases
from ctxvc.agent.tools.phrases import MODEL
from ctxvc.agent.tools.search import COUNTED, search
from ctxvc.agent.tools.tools import ERROR
from ctxvc.core.display import one_line
from ctxvc.core.prompt.recover import NoRoom, readable
from ctxvc.core.view import dashboard_text
from ctxvc.errors import BadInput, CtxvcError, NotFound, Phrase, render
from ctxvc.inspection import blame
from ctxvc.mcp import offer
from ctxvc.mcp.protocol import Wrong
from ctxvc.session.session import Session
from ctxvc.store import address as addresses
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.session_name import resolve
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter

#: Tokens of the dashboard.
BOARD = 4_000
#: The most notes of a list, and the most other sessions that `status` names.
LISTED = 50
SESSIONS = 20
#: The most lines of an answer of `why`, and the characters of one.
_LINES, _WIDE = 60, 300
_ESCAPES = re.compile(rb"%([0-9A-Fa-f]{2})")

#: What the client says of a call → the session that it is in; empty if it says nothing. Raises: NotFound.
OfCall: TypeAlias = Callable[[Store, Mapping[str, Any]], str]
#: A line of a file, a file or a commit → the answer in lines, and the addresses in it. Raises: CtxvcError.
Explain: TypeAlias = Callable[[Store, str], tuple[Sequence[str], Sequence[str]]]


class Recorded:
    """Each call and each resource on the store that `find` returns."""

    def __init__(self, find: Callable[[], Path], default: str, of_call: OfCall, explain: Explain | None) -> None:
        self._find = find
        self._default = default
        self._of_call = of_call
        self._explain = explain

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct:
        """What the tool answers. Raises: Wrong."""
        with self._session(getattr(arguments, "session", ""), meta, reads=name not in ("note", "recover")) as session:
            match arguments:
                case offer.NoteArguments():
                    return _note(session, arguments)
                case offer.NotesArguments():
                    return _notes(session, arguments)
                case offer.RecoverArguments():
                    return _recover(session, arguments)
                case offer.SearchArguments():
                    return _search(session, arguments)
                case offer.StatusArguments():
                    return _status(session)
                case offer.WhyArguments():
                    return self._why(session, arguments.target)
        raise AssertionError(name)

    def text(self, uri: str, meta: Mapping[str, Any]) -> str:
        """The text of a resource. Raises: Wrong."""
        if uri == offer.DASHBOARD:
            with self._session("", meta, reads=True) as session:
                return _dashboard(session)
        if not uri.startswith(offer.BLOCK):
            raise Wrong(f"there is no resource {one_line(uri, 100)}")
        parts = _decoded(uri.removeprefix(offer.BLOCK)).split("/")
        place = f"{parts[0]}/{'/'.join(parts[1:-1])}:" if len(parts) > 2 else f"{parts[0]}:" if len(parts) > 1 else ""
        with self._session("", meta) as session:
            blocks = session.recover_bytes(place + parts[-1])
            return "\n".join(readable(row, body) for row, body in blocks)

    def _why(self, session: Session, target: str) -> offer.Why:
        resolved = addresses.target(session.stored, target)
        if resolved is not None and (item := resolved.row or resolved.group) is not None:
            events = blame.events(session.stored, resolved.snapshot.scope, item.id)
            return _answer(target, [_line(event) for event in events], [item.id])
        if self._explain is None:
            raise NotFound(f"{target[:80]!r} is not a block or group")
        return _answer(target, *self._explain(session.store, target))

    @contextmanager
    def _session(self, name: str, meta: Mapping[str, Any], *, reads: bool = False) -> Iterator[Session]:
        """The session of a call, open for that call. Raises: Wrong."""
        try:
            with Store(self._find()) as store:
                if not store.sessions():
                    raise NotFound("nothing is recorded yet", hint=Phrase("import-sessions"))
                session = Session(StoredSession.open(store, self._name(store, name, meta)))
                try:
                    yield session
                finally:
                    session.stored.leave() if reads else session.close()
        except CtxvcError as error:
            raise Wrong(_error_text(error)) from error

    def _name(self, store: Store, name: str, meta: Mapping[str, Any]) -> str:
        if name:
            return resolve(store, name)
        if self._default:
            self._default = resolve(store, self._default)  # `-1` is the same session in later calls
            return self._default
        return self._of_call(store, meta)


def _note(session: Session, call: offer.NoteArguments) -> offer.Noted:
    if len(call.text) > offer.NOTE:
        raise BadInput(
            f"the note has {len(call.text):,} characters; at most {offer.NOTE:,} are allowed", hint="shorten it"
        )
    noted = session.note(call.text, labels=call.labels, supersedes=call.supersedes)
    superseded = [target for target in call.supersedes if target not in {one.target for one in noted.problems}]
    return offer.Noted(session=session.name, scope=session.scope, block=noted.block, superseded=superseded)


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


def _recover(session: Session, call: offer.RecoverArguments) -> offer.Recovered:
    try:
        part = session.recover(
            call.address,
            lines=call.lines,
            chars=call.chars,
            grep=call.grep or None,
            path=call.path,
            most=call.max_tokens,
            bounded=False,
        )
    except NoRoom as error:  # the host's context is not ours: a number can only be too small
        raise NoRoom(str(error), hint="ask for more max_tokens") from error
    return offer.Recovered(
        address=call.address,
        header=part.heading(MODEL),
        content=part.content,
        complete=part.complete,
        next=render(part.call or "", MODEL),
    )


def _search(session: Session, call: offer.SearchArguments) -> offer.Searched:
    store = session.store
    names = [other for other in store.sessions() if other != session.name] if call.all_sessions else []
    others = [StoredSession.open(store, other) for other in names]
    for other in others:
        other.leave()  # reading must not write anything
    result = search(session.stored, call.pattern, ignore_case=call.ignore_case, others=others)
    matches = [
        offer.Found(
            address=match.address,
            kind=match.kind,
            step=match.step,
            in_recorded_prompt=match.state in ("visible", "pinned", "masked"),
            lines=[offer.Line(number=number, text=text) for number, text in match.lines],
            further_lines=match.more,
        )
        for match in result.found
    ]
    further = min(result.more, COUNTED)
    return offer.Searched(session=session.name, found=matches, further_blocks=further, unfinished=result.unfinished)


def _status(session: Session) -> offer.Status:
    rows = list(session.ledger().rows())
    return offer.Status(
        session=session.name,
        scope=session.scope,
        scopes=session.scopes(),
        steps=session.ledger().meta.counters.step,
        blocks=len(rows),
        blocks_out_of_recorded_prompt=sum(not row.present for row in rows),
        recorded_prompt_tokens=session.used(),
        notes=sum(row.kind == "note" for row in rows),
        other_sessions=[other for other in session.store.sessions() if other != session.name][:SESSIONS],
    )


def _dashboard(session: Session) -> str:
    ledger = session.ledger()
    notes, older = dashboard_text.recent_notes(ledger, session.stored.body)
    count = Meter(session.store, ledger.meta.tokenizer).count
    return dashboard_text.full_text(session.dashboard(), notes, older, cap=BOARD, count=count)


def _line(event: blame.Event) -> str:
    decided = f", by {event.entry.actor}: {event.entry.subject}" if event.entry else ""
    return f"step {event.step}: {event.what}{decided}"


def _decoded(part: str) -> str:
    """Part of an address without its percent signs."""
    data = _ESCAPES.sub(lambda found: bytes([int(found[1], 16)]), part.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "replace")


def _answer(target: str, lines: Sequence[str], blocks: Sequence[str]) -> offer.Why:
    more = [f"({len(lines) - _LINES} more lines)"] if len(lines) > _LINES else []
    answer = [*(one_line(line, _WIDE) for line in lines[:_LINES]), *more]
    return offer.Why(target=target, answer=answer, addresses=list(dict.fromkeys(blocks)))


def _error_text(error: CtxvcError) -> str:
    return one_line("; ".join(filter(None, (phrases.message(error), phrases.hint(error)))), ERROR)
