"""What uses the context: the prompt's tokens by kind, tool, turn or file, and how far the thresholds are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from ctxvc.core.display import one_line, path_fitted
from ctxvc.core.ledger import caption, wire
from ctxvc.core.ledger.facts import PATHS
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import Cost

By = Literal["kind", "tool", "turn", "file"]


class Category(NamedTuple):
    """Blocks of one kind, tool, turn or file: how many, their tokens in the prompt, and their share of it."""

    name: str
    blocks: int
    tokens: int
    share: float


class Threshold(NamedTuple):
    """A point at which a policy acts, in tokens and as a share of the budget; `ahead` is below zero once passed."""

    name: str
    percent: int
    tokens: int
    ahead: int


#: Columns of a turn's first words.
_WORDS = 80


def categories(
    ledger: Ledger, costs: Mapping[str, Cost], overhead: int, by: By, body: Callable[[Row], bytes]
) -> list[Category]:
    """The contents of the prompt by category: largest first, turns in order. `body` reads the arguments of calls."""
    rows = [row for row in ledger.rows() if costs[row.id].shown]
    names = _names(ledger, rows, by, body)
    blocks = Counter(names[row.id] for row in rows)
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens[names[row.id]] += costs[row.id].shown
    if overhead:
        tokens["system prompt and tools"], blocks["system prompt and tools"] = overhead, 0
    total = sum(tokens.values())
    listed = [
        Category(name=name, blocks=blocks[name], tokens=count, share=count / total if total else 0.0)
        for name, count in tokens.items()
    ]
    return listed if by == "turn" else sorted(listed, key=lambda category: (-category.tokens, category.name))


def thresholds(used: int, budget: Budget) -> list[Threshold]:
    """The points at which policies act, with the tokens to each."""
    points = (("clear old results", budget.clear), ("summarise", budget.summarise), ("guard", budget.guard))
    return [
        Threshold(name=name, percent=round(tokens * 100 / max(1, budget.effective)), tokens=tokens, ahead=tokens - used)
        for name, tokens in points
    ]


def _names(ledger: Ledger, rows: Iterable[Row], by: By, body: Callable[[Row], bytes]) -> dict[str, str]:
    """Block → its category."""
    match by:
        case "kind":
            return {row.id: row.kind if row.present else "stubs" for row in rows}
        case "tool":
            return {row.id: one_line(row.tool, 80) or f"({row.kind})" for row in rows}
        case "turn":
            openers = _openers(ledger)
            return {row.id: f"turn {row.turn}: {openers.get(row.turn, '')}".rstrip(": ") for row in rows}
        case "file":
            files = files_of(ledger, body)
            return {row.id: files.get(row.id) or files.get(row.parent) or "(no file)" for row in rows}


def files_of(ledger: Ledger, body: Callable[[Row], bytes]) -> dict[str, str]:
    """Call → the file that it is about, relative to the session's folder; empty if it names none."""
    folder = caption.folder_of(ledger)
    calls = (row for row in ledger.rows() if row.kind == "tool_use" and row.ext == "json")
    return {row.id: caption.relative(_file(body(row)), folder) for row in calls}


def _openers(ledger: Ledger) -> dict[int, str]:
    """Turn → the first words of the human who opened it, else the label of the block that did."""
    turns: dict[int, list[Row]] = {}
    for row in ledger.rows():
        if row.role == "user":
            turns.setdefault(row.turn, []).append(row)
    return {turn: caption.human_words(rows, _WORDS) or rows[0].label for turn, rows in turns.items()}


def _file(arguments: bytes) -> str:
    """The file that a call is about; empty if it names none."""
    value = wire.parse(arguments)
    for name in PATHS:
        match value.get(name) if isinstance(value, dict) else None:
            case str(path) if path.strip():
                return path_fitted(one_line(path, len(path) + 1), 200)
    return ""
