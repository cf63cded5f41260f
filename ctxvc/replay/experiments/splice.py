"""Several conversations as one session, one after the other."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger.block import Message
from ctxvc.replay.conversation import Call, Conversation
from ctxvc.replay.measures.uses import Use


class Spliced(NamedTuple):
    """`conversation` is all of them; `starts` are its calls at which one of them begins, in order."""

    conversation: Conversation
    starts: tuple[int, ...]

    def is_across(self, use: Use) -> bool:
        """Whether only earlier ones of them have what is used."""
        start = self.starts[bisect_right(self.starts, use.call) - 1]
        return self.conversation.blocks[use.blocks[-1]].call < start


def in_date_order(conversations: Iterable[Conversation]) -> list[Conversation]:
    """By the time of the first message, then by name; what has no time comes first."""
    return sorted(conversations, key=lambda one: (one.time, one.file, one.id))


def spliced(conversations: Sequence[Conversation]) -> Spliced:
    """The conversations as one, in their order, without their system prompts and tools.

    Ids of calls are made unique. Calls of a last reply, which never got a result, are left out.
    """
    calls: list[Call] = []
    starts: list[int] = []
    for number, conversation in enumerate(conversations):
        starts.append(len(calls))
        calls += (renamed(call, f"s{number}-") for call in answered(conversation.calls))
    digest = hashlib.sha256("\n".join(one.sha256 for one in conversations).encode()).hexdigest()
    files = " + ".join(dict.fromkeys(one.file for one in conversations))
    joined = Conversation(id=f"{len(conversations)} conversations", file=files, sha256=digest, calls=tuple(calls))
    return Spliced(joined, tuple(starts))


def answered(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls of a conversation that something can follow: what the last reply asked of tools is left out of it."""
    *before, last = calls
    yield from before
    parts = tuple(part for part in last.reply.parts if part.kind != "tool_use")
    if parts:
        yield Call(last.before, msgspec.structs.replace(last.reply, parts=parts))


def renamed(call: Call, prefix: str) -> Call:
    """The call with this before all ids of tool calls and replies in it."""
    return Call(tuple(_message(one, prefix) for one in call.before), _message(call.reply, prefix))


def _message(message: Message, prefix: str) -> Message:
    parts = (
        msgspec.structs.replace(part, call=f"{prefix}{part.call}") if part.call else part for part in message.parts
    )
    return msgspec.structs.replace(message, parts=tuple(parts), reply=message.reply and f"{prefix}{message.reply}")
