"""Addresses of blocks and groups: `B17`, `B17@3fa9c1`, `G3`, `SCOPE:B17`, `SESSION/SCOPE:B17`, and `B18-1.png`.

SESSION is a name, or anything else that `session_name` accepts. The id of a call, such as `toolu_01AbC`, is the address
of its result; an address never means a call, whatever ids a recording uses. The name of a context object
(`core.ledger.objects`), such as `Read:12` or `user:5`, is also an address: that of a result stands for its block, that
of a turn or step for all its blocks. Before the colon, the longest name of an existing scope of this session counts:
`plan/login:B17` is in its scope `plan/login`, or else in the scope `login` of the session `plan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.ledger.objects import ContextObject, alike, object_of, objects
from ctxvc.core.plan import selection
from ctxvc.core.prompt import truncation
from ctxvc.errors import NotFound, Phrase
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision, session_name
from ctxvc.store.read.revision import Snapshot

_ADDRESS = re.compile(
    r"(?:(?:(?P<session>[^/:@]+)/)?(?P<scope>[^/:@]+(?:/[^/:@]+)*(?:@[^/:@]+)?):)?"
    r"(?P<id>[BG][1-9][0-9]{0,11})(?:-(?P<file>[A-Za-z0-9.]{1,20}))?(?:@(?P<checksum>[0-9a-f]{4,64}))?"
)
_PLACED = re.compile(r"(?:(?P<session>[^/:]+)/)?(?P<scope>[^:]+):(?P<call>.+)", re.DOTALL)
_MOST = 8  # candidates that an error lists

#: Call ids at least this long are unique across sessions, because providers never repeat them.
_UNIQUE = 16


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """An address of a block or group. An empty field is unspecified: any checksum, the current scope."""

    id: str
    session: str = ""
    scope: str = ""
    checksum: str = ""
    file: str = ""

    def __str__(self) -> str:
        where = f"{self.session}/{self.scope}:" if self.session else f"{self.scope}:" if self.scope else ""
        file = f"-{self.file}" if self.file else ""
        return f"{where}{self.id}{file}" + (f"@{self.checksum}" if self.checksum else "")


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The target of an address: a block's row or a group, and the snapshot of its scope.

    `file` is the sibling file that the address names; empty for the body itself.
    """

    snapshot: Snapshot
    row: Row | None = None
    group: Group | None = None
    file: str = ""


def parse(text: str) -> Address | None:
    """`text` as an address; None if it is not one, though it may be a revision."""
    match = _ADDRESS.fullmatch(text)
    if not match or (match["file"] and match["id"].startswith("G")):
        return None
    return Address(**{name: value or "" for name, value in match.groupdict().items()})


def target(stored: StoredSession, text: str) -> Resolved | None:
    """The target of `text`: an address, an object's name or a call's id; None if it is none of these.

    Raises: NotFound as `find`.
    """
    if address := parse(text):
        return find(stored, address)
    if text in objects(stored.ledger()):
        return of_object(stored, text)  # an object's whole name; a short one may be a call's id
    return _of_call(stored, stored.scope, text) or of_object(stored, text) or of_call(stored, text)


def of_object(stored: StoredSession, name: str) -> Resolved | None:
    """The target of an object's name in the current scope, or of `SCOPE:NAME` or `SESSION/SCOPE:NAME`.

    A turn or a reply is returned as a group that is not in the ledger. None if there is no such object.
    """
    if one := object_of(stored.ledger(), name):
        return _of_object(stored, stored.scope, one)
    if place := _place(stored, name):
        stored, scope, own_name = place
        if one := object_of(stored.ledger(scope), own_name):
            return _of_object(stored, scope, one)
    return None


def _of_object(stored: StoredSession, scope: str, one: ContextObject) -> Resolved:
    snapshot = revision.now(stored, scope)
    if one.family == "conversation":
        return Resolved(snapshot=snapshot, group=Group(id=one.id, members=tuple(row.id for row in one.rows)))
    return Resolved(snapshot=snapshot, row=one.rows[-1])


def guess(stored: StoredSession, name: str) -> str:
    """The existing object name closest to a name that does not exist; empty if none is similar."""
    return alike(stored.ledger(), name)


def of_call(stored: StoredSession, call: str, *, elsewhere: bool = True) -> Resolved | None:
    """The target of a call's id: the block of its newest result, or of the call itself if no result was recorded.

    `call` is the recorded id, `SCOPE:ID` or `SESSION/SCOPE:ID`; a suffix such as `-2.txt` names a sibling file. If the
    model saw the output truncated and the whole is stored, the id alone means the whole. Scopes are searched as for a
    block; with `elsewhere`, other sessions too if the id is long. None if there is no such call.
    Raises: NotFound, listing the candidates if there are several.
    """
    if here := _of_call(stored, stored.scope, call):
        return here
    candidates = [candidate for scope in stored.scopes() if (candidate := _of_call(stored, scope, call))]
    if elsewhere and not candidates and len(call) >= _UNIQUE:
        store = stored.store
        others = (StoredSession.for_reading(store, name) for name in store.sessions() if name != stored.name)
        candidates = [
            candidate for other in others for scope in other.scopes() if (candidate := _of_call(other, scope, call))
        ]
    if len({_identity(candidate) for candidate in candidates}) > 1:
        listed = ", ".join(_first(map(_full, candidates)))
        raise NotFound(f"several calls have the id {call[:80]!r}", hint=f"available: {listed}")
    if candidates:
        return candidates[0]
    place = _place(stored, call)
    return _of_call(*place) if place else None


def _place(stored: StoredSession, text: str) -> tuple[StoredSession, str, str] | None:
    """The session and scope of `SCOPE:NAME` or `SESSION/SCOPE:NAME`, and the name; None if there is no such scope."""
    match = _PLACED.fullmatch(text)
    if match is None:
        return None
    session, scope = _longest_scope(stored, match["session"] or "", match["scope"])
    if session and session != stored.name:
        session = session_name.match(stored.store, session)
        if not session:
            return None
        stored = StoredSession.for_reading(stored.store, session)
    return (stored, scope, match["call"]) if scope in stored.scopes() else None


def _longest_scope(stored: StoredSession, session: str, scope: str) -> tuple[str, str]:
    """Session and scope of an address. A scope's name may have a `/`: the longest that this session has counts."""
    longest = f"{session}/{scope}"
    return ("", longest) if session and longest in stored.scopes() else (session, scope)


def _of_call(stored: StoredSession, scope: str, call: str) -> Resolved | None:
    called = _called(stored.ledger(scope), call)
    return Resolved(snapshot=revision.now(stored, scope), row=called[0], file=called[1]) if called else None


def _called(ledger: Ledger, name: str) -> tuple[Row, str] | None:
    """The row of the block that a call's id stands for, and the sibling file that `name` means."""
    calls = selection.of_calls(ledger)
    if row := calls.get(name):
        return row, truncation.whole(row)
    call, _, file = name.rpartition("-")
    row = calls.get(call)
    return (row, file) if row and file in row.files else None


def find(stored: StoredSession, address: Address) -> Resolved:
    """The target of `address`, for reading.

    Without a scope, the current scope is searched, then the session's other scopes, of which exactly one must have it.
    Raises: NotFound, listing the candidates if there are several.
    """
    session, scope = _longest_scope(stored, address.session, address.scope)
    address = msgspec.structs.replace(address, session=session, scope=scope)
    if address.session and address.session != stored.name:
        session = session_name.resolve(stored.store, address.session)
        stored = StoredSession.for_reading(stored.store, session, address.scope)
    if address.scope:
        return _in_scope(stored, address, address.scope)
    here = _resolved(revision.now(stored), address)
    if here and _matches(here, address):
        return here
    others = [resolved for scope in stored.scopes() if (resolved := _resolved(revision.now(stored, scope), address))]
    return _only([resolved for resolved in others if _matches(resolved, address)], others, stored, address)


def in_snapshot(snapshot: Snapshot, address: Address) -> Resolved:
    """The target of `address` in the snapshot's scope, whatever scope it names. Raises: NotFound."""
    resolved = _resolved(snapshot, address)
    if resolved is None or not _matches(resolved, address):
        raise NotFound(
            f"no {_what(address)} {address} in {snapshot.session}/{snapshot.scope}", hint=Phrase("list-shared-blocks")
        )
    return resolved


def _in_scope(stored: StoredSession, address: Address, scope: str) -> Resolved:
    resolved = _resolved(revision.now(stored, scope), address)
    if resolved is None:
        last = stored.ledger(scope).meta.counters
        raise NotFound(
            f"no {_what(address)} {address.id} in {stored.name}/{scope}",
            hint=Phrase("newest-blocks", block=last.block, group=last.group),
        )
    return _only([resolved] if _matches(resolved, address) else [], [resolved], stored, address)


def _only(matching: list[Resolved], others: list[Resolved], stored: StoredSession, address: Address) -> Resolved:
    """The only target in `matching`; several count as one if they are the same block. Raises: NotFound."""
    if len({_identity(resolved) for resolved in matching}) == 1:
        return matching[0]
    if matching or others:
        why = "there are several" if matching else "it has no such file" if address.file else "the checksum differs"
        listed = ", ".join(_first(_full(resolved) for resolved in matching or others))
        raise NotFound(f"{address} in session {stored.name}: {why}", hint=f"available: {listed}")
    raise NotFound(f"no {_what(address)} {address} in session {stored.name}", hint=Phrase("list-scope-blocks"))


def _resolved(snapshot: Snapshot, address: Address) -> Resolved | None:
    if address.id.startswith("G"):
        group = snapshot.ledger.groups.get(address.id)
        return Resolved(snapshot=snapshot, group=group) if group else None
    row = snapshot.ledger.get(address.id)
    return Resolved(snapshot=snapshot, row=row, file=address.file) if row else None


def _matches(resolved: Resolved, address: Address) -> bool:
    if address.file and not (resolved.row and address.file in resolved.row.files):
        return False
    return _checksum(resolved).startswith(address.checksum)


def _checksum(resolved: Resolved) -> str:
    """A block's checksum; for a group, the checksum in its stub."""
    if resolved.row:
        return resolved.row.sha256
    assert resolved.group is not None
    stub = re.match(r"\[archived G[0-9]+@([0-9a-f]+)", resolved.group.stub)
    return stub[1] if stub else ""


def _identity(resolved: Resolved) -> object:
    return resolved.row.sha256 if resolved.row else resolved.group


def _full(resolved: Resolved) -> str:
    """The full address of a target, with its sibling files."""
    checksum = _checksum(resolved)[:6]
    block = resolved.row or resolved.group
    assert block is not None
    files = (
        f" ({', '.join(f'{resolved.row.id}-{file}' for file in resolved.row.files)})"
        if resolved.row and resolved.row.files
        else ""
    )
    return (
        f"{resolved.snapshot.session}/{resolved.snapshot.scope}:{block.id}"
        + (f"@{checksum}" if checksum else "")
        + files
    )


def _first(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return listed if len(listed) <= _MOST else [*listed[:_MOST], f"{len(listed) - _MOST} more"]


def _what(address: Address) -> str:
    return "block" if address.id.startswith("B") else "group"
