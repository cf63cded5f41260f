"""Uses: where a reply names something exactly that an earlier block has. Retention is counted over them.

What a lost one would have been for are the failure categories of Self-GC (arXiv:2607.00692, Table 7), by fixed rules:
there a judge reads the case; here the kind of the anchor and the blocks that hold it decide. No rule knows whether a
state is still current, or whether a sentence is a rule or a story.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from ctxvc.core.plan.protected import INSTRUCTIONS
from ctxvc.replay.conversation import Block, Conversation
from ctxvc.replay.measures.anchors import (
    AnchorIndex,
    AnchorKind,
    CommonAnchors,
    common_anchors,
    reply_anchors,
    words_of,
)

Category = Literal["evidence", "locator", "contract", "verbatim", "state"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

#: The paper's names. Its sixth, `recovery-routing loss`, is no property of an anchor but of a prompt: uses that are
#: only recoverable.
TITLES: dict[Category, str] = {
    "evidence": "evidence-detail loss",
    "locator": "locator / handle loss",
    "contract": "behavioural-contract loss",
    "verbatim": "verbatim-source loss",
    "state": "live-state loss",
}

_BY_KIND: dict[AnchorKind, Category] = {
    "path": "locator",
    "url": "locator",
    "id": "locator",
    "hash": "locator",
    "number": "evidence",
    "identifier": "evidence",
    "quoted": "verbatim",
    "line": "verbatim",
}

#: Tools each of whose calls states the whole of a list of work anew, or a change of it; in lower case.
_STATE_TOOLS = frozenset(
    {"todowrite", "write_todos", "update_plan", "todo_write", "taskcreate", "taskupdate", "tasklist", "todolist"}
)


def category(kind: AnchorKind, oldest: Block, newest: Block, failures: Mapping[tuple[str, str], int] = {}) -> Category:
    """The category of a use by the oldest and the newest of the blocks that hold its anchor. The first of these counts:

    - `contract`: the oldest is a person's or a system message, or is of an instruction or skill file.
    - `state`: the newest is a failed result, one of a call that had failed before with the same argument, or of a tool
      that keeps a list of work. `failures` has the number of the first failed result of each tool and argument.
    - `locator`: a path, URL, id or hash. `evidence`: a number or identifier. `verbatim`: a quoted string or a line.
    """
    if oldest.kind == "system" or (oldest.kind == "user" and oldest.origin == "human"):
        return "contract"
    if oldest.source.rpartition("/")[2] in INSTRUCTIONS:
        return "contract"
    if newest.tool.lower() in _STATE_TOOLS:
        return "state"
    if newest.kind == "tool_result" and newest.number >= failures.get((newest.tool, newest.source), newest.number + 1):
        return "state"
    return _BY_KIND[kind]


def first_failures(blocks: Iterable[Block]) -> dict[tuple[str, str], int]:
    """The number of the first failed result of each tool and argument."""
    failures: dict[tuple[str, str], int] = {}
    for block in blocks:
        if block.kind == "tool_result" and block.error:
            failures.setdefault((block.tool, block.source), block.number)
    return failures


#: A use is trivial if its anchor stands in a block of this many latest steps.
STEPS = 5


class Use(msgspec.Struct, frozen=True, gc=False):
    """An anchor in the reply of a call, and the numbers of the earlier blocks that hold it, in order.

    `nt` (non-trivial): none of those blocks is of the last 5 steps, nor of what came in since. `ar` (at risk): it
    is `nt`, and of its blocks only tool results hold it, thinking aside.
    """

    call: int
    anchor: str
    kind: AnchorKind
    blocks: tuple[int, ...]
    nt: bool
    ar: bool
    category: Category


def uses(conversation: Conversation, common: CommonAnchors | None = None) -> tuple[Use, ...]:
    """Every use of a conversation, by call, and within a call in the order of the reply.

    An anchor counts once a call. It does not count if it is common (by default those of the list that ships), if the
    system prompt or the tools' definitions have it, or if no block but thinking holds it: that leaves whatever a policy
    does.
    """
    common = common_anchors() if common is None else common
    replies = [reply_anchors(call.reply) for call in conversation.calls]
    blocks = conversation.blocks
    vocabularies = [words_of(block.text) for block in blocks]
    frequency: Counter[str] = Counter()
    for own in vocabularies:
        frequency.update(own)
    distinct = [anchor for anchor in dict.fromkeys(a for reply in replies for a in reply) if anchor not in common]
    index = AnchorIndex(distinct, frequency)
    always = {place for text in _texts([conversation.system, conversation.tools]) for place in index.places(text)}
    holders: list[list[int]] = [[] for _ in distinct]
    for block, own in zip(blocks, vocabularies, strict=True):
        for place in index.places(block.text, own):
            holders[place].append(block.number)
    places = {anchor: place for place, anchor in enumerate(distinct) if place not in always}
    return tuple(_uses(conversation, replies, places, holders))


def _uses(
    conversation: Conversation,
    replies: Sequence[dict[str, AnchorKind]],
    places: dict[str, int],
    holders: Sequence[list[int]],
) -> Iterator[Use]:
    blocks = conversation.blocks
    seen = [block.seen for block in blocks]
    failures = first_failures(blocks)
    for call, reply in enumerate(replies):
        limit = bisect_left(seen, call + 1)  # blocks are seen in the order of their numbers
        for anchor, kind in reply.items():
            place = places.get(anchor)
            if place is None:
                continue
            own = tuple(holders[place][: bisect_left(holders[place], limit)])
            oldest = next((blocks[number] for number in own if blocks[number].kind != "thinking"), None)
            if oldest is None:
                continue
            newest = next(blocks[number] for number in reversed(own) if blocks[number].kind != "thinking")
            nt = not any(blocks[number].call >= call - STEPS for number in _recent(own, seen, call - STEPS))
            ar = nt and all(blocks[number].kind in ("tool_result", "thinking") for number in own)
            yield Use(call, anchor, kind, own, nt, ar, category(kind, oldest, newest, failures))


def _recent(numbers: Sequence[int], seen: Sequence[int], call: int) -> Iterator[int]:
    """The numbers of blocks that no call before `call` saw."""
    for number in reversed(numbers):
        if seen[number] < call:
            return
        yield number


def _texts(value: Any) -> Iterator[str]:
    """The strings in a value, keys among them."""
    stack = [value]
    while stack:
        match stack.pop():
            case str() as text:
                yield text
            case dict() as fields:
                stack.extend(fields.values())
                stack.extend(map(str, fields))
            case list() | tuple() as items:
                stack.extend(items)
