"""The hard set: the conversations in which the results of tools fill the prompt most, for most of the time.

Source: Self-GC, arXiv:2607.00692, Table 1: the 33 sessions of 332 with "the highest sustained tool pressure". The paper
gives no formula; this is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median_low

from ctxvc.replay.conversation import Conversation

#: The paper's share.
SHARE = 33 / 332


def tool_pressure(conversation: Conversation, sizes: Sequence[int]) -> int:
    """The tokens of calls and results that stand in the prompt in at least half of the calls, if nothing leaves it.

    `sizes` are the blocks' tokens by number.
    """
    pressures = [0] * (len(conversation.calls) + 1)
    for block in conversation.blocks:
        if block.kind in ("tool_use", "tool_result"):
            pressures[min(block.seen, len(conversation.calls))] += sizes[block.number]
    total = 0
    for call, own in enumerate(pressures):
        total += own
        pressures[call] = total
    return median_low(pressures[:-1])


def hard_set(pressures: Mapping[str, int], share: float = SHARE) -> tuple[str, ...]:
    """The tenth of the conversations with the highest pressure, at least one, highest first; equals by name."""
    ranked = sorted(pressures, key=lambda name: (-pressures[name], name))
    return tuple(ranked[: ceil(len(ranked) * share)])
