"""What an answer cites: the addresses in it, and whether each is that of a block that was read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator

import msgspec

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt import truncation
from ctxvc.core.prompt.recover import Recovered
from ctxvc.inspection.captions import label_of
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import address as addresses
from ctxvc.store.read import revision
from ctxvc.store.read.address import Address, Resolved

#: A block, or a file beside it, by name and checksum.
Read = tuple[str, str]


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer cites, as it is written there: the block, whether it exists in a recording, and was read.

    `project` is the folder of its project, where several were asked. `why` says why it does not hold; empty if it does.
    """

    handle: str
    block: str
    project: str = ""
    session: str = ""
    scope: str = ""
    step: int = 0
    label: str = ""
    exists: bool = False
    was_read: bool = False
    why: str = ""

    @property
    def holds(self) -> bool:
        return not self.why


def citations(answer: str, find: Callable[[Address, str, str], Citation]) -> list[Citation]:
    """The citations in an answer, each once. `find` checks an address that has a checksum, as written, of a block."""
    return [_citation(block, handle, find) for handle, block in dict(addresses_in(answer)).items()]


def _citation(block: str, handle: str, find: Callable[[Address, str, str], Citation]) -> Citation:
    address = addresses.parse(handle)
    if address is None or (address.file and "." not in address.file):
        return Citation(handle=handle, block=block, why="is not a handle as read_block gives it")
    if address.id.startswith("G"):
        return Citation(handle=handle, block=block, why="is a group: cite the blocks in it")
    if not address.checksum:
        return Citation(handle=handle, block=block, why="has no checksum")
    return find(address, handle, block)


def of_session(
    stored: StoredSession, scopes: Collection[str], address: Address, was_read: Collection[Read], handle: str
) -> Citation:
    """The block of these scopes that an address with a checksum names, and whether it was read."""
    for scope in scopes:
        row = stored.ledger(scope).get(address.id)
        digest = checksum(stored, row, address.file, scope) if row else ""
        if row and digest.startswith(address.checksum):
            is_read = (f"{row.id}-{address.file}" if address.file else row.id, digest) in was_read
            return Citation(
                handle=handle, block=row.id, session=stored.name, scope=scope, step=row.step, exists=True,
                was_read=is_read, label=label_of(row, revision.now(stored, scope)),
                why="" if is_read else "was not read",
            )  # fmt: skip
    return Citation(handle=handle, block=address.id, why="is not a block of the recording")


def read_of(stored: StoredSession, resolved: Resolved, part: Recovered) -> Iterator[Read]:
    """What may be cited after this part was read: the block, and the file beside it that stands for it."""
    if resolved.row and (part.total or part.unit != "matches"):
        yield resolved.row.id, resolved.row.sha256
        if file := resolved.file or truncation.whole(resolved.row):  # it is headed by the file's own handle
            yield f"{resolved.row.id}-{file}", checksum(stored, resolved.row, file, resolved.snapshot.scope)


def checksum(stored: StoredSession, row: Row, file: str, scope: str) -> str:
    """The checksum of a block, or of a file beside it; empty if it has no such file."""
    if not file:
        return row.sha256
    return hashlib.sha256(stored.file(row, file, scope)).hexdigest() if file in row.files else ""


#: What may stand before a block's number: its scope, before that its session, and its project.
_PLACE = r"(?:(?:[A-Za-z0-9][\w.@-]{0,99}/){0,12}[A-Za-z0-9][\w.@-]{0,99}:)?"

#: What says of itself that it is an address, whether it is one or not: `B9`, `main:B9@3fa9c1`, `B5-B9`.
#: No part of a word, of a number such as `B9.5`, or of a file's name.
_CITED = re.compile(
    r"(?<![\w.@])(?<!\w-)"
    rf"{_PLACE}"
    r"(?P<id>[BG][0-9]+)(?:-[0-9]{1,6}\.\w{1,9})?"
    r"(?:@\w*|(?![\w@]|\.\w))"
    r"(?:[-\u2013\u2014][BG]?[0-9]{1,12}\b(?:@\w*)?)?"  # a range
)

#: The same inside of brackets, or with a checksum, where nobody writes anything else in small letters.
_SMALL = re.compile(r"(?<=\[)[bg][1-9][0-9]{0,11}(?=\])|(?<![\w.@])[bg][1-9][0-9]{0,11}@\w*")

#: In code, which is quoted, only a whole handle is a citation.
_HANDLE = re.compile(rf"{_PLACE}\b(?P<id>B[1-9][0-9]{{0,11}})@[0-9a-f]{{4,64}}\b")


def addresses_in(answer: str) -> Iterator[tuple[str, str]]:
    """All that is or looks like an address, as it is written there, and the block or group that it names."""
    at = 0
    for start, end in _code(answer):
        yield from _in_words(answer[at:start])
        yield from ((match[0], match["id"]) for match in _HANDLE.finditer(answer, start, end))
        at = end
    yield from _in_words(answer[at:])


def _code(answer: str) -> Iterator[tuple[int, int]]:
    """The spans of code: from so many backticks to the next place that has just as many."""
    runs = [match.span() for match in re.finditer("`+", answer)]
    closing: list[int] = []
    later: dict[int, int] = {}
    for number, (start, end) in reversed(list(enumerate(runs))):
        closing.append(later.get(end - start, -1))
        later[end - start] = number
    closing.reverse()
    at = 0
    while at < len(runs):
        if closing[at] >= 0:
            yield runs[at][0], runs[closing[at]][1]
        at = max(at, closing[at]) + 1


def _in_words(text: str) -> Iterator[tuple[str, str]]:
    yield from ((match[0], match["id"]) for match in _CITED.finditer(text))
    yield from ((small, small.partition("@")[0].upper()) for small in _SMALL.findall(text))
