"""Addresses of blocks and groups: `B17`, `B17@3fa9c1`, `G3`, `SCOPE:B17`, `SESSION/SCOPE:B17`, and `B18-1.png`.

And `toolu_01AbC`: the id of a call, for what the call gave. Whatever ids a recording has, none of these means one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ctxvc.core.ledger.ledger import Group, Ledger, Row
from ctxvc.core.plan import selection
from ctxvc.core.prompt import truncation
from ctxvc.errors import NotFound
from ctxvc.store import revision
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.revision import Snapshot

_ADDRESS = re.compile(
    r"(?:(?:(?P<session>[^/:@]+)/)?(?P<scope>[^/:]+):)?"
    r"(?P<id>[BG][1-9][0-9]{0,11})(?:-(?P<file>[A-Za-z0-9.]{1,20}))?(?:@(?P<checksum>[0-9a-f]{4,64}))?"
)
_PLACED = re.compile(r"(?:(?P<session>[^/:]+)/)?(?P<scope>[^/:]+):(?P<call>.+)", re.DOTALL)
_MOST = 8  # candidates that an error lists

#: Characters of a call's id above which no two sessions have the same for different calls: a provider gives it once.
_UNIQUE = 16


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a block or group stands. Empty fields say nothing: any checksum, the scope one is in."""

    id: str
    session: str = ""
    scope: str = ""
    checksum: str = ""
    file: str = ""

    def __str__(self) -> str:
        where = f"{self.session}/{self.scope}:" if self.session else f"{self.scope}:" if self.scope else ""
        file = f"-{self.file}" if self.file else ""
        return f"{where}{self.id}{file}" + (f"@{self.checksum}" if self.checksum else "")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What an address leads to: a block's row or a group, and the moment of the scope that it stands in.

    `file` is the one beside the block's body that is meant, empty for the body itself.
    """

    moment: Snapshot
    row: Row | None = None
    group: Group | None = None
    file: str = ""


def parse(words: str) -> Address | None:
    """The address that `words` are; None where they are none, but perhaps a revision."""
    match = _ADDRESS.fullmatch(words)
    if not match or (match["file"] and match["id"].startswith("G")):
        return None
    return Address(**{name: value or "" for name, value in match.groupdict().items()})


def named(stored: StoredSession, words: str) -> Found | None:
    """What `words` are the address of, a call's id included; None where they are none. Raises: NotFound as `find`."""
    address = parse(words)
    return find(stored, address) if address else of_call(stored, words)


def of_call(stored: StoredSession, words: str, *, elsewhere: bool = True) -> Found | None:
    """What a call gave: the block of its newest result, of the call itself where none was recorded.

    `words` are the call's id as it was recorded, `SCOPE:ID` or `SESSION/SCOPE:ID`; behind it `-2.txt` is a file beside
    the body. Where the model saw an output cut and the whole is kept, that is what the id alone leads to. It is looked
    for as a block is; with `elsewhere`, a long id in other sessions too. None where there is no such call.
    Raises: NotFound, with the candidates where there are several.
    """
    if here := _of_call(stored, stored.scope, words):
        return here
    found = [each for scope in stored.scopes() if (each := _of_call(stored, scope, words))]
    if elsewhere and not found and len(words) >= _UNIQUE:
        others = (name for name in stored.store.sessions() if name != stored.name)
        found = [each for name in others for each in _in_session(StoredSession.open(stored.store, name), words)]
    if len({_identity(each) for each in found}) > 1:
        candidates = ", ".join(_first(map(_named, found)))
        raise NotFound(f"several calls have the id {words[:80]!r}", hint=f"there is {candidates}")
    return found[0] if found else _placed(stored, words)


def _placed(stored: StoredSession, words: str) -> Found | None:
    """What a call gave whose scope is named too."""
    match = _PLACED.fullmatch(words)
    if match is None:
        return None
    if match["session"] and match["session"] != stored.name:
        if match["session"] not in stored.store.sessions():
            return None
        stored = StoredSession.open(stored.store, match["session"])
        stored.leave()
    return _of_call(stored, match["scope"], match["call"]) if match["scope"] in stored.scopes() else None


def _in_session(stored: StoredSession, words: str) -> list[Found]:
    stored.leave()  # whoever only looks writes nothing
    return [found for scope in stored.scopes() if (found := _of_call(stored, scope, words))]


def _of_call(stored: StoredSession, scope: str, words: str) -> Found | None:
    found = _called(stored.ledger(scope), words)
    return Found(moment=revision.now(stored, scope), row=found[0], file=found[1]) if found else None


def _called(ledger: Ledger, words: str) -> tuple[Row, str] | None:
    """The block of a call, and the file beside its body that is meant."""
    calls = selection.of_calls(ledger)
    if row := calls.get(words):
        return row, truncation.whole(row)
    call, _, file = words.rpartition("-")
    row = calls.get(call)
    return (row, file) if row and file in row.files else None


def find(stored: StoredSession, address: Address) -> Found:
    """What stands at the address, for reading.

    An address without a scope is that of the scope one is in; where that has no such block, of the session's only
    one. Raises: NotFound, with the candidates where there are several.
    """
    if address.session and address.session != stored.name:
        # Not closed: a reader does not flush what others wrote.
        stored = StoredSession.open(stored.store, address.session, address.scope)
    if address.scope:
        return _in_scope(stored, address, address.scope)
    here = _found(revision.now(stored), address)
    if here and _matches(here, address):
        return here
    others = [found for scope in stored.scopes() if (found := _found(revision.now(stored, scope), address))]
    return _only([found for found in others if _matches(found, address)], others, stored, address)


def _in_scope(stored: StoredSession, address: Address, scope: str) -> Found:
    found = _found(revision.now(stored, scope), address)
    if found is None:
        last = stored.ledger(scope).meta.counters
        raise NotFound(
            f"no {_what(address)} {address.id} in {stored.name}/{scope}",
            hint=f"`ctxvc status --all` lists them; the session's newest are B{last.block} and G{last.group}",
        )
    return _only([found] if _matches(found, address) else [], [found], stored, address)


def _only(matching: list[Found], others: list[Found], stored: StoredSession, address: Address) -> Found:
    """The one of `matching`, where all are the same block."""
    if len({_identity(found) for found in matching}) == 1:
        return matching[0]
    if matching or others:
        why = (
            "several stand there" if matching else "it has no such file" if address.file else "the checksum is another"
        )
        named = ", ".join(_first(_named(found) for found in matching or others))
        raise NotFound(f"{address} in session {stored.name}: {why}", hint=f"there is {named}")
    raise NotFound(
        f"no {_what(address)} {address} in session {stored.name}", hint="`ctxvc status --all` lists this scope's"
    )


def _found(moment: Snapshot, address: Address) -> Found | None:
    if address.id.startswith("G"):
        group = moment.ledger.groups.get(address.id)
        return Found(moment=moment, group=group) if group else None
    row = moment.ledger.get(address.id)
    return Found(moment=moment, row=row, file=address.file) if row else None


def _matches(found: Found, address: Address) -> bool:
    if address.file and not (found.row and address.file in found.row.files):
        return False
    return _checksum(found).startswith(address.checksum)


def _checksum(found: Found) -> str:
    """A block's checksum; of a group, what its stub says of its members'."""
    if found.row:
        return found.row.sha256
    assert found.group is not None
    said = re.match(r"\[archived G[0-9]+@([0-9a-f]+)", found.group.stub)
    return said[1] if said else ""


def _identity(found: Found) -> object:
    return found.row.sha256 if found.row else found.group


def _named(found: Found) -> str:
    """The whole address of what was found, with its files."""
    checksum = _checksum(found)[:6]
    block = found.row or found.group
    assert block is not None
    files = (
        f" ({', '.join(f'{found.row.id}-{file}' for file in found.row.files)})" if found.row and found.row.files else ""
    )
    return f"{found.moment.session}/{found.moment.scope}:{block.id}" + (f"@{checksum}" if checksum else "") + files


def _first(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return listed if len(listed) <= _MOST else [*listed[:_MOST], f"{len(listed) - _MOST} more"]


def _what(address: Address) -> str:
    return "block" if address.id.startswith("B") else "group"
