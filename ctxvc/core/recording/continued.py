"""A session that was written for another agent, and what its recording contains beyond that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.recording.events import Event, Exported, Said, Sent


class Continued(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a session was written from, and the prints of its parts as an import reads them."""

    commit: str
    parts: tuple[str, ...]


def prints(events: Iterable[Event]) -> Iterator[tuple[int, str]]:
    """For each part of the conversation, the position after it, and a print of its content, whatever its id."""
    for event in events:
        messages = (event.message,) if isinstance(event, Said) else event.messages if isinstance(event, Sent) else ()
        for part in (part for message in messages for part in message.parts):
            yield event.end, _print(part)  # type: ignore[union-attr]


def exported(written: Continued, events: Iterable[Event]) -> Exported | None:
    """What the recording continues; None unless it contains everything that was written, in order.

    Its agent may have added something of its own in between.
    """
    end = _end(written, prints(events))
    return None if end is None else Exported(commit=written.commit, end=end)


def beginning(written: Continued, messages: Sequence[Iterable[Message]]) -> int | None:
    """How many messages of a prompt repeat what was written; 0 if something else follows in the last of them.

    None unless the prompt contains everything that was written, in order. `messages` are read one by one.
    """
    at = [(number, _print(part)) for number, group in enumerate(messages, 1) for item in group for part in item.parts]
    last = _end(written, ((place, text) for place, (_, text) in enumerate(at)))
    if last is None:
        return None
    number = at[last][0]
    return 0 if last + 1 < len(at) and at[last + 1][0] == number else number


def _end(written: Continued, places: Iterable[tuple[int, str]]) -> int | None:
    """The position after the last written part, or None unless all are there."""
    remaining = list(reversed(written.parts))
    for end, print_of_part in places:
        if remaining and print_of_part == remaining[-1]:
            remaining.pop()
            if not remaining:
                return end
    return None


def _print(part: Part) -> str:
    """A part's print. Of calls and results it has only the kind, because agents rewrite, shorten and replace them."""
    content = b"" if part.kind in ("tool_use", "tool_result") else b"".join(part.body.split())
    return hashlib.sha256(part.kind.encode() + b"\0" + content).hexdigest()[:12]
