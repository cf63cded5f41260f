"""The messages since the newest reply as the host's request has them, with origins from the transcript's lines.

The lines say who wrote a text and by what id the host names it; the request says what the model was sent, and where.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Origin, Part, Role
from ctxvc.core.ledger.numbering import is_human

_Identity = tuple[str, str, bytes]
#: The most parts between two replies that are compared; no person or tool makes so many.
_MOST = 1_000


class Arrivals(NamedTuple):
    """New messages. `aliases` maps the keys of lines whose text is in a message to the message's key.

    `places` has the index of each message among those sent.
    """

    messages: tuple[Message, ...]
    aliases: dict[str, str]
    places: tuple[int, ...]


def arrivals(sent: Iterable[dict[str, Any]], lines: Sequence[Message], present: Iterable[Part]) -> Arrivals | None:
    """The messages that a request added after its last reply: `sent` has them as the request does, `lines` as the
    transcript does. Parts already `present` in the prompt are left out. None if the two contradict each other.
    """
    left_out: dict[_Identity, list[Part]] = defaultdict(list)
    for part in present:
        left_out[_identity(part)].append(part)
    parts = [(message["role"], list(_parts(message, left_out))) for message in sent]
    bodies = [part.body.strip() for _, own in parts for part in own]
    if len(bodies) > _MOST or len(lines) > _MOST:
        return None
    origins: dict[bytes, Origin] = {part.body.strip(): part.origin for line in lines for part in line.parts}
    for body in [body for body, origin in origins.items() if origin == "human" and body not in bodies]:
        around = [candidate for candidate in bodies if body in candidate]
        if not around:
            return None  # a request without a person's words is not the one that these lines led to
        origins |= dict.fromkeys(around, "human")
    if Counter(_results(own for _, own in parts)) != Counter(_results(line.parts for line in lines)):
        return None
    keys = {role: _key(role, lines) for role in ("user", "system")}
    messages = tuple(
        Message(
            role=role,
            parts=tuple(msgspec.structs.replace(part, origin=_origin(part, origins)) for part in own),
            key=keys[role],
            time=lines[-1].time if lines else "",
        )
        for role, own in parts
        if own
    )
    last = messages[-1].key if messages else ""
    aliases = {line.key: keys[line.role] or last for line in lines if line.key and line.role in keys}
    places = tuple(at for at, (_, own) in enumerate(parts) if own)
    return Arrivals(_with_keys_once(messages), {old: new for old, new in aliases.items() if new and old != new}, places)


def around(beginning: Sequence[dict[str, Any]], summary: Part) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages of a request's `beginning` before a compaction's summary, and those after it."""
    for at, message in enumerate(beginning):
        content = message["content"]
        blocks = [content] if isinstance(content, str) else content
        for place, block in enumerate(blocks):
            if _identity(wire.part(block, message["role"], "client")) == _identity(summary):
                before, after = {**message, "content": blocks[:place]}, {**message, "content": blocks[place + 1 :]}
                return [*beginning[:at], before], [after, *beginning[at + 1 :]]
    return [], []


def _parts(message: dict[str, Any], left_out: Mapping[_Identity, list[Part]]) -> Iterator[Part]:
    role: Role = message["role"]
    content = message["content"]
    for block in [content] if isinstance(content, str) else content:
        part = wire.part(block, role, "client")
        if left_out.get(_identity(part)):
            yield from _appended(part, left_out[_identity(part)].pop())
        elif role == "system" or part.kind == "tool_result":
            # Rendering keeps these as sent: a system message with its tools, and results in this order.
            marks = {"sent": True, "as_is": True} if part.kind == "other" else {"sent": True}
            yield msgspec.structs.replace(
                part, extra={**part.extra, "ctxvc": {**wire.own_metadata(part.extra), **marks}}
            )
        else:
            yield part


def _appended(sent: Part, recorded: Part) -> Iterator[Part]:
    """The reminders that the host added to a result after its text, as a text that is rendered there."""
    if sent.kind != "tool_result" or not sent.body.startswith(recorded.body):
        return
    text = display.decode(sent.body.removeprefix(recorded.body))
    if text.strip():
        within = {"ctxvc": {"within": sent.call}} if sent.ext == recorded.ext == "txt" else {}
        yield msgspec.structs.replace(wire.text_part(text if within else text.strip(), "user", "client"), extra=within)


def _origin(part: Part, origins: Mapping[bytes, Origin]) -> Origin:
    """Who made a part. A text that no line has is the client's; any other part may be a person's."""
    if part.kind == "tool_result":
        return "tool"
    if part.role == "system":
        return "client"
    return origins.get(part.body.strip()) or ("client" if part.kind == "user" else "human")


def _identity(part: Part) -> _Identity:
    return part.role, part.call, b"" if part.call else part.body.strip()


def _results(messages: Iterable[Iterable[Part]]) -> Iterable[str]:
    return (part.call for parts in messages for part in parts if part.kind == "tool_result")


def _key(role: str, lines: Sequence[Message]) -> str:
    """The key for the message of this role made of `lines`: a person's line's if there is one."""
    own = [line for line in lines if line.role == role and line.key]
    human = (line.key for line in own if any(is_human(part.role, part.origin) for part in line.parts))
    return next(human, own[-1].key if own else "")


def _with_keys_once(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    seen: set[str] = set()
    unique = []
    for message in messages:
        unique.append(msgspec.structs.replace(message, key="" if message.key in seen else message.key))
        seen.add(message.key)
    return tuple(unique)
