"""What leaves along with other blocks: other halves of pairs, and absent neighbours whose stubs are then idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.plan.draft import LedgerDraft
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.outline import has_moved, in_prompt_order

#: The most tokens of blocks that become one group: this number, or if larger this share of the budget.
_TOGETHER = 1_000
_SHARE = 0.1


def joined(draft: LedgerDraft, units: Sequence[str], *, near: bool) -> list[str]:
    """These blocks and groups, and what leaves with them.

    The other half of a pair that left on its own is included, since no stub of a result stays without its call. With
    `near`, so is whatever left between them and right beside them, except groups that are large or have an index text
    or a summary.
    """
    together = dict.fromkeys(units)
    together.update(dict.fromkeys(halves(draft, [row for unit in units for row in draft.blocks(unit)])))
    if near:
        together.update(dict.fromkeys(_neighbours(draft, [row for unit in together for row in draft.blocks(unit)])))
    return list(together)


def halves(draft: LedgerDraft, rows: Iterable[Row]) -> Iterator[str]:
    """The other halves of pairs that left on their own and have a stub in the prompt."""
    for row in rows:
        for half in draft.pair(row.id)[1:]:
            counterpart = draft.rows[half]
            if _is_gone(counterpart) and counterpart.stub and not draft.around(counterpart):
                yield half


def _neighbours(draft: LedgerDraft, rows: Sequence[Row]) -> Iterator[str]:
    order, places = draft.ledger.derived(_order)
    inside = {row.id for row in rows}
    first, last = (end(places[block] for block in inside) for end in (min, max))
    room = max(_TOGETHER, int(draft.budget * _SHARE)) - draft.tokens(rows)
    units: dict[str, None] = {}
    for place in range(first, last + 1):
        if order[place] not in inside and (unit := _unit(draft, order[place], room, inside)):
            units[unit] = None
    for outwards in (range(first - 1, -1, -1), range(last + 1, len(order))):
        for place in outwards:
            unit = _unit(draft, order[place], room, inside)
            if unit is None:
                break
            if unit and unit not in units:
                units[unit] = None
                room -= draft.tokens(draft.blocks(unit))
    yield from units


def _unit(draft: LedgerDraft, block: str, room: int, inside: set[str]) -> str | None:
    """What joins at a block's place: a block or group, empty if the place is empty, None if something stays there.

    The blocks `inside` are about to leave.
    """
    row = draft.rows[block]
    if row.kind == "dashboard" or is_cut(row, draft.ledger.meta) or not (row.present or row.stub or row.group):
        return ""
    if not _is_gone(row) or any(draft.rows[half].present and half not in inside for half in draft.pair(block)[1:]):
        return None
    if name := draft.around(row):
        return name if _joins(draft, name, room) else None
    return block if row.stub and row.removed_by.startswith(_AUTOMATIC) else None


#: The actors whose stubs may join others, because they supply no index texts.
_AUTOMATIC = ("policy:", "guard")


def _joins(draft: LedgerDraft, name: str, room: int) -> bool:
    """Whether a group is small, contiguous in the prompt, and has a label that states only what was done in it."""
    group, rows = draft.groups[name], draft.inside(name)
    if not group.stub or stubs.is_summary(group.stub) or not group.removed_by.startswith(_AUTOMATIC):
        return False
    if draft.tokens(rows) > room:
        return False
    order, places = draft.ledger.derived(_order)
    span = [places[row.id] for row in rows]
    if any(draft.rows[order[place]].present for place in range(min(span), max(span) + 1)):
        return False
    return group.label == draft.label(rows)


def _is_gone(row: Row) -> bool:
    return row.state in ("archived", "blocked")


def _order(ledger: Ledger) -> tuple[Sequence[str], Mapping[str, int]]:
    """The blocks in the order of the prompt, and the position of each."""
    if not has_moved(ledger):
        return tuple(ledger.by_place()), ledger.by_place()
    order = [row.id for row in in_prompt_order(ledger, list(ledger.rows()))]
    return order, {block: place for place, block in enumerate(order)}
