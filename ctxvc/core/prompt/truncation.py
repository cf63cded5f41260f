"""Outputs truncated before the model saw them: the file with the full text, and the notice of the truncating hook.

The body of such a block is what the model saw. The full text is a file beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import Row

#: The beginning of every notice, whatever it is about.
MARK = b"[ctxvc: "

#: Hexadecimal digits of the checksum in a notice.
_DIGITS = 12
_WORDS = re.compile(
    rb"\[ctxvc: [0-9,]{1,20} of [0-9,]{1,20} characters left out here; "
    rb"recover ([A-Za-z0-9_-]{1,100}?)(?:-([1-9][0-9]{0,5})\.txt)? for the whole "
    rb"\(([0-9,]{1,20}) bytes, sha256 ([0-9a-f]{%d})\): " % _DIGITS
)
#: A call's id that can appear in a notice and in a file's name, and is no block's address.
_CALL = re.compile(r"(?![BbGg][0-9])[A-Za-z0-9_-]{1,100}")


class Truncation(NamedTuple):
    """The truncated text number `number` in a call's output: its size, and the beginning of its SHA-256."""

    call: str
    number: int
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The name of the file with the full text."""
        return f"{self.call}-{suffix(self.number)}"

    @property
    def address(self) -> str:
        """The address that recovers it: the call's id for the call's first text, the file's name for any other."""
        return self.call if self.number == 1 else self.file


def whole(row: Row) -> str:
    """The file with the full text of a truncated output, beside a block's body; empty if there is none."""
    suffix = wire.own_metadata(row.extra).get("whole")
    return suffix if isinstance(suffix, str) and suffix in row.files else ""


def is_addressable(call: str) -> bool:
    """Whether a truncated output of this call can be addressed by the call's id."""
    return _CALL.fullmatch(call) is not None


def suffix(number: int) -> str:
    """The name of a full text among the siblings of its block's body."""
    return f"{number}.txt"


def notice(truncation: Truncation, left_out: int, characters: int, path: str) -> str:
    """The notice, for a model, that replaces `left_out` of `characters` characters: how to get the full text."""
    return (
        f"[ctxvc: {left_out:,} of {characters:,} characters left out here; recover {truncation.address} for the whole "
        f"({truncation.bytes:,} bytes, sha256 {truncation.sha256[:_DIGITS]}): the tool recover with this address, or "
        f"`ctxvc recover {truncation.address}`, or read {path}]"
    )


def truncations(body: bytes, call: str) -> Iterator[Truncation]:
    """The truncations in the notices of a call's output: only this call's, as recordings are untrusted; no repeats."""
    seen: set[int] = set()
    for match in _WORDS.finditer(body):
        number = int(match[2] or 1)
        if match[1] == call.encode("utf-8", "surrogatepass") and number not in seen:
            seen.add(number)
            yield Truncation(call, number, int(match[3].replace(b",", b"") or -1), match[4].decode("ascii"))
