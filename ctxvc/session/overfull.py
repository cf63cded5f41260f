"""The error of a prompt that does not fit: what fills it, and what would help."""

from __future__ import annotations

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.view.view import View, costs_in_prompt
from ctxvc.errors import OverBudget, Phrase

_SYSTEM, _TOOLS, _HUMAN = "the system prompt", "the tools", "human text"
_PINNED, _NOTES, _RESULTS, _REPLY = "pinned blocks", "notes", "the newest results", "the newest reply"
_OTHERS = "stubs and others"
#: Blocks that are named of each kind, largest first.
_NAMED = 3
#: The budget that is advised is a multiple of this.
_STEP = 500


def overfull(view: View, system: int, tools: int, *, needed: int) -> OverBudget:
    """The error for a prompt of which nothing more may leave: it needs `needed` tokens, more than the budget has.

    `view` is that prompt, `system` and `tools` are our counts of these two. What fills it is named in the units of
    `needed`, the provider's tokens, largest kind first.
    """
    ours = view.counted
    newest = max((row.step for row in view.ledger.rows() if row.role == "assistant" and row.present), default=0)
    kinds: dict[str, dict[str, int]] = {_SYSTEM: {"": system}, _TOOLS: {"": tools}}
    for block, tokens in costs_in_prompt(view.ledger, view.price).items():
        kinds.setdefault(_kind(view.ledger[block], newest), {})[block] = tokens
    sizes = {kind: _share(sum(blocks.values()), needed, ours) for kind, blocks in kinds.items()}
    order = sorted((kind for kind in kinds if sizes[kind]), key=lambda kind: -sizes[kind])
    parts = [f"{kind} {sizes[kind]:,}{_largest(kinds[kind])}" for kind in order]
    always = sizes[_SYSTEM] + sizes[_TOOLS]
    # The reserve grows with the budget where it is a share of it.
    budget = -(-needed * view.budget.window // view.budget.effective // _STEP) * _STEP + _STEP
    largely_always = always * 2 > view.budget.effective
    hint = Phrase("overhead-budget", budget=budget) if largely_always else Phrase("free-budget", budget=budget)
    return OverBudget(
        f"the prompt needs {needed:,} tokens and the budget has {view.budget.effective:,}: {', '.join(parts)}",
        hint=hint,
    )


def _kind(row: Row, newest: int) -> str:
    if not row.present:
        return _OTHERS
    if row.kind == "note":
        return _NOTES
    if is_human(row.role, row.origin):
        return _HUMAN
    if row.state == "pinned":
        return _PINNED
    if row.step == newest and row.role == "assistant":
        return _REPLY
    return _RESULTS if row.step == newest and row.kind == "tool_result" else _OTHERS


def _share(tokens: int, needed: int, ours: int) -> int:
    return tokens * needed // max(1, ours)


def _largest(blocks: dict[str, int]) -> str:
    names = sorted((block for block in blocks if block), key=lambda block: (-blocks[block], int(block[1:])))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" ({', '.join(names[:_NAMED])}{more})" if names else ""
