"""What each block of the prompt is worth, and the order in which blocks leave: least value per token freed first.

Value depends on words that no other visible block contains, on the steps since the block was last used, and on the
share of its words that the newest replies name. The weights come from recordings replayed under about seventy rules
(docs/decisions/0067-what-the-work-names.md): recency of use matters most, then words that no other block contains, then
what the work is about now, then the kind of work the block is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, filterfalse
from math import sqrt
from typing import Literal, NamedTuple, get_args

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.ledger.pairs import calls_and_results, results_of
from ctxvc.core.prompt.cut import CUT, is_cut
from ctxvc.core.view.budget import is_narrow
from ctxvc.core.view.view import View

Class = Literal[
    "text", "edit", "report", "answer", "read", "call", "search", "vcs", "run", "edited", "test", "todo", "notice"
]
CLASSES: tuple[Class, ...] = get_args(Class)

#: The weight of a block's words by its class.
WEIGHTS: Mapping[Class, float] = {
    "text": 0.5,  # by the model
    "edit": 1.0,  # the arguments of an edit
    "report": 1.5,  # by another agent
    "answer": 1.5,  # the last text of a turn
    "read": 0.6,
    "call": 0.3,  # any other call
    "search": 0.4,
    "vcs": 0.3,
    "run": 0.3,
    "edited": 0.3,  # the result of an edit
    "test": 0.2,
    "todo": 0.05,  # a state that a newer one replaced
    "notice": 0.1,  # by the client
}
#: The factor for a failed call and its result.
FAILED = 0.3
#: The worth of a word that one other visible block contains, and of a token; a word in no other block is worth 1.
SHARED, TOKEN = 0.3, 0.02
#: The steps whose replies show what the work is about now; how much more a block is worth if they name its every word;
#: and the most blocks that may contain such a word.
RECENT, NAMED, RARE = 10, 5.0, 4
#: `RECENT` for a narrow window, where the model's own replies span fewer steps than the work at hand.
NARROW_RECENT = 24
#: Tokens of a short stub, of the stub of a group with one exchange, and of each further exchange in it.
STUB, GROUP, LINE = 18, 40, 6
#: A result of fewer tokens leaves together with its call.
SMALL = 40


class Departure(NamedTuple):
    """Rows that leave together: a result whose call stays, or rows that join a group with their neighbours.

    `stubbed`: the result leaves its own stub. `freed` is in uncalibrated tokens, `value` is per token, `idle` is the
    number of steps since the last use, and `unique` the number of words that no other visible block contains.
    """

    rows: tuple[Row, ...]
    freed: int
    value: float
    idle: int
    unique: int
    stubbed: bool


_COMMANDS: tuple[tuple[Class, re.Pattern[str]], ...] = (
    ("test", re.compile(r"\b(?:tests?|pytest|jest|vitest|tox|rspec|ctest)\b")),
    ("vcs", re.compile(r"\b(?:git|gh|hg|jj)\b")),
    ("search", re.compile(r"\b(?:grep|rg|ag|find|fd|ls|tree)\b")),
    ("read", re.compile(r"\b(?:cat|sed|head|tail|nl|less|bat|jq)\b")),
)
_SHELLS = ("bash", "shell", "exec", "terminal", "command", "run")


def class_of(row: Row, call: Row | None) -> Class:
    """A block's kind of work: from its tool's name, for a shell from its command, otherwise from who wrote it."""
    if row.kind == "assistant":
        return "text"
    if row.role == "user" and row.kind != "tool_result":
        return "notice"
    tool = (row.tool or (call.tool if call else "")).lower()
    is_result = row.kind == "tool_result"
    if "todo" in tool or tool == "update_plan":
        return "todo"
    if any(word in tool for word in ("edit", "write", "patch", "replace", "insert")):
        return "edited" if is_result else "edit"
    if tool in ("task", "agent") or "subagent" in tool:
        return "report"
    if any(word in tool for word in ("read", "view", "open")):
        return "read"
    if any(word in tool for word in ("grep", "glob", "search", "find", "list", "ls")):
        return "search"
    if tool == "sh" or any(word in tool for word in _SHELLS):
        label = (call or row).label.lower()
        if "apply_patch" in label:
            return "edited" if is_result else "edit"
        return next((name for name, command in _COMMANDS if command.search(label)), "run")
    return "call"


class _Item:
    """A candidate that leaves as a whole."""

    __slots__ = ("freed", "rows", "stubbed", "tokens", "unique", "used", "weight", "words")

    def __init__(
        self,
        rows: tuple[Row, ...],
        vocabulary: Sequence[str],
        tokens: int,
        weight: float,
        used: int,
        *,
        stands: int = LINE,
        stubbed: bool = False,
    ) -> None:
        """Rows of `tokens` tokens that leave `stands` tokens in their place, last used in step `used`."""
        self.rows, self.words, self.tokens, self.freed = rows, vocabulary, tokens, tokens - stands
        self.weight, self.used, self.stubbed, self.unique = weight, used, stubbed, 0

    def value(self, count: Mapping[str, int], now: int) -> float:
        """The value per token freed, given what is still in the prompt."""
        holders = [*map(count.__getitem__, self.words)]
        self.unique = holders.count(1)
        worth = self.unique + SHARED * holders.count(2) + TOKEN * self.tokens
        return worth * self.weight / sqrt(max(now - self.used, 0) + 1) / max(self.freed, 1)


def departures(
    view: View,
    free: Sequence[Row],
    weights: Mapping[Class, float] = WEIGHTS,
    last: frozenset[str] = frozenset(),
    narrow_call: float = 0.0,
) -> Iterator[Departure]:
    """The `free` blocks in the order in which they should leave: the least valuable per token freed first.

    A result leaves before its call, which may leave after it; a small result leaves with its call. What remains gains
    value as other blocks with the same words leave. `last` are the last answers of turns; `narrow_call` is the minimum
    weight of a call in a narrow window, scaled if other weights than `WEIGHTS` are used. Nothing is computed before the
    first departure is requested; n blocks take O(n log n).
    """
    bench = _Bench(view, free, weights, last, narrow_call)
    heap = [(item.value(bench.count, bench.now), item.rows[0].number, item) for item in bench.items()]
    heapify(heap)
    while heap:
        value, number, item = heappop(heap)
        risen = item.value(bench.count, bench.now)
        if risen > value and heap and (risen, number) > heap[0][:2]:
            heappush(heap, (risen, number, item))
            continue
        yield Departure(item.rows, item.freed, risen, max(bench.now - item.used, 0), item.unique, item.stubbed)
        for new in bench.take(item):
            heappush(heap, (new.value(bench.count, bench.now), new.rows[0].number, new))


def runs_of(ledger: Ledger) -> dict[str, int]:
    """Block → the run that it belongs to; what leaves within a run can become one group."""
    runs: dict[str, int] = {}
    run, turn = 0, -1
    for row in ledger.rows():
        if is_fence(row) or row.turn != turn:
            run += 1
        runs[row.id] = run
        turn = row.turn
    return runs


def is_fence(row: Row) -> bool:
    """Whether a block bounds groups: a human's text, a note or a pinned block in the prompt."""
    return row.present and (is_human(row.role, row.origin) or row.kind == "note" or row.state == "pinned")


class _Bench:
    """What the values of a view's blocks derive from. `count`: word → the blocks of the prompt that contain it."""

    def __init__(
        self,
        view: View,
        free: Sequence[Row],
        weights: Mapping[Class, float],
        last: frozenset[str],
        narrow_call: float,
    ) -> None:
        self._view, self._free, self._weights, self._last = view, free, weights, last
        self._least_of_calls = narrow_call if is_narrow(view.budget.window) else 0.0
        ledger = view.ledger
        self._may_leave = {row.id for row in free}
        self._results = results_of(calls_and_results(ledger, {row.call for row in free} - {""}))
        self._calls = {result.id: ledger[call] for call, result in self._results.items()}
        present = [row for row in ledger.rows() if row.present and not is_cut(row, ledger.meta) and row.kind not in CUT]
        self.count = frequencies(ledger, present, view.words)
        self._used = last_uses(ledger, view.words, self.count)
        self.now = ledger.meta.counters.step
        recent = NARROW_RECENT if is_narrow(view.budget.window) else RECENT
        self._named = named_since(ledger, view.words, self.now - recent)
        self._runs = runs_of(ledger)
        self._begun: set[int] = set()  # runs that something has left, so that one stub stands for them
        self._waiting: dict[int, list[_Item]] = {}  # items not worth a stub of their own, by run

    def items(self) -> Iterator[_Item]:
        """What may leave at first: everything except calls whose results stand for themselves."""
        for row in self._free:
            if row.kind == "tool_use":
                result = self._results.get(row.id)
                if result is None:
                    continue
                if not result.present:
                    item = self._with_stub(row, result)
                elif result.id in self._may_leave and self._is_small(result):
                    item = self._item((row, result))
                else:
                    continue
            elif row.kind != "tool_result" or row.id not in self._calls or not self._calls[row.id].present:
                item = self._item((row,))
            elif self._is_small(row):
                continue
            else:
                item = self._item((row,), stands=STUB, stubbed=True)
            yield from self._worth_a_stub(item)

    def take(self, item: _Item) -> Iterator[_Item]:
        """Takes the item's words out of the counts; yields the items that may leave now and could not before."""
        for row in item.rows:
            if row.present:
                own = words_of(self._view.ledger, row, self._view.words)
                # A loop in Python takes twice as long, and a Counter's own `update` would add.
                dict.update(self.count, zip(own, map((-1).__add__, map(self.count.__getitem__, own)), strict=True))
        if not item.stubbed:
            run = self._runs[item.rows[0].id]
            self._begun.add(run)
            for item_beside in self._waiting.pop(run, ()):
                item_beside.freed += GROUP - LINE
                yield from self._worth_a_stub(item_beside)
        elif (call := self._calls[item.rows[0].id]).id in self._may_leave:
            call_item = self._item((call,))
            call_item.freed += STUB
            yield from self._worth_a_stub(call_item)

    def _worth_a_stub(self, item: _Item) -> Iterator[_Item]:
        """The item, if it frees more than its stub costs; otherwise it waits for neighbours."""
        run = self._runs[item.rows[0].id]
        if item.freed > 0:
            yield item
        elif not item.stubbed and run not in self._begun:
            self._waiting.setdefault(run, []).append(item)

    def _with_stub(self, call: Row, result: Row) -> _Item:
        """A call, together with its result's stub if the result left on its own."""
        return self._item((call, result) if result.stub and not result.group else (call,))

    def _is_small(self, result: Row) -> bool:
        return self._view.price.body(result) < SMALL

    def _item(self, rows: tuple[Row, ...], *, stands: int = 0, stubbed: bool = False) -> _Item:
        stands = stands or (LINE if self._runs[rows[0].id] in self._begun else GROUP)
        ledger, price, text = self._view.ledger, self._view.price, self._view.words
        tokens = sum(price.body(row) if row.present else price.text(row.stub) for row in rows)
        every = [words_of(ledger, row, text) for row in rows if row.present]
        own_words = every[0] if len(every) == 1 else tuple(dict.fromkeys(chain.from_iterable(every)))
        weight = max(map(self._weight, rows)) * self._at_work(rows[0], own_words)
        used = max(max(row.step, self._used.get(row.id, 0)) for row in rows)
        return _Item(rows, own_words, tokens, weight, used, stands=stands, stubbed=stubbed)

    def _at_work(self, row: Row, own_words: Sequence[str]) -> float:
        """The factor by which a block with these words is worth more because the newest replies name some of them.

        The newest replies themselves name all of their own words. That counts only in a narrow window, where the
        model's recent texts would otherwise leave first; in a wider one the results need the room more.
        """
        if row.role == "assistant" and row.step >= self.now - RECENT and not is_narrow(self._view.budget.window):
            return 1.0
        rare = sum(map(RARE.__ge__, map(self.count.__getitem__, self._named.intersection(own_words))))
        return 1 + NAMED * rare / max(1, len(own_words))

    def _weight(self, row: Row) -> float:
        kind = "answer" if row.id in self._last else class_of(row, self._calls.get(row.id))
        weight = self._weights[kind] * (FAILED if row.error else 1.0)
        if row.kind == "tool_use" and kind != "todo":
            weight *= max(1.0, self._least_of_calls / WEIGHTS[kind])
        return sqrt(weight)


# --- the words of blocks

#: A name of four letters or more, or a number of four digits or more. Linear in the text.
_WORD = re.compile(r"[A-Za-z_]\w{3,}|\d{4,}")
#: The same for ASCII text, in half the time.
_ASCII_WORD = re.compile(_WORD.pattern, re.ASCII)
#: Characters of a text that are searched for words.
_READ = 400_000
#: A word in more blocks than this is no evidence that one of them was used.
COMMON = 12
_MEDIA = frozenset({"image", "document"})

#: A block's text.
Text = Callable[[Row], str]


def vocabulary(text: str) -> tuple[str, ...]:
    """The distinct words of a text: identifiers, parts of paths, and long numbers."""
    word = _ASCII_WORD if text.isascii() else _WORD
    return tuple(dict.fromkeys(word.findall(text, 0, _READ)))


def words_of(ledger: Ledger, row: Row, text: Text) -> tuple[str, ...]:
    """The words of a block's body, none for an image or document; computed once for each checksum."""
    cache = ledger.cache_of(words_of)
    own: tuple[str, ...] | None = cache.get(row.sha256)
    if own is None:
        names = ledger.cache_of(vocabulary)  # one string for a word of many blocks
        plain = () if row.kind in _MEDIA and row.ext != "json" else vocabulary(text(row))
        own = cache[row.sha256] = tuple(map(names.setdefault, plain, plain))
    return own


def last_uses(ledger: Ledger, text: Text, count: Mapping[str, int]) -> dict[str, int]:
    """Block → the step of its last use, for blocks of the prompt that were used.

    A block is used where a later call or text of the model names a word that no newer block in the prompt contains.
    `count` is the number of blocks in the prompt with a word; words in more than `COMMON` don't count.
    """
    newest: dict[str, str] = {}
    used: dict[str, int] = {}
    common = {word for word, blocks in count.items() if blocks > COMMON}
    for row in ledger.rows():
        if row.kind in CUT or not (row.present or (newest and row.role == "assistant")):
            continue
        own = [*filterfalse(common.__contains__, words_of(ledger, row, text))]
        if row.role == "assistant":
            used |= dict.fromkeys(filter(None, map(newest.get, own)), row.step)
        if row.present:
            newest |= dict.fromkeys(own, row.id)
    return used


def named_since(ledger: Ledger, text: Text, step: int) -> frozenset[str]:
    """The words of the model's replies from that step on, thinking aside, including replies that left the prompt."""
    reply_words: set[str] = set()
    for row in ledger.backwards():
        if row.step < step:
            break
        if row.role == "assistant" and row.kind not in CUT:
            reply_words.update(words_of(ledger, row, text))
    return frozenset(reply_words)


def frequencies(ledger: Ledger, rows: Iterable[Row], text: Text) -> Counter[str]:
    """Word → the number of these blocks that contain it."""
    count: Counter[str] = Counter()
    for row in rows:
        count.update(words_of(ledger, row, text))
    return count
