"""Cuts: the moments when thinking and sent dashboards of earlier steps leave the prompt permanently.

A current model's thinking is bound to every message before it. What was sent therefore stays byte for byte until a cut,
and what a cut removes never comes back. The cut is a block's number, kept in `ctxvc.json`.
"""

from __future__ import annotations

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Meta, Row

#: Kinds that a cut removes.
CUT = frozenset({"thinking", "dashboard"})


def is_cut(row: Row, meta: Meta) -> bool:
    """Whether a cut has removed the row from the prompt."""
    return row.kind in CUT and bool(meta.cuts) and row.number <= meta.cuts[-1]


def at_end(ledger: Ledger, *, due: bool = False) -> tuple[int, ...]:
    """`cuts` with one after the newest block; unchanged if nothing would leave, unless one is `due` anyway."""
    last = ledger.last()
    return _cut(ledger, last.number if last else 0, due=due)


def before_reply(ledger: Ledger, *, due: bool = False) -> tuple[int, ...]:
    """`cuts` with one before the newest reply, whose thinking stays while its round of calls is open.

    The newest reply is that of the prompt if it has thinking, else the newest ever made: if later replies have left,
    the dashboards since leave too. A cut that is `due` is made even if nothing leaves by it.
    """
    reply = newest_reply(ledger)
    if not reply:
        return at_end(ledger, due=due)
    thinks = any(row.kind == "thinking" and row.present and not is_cut(row, ledger.meta) for row in reply)
    return _cut(ledger, (reply[0].number if thinks else _newest_made(ledger)) - 1, due=due)


def with_cut(ledger: Ledger) -> Ledger:
    """The ledger after the cut before the newest reply, as it comes with a hard edit or a batch."""
    return ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=before_reply(ledger)))


def at_turn(ledger: Ledger, *, due: bool = False) -> tuple[int, ...]:
    """The `cuts` at a turn's start: after the newest reply, or before it if it made a call.

    In that case the turn began inside its round: the results of the calls are sent along with the human's message, and
    the provider requires the thinking that led to them.
    """
    called = any(row.kind == "tool_use" for row in newest_reply(ledger))
    return before_reply(ledger, due=due) if called else at_end(ledger, due=due)


def newest_reply(ledger: Ledger) -> list[Row]:
    """The rows of the newest reply, in order; what came in since does not count.

    Neither does a reply that has left, or one with only thinking and white space: once its thinking has left, nothing
    of it is sent, and the provider sees another reply as the newest.
    """
    reply: list[Row] = []
    for row in ledger.backwards():
        if reply and row.step < reply[-1].step:
            if any(map(_stands, reply)):
                break
            reply = []
        if row.role == "assistant":
            reply.append(row)
    return reply[::-1] if any(map(_stands, reply)) else []


def _newest_made(ledger: Ledger) -> int:
    """The number of the first block of the newest reply, in the prompt or not."""
    first = 0
    step = -1
    for row in ledger.backwards():
        if first and row.step < step:
            break
        if row.role == "assistant":
            first, step = row.number, row.step
    return first


def _stands(row: Row) -> bool:
    return row.present and _says(row)


def latest_step(ledger: Ledger) -> int:
    """The step of the newest reply, as in `newest_reply`; 0 if there is none."""
    return max(ledger.by_segment(_latest_said), default=0)


def _latest_said(rows: tuple[Row, ...]) -> int:
    return max((row.step for row in rows if row.role == "assistant" and _says(row)), default=0)


def _says(row: Row) -> bool:
    return row.kind not in CUT and (row.kind != "assistant" or bool(row.label))


def _cut(ledger: Ledger, end: int, *, due: bool) -> tuple[int, ...]:
    if due and end > max(ledger.meta.cuts, default=0):
        return (end,)
    if not any(ledger.by_segment(_has_some)):  # cached: a long ledger without either is not searched at each turn
        return ledger.meta.cuts
    for row in ledger.backwards():
        if is_cut(row, ledger.meta):
            break
        if row.kind in CUT and row.number <= end:
            return (end,)
    return ledger.meta.cuts


def _has_some(rows: tuple[Row, ...]) -> bool:
    return any(row.kind in CUT for row in rows)
