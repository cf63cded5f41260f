"""What the events of a recording tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.recording.events import Event, Said


def messages(events: Iterable[Event]) -> list[Message]:
    return [event.message for event in events if isinstance(event, Said)]


def parts(events: Iterable[Event]) -> list[Part]:
    return [part for message in messages(events) for part in message.parts]


def only(kind: type, events: Iterable[Event]) -> Any:
    """The one event of that kind."""
    (found,) = (event for event in events if isinstance(event, kind))
    return found
