"""Dependency retention: what of each use stood in the prompt of its call, or could be had from there."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import islice
from math import sqrt
from typing import Annotated, Literal, TypeVar, get_args

import msgspec

from ctxvc.core import display
from ctxvc.replay.conversation import Block, Conversation, Prompt
from ctxvc.replay.measures.anchors import KINDS, AnchorIndex, AnchorKind, stands_in, words_of
from ctxvc.replay.measures.uses import CATEGORIES, Category, Use

Outcome = Literal["visible", "routed", "searchable", "recoverable", "lost"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
VISIBLE, ROUTED, SEARCHABLE, RECOVERABLE, LOST = range(5)
#: Stands for a use at a call of which there was no prompt.
UNMEASURED = 255

#: What a search shows: so many lines of a block, so many characters of a line. A word that is in more earlier blocks
#: than this may have its lines left out.
LINES_OF_BLOCK = 4
LINE_WIDTH = 180
BLOCKS = 5
#: A word of fewer characters is nothing to search for.
SHORTEST = 4
#: Queries that are tried for a use.
QUERIES = 8
#: The beginning of a long command by which it can be known.
COMMAND = 40
#: The anchors of a text of up to this many characters are kept for other runs, which mostly have the same stubs.
CACHED = 1_000


class Lookup:
    """What all runs share that are measured by a conversation's uses, computed once."""

    def __init__(self, conversation: Conversation, uses: Sequence[Use]) -> None:
        self.uses = tuple(uses)
        self.blocks = conversation.blocks
        self._seen = [block.seen for block in self.blocks]
        calls = range(len(conversation.calls))
        by_call = [use.call for use in self.uses]
        #: Of each call where its uses begin and end.
        self.spans = [(bisect_left(by_call, call), bisect_left(by_call, call + 1)) for call in calls]
        #: Of each use its blocks, the newest first: the likeliest to be in a prompt.
        self.newest_first = [use.blocks[::-1] for use in self.uses]
        places = {anchor: place for place, anchor in enumerate(dict.fromkeys(use.anchor for use in self.uses))}
        #: Of each use its anchor's place among the anchors.
        self.anchors = [places[use.anchor] for use in self.uses]
        #: The anchors, by place.
        self.texts = list(places)
        self._index = AnchorIndex(self.texts, Counter(word for anchor in self.texts for word in words_of(anchor)))
        self._anchors_of: dict[str, frozenset[int]] = {}
        self._words: dict[str, frozenset[str]] = {}
        self._names = [_names(block) for block in self.blocks]
        self._named: dict[tuple[int, str], bool] = {}
        self._queries: dict[int, tuple[tuple[str, int], ...]] = {}
        self._rare: dict[int, dict[int, list[str]]] = {}

    def seen_by(self, call: int) -> int:
        """How many blocks the prompt of a call can have: those with a smaller number."""
        return bisect_left(self._seen, call + 1)

    def anchors_in(self, text: str) -> frozenset[int]:
        """The places of the anchors that stand in a text."""
        anchors = self._anchors_of.get(text)
        if anchors is None:
            anchors = frozenset(self._index.places(text))
            if len(text) <= CACHED:
                self._anchors_of[text] = anchors
        return anchors

    def vocabulary(self, text: str) -> frozenset[str]:
        """The words of a text."""
        vocabulary = self._words.get(text)
        if vocabulary is None:
            vocabulary = words_of(text)
            if len(text) <= CACHED:
                self._words[text] = vocabulary
        return vocabulary

    def names(self, number: int, text: str) -> bool:
        """Whether a text holds the path or command of a block."""
        own = self._names[number]
        if not own:
            return False
        is_named = self._named.get((number, text))
        if is_named is None:
            is_named = any(stands_in(name, text) for name in own)
            if len(text) <= CACHED:
                self._named[number, text] = is_named
        return is_named

    def queries(self, place: int) -> tuple[tuple[str, int], ...]:
        """Words of a use's own reply with each of which one search would show its anchor, and the block it shows."""
        queries = self._queries.get(place)
        if queries is None:
            queries = self._queries[place] = tuple(islice(self._showing(self.uses[place]), QUERIES))
        return queries

    @cached_property
    def postings(self) -> dict[str, tuple[int, ...]]:
        """A word that one could search for → the first blocks that have it, one more than a search may meet."""
        candidates: set[str] = set()
        for call in range(len(self.spans)):
            candidates |= self._reply_words(call)
        postings: dict[str, list[int]] = {word: [] for word in candidates}
        for block in self.blocks:
            for word in words_of(block.text) & candidates:
                if len(own := postings[word]) <= BLOCKS:
                    own.append(block.number)
        return {word: tuple(own) for word, own in postings.items()}

    def _reply_words(self, call: int) -> frozenset[str]:
        after = self.blocks[self.seen_by(call) : self.seen_by(call + 1)]
        texts = (block.text for block in after if block.kind in ("assistant", "tool_use"))
        return frozenset(word for text in texts for word in words_of(text) if len(word) >= SHORTEST)

    def _rare_words(self, call: int) -> dict[int, list[str]]:
        """The words of a reply that a search finds in few earlier blocks, by these blocks."""
        rare = self._rare.get(call)
        if rare is None:
            rare = self._rare[call] = {}
            limit = self.seen_by(call)
            for word in sorted(self._reply_words(call)):
                own = self.postings[word]
                if len(own) <= BLOCKS or own[BLOCKS] >= limit:
                    for number in own:
                        if number < limit:
                            rare.setdefault(number, []).append(word)
        return rare

    def _showing(self, use: Use) -> Iterator[tuple[str, int]]:
        rare = self._rare_words(use.call)
        for number in reversed(use.blocks):
            if number not in rare:
                continue
            text = self.blocks[number].text
            for start, end in islice(_lines_with(use.anchor, text), LINES_OF_BLOCK):
                on_line = words_of(text[start:end])
                for word in rare[number]:
                    if word in on_line and word != use.anchor and text.count(word, 0, start) < LINES_OF_BLOCK:
                        yield word, number


def _lines_with(anchor: str, text: str) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of the lines of a text in whose shown part an anchor stands."""
    at = text.find(anchor)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        if stands_in(anchor, display.one_line(text[start:end], LINE_WIDTH)):
            yield start, end
        at = text.find(anchor, end)


def _names(block: Block) -> tuple[str, ...]:
    """The forms in which a text can hold a block's path or command: whole, a file's name, a command's beginning."""
    source = block.source.removesuffix("…").strip()
    if len(source) < SHORTEST:
        return ()
    names = [source]
    file = source.rpartition("/")[2]
    if "/" in source and " " not in source and "." in file[1:-1]:
        names.append(file)
    elif len(source) > COMMAND:
        names.append(source[:COMMAND].rpartition(" ")[0] or source[:COMMAND])
    # A stub has no square brackets inside.
    return tuple(dict.fromkeys(form for name in names for form in (name, name.replace("[", "(").replace("]", ")"))))


class _TextAnchors:
    """The anchors in the texts of the current prompt.

    A text is searched for all anchors when it comes, if it is short, else when it stands in a second prompt: a long one
    is mostly a dashboard, which is another in the next. Until then it is searched for the anchors that are asked for.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._indexed: dict[str, frozenset[int]] = {}
        self._fresh: Set[str] = frozenset()
        self._counts: dict[int, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        return (*self._indexed, *self._fresh)

    def change(self, texts: Set[str]) -> None:
        counts = self._counts
        for text in self._indexed.keys() - texts:
            for place in self._indexed.pop(text):
                counts[place] -= 1
        fresh = {text for text in texts - self._indexed.keys() if len(text) > CACHED} - self._fresh
        for text in texts - self._indexed.keys() - fresh:
            self._indexed[text] = self._lookup.anchors_in(text)
            for place in self._indexed[text]:
                counts[place] = counts.get(place, 0) + 1
        self._fresh = fresh

    def __contains__(self, place: int) -> bool:
        if self._counts.get(place):
            return True
        anchor = self._lookup.texts[place]
        return any(stands_in(anchor, text) for text in self._fresh)


class Gauge:
    """Takes the prompts of one run, call by call, and says what became of each use.

    `archive` says whether what left the prompt can be had back from there at all, `search` whether it can be searched.
    """

    def __init__(self, lookup: Lookup, *, archive: bool = True, search: bool = True) -> None:
        self._lookup = lookup
        self._archive = archive
        self._search = archive and search
        self._parts = _TextAnchors(lookup)
        self._texts = _TextAnchors(lookup)
        self._words: frozenset[str] | None = None  # of the texts at hand, where they were asked for
        self._outcomes = bytearray([UNMEASURED]) * len(lookup.uses)

    @property
    def outcomes(self) -> bytes:
        """One byte a use: its index in `OUTCOMES`, or 255 where no prompt of its call was given."""
        return bytes(self._outcomes)

    def add(self, prompt: Prompt, unreachable: Collection[int] = frozenset()) -> bytes:
        """The outcomes of the uses in a call's reply. No address leads to the blocks that are `unreachable`."""
        start, end = self._lookup.spans[prompt.call]
        outcomes = self.classify(prompt, range(start, end), unreachable)
        self._outcomes[start:end] = outcomes
        return outcomes

    def classify(self, prompt: Prompt, numbers: Sequence[int], unreachable: Collection[int] = frozenset()) -> bytes:
        """The outcomes of these uses, by their places, as if they were made at this prompt."""
        if not numbers:
            return b""
        lookup, present = self._lookup, prompt.complete
        self._parts.change(set(prompt.parts.values()))
        self._texts.change(set(prompt.texts))
        self._words = None
        outcomes = bytearray()
        for number in numbers:
            holders, anchor = lookup.newest_first[number], lookup.anchors[number]
            if not present.isdisjoint(holders) or anchor in self._parts:
                outcomes.append(VISIBLE)
            elif anchor in self._texts:
                outcomes.append(ROUTED)
            elif not self._archive:
                outcomes.append(LOST)
            else:
                outcomes.append(self._way(number, holders, prompt, unreachable))
        return bytes(outcomes)

    def _way(self, number: int, holders: Sequence[int], prompt: Prompt, unreachable: Collection[int]) -> int:
        """The best way from a prompt to the blocks of a use that is not in it."""
        routes = prompt.routes
        if routes and any(
            holder in routes and holder not in unreachable and self._is_named(holder, prompt) for holder in holders
        ):
            return ROUTED
        if self._search and any(
            block not in unreachable and self._shows(word, prompt) for word, block in self._lookup.queries(number)
        ):
            return SEARCHABLE
        return LOST if unreachable and all(holder in unreachable for holder in holders) else RECOVERABLE

    def _is_named(self, holder: int, prompt: Prompt) -> bool:
        """Whether a prompt holds the path or command of a block, in its stub or in its visible call."""
        lookup = self._lookup
        if lookup.names(holder, prompt.texts[prompt.routes[holder]]):
            return True
        block = lookup.blocks[holder]
        if block.kind != "tool_result" or block.pair < 0 or not block.source:
            return False
        return block.pair in prompt.complete or (
            block.pair in prompt.parts and lookup.names(holder, prompt.parts[block.pair])
        )

    def _shows(self, word: str, prompt: Prompt) -> bool:
        """Whether a prompt holds a word."""
        if not prompt.complete.isdisjoint(self._lookup.postings[word]):
            return True
        if self._words is None:
            texts = (*self._parts.texts, *self._texts.texts)
            self._words = frozenset().union(*map(self._lookup.vocabulary, texts))
        return word in self._words


# --- counted


Amount = Annotated[int, msgspec.Meta(ge=0)]


class Sums(msgspec.Struct, frozen=True, gc=False):
    """Figures that add up: a field with a default is summed, one without says what the figures are of."""

    def __add__(self: _Sums, more: _Sums) -> _Sums:
        summed = self.__struct_fields__[-len(self.__struct_defaults__) :]
        return msgspec.structs.replace(self, **{name: getattr(self, name) + getattr(more, name) for name in summed})


_Sums = TypeVar("_Sums", bound=Sums)


class Counts(Sums, frozen=True, gc=False):
    """How many uses met what they needed where, the best place first.

    `visible` in a block of the prompt; `routed` by a stub, call or note in it; `searchable` by one search of the
    archive; `recoverable` only by an address that the prompt does not have; `lost` nowhere.
    """

    visible: Amount = 0
    routed: Amount = 0
    searchable: Amount = 0
    recoverable: Amount = 0
    lost: Amount = 0

    @property
    def total(self) -> int:
        return self.visible + self.routed + self.searchable + self.recoverable + self.lost

    def up_to(self, outcome: Outcome) -> int:
        """The uses of this outcome and all better ones."""
        return sum(getattr(self, name) for name in OUTCOMES[: OUTCOMES.index(outcome) + 1])

    def share(self, outcome: Outcome = "visible") -> float | None:
        """The share of the uses that are of this outcome or a better one; None if there are no uses."""
        return self.up_to(outcome) / self.total if self.total else None


class Split(Sums, frozen=True, gc=False):
    """The counts of all uses; of those non-trivial (`nt`: in no block of the last steps); and of those of these at risk
    (`ar`: only tool results held what was needed)."""

    all: Counts = Counts()
    nt: Counts = Counts()
    ar: Counts = Counts()


class Retention(msgspec.Struct, frozen=True):
    """What a run kept of its conversation's uses: in all, by kind of anchor, and by what a loss would be.

    Of the failure categories of Self-GC the sixth, recovery routing, is `uses.all.recoverable`.
    """

    uses: Split
    kinds: Mapping[AnchorKind, Split]
    categories: Mapping[Category, Split]


def retention(uses: Sequence[Use], outcomes: bytes) -> Retention:
    """The counts of a run's outcomes, one a use. Uses that were not measured are left out."""
    cells = Counter(
        (use.kind, use.category, use.nt, use.ar, outcome) for use, outcome in zip(uses, outcomes, strict=True)
    )
    measured = [(*cell, count) for cell, count in cells.items() if cell[-1] != UNMEASURED]
    return Retention(
        _split(measured),
        {kind: _split([cell for cell in measured if cell[0] == kind]) for kind in KINDS},
        {name: _split([cell for cell in measured if cell[1] == name]) for name in CATEGORIES},
    )


def _split(cells: Sequence[tuple[AnchorKind, Category, bool, bool, int, int]]) -> Split:
    def counts(chosen: Iterable[tuple[AnchorKind, Category, bool, bool, int, int]]) -> Counts:
        sums = [0] * len(OUTCOMES)
        for *_, outcome, count in chosen:
            sums[outcome] += count
        return Counts(*sums)

    return Split(counts(cells), counts(cell for cell in cells if cell[2]), counts(cell for cell in cells if cell[3]))


def wilson(hits: float, total: int) -> tuple[float, float]:
    """The Wilson interval of a share, at 95 %.

    It takes uses to be independent, which those of a conversation are not: compare policies by the same uses.
    """
    if not total:
        return 0.0, 1.0
    z = 1.959964
    share, spread = hits / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
