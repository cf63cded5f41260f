"""Context objects: names for spans of blocks that planners and people can act on (Self-GC, "Indexed Context Objects").

`conversation:user:5` is the fifth turn: a human's request and everything done about it. `conversation:step:41` is a
reply in it, with its calls and their results: a turn of a coding agent may have hundreds. `function:Read:12` is the
call whose result is block B12, and `skill:pdf:14` a skill that was loaded into B14. The numbers are those of the
ledger: a turn's, a step's, and a block's, which a session assigns once and never again. A name therefore keeps its
meaning when other blocks leave, in a reopened session, and in a scope that inherits the block. Names follow from the
rows alone; none is stored.

The paper writes names as tags into the messages and counts results separately. Here the names are in an index at the
end of the prompt, so that no message changes, and a result has the number that its stub has. The form of the paper's
skills is not published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE, is_human, speaks
from ctxvc.core.ledger.skills import Skill, skills

Family = Literal["conversation", "function", "skill"]

#: A call of more bytes belongs to its tool's object, because what it wrote is as bulky as what others read. Any other
#: call stays when its result leaves.
BULKY = 1_000

#: What a turn's object excludes besides a human's text: thinking and dashboards leave with a cut, notes and system
#: messages remain in force.
_APART = ASIDE | {"thinking", "system"}
_TOOL = re.compile(r"[^A-Za-z0-9_.-]+")

#: A name as people and models write it: with or without the family, and `turn:5` for `user:5`.
NAME = re.compile(r"(?:([A-Za-z]{1,16}):)?([A-Za-z0-9_.-]{1,64}):([1-9][0-9]{0,11})")
_FAMILIES = frozenset({"", "tool", *get_args(Family)})
_TURN, _STEP = ("user", "turn"), "step"
#: The most names that an unknown one is compared with.
_COMPARED = 2_000


class ContextObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A named span. `rows` are the blocks that an action on it applies to, whatever their state; never a human's text.

    `label` is the request or the call in a few words of the conversation. `call` is a tool's call, if known; `step` the
    step of a tool or reply, 0 for a turn.
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


def objects(ledger: Ledger) -> Mapping[str, ContextObject]:
    """All objects of a ledger by name, oldest turn first. Callers must not change the result.

    Each turn is followed by its replies, and each reply by its tools and skills.
    """
    return ledger.derived(_objects)


def object_of(ledger: Ledger, name: str) -> ContextObject | None:
    """The object of that name, or of a shorter form of it: `user:5`, `turn:5`, `step:41`, `Read:12`, `pdf:14`."""
    by_name = objects(ledger)
    if name in by_name:
        return by_name[name]
    match = NAME.fullmatch(name)
    if match is None:
        return None
    family, word, number = (match[1] or "").lower(), match[2].lower(), match[3]
    if family not in _FAMILIES:
        return None
    if family in ("", "conversation"):
        kind = "step" if word == _STEP else "user" if word in _TURN else word
        if family or f"conversation:{kind}:{number}" in by_name:
            return by_name.get(f"conversation:{kind}:{number}")
    one = ledger.derived(_by_number).get(int(number))
    if one is None:
        return None
    own_family, own, _ = one.id.split(":")
    names = {own.lower(), _tool(one.rows[-1].tool).lower()}
    return one if word in names and (family != "skill" or own_family == "skill") else None


def alike(ledger: Ledger, name: str) -> str:
    """The name most similar to an unknown one; empty if none is similar, or the unknown one does not have that form."""
    from difflib import get_close_matches

    if not NAME.fullmatch(name):
        return ""
    short: dict[str, str] = {}
    for full in list(objects(ledger))[-_COMPARED:]:
        short[full.partition(":")[2]] = short[full] = full
    alikes = get_close_matches(name, short, n=1, cutoff=0.6)
    return short[alikes[0]] if alikes else ""


def _by_number(ledger: Ledger) -> Mapping[int, ContextObject]:
    """Block number → the object, for blocks that are results or skills."""
    return {int(name.rpartition(":")[2]): one for name, one in objects(ledger).items() if one.family != "conversation"}


def _objects(ledger: Ledger) -> dict[str, ContextObject]:
    loaded = {skill.row.id: skill for skill in skills(ledger)}
    turns: dict[int, dict[int, list[Row]]] = {}
    requests: dict[int, str] = {}
    tools: dict[int, list[ContextObject]] = {}
    calls: dict[str, Row] = {}
    labels: dict[int, str] = {}
    for row in ledger.rows():
        if row.kind == "tool_use":
            calls[row.call] = row
        elif row.kind == "tool_result":
            call = calls.get(row.call)
            tool_object = _skill(loaded[row.id], call) if row.id in loaded else _function(row, call)
            tools.setdefault(row.step, []).append(tool_object)
        elif row.id in loaded:
            tools.setdefault(row.step, []).append(_skill(loaded[row.id], None))
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


def _skill(skill: Skill, call: Row | None) -> ContextObject:
    return ContextObject(
        id=f"skill:{skill.name}:{skill.row.number}",
        family="skill",
        turn=skill.row.turn,
        label=skill.label,
        rows=(skill.row,),
        call=call,
        step=skill.row.step,
    )


@lru_cache(maxsize=256)
def _tool(name: str) -> str:
    """A tool's name without the characters that have a meaning in an object's name."""
    return _TOOL.sub("_", name)[:64] or "tool"
