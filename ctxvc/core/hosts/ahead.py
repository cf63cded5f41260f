"""What a host has and the store does not yet, as the rows that it will become: for plans that must not overlook it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ctxvc.core.hosts.match import Match, Place
from ctxvc.core.hosts.message import HostMessage
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import Numbering

#: block, suffix → the bytes of a body.
Bodies = Mapping[tuple[str, str], bytes]


def ahead(ledger: Ledger, messages: Sequence[HostMessage], match: Match) -> tuple[tuple[Row, ...], Bodies]:
    """The rows that the unknown parts of a host's messages would have behind all others, with their bodies."""
    numbering = Numbering.of(ledger, ledger.meta.counters.block)
    entries = [entry for message in _messages(messages, match.unknown) for entry in numbering.add(message)]
    rows = tuple(row for entry in entries for row in entry.rows)
    return rows, {(block, suffix): data for entry in entries for block, suffix, data in entry.bodies}


def _messages(messages: Sequence[HostMessage], unknown: Iterable[Place]) -> Iterator[Message]:
    """The unknown parts as messages, where neighbours of one role are one: a host may write each call by itself."""
    for role, places in groupby(unknown, lambda place: messages[place.message].role):
        yield Message(role=role, parts=tuple(_part(messages[place.message], place) for place in places))


def _part(message: HostMessage, place: Place) -> Part:
    match place.part:
        case "tool_use":
            use = message.tool_uses[place.at]
            return wire.call_part(use.tool, use.id, wire.compact(use.input or {}))
        case "tool_result":
            result = message.tool_results[place.at]
            return wire.result_part(result.text, result.id, error=result.error)
    return wire.text_part(message.text, message.role, "model" if message.role == "assistant" else "human")
