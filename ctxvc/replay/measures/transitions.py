"""Two runs of one conversation, use by use: what both kept, what only one of them did, and where they differ most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ctxvc.replay.conversation import Conversation
from ctxvc.replay.measures.retention import OUTCOMES, UNMEASURED, Outcome, Sums
from ctxvc.replay.measures.uses import Use

#: Anchors and calls that an example lists.
LISTED = 5


class Transitions(Sums, frozen=True):
    """So many uses that both runs kept, only the first (`a`), only the second (`b`), or neither."""

    both: int = 0
    only_a: int = 0
    only_b: int = 0
    neither: int = 0


class Difference(msgspec.Struct, frozen=True):
    """A block whose anchors one run kept and the other did not: the newest of those that hold them.

    `only_a` and `only_b` count the uses that only one run kept. `anchors` are some of them, in the order of their use;
    `calls` those at which they are used.
    """

    conversation: str
    block: int
    label: str
    only_a: int
    only_b: int
    anchors: tuple[str, ...]
    calls: tuple[int, ...]


def transitions(a: bytes, b: bytes, places: Sequence[int] | None = None, outcome: Outcome = "visible") -> Transitions:
    """How two runs' outcomes of the same uses go together. Kept is what has this outcome or a better one.

    `places` chooses uses, such as those at risk; uses that one of the runs did not measure are left out.
    """
    counts = [0, 0, 0, 0]
    for _, kept_by_a, kept_by_b in _pairs(a, b, places, outcome):
        counts[(not kept_by_a) * 2 + (not kept_by_b)] += 1
    return Transitions(*counts)


def differences(
    conversation: Conversation,
    uses: Sequence[Use],
    a: bytes,
    b: bytes,
    places: Sequence[int] | None = None,
    outcome: Outcome = "visible",
) -> tuple[Difference, ...]:
    """The blocks over which two runs differ, the largest difference first. Arguments as of `transitions`."""
    by_block: dict[int, tuple[list[Use], list[Use]]] = {}
    for place, kept_by_a, kept_by_b in _pairs(a, b, places, outcome):
        if kept_by_a != kept_by_b:
            by_block.setdefault(uses[place].blocks[-1], ([], []))[kept_by_b].append(uses[place])
    differing = []
    for number, (only_a, only_b) in by_block.items():
        block = conversation.blocks[number]
        larger = max(only_a, only_b, key=len)
        differing.append(
            Difference(
                conversation=conversation.id,
                block=number,
                label=" ".join(filter(None, (block.kind, block.tool, block.source))),
                only_a=len(only_a),
                only_b=len(only_b),
                anchors=tuple(dict.fromkeys(use.anchor for use in larger))[:LISTED],
                calls=tuple(dict.fromkeys(use.call for use in larger))[:LISTED],
            )
        )
    return tuple(sorted(differing, key=lambda one: (-abs(one.only_a - one.only_b), one.block)))


def _pairs(a: bytes, b: bytes, places: Sequence[int] | None, outcome: Outcome) -> Iterator[tuple[int, bool, bool]]:
    """Places of uses that both runs measured, and whether each kept them."""
    if len(a) != len(b):
        raise ValueError(f"outcomes of {len(a):,} and of {len(b):,} uses are not of the same conversation")
    worst = OUTCOMES.index(outcome)
    for place in range(len(a)) if places is None else places:
        if a[place] != UNMEASURED and b[place] != UNMEASURED:
            yield place, a[place] <= worst, b[place] <= worst
