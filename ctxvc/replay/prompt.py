"""A prompt of a replay, in terms of the conversation's blocks: all that the measures need to know of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """What the model saw in the call number `call` of a conversation.

    `complete` are the numbers of blocks that it saw whole. `parts` has the visible text of those that it saw in part:
    a preview, a mask, or what `recover` read out of one. `texts` are texts that the conversation does not have: stubs,
    notes, summaries, dashboards. `routes` leads from a block that it did not see, or only in part, to the
    place in `texts` of the stub with an address by which the block can be read: its own stub, or that of a group that
    holds it. `tokens` is the size of the whole prompt.
    """

    call: int
    complete: frozenset[int]
    parts: Mapping[int, str]
    texts: tuple[str, ...]
    routes: Mapping[int, int]
    tokens: int
