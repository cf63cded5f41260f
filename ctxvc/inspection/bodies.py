"""The bodies of a store, each read once, however many sessions, scopes and commits contain it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt import truncation
from ctxvc.core.prompt.recover import readable
from ctxvc.errors import CtxvcError, Damaged, Phrase
from ctxvc.inspection.filters import Filters
from ctxvc.store.git.objects import Objects, Tree, Unreadable, blob_id, unhashed
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: The most bodies, and bytes of bodies, read at once, since not to hash is a setting of the whole process.
_MANY = 1_000
_BATCH = 4_000_000


class Place(msgspec.Struct, frozen=True, gc=False):
    """A current place of a body."""

    session: str
    scope: str
    row: Row
    #: The project's folder, if several projects are read.
    project: str = ""

    @property
    def address(self) -> str:
        return f"{self.session}/{self.scope}:{self.row.id}"


class StoredBody(msgspec.Struct, frozen=True):
    """A body and its places. `blob` is its id in git, 20 bytes; `data` its bytes if it is not in git."""

    blob: bytes
    places: list[Place]
    data: bytes | None = None


def bodies(
    sessions: Iterable[tuple[StoredSession, Sequence[str]]],
    accepts: Callable[[Row], bool],
    *,
    filters: Filters | None = None,
    whole: bool = False,
    project: str = "",
    unreadable: list[CtxvcError] | None = None,
) -> list[StoredBody]:
    """The text bodies that `accepts` and the `filters` accept, by session, scope and number; equal ones once.

    With `whole`, an output that the model saw truncated is returned whole if it is stored, as by `recover`. `project`
    is the folder for their places. The errors of damaged scopes are added to `unreadable`. Raises: Damaged, without
    `unreadable`.
    """
    by_blob: dict[bytes, StoredBody] = {}
    for session, scopes in sessions:
        for scope in scopes:
            try:
                for row, blob, data in _of_scope(session, scope, accepts, filters, untruncated=whole):
                    place = Place(session.name, scope, row, project)
                    by_blob.setdefault(blob, StoredBody(blob, [], data)).places.append(place)
            except Damaged as error:
                if unreadable is None:
                    raise
                unreadable.append(error)
    return list(by_blob.values())


def _of_scope(
    session: StoredSession, scope: str, accepts: Callable[[Row], bool], filters: Filters | None, *, untruncated: bool
) -> Iterator[tuple[Row, bytes, bytes | None]]:
    """The accepted rows of a scope, as their bodies are to be read, each with its blob's id, and its bytes if these are
    not in git."""
    is_within = filters.of_session(session, scope) if filters else accepts
    rows = [row for row in session.ledger(scope).rows() if accepts(row) and _is_text(row) and is_within(row)]
    committed = _committed(Objects(session.store.repository), session.tip(scope)) if rows else {}
    for row in rows:
        file = truncation.whole(row) if untruncated else ""
        blob = committed.get(f"{row.id}-{file}".encode() if file else f"{row.id}.{row.ext}".encode())
        data = None
        if blob is None:
            data = session.file(row, file, scope) if file else session.body(row, scope)
            blob = blob_id(data)
        yield msgspec.structs.replace(row, ext="txt", extra={}) if file else row, blob, data


def read(
    store: Store, stored: Iterable[StoredBody], unreadable: list[CtxvcError] | None = None
) -> Iterator[tuple[StoredBody, bytes]]:
    """Each body with its bytes, in the same order, without a check of its hash.

    Damaged bodies are left out, and their errors added to `unreadable`. Raises: Damaged, without `unreadable`.
    """
    objects = Objects(store.repository)
    for batch in _batches(stored):
        with unhashed():
            contents = [(body, _read(objects, body, unreadable)) for body in batch]
        yield from ((body, data) for body, data in contents if data is not None)


def searchable(row: Row, body: bytes) -> Iterator[str]:
    """The texts of a body: each string of a JSON body, then the text itself, whose lines `recover` numbers."""
    if row.ext == "json" and not has_parts(row):
        try:
            yield from _strings(wire.parse(body))
        except ValueError:
            pass  # the text itself is all there is
    yield readable(row, body)


def damaged(error: Unreadable, name: str) -> Damaged:
    """The error for an object that cannot be read."""
    return Damaged(f"{name}: {error}", hint=Phrase("verify-all-hit", lost="it"))


def has_parts(row: Row) -> bool:
    """Whether a body is a list of parts, whose texts are its text."""
    return row.kind == "tool_result" and wire.own_metadata(row.extra).get("parts") is True


def _is_text(row: Row) -> bool:
    return row.ext in ("txt", "json") or (row.ext == "bin" and row.kind not in ("image", "document"))


def _strings(value: object) -> Iterator[str]:
    """The strings in a JSON value, without keys. Deep values need no deep stack."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as words:
                yield words
            case dict() as fields:
                pending.extend(reversed(fields.values()))
            case list() as items:
                pending.extend(reversed(items))


def _committed(objects: Objects, tip: str) -> dict[bytes, bytes]:
    """File name → blob id, for all bodies in the tree of a commit."""
    blobs: dict[bytes, bytes] = {}
    try:
        root = objects.tree(objects.commit(bytes.fromhex(tip)).tree)
        for top in (b"archive", b"blocks"):
            for high in _folders(objects, root, top):
                for _, low in high.values():
                    blobs.update((name, blob) for name, (_, blob) in objects.tree(low).items())
    except Unreadable as error:
        raise damaged(error, f"commit {tip[:12]}") from error
    return blobs


def _folders(objects: Objects, root: Tree, name: bytes) -> Iterator[Tree]:
    if name in root:
        for _, folder in objects.tree(root[name][1]).values():
            yield objects.tree(folder)


def _read(objects: Objects, body: StoredBody, unreadable: list[CtxvcError] | None) -> bytes | None:
    if body.data is not None:
        return body.data
    try:
        return objects.blob(body.blob)
    except Unreadable as error:
        if unreadable is None:
            raise damaged(error, body.places[0].address) from error
        unreadable.append(damaged(error, body.places[0].address))
        return None


def _batches(stored: Iterable[StoredBody]) -> Iterator[list[StoredBody]]:
    batch: list[StoredBody] = []
    size = 0
    for body in stored:
        batch.append(body)
        size += body.places[0].row.bytes
        if size > _BATCH or len(batch) == _MANY:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
