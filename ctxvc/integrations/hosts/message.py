"""What a host's messages are made of, as blocks see it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ctxvc.integrations.conversation import FrameworkMessage


class Piece(NamedTuple):
    """A part of a host's message that is recorded under an id of its own.

    `places` are the host's items, by their number in its message: one for each block that the piece becomes.
    """

    message: FrameworkMessage[None]
    places: tuple[int, ...]


#: In a record, the key of the message that a piece is part of, where it is not its own id.
OF = "of"
_LONGEST_KEY = 100


def name_of(host: Host, raw: Mapping[str, Any]) -> str:
    """The key of a message, or what stands for one that is too long to be kept with each message."""
    key = host.key(raw)
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(record: Mapping[str, Any]) -> str:
    """The key of the host's message that a recorded piece is part of."""
    return str(record.get(OF) or record.get("id"))


class Edit(NamedTuple):
    """What changes in a host's message: items that left, items that show another text, and texts behind it all."""

    dropped: Collection[int] = ()
    replaced: Mapping[int, str] = {}
    appended: Sequence[str] = ()


class Host(Protocol):
    """A host: how its messages are read and written. Whatever it sends is untrusted; what makes no sense is left as it
    came."""

    #: Its name, in the names of sessions too.
    NAME: str
    #: What the model sees and we are not shown.
    MISSING: tuple[str, ...]
    #: Whether a reply holds the results of its calls; else these are messages of their own.
    RESULTS_INSIDE: bool

    def key(self, raw: Mapping[str, Any]) -> str:
        """The message's name, which survives a restart and a fork; empty for a message that is not recorded."""

    def pieces(self, raw: Mapping[str, Any], key: str) -> list[Piece]:
        """The message as it is recorded."""

    def role(self, raw: Mapping[str, Any]) -> str:
        """`user`, `assistant`, or `result` for results that stand on their own."""

    def is_summary(self, raw: Mapping[str, Any]) -> bool:
        """Whether the host put the message in the place of earlier ones, as by a compaction of its own."""

    def edited(self, raw: Mapping[str, Any], edit: Edit) -> Any:
        """The message with the edit, or None if it says nothing any more; it shares nothing that was changed."""

    def own(self, texts: Sequence[str], near: Mapping[str, Any] | None) -> Any:
        """A user message of ours with these texts; `near` is a message of the host's before or behind it."""
