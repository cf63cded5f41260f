"""Brings the bodies of a store into its index of texts: for each session, those that are new since the last time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ctxvc.core.ledger.ledger import Row
from ctxvc.errors import Conflict, CtxvcError, Damaged, NotFound
from ctxvc.inspection.bodies import StoredBody, bodies, has_parts, read, searchable
from ctxvc.inspection.filters import SessionFacts
from ctxvc.inspection.text_index import IndexedBody, NewBody, TextIndex, fact
from ctxvc.store.cache import local_cache
from ctxvc.store.files import locked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge.apply import REF as PURGED
from ctxvc.store.store import Store

#: Part of each session's key: to be changed with the code that indexes.
_FORM = "texts 1"
_STAMP, _LOCK = "stamp", "texts.lock"
#: The characters of text at which a batch is added.
_BATCH = 16_000_000
_MOST_SESSIONS = 1_000

#: How a text is read from a body: as is, from the strings of JSON, from the parts of a result.
_FORMS: tuple[Row, ...] = tuple(
    Row(id="B1", kind="tool_result", role="user", origin="tool", msg=0, step=0, turn=0, bytes=0, sha256="", ext=ext,
        extra=extra)
    for ext, extra in (("txt", {}), ("json", {}), ("json", {"ctxvc": {"parts": True}}))
)  # fmt: skip

#: Called with the number of sessions that are done, and of all.
Progress = Callable[[int, int], None]


def refresh(store: Store, index: TextIndex, unreadable: list[CtxvcError], progress: Progress = lambda *_: None) -> None:
    """Brings the index up to date. Adds the errors of sessions that cannot be read to `unreadable`.

    Raises: Conflict if another process is at it for too long, or if something was purged meanwhile; CtxvcError.
    """
    stamp = f"{_FORM} {local_cache.sessions_stamp(store)}"
    if index.fact(_STAMP) == stamp:
        return
    with locked(store.cache_path / _LOCK):
        tips = store.all_tips()
        before = index.keys()
        keys = {name: local_cache.session_key(store, name, scopes, _FORM) for name, scopes in tips.items()}
        _Refresh(store, index, unreadable).sessions(
            [name for name in _by_age(store, tips) if before.get(name) != keys[name]], keys, progress
        )
        with index.writing() as writer:
            for name in before.keys() - tips.keys():
                writer.remove(name)
            is_worn = writer.is_worn
            writer.keep(_STAMP, "" if unreadable else stamp)
    if is_worn:
        index.forget()
        refresh(store, index, unreadable, progress)


def text_of(form: int, body: bytes) -> str:
    """The searched text of a body; of JSON, its strings without keys, each on a line of its own."""
    *strings, text = searchable(_FORMS[form], body)
    return "\n".join(strings) if strings else text


class _Refresh:
    """Adds sessions batch by batch. A batch is only added if nothing has been purged since the beginning."""

    def __init__(self, store: Store, index: TextIndex, unreadable: list[CtxvcError]) -> None:
        self._store = store
        self._index = index
        self._unreadable = unreadable
        self._purged = _purged(store)
        self._batch: list[NewBody] = []
        self._done: dict[str, str] = {}
        self._size = 0

    def sessions(self, names: Sequence[str], keys: Mapping[str, str], progress: Progress) -> None:
        for number, name in enumerate(names):
            progress(number, len(names))
            try:
                stored = StoredSession.for_reading(self._store, name)
                for new in _new(stored, self._index.blobs(name)):
                    self._batch.append(new)
                    self._size += len(new.text)
                    if self._size >= _BATCH:
                        self._write()
            except (Damaged, NotFound) as error:
                self._unreadable.append(error)
                continue
            self._done[name] = keys[name]
            if len(self._done) >= _MOST_SESSIONS:
                self._write()
        self._write()

    def _write(self) -> None:
        with self._store.shared():
            if _purged(self._store) != self._purged:
                raise Conflict("something was purged meanwhile", hint="try again")
            with self._index.writing() as writer:
                writer.add(self._batch)
                writer.finish(self._done)
        self._batch, self._done, self._size = [], {}, 0


def _purged(store: Store) -> str:
    references = store.repository.references
    return str(references[PURGED].target) if PURGED in references else ""


def _by_age(store: Store, tips: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The sessions, oldest first, so that the newest are added last."""
    return sorted(tips, key=lambda name: (max(_time(store, tip) for tip in tips[name].values()), name))


def _time(store: Store, tip: str) -> int:
    try:
        return store.commit(tip).author.time
    except Damaged:
        return 0


def _new(stored: StoredSession, indexed: set[bytes]) -> Iterator[NewBody]:
    """The session's bodies that are not indexed yet, with their texts."""
    scopes = sorted(stored.scopes(), key=lambda scope: scope != stored.scope)
    fresh = [
        body
        for body in bodies([(stored, scopes)], lambda row: row.kind != "dashboard", whole=True)
        if body.blob not in indexed
    ]
    if not fresh:
        return
    oldest: dict[str, int] = {}
    for body in fresh:
        place = body.places[0]
        oldest[place.scope] = min(place.row.step, oldest.get(place.scope, place.row.step))
    session = SessionFacts(stored, oldest)
    for body, data in read(stored.store, fresh):
        yield _new_body(stored, session, body, data)


def _new_body(stored: StoredSession, session: SessionFacts, body: StoredBody, data: bytes) -> NewBody:
    place = body.places[0]
    row = place.row
    form = 0 if row.ext != "json" else 2 if has_parts(row) else 1
    text = text_of(form, data)
    return NewBody(
        body=IndexedBody(
            session=stored.name, scope=place.scope, block=row.number, size=len(text), form=form,
            time=session.time(place.scope, row), blob=body.blob,
        ),
        text=text,
        facts=[
            fact("k", row.kind), fact("a", session.agent), fact("s", stored.name),
            *(fact("f", name) for name in sorted(session.files(place.scope, row))),
        ],
    )  # fmt: skip
