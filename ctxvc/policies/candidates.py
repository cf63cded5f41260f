"""The blocks, context objects and old stubs that may leave the prompt, and the wording of reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import attrgetter

import msgspec

from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import ASIDE, is_human
from ctxvc.core.ledger.objects import ContextObject
from ctxvc.core.ledger.pairs import calls_and_results, results_of
from ctxvc.core.plan.plan import Action
from ctxvc.core.plan.protected import protected
from ctxvc.core.prompt.cut import is_cut, latest_step
from ctxvc.core.prompt.outline import outline
from ctxvc.core.prompt.stub import is_summary
from ctxvc.core.view.view import View

_STEP, TURN = attrgetter("step"), attrgetter("turn")


def cost_in_prompt(view: View, row: Row) -> int:
    """The tokens that an ungrouped block takes in the prompt: its body, its mask or its stub."""
    if row.present:
        return view.price.mask(row) if row.state == "masked" else view.price.body(row)
    return view.price.text(row.stub) if row.stub else 0


def removable(view: View, *, alone: bool = False, kind: Kind | None = None) -> list[Row]:
    """The blocks in the prompt that a policy may remove, in order; only those of `kind`, if given.

    Never included: human text, pinned and protected blocks and the other halves of their pairs, notes, the host's
    asides, and everything since the latest reply. `alone` adds the absent blocks that are in no group.
    """
    ledger = view.ledger
    latest = latest_step(ledger)
    stays = set(protected(ledger)).union(*ledger.by_segment(_pinned))
    calls = {ledger[block].call for block in stays} - {""}
    for call, result in results_of(calls_and_results(ledger, calls)).items():
        if call in stays or result.id in stays:
            stays |= {call, result.id}
    return [
        row
        for row in chain.from_iterable(ledger.by_segment(_alone if alone else _standing))
        if (kind is None or row.kind == kind)
        and row.step < latest
        and row.id not in stays
        and not is_cut(row, ledger.meta)
    ]


def _pinned(rows: tuple[Row, ...]) -> list[str]:
    return [row.id for row in rows if row.state == "pinned"]


def _standing(rows: tuple[Row, ...]) -> list[Row]:
    """The unpinned rows in the prompt whose kind and origin may leave."""
    return [row for row in rows if row.state in ("visible", "masked") and _is_free(row)]


def _alone(rows: tuple[Row, ...]) -> list[Row]:
    """The rows of `_standing`, and the archived or blocked ones that are in no group."""
    absent_states = ("archived", "blocked")
    return [
        row
        for row in rows
        if (row.state in ("visible", "masked") or (row.state in absent_states and not row.group)) and _is_free(row)
    ]


def _is_free(row: Row) -> bool:
    return row.kind not in ASIDE and row.kind != "system" and not is_human(row.role, row.origin)


def old_results(view: View, keep: int, *, tools: Iterable[str] = (), errors: bool = False) -> list[Row]:
    """The tool results that may leave, oldest first, except the newest `keep` in the prompt.

    The results of one reply stay or leave together. Results of `tools` stay, and so do errors unless `errors` is set.
    """
    stand = list(chain.from_iterable(view.ledger.by_segment(_results)))
    kept_from = stand[-keep].step if 0 < keep <= len(stand) else 0 if keep else None
    spared = frozenset(tools)
    return [
        row
        for row in removable(view, kind="tool_result")
        if (kept_from is None or row.step < kept_from) and row.tool not in spared and (errors or not row.error)
    ]


def _results(rows: tuple[Row, ...]) -> list[Row]:
    """The results in the prompt."""
    return [row for row in rows if row.kind == "tool_result" and row.present]


def steps(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows grouped by step; only adjacent rows share a group."""
    return (list(step_rows) for _, step_rows in groupby(rows, key=_STEP))


def standing(view: View, before: int, mark: int, name: str) -> str:
    """`58,000 of 60,000 tokens: below clear at 36,000`."""
    return f"{before:,} of {view.budget.effective:,} tokens: below {name} at {mark:,}"


def leaving(view: View, before: int, after: int, actions: str) -> str:
    """The text of a reason: tokens before, the actions, tokens after, and any excess over the budget."""
    return f"{before:,} of {view.budget.effective:,} tokens: {actions}, {after:,} left{excess(view, after)}"


def excess(view: View, after: int) -> str:
    """The end of a reason that states by how much the budget is exceeded; empty if it is not."""
    over = after - view.budget.effective
    return f"; that is {over:,} too many, but this rule can remove no more" if over > 0 else ""


def short_label(label: str, width: int) -> str:
    """The label of a call; if a long path makes it exceed `width` characters, only the end of the path is kept."""
    tool, _, argument = label.partition(": ")
    is_long_path = len(label) > width and "/" in argument and " " not in argument
    return f"{tool}: …{argument[len(tool) + 3 - width :]}" if is_long_path else label


def old_stubs(view: View, above: int, down_to: int, *, more: int = 0) -> tuple[tuple[Action, ...], int]:
    """The actions that prune the oldest stubs made by rules, and the tokens that they save.

    None unless all stubs, plus `more` tokens to come, cost more than `above` hundredths of the budget; then enough to
    bring them to `down_to` hundredths. Stubs made by an agent or a person stay, as do summaries and the stubs that
    answer calls. A search still finds the removed content.
    """
    slots = [slot for slot in outline(view.ledger) if slot.show == "text" and slot.text and not is_summary(slot.text)]
    total = more + sum(view.price.text(slot.text) for slot in slots)
    hundredth = view.budget.soft_limit / 100
    actions: list[Action] = []
    saved = 0
    for slot in slots if view.part(total) > above * hundredth else ():
        if view.part(total - saved) <= down_to * hundredth:
            break
        by = view.ledger.groups[slot.group].removed_by if slot.group else slot.row.removed_by
        if slot.kind != "tool_result" and by.startswith(("policy:", "guard")):
            actions.append(Action(verb="prune", targets=(slot.group or slot.row.id,)))
            saved += view.price.text(slot.text)
    return tuple(actions), saved


#: Steps of the latest turn that are folded together.
STEPS = 10


class MovableObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object, the blocks of it that may leave now, their tokens, and whether it is in the latest turn."""

    object: ContextObject
    rows: tuple[Row, ...]
    tokens: int
    latest: bool


def movable(view: View, candidates: Iterable[ContextObject], *, latest: bool) -> list[MovableObject]:
    """The objects with at least one block that may leave now, in order; `latest` includes those of the latest turn.

    The latest step, everything since, and pinned and protected blocks always stay.
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
    """The parts in which a turn leaves: the whole turn, or for the latest turn, parts of `STEPS` steps."""
    if not turn.latest:
        return [turn.rows]
    return [tuple(part) for _, part in groupby(turn.rows, key=lambda row: row.step // STEPS)]


def tokens_of(view: View, rows: Iterable[Row]) -> int:
    """The tokens that these visible or masked blocks take in the prompt."""
    return sum(view.price.mask(row) if row.state == "masked" else view.price.body(row) for row in rows)


def edge(ledger: Ledger) -> tuple[int, int]:
    """The newest turn and the newest step with a reply, each 0 if there is none."""
    turn = 0
    for row in ledger.backwards():
        turn = turn or row.turn
        if row.role == "assistant":
            return turn, row.step
    return turn, 0


def results(candidates: Iterable[MovableObject]) -> Iterator[MovableObject]:
    """The tool objects whose result is still in the prompt. Skills are excluded, since they may only be folded."""
    return (one for one in candidates if one.object.family == "function" and one.rows[-1].kind == "tool_result")
