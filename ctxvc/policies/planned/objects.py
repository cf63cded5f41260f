"""Context objects: names for spans of blocks that a planner can act on (Self-GC, section "Indexed Context Objects").

`conversation:user:5` is the fifth turn: what a human asked and all that was done about it. `conversation:step:41` is a
reply in it, with its calls and their results: a turn of a coding agent may have hundreds. `function:Read:12` is the
call whose result is block B12. The numbers are those of the ledger: a turn's, a step's, and a block's, which a session
gives out once and never again. So a name means the same when other things leave, in a session that is opened again, and
in a scope that inherits the block; and it is told from the rows alone, nothing is stored.

The paper writes names as tags into the messages and counts results by themselves. Here the names stand in an index
behind the prompt, so that no message changes, and a result has the number that its stub has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
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

#: So many steps of the latest turn are folded together.
STEPS = 10

#: What a turn's object leaves alone besides a human's text: a cut takes thinking and dashboards, notes and what the
#: system said hold on.
_APART = ASIDE | {"thinking", "system"}
_TOOL = re.compile(r"[^A-Za-z0-9_.-]+")


class ContextObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A named span. `rows` are the blocks that an action on it is about, whatever their state; never a human's text.

    `label` says what was asked or called, in a few words of the conversation. `call` is a tool's call, where known;
    `step` the step of a tool or reply, 0 for a turn.
    """

    id: str
    family: Family
    turn: int
    label: str
    rows: tuple[Row, ...]
    call: Row | None = None
    step: int = 0

    @property
    def is_turn(self) -> bool:
        return self.family == "conversation" and not self.step

    @property
    def is_step(self) -> bool:
        return self.family == "conversation" and bool(self.step)


class MovableObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object with the blocks of it that a plan may take out now, what they cost, and whose turn it is of."""

    object: ContextObject
    rows: tuple[Row, ...]
    tokens: int
    latest: bool


def objects(ledger: Ledger) -> dict[str, ContextObject]:
    """All objects of a ledger by name, oldest turn first: each turn, behind it its replies, behind each its tools."""
    turns: dict[int, dict[int, list[Row]]] = {}
    requests: dict[int, str] = {}
    tools: dict[int, list[ContextObject]] = {}
    calls: dict[str, Row] = {}
    labels: dict[int, str] = {}
    for row in ledger.rows():
        if row.kind == "tool_use":
            calls[row.call] = row
        elif row.kind == "tool_result":
            tools.setdefault(row.step, []).append(_function(row, calls.get(row.call)))
        if speaks(row.kind, row.role, row.origin):
            requests.setdefault(row.turn, row.label)
        if row.turn and not is_human(row.role, row.origin) and row.kind not in _APART:
            turns.setdefault(row.turn, {}).setdefault(row.step, []).append(row)
            if row.role == "assistant" and (row.kind == "tool_use" or row.step not in labels):
                labels[row.step] = row.label
    by_name: dict[str, ContextObject] = {}
    for turn in sorted({*turns, *requests}):
        steps = turns.get(turn, {})
        name, rows = f"conversation:user:{turn}", tuple(row for step in steps.values() for row in step)
        by_name[name] = ContextObject(
            id=name, family="conversation", turn=turn, label=requests.get(turn, ""), rows=rows
        )
        for step, step_rows in steps.items():
            name, label = f"conversation:step:{step}", labels.get(step, "")
            by_name[name] = ContextObject(
                id=name, family="conversation", turn=turn, label=label, rows=tuple(step_rows), step=step
            )
            by_name.update((tool_object.id, tool_object) for tool_object in tools.pop(step, ()))
    by_name.update((tool_object.id, tool_object) for step in sorted(tools) for tool_object in tools[step])
    return by_name


def movable(view: View, candidates: Iterable[ContextObject], *, latest: bool) -> list[MovableObject]:
    """The objects of which something may leave now, in their order; those of the latest turn only with `latest`.

    The latest step, what came in since, what is pinned and what is protected stay in any case.
    """
    turn, step = edge(view.ledger)
    protect = protected(view.ledger)
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
            tokens = tokens_of(view, rows)
            movables.append(MovableObject(object=candidate, rows=rows, tokens=tokens, latest=candidate.turn >= turn))
    return movables


def batches(turn: MovableObject) -> list[tuple[Row, ...]]:
    """The parts of a turn that leave one after the other: all of it, or of the latest turn `STEPS` steps each."""
    if not turn.latest:
        return [turn.rows]
    return [tuple(part) for _, part in groupby(turn.rows, key=lambda row: row.step // STEPS)]


def tokens_of(view: View, rows: Iterable[Row]) -> int:
    """The tokens of blocks that are in the prompt, in their place."""
    return sum(view.price.mask(row) if row.state == "masked" else view.price.body(row) for row in rows)


def edge(ledger: Ledger) -> tuple[int, int]:
    """The newest turn, and the newest step that has a reply; 0 if there is none."""
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
        step=result.step,
    )


@lru_cache(maxsize=256)
def _tool(name: str) -> str:
    """The name of a tool with no letter in it that would mean something in an object's name."""
    return _TOOL.sub("_", name)[:64] or "tool"
