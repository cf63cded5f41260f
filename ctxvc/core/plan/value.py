"""What a block of the prompt is worth, and in which order blocks leave: least value per token freed first.

Value is measured by words that stand in no other visible block, and by how long the block was not used. Recordings
replayed under some thirty rules are behind it (docs/policies.md): recency of use first, then words that stand nowhere
else, then what kind of work the block is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import sqrt
from typing import Literal, NamedTuple, get_args

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.words import counted, last_uses, of_row
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.outline import calls_and_results, results_of
from ctxvc.core.view.view import View

Class = Literal[
    "text", "edit", "report", "answer", "read", "call", "search", "vcs", "run", "edited", "test", "todo", "notice"
]
CLASSES: tuple[Class, ...] = get_args(Class)

#: What a block's words are worth by its class.
WEIGHTS: Mapping[Class, float] = {
    "text": 0.5,  # of the model
    "edit": 1.0,  # the arguments of an edit
    "report": 1.5,  # of another agent
    "answer": 1.5,  # a turn's last text
    "read": 0.6,
    "call": 0.3,  # any other
    "search": 0.4,
    "vcs": 0.3,
    "run": 0.3,
    "edited": 0.3,  # the result of an edit
    "test": 0.2,
    "todo": 0.05,  # a state that a newer one replaced
    "notice": 0.1,  # of the client
}
#: Of a failed call and its result.
FAILED = 0.3
#: Of a word that one other visible block holds, and of a token, beside a word that stands nowhere else.
SHARED, TOKEN = 0.3, 0.1
#: Tokens of a short stub, of a group's, and of an exchange in a group's.
STUB, GROUP, LINE = 18, 30, 6
#: A result of fewer tokens than this leaves with its call.
SMALL = 40


class Departure(NamedTuple):
    """Rows that leave together: a result whose call stays, or what leaves with its neighbours as a group.

    `freed` are the tokens, as counted; `value` per token; `idle` the steps since the last use; `unique` how many of its
    words stand in no other visible block.
    """

    rows: tuple[Row, ...]
    freed: int
    value: float
    idle: int
    unique: int


_COMMANDS: tuple[tuple[Class, re.Pattern[str]], ...] = (
    ("test", re.compile(r"\b(?:tests?|pytest|jest|vitest|tox|rspec|ctest)\b")),
    ("vcs", re.compile(r"\b(?:git|gh|hg|jj)\b")),
    ("search", re.compile(r"\b(?:grep|rg|ag|find|fd|ls|tree)\b")),
    ("read", re.compile(r"\b(?:cat|sed|head|tail|nl|less|bat|jq)\b")),
)
_SHELLS = ("bash", "shell", "exec", "terminal", "command", "run")


def class_of(row: Row, call: Row | None) -> Class:
    """The kind of work a block is: by its tool's name, of a shell's by its command, else by who made it."""
    if row.kind == "assistant":
        return "text"
    if row.role == "user" and row.kind != "tool_result":
        return "notice"
    tool = (row.tool or (call.tool if call else "")).lower()
    is_result = row.kind == "tool_result"
    if "todo" in tool or tool in ("update_plan",):
        return "todo"
    if any(word in tool for word in ("edit", "write", "patch", "replace", "insert")):
        return "edited" if is_result else "edit"
    if tool in ("task", "agent") or "subagent" in tool:
        return "report"
    if any(word in tool for word in ("read", "view", "open")):
        return "read"
    if any(word in tool for word in ("grep", "glob", "search", "find", "list", "ls")):
        return "search"
    if any(word in tool for word in _SHELLS):
        label = (call or row).label.lower()
        if "apply_patch" in label:
            return "edited" if is_result else "edit"
        return next((name for name, command in _COMMANDS if command.search(label)), "run")
    return "call"


class _Item:
    """Something that may leave as a whole. `words` are those that stand only here if the others leave."""

    __slots__ = ("rows", "words", "tokens", "freed", "weight", "used", "unique")

    def __init__(self, rows: tuple[Row, ...], words: frozenset[str], tokens: int, freed: int, weight: float, used: int):
        self.rows, self.words, self.tokens, self.freed = rows, words, tokens, freed
        self.weight, self.used, self.unique = weight, used, 0

    def value(self, count: Mapping[str, int], now: int) -> float:
        """Per token freed, among the words that still stand in the prompt."""
        once = twice = 0
        for word in self.words:
            holders = count[word]
            if holders == 1:
                once += 1
            elif holders == 2:
                twice += 1
        self.unique = once
        worth = once + SHARED * twice + TOKEN * self.tokens
        return worth * self.weight / (max(now - self.used, 0) + 1) / max(self.freed, 1)


def departures(
    view: View,
    free: Sequence[Row],
    weights: Mapping[str, float] = WEIGHTS,
    last: frozenset[str] = frozenset(),
) -> Iterator[Departure]:
    """The `free` blocks in the order in which they should leave: the least valuable per token freed first.

    A result leaves before its call, which then may leave too; a small one with it. The value of what remains rises as
    the others that hold its words leave. `last` are turns' last answers.
    """
    ledger, price, text = view.ledger, view.price, view.words
    may_leave = {row.id for row in free}
    results = results_of(calls_and_results(ledger, {row.call for row in free} - {""}))
    calls = {result.id: ledger[call] for call, result in results.items()}
    present = [
        row
        for row in ledger.rows()
        if row.present and row.kind not in ("dashboard", "thinking") and not is_cut(row, ledger.meta)
    ]
    count = counted(ledger, present, text)
    used = last_uses(ledger, text, count)
    now = ledger.meta.counters.step

    def item(rows: tuple[Row, ...], stands: int) -> _Item:
        """The rows, in whose place so many tokens stand afterwards."""
        tokens = sum(price.body(row) if row.present else price.text(row.stub) for row in rows)
        words = frozenset().union(*(of_row(ledger, row, text) for row in rows if row.present))
        weight = max(_weight(row, calls.get(row.id), weights, last) for row in rows)
        use = max(max(row.step, used.get(row.id, 0)) for row in rows)
        return _Item(rows, words, tokens, tokens - stands, weight, use)

    def fold(call: Row) -> _Item | None:
        """A call whose result has left, with the stub of that."""
        result = results.get(call.id)
        if result is None:
            return None
        if result.present:
            left = item((call,), LINE)
            left.freed += STUB
            return left
        return item((call, result) if result.stub and not result.group else (call,), LINE)

    items: list[_Item] = []
    for row in free:
        if row.kind == "tool_use":
            result = results.get(row.id)
            if result is not None and (not result.present):
                items.append(fold(row) or item((row,), LINE))
            elif result is not None and result.id in may_leave and price.body(result) < SMALL:
                items.append(item((row, result), LINE))
        elif row.kind == "tool_result":
            if row.id not in calls or not calls[row.id].present:
                items.append(item((row,), LINE))
            elif price.body(row) >= SMALL:
                items.append(item((row,), STUB))
        else:
            items.append(item((row,), LINE))
    heap = [(own.value(count, now), own.rows[0].number, own) for own in items if own.freed > 0]
    heapify(heap)
    while heap:
        value, number, own = heappop(heap)
        risen = own.value(count, now)
        if risen > value and heap and (risen, number) > heap[0][:2]:
            heappush(heap, (risen, number, own))
            continue
        yield Departure(own.rows, own.freed, risen, now - own.used, own.unique)
        for row in own.rows:
            if row.present:
                for word in of_row(ledger, row, text):
                    count[word] -= 1
        only = own.rows[0]
        if only.kind == "tool_result" and len(own.rows) == 1:
            call = calls.get(only.id)
            if call is not None and call.id in may_leave and (left := fold(call)):
                heappush(heap, (left.value(count, now), call.number, left))


def _weight(row: Row, call: Row | None, weights: Mapping[str, float], last: frozenset[str]) -> float:
    kind = "answer" if row.id in last else class_of(row, call)
    return sqrt(weights[kind] * (FAILED if row.error else 1.0))
