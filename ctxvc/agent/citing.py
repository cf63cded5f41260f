"""What an answer cites of a recorded session, found wherever it stands and checked.

Whatever looks like the address of a block or group counts, so that nothing that reads as evidence goes unchecked; what
is meant otherwise can be quoted as code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from ctxvc.core.ledger.ledger import Row
from ctxvc.session.session import Session
from ctxvc.store import address as addresses

#: What says of itself that it is an address, whether it is one or not: `B9`, `main:B9@3fa9c1`, `B5-B9`.
#: No part of a word, of a number such as `B9.5`, or of a file's name.
_CITED = re.compile(
    r"(?<![\w.@])(?<!\w-)"
    r"(?:(?:[A-Za-z0-9][\w.@-]{0,99}/)?[A-Za-z0-9][\w.@-]{0,99}:)?"
    r"(?P<id>[BG][0-9]+)(?:-[0-9]{1,6}\.\w{1,9})?"
    r"(?:@\w*|(?![\w@]|\.\w))"
    r"(?:[-\u2013\u2014][BG]?[0-9]{1,12}\b(?:@\w*)?)?"  # a range
)
#: The same inside of brackets, or with a checksum, where nobody writes anything else in small letters.
_SMALL = re.compile(r"(?<=\[)[bg][1-9][0-9]{0,11}(?=\])|(?<![\w.@])[bg][1-9][0-9]{0,11}@\w*")
#: In code, which is quoted, only a whole handle is a citation.
_HANDLE = re.compile(r"\bB[1-9][0-9]{0,11}@[0-9a-f]{4,64}\b")


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer cites, as it is written there: the block, whether it exists in the recording, and was read.

    `why` says why it does not hold; empty where it does.
    """

    handle: str
    block: str
    scope: str = ""
    step: int = 0
    label: str = ""
    exists: bool = False
    was_read: bool = False
    why: str = ""

    @property
    def holds(self) -> bool:
        return not self.why


def cited(answer: str, recorded: Session, was_read: set[tuple[str, str]]) -> list[Citation]:
    """What in an answer is, or looks like, the address of a block or group, each once, and whether it holds."""
    return [_citation(block, words, recorded, was_read) for words, block in dict(_cited(answer)).items()]


def _cited(answer: str) -> Iterator[tuple[str, str]]:
    """Addresses as they are written, and the block or group that each begins with."""
    at = 0
    for start, end in _code(answer):
        yield from _in_words(answer[at:start])
        yield from ((handle, handle.partition("@")[0]) for handle in _HANDLE.findall(answer, start, end))
        at = end
    yield from _in_words(answer[at:])


def _code(answer: str) -> Iterator[tuple[int, int]]:
    """Where code stands: from so many backticks to the next place that has just as many."""
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


def _in_words(words: str) -> Iterator[tuple[str, str]]:
    yield from ((match[0], match["id"]) for match in _CITED.finditer(words))
    yield from ((small, small.partition("@")[0].upper()) for small in _SMALL.findall(words))


def _citation(block: str, words: str, recorded: Session, was_read: set[tuple[str, str]]) -> Citation:
    def fails(why: str) -> Citation:
        return Citation(handle=words, block=block, why=why)

    address = addresses.parse(words)
    if address is None or (address.file and "." not in address.file):
        return fails("is no handle as read_block gives it")
    if address.id.startswith("G"):
        return fails("is a group: cite the blocks in it")
    if not address.checksum:
        return fails("has no checksum")
    if address.session not in ("", recorded.name):
        return fails("is in another session")
    for scope in sorted(recorded.scopes(), key=lambda name: name != recorded.scope):
        row = recorded.ledger(scope).get(address.id) if address.scope in ("", scope) else None
        digest = checksum(recorded, row, address.file, scope) if row else ""
        if row and digest.startswith(address.checksum):
            held = (f"{row.id}-{address.file}" if address.file else row.id, digest) in was_read
            return Citation(
                handle=words, block=block, scope=scope, step=row.step, label=row.label, exists=True, was_read=held,
                why="" if held else "was not read",
            )  # fmt: skip
    return fails("is no block of the recording")


def checksum(recorded: Session, row: Row, file: str, scope: str) -> str:
    """The checksum of a block, or of a file beside it; empty where it has no such file."""
    if not file:
        return row.sha256
    return hashlib.sha256(recorded.writer.file(row, file, scope)).hexdigest() if file in row.files else ""
