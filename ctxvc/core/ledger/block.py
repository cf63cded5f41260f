"""Blocks: the addressable pieces of a context, with their kinds, origins and states."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

Role = Literal["user", "assistant", "system"]
Kind = Literal[
    "user",
    "assistant",
    "thinking",
    "tool_use",
    "tool_result",
    "system",
    "note",
    "dashboard",
    "image",
    "document",
    "other",
]
Origin = Literal["human", "client", "model", "tool"]
State = Literal["visible", "pinned", "masked", "archived", "pruned", "blocked", "deleted"]

#: States whose body is in the prompt, whole or in part; the checkout keeps these under `blocks/`.
PRESENT: frozenset[str] = frozenset({"visible", "pinned", "masked"})

#: Keys of `extra` that are never part of a provider's content block: `openai` contains what only that wire form has,
#: `ctxvc` our own metadata.
FOREIGN: frozenset[str] = frozenset({"openai", "ctxvc"})
_BLOCK_ID = re.compile(r"B([1-9][0-9]{0,11})")
_GROUP_ID = re.compile(r"G([1-9][0-9]{0,11})")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A block without a number yet: what an importer or an agent supplies.

    `body` is the exact bytes and `ext` the extension of its file (`txt`, `json`, `bin`, `png`, …). `files` are sibling
    bodies as (suffix, bytes), as in `("1.png", b"…")` for the first image of a result. `extra` is the rest of the
    content block as received, so that it can be rebuilt exactly.
    """

    kind: Kind
    role: Role
    origin: Origin
    body: bytes
    ext: str = "txt"
    call: str = ""
    tool: str = ""
    error: bool = False
    files: tuple[tuple[str, bytes], ...] = ()
    extra: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation, as recorded or as sent.

    `reply` is the provider's id of the model reply that an assistant message belongs to: messages with the same
    non-empty `reply` are one reply (Claude Code writes one line per content block). `key` names the message in its
    source, `time` is ISO 8601 or empty, `usage` the provider's token counts of that call.
    """

    role: Role
    parts: tuple[Part, ...]
    reply: str = ""
    key: str = ""
    time: str = ""
    model: str = ""
    usage: dict[str, int] = {}


def block_number(block_id: str) -> int:
    """17 for `B17`. Raises: ValueError if `block_id` is not a block's address."""
    match = _BLOCK_ID.fullmatch(block_id)
    if not match:
        raise ValueError(f"not a block id: {block_id[:40]!r}")
    return int(match.group(1))


def group_number(group_id: str) -> int:
    """3 for `G3`. Raises: ValueError if `group_id` is not a group's address."""
    match = _GROUP_ID.fullmatch(group_id)
    if not match:
        raise ValueError(f"not a group id: {group_id[:40]!r}")
    return int(match.group(1))


Verb = Literal["archive", "mask", "prune", "restore", "pin", "unpin", "delete", "summarise"]

#: State → verb → new state. Anything else is not allowed.
TRANSITIONS: dict[State, dict[Verb, State]] = {
    "visible": {
        "archive": "archived",
        "mask": "masked",
        "prune": "pruned",
        "pin": "pinned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "pinned": {"unpin": "visible"},
    "masked": {
        "restore": "visible",
        "archive": "archived",
        "prune": "pruned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "archived": {
        "restore": "visible",
        "archive": "archived",
        "prune": "pruned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "pruned": {"restore": "visible", "delete": "deleted"},
    "blocked": {
        "restore": "visible",
        "archive": "archived",
        "prune": "pruned",
        "delete": "deleted",
        "summarise": "archived",
    },
    "deleted": {"restore": "visible"},
}


def after(state: State, verb: Verb) -> State | None:
    """The state that `verb` leads to from `state`; None if it is not allowed."""
    return TRANSITIONS[state].get(verb)
