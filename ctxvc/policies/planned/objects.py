"""Context objects: names for spans of blocks that a planner can act on (Self-GC, section "Indexed Context Objects").

`conversation:user:5` is the fifth turn: what a human asked and all that was done about it. `function:Read:12` is the
call whose result is block B12. Both numbers are those of the ledger: a turn's, and a block's, which one counter a
session gives out and never gives twice. So a name means the same when other things leave, in a session that is opened
again, and in a scope that inherits the block; and it is told from the rows alone, nothing is stored.

The paper writes names as tags into the messages and counts results by themselves. Here the names stand in an index
behind the prompt, so that no message changes, and a result has the number that its stub has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE, is_human, speaks
from ctxvc.core.plan.protected import protected
from ctxvc.core.view.view import View

Family = Literal["conversation", "function"]

#: A call of more bytes than this belongs to its tool's object: what it wrote is as bulky as what others read. The
#: envelope of any other call stays where its result leaves.
BULKY = 1_000

#: What a turn's object leaves alone besides a human's text: a cut takes thinking and dashboards, notes and what the
#: system said hold on.
_APART = ASIDE | {"thinking", "system"}
_TOOL = re.compile(r"[^A-Za-z0-9_.-]+")


class ContextObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A named span. `rows` are the blocks that an action on it is about, whatever their state; never a human's text.

    `label` says what was asked or called, in a few words of the conversation. `call` is a tool's call, where known.
    """

    id: str
    family: Family
    turn: int
    label: str
    rows: tuple[Row, ...]
    call: Row | None = None


class MovableObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object with the blocks of it that a plan may take out now, what they cost, and whose turn it is of."""

    object: ContextObject
    rows: tuple[Row, ...]
    tokens: int
    latest: bool


def objects(ledger: Ledger) -> dict[str, ContextObject]:
    """All objects of a ledger by name, oldest turn first: each turn, and behind it its tools."""
    turns: dict[int, list[Row]] = {}
    requests: dict[int, str] = {}
    tools: dict[int, list[ContextObject]] = {}
    calls: dict[str, Row] = {}
    for row in ledger.rows():
        if row.kind == "tool_use":
            calls[row.call] = row
        elif row.kind == "tool_result":
            tools.setdefault(row.turn, []).append(_function(row, calls.get(row.call)))
        if speaks(row.kind, row.role, row.origin):
            requests.setdefault(row.turn, row.label)
        if row.turn and not is_human(row.role, row.origin) and row.kind not in _APART:
            turns.setdefault(row.turn, []).append(row)
    by_name: dict[str, ContextObject] = {}
    for turn in sorted({*turns, *requests, *tools}):
        name = f"conversation:user:{turn}"
        rows = tuple(turns.get(turn, ()))
        if turn:
            by_name[name] = ContextObject(
                id=name, family="conversation", turn=turn, label=requests.get(turn, ""), rows=rows
            )
        by_name.update((tool_object.id, tool_object) for tool_object in tools.get(turn, ()))
    return by_name


def movable(view: View, candidates: Iterable[ContextObject], *, latest: bool) -> list[MovableObject]:
    """The objects of which something may leave now, in their order; those of the latest turn only with `latest`.

    The latest step, what came in since, what is pinned and what is protected stay in any case.
    """
    turn, step = edge(view.ledger)
    protect = protected(view.ledger)
    price = view.price
    movables: list[MovableObject] = []
    for candidate in candidates:
        if candidate.turn >= turn and not latest:
            continue
        rows = tuple(
            row
            for row in candidate.rows
            if row.state in ("visible", "masked") and row.step < step and row.id not in protect
        )
        if rows:
            tokens = sum(price.mask(row) if row.state == "masked" else price.body(row) for row in rows)
            movables.append(MovableObject(object=candidate, rows=rows, tokens=tokens, latest=candidate.turn >= turn))
    return movables


def edge(ledger: Ledger) -> tuple[int, int]:
    """The newest turn, and the newest step that has a reply; 0 where there is none."""
    turn = 0
    for row in ledger.backwards():
        turn = turn or row.turn
        if row.role == "assistant":
            return turn, row.step
    return turn, 0


def results(candidates: Iterable[MovableObject]) -> Iterator[MovableObject]:
    """Those that are a tool's, whose result is still in the prompt."""
    return (one for one in candidates if one.object.family == "function" and one.rows[-1].kind == "tool_result")


def _function(result: Row, call: Row | None) -> ContextObject:
    return ContextObject(
        id=f"function:{_tool(result.tool or (call.tool if call else ''))}:{result.number}",
        family="function",
        turn=result.turn,
        label=call.label if call else result.label,
        rows=(call, result) if call and call.bytes > BULKY else (result,),
        call=call,
    )


@lru_cache(maxsize=256)
def _tool(name: str) -> str:
    """The name of a tool with no letter in it that would mean something in an object's name."""
    return _TOOL.sub("_", name)[:64] or "tool"
