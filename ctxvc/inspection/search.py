"""Search: the blocks that fit a question best, in one store or several, without reading all of them.

The index names the bodies that have the words; how well they fit, the bodies themselves decide. The 200 most promising
by the index are ranked.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice

import msgspec

from ctxvc.core import relevance
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.patterns import Match
from ctxvc.core.prompt import truncation
from ctxvc.core.prompt.recover import around
from ctxvc.core.relevance import Term
from ctxvc.errors import CtxvcError, Damaged, NotFound
from ctxvc.inspection import text_index
from ctxvc.inspection.bodies import Place
from ctxvc.inspection.filters import Filters
from ctxvc.inspection.indexed_bodies import Progress, refresh, text_of
from ctxvc.inspection.text_index import COUNTED, OFTEN, Candidate, DamagedIndex, IndexedBody, TextIndex, Within, often
from ctxvc.store.git.objects import Objects, Unreadable, blob_id, unhashed
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

#: The most bodies with a term that are ranked, bodies that are read for that, and bodies with their copies.
LOOKED_AT, _READ, _COPIES = 200, 300, 800
#: The most bodies to choose from for each query of several words, and of a single one.
_TOGETHER, _ALONE = 800, 500
#: Up to this many sessions are looked for by a fact each.
_AS_FACTS = 8
#: How many of the rarest words are used to look for bodies that lack others.
_WORDS = 6


class Fitting(msgspec.Struct, frozen=True, kw_only=True):
    """A block that fits, and its line that fits best; `start` and `stop` bound the match in the line's `text`.

    `time` is that of its step, in seconds since 1970, `size` the characters of its text, and `counts` how often each
    term occurs in it. `copies` counts other sessions with the same body, among those that were looked at.
    """

    place: Place
    time: int
    line: int
    text: str
    start: int
    stop: int
    counts: Mapping[str, int]
    size: int
    copies: int = 0


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The result from one store: its best blocks, how many of its texts have each term, and the number of its texts and
    of their characters."""

    fitting: Sequence[Fitting]
    having: Mapping[str, int]
    bodies: int
    characters: int


def searched(
    store: Store,
    query: Sequence[Term],
    filters: Filters,
    now: float,
    limit: int,
    *,
    accepts: Callable[[Place], bool] = lambda _: True,
    project: str = "",
    unreadable: list[CtxvcError],
    progress: Progress = lambda *_: None,
) -> Searched:
    """The `limit` best blocks of a store, whose index is brought up to date first.

    `now` is in seconds since 1970; only blocks whose place `accepts` allows count. The errors of sessions that cannot
    be read are added to `unreadable`. A damaged index is rebuilt. Raises: Conflict, CtxvcError.
    """
    index = TextIndex(store)
    try:
        refresh(store, index, unreadable, progress)
        return _searched(index, _Reader(store, query, accepts, project), query, filters, now, limit)
    except DamagedIndex:
        unreadable.clear()
        refresh(store, index, unreadable, progress)
        return _searched(index, _Reader(store, query, accepts, project), query, filters, now, limit)


def best(results: Sequence[Searched], now: float, limit: int) -> list[Fitting]:
    """The `limit` best blocks of several stores together, best first."""
    having: Counter[str] = Counter()
    for result in results:
        having.update(result.having)
    bodies = sum(result.bodies for result in results)
    score = Score(having, bodies, sum(result.characters for result in results), now)
    fitting = [one for result in results for one in result.fitting]
    return sorted(fitting, key=lambda one: -score(one.counts, one.size, one.time))[:limit]


class Score:
    """How well a body fits, by its counts, size and time."""

    def __init__(self, having: Mapping[str, int], bodies: int, characters: int, now: float) -> None:
        self.weights = {term: relevance.weight(number, bodies) for term, number in having.items()}
        self._average = characters / max(bodies, 1)
        self._now = now

    def __call__(self, counts: Mapping[str, int], size: int, time: int) -> float:
        return relevance.aged(relevance.score(counts, self.weights, size, self._average), self._now - time)


def _searched(
    index: TextIndex, reader: _Reader, query: Sequence[Term], filters: Filters, now: float, limit: int
) -> Searched:
    frequency = index.counts(dict.fromkeys(word for term in query for word in term.parts))
    having = {term.text: min(frequency[word] for word in term.parts) if frequency else 0 for term in query}
    bodies, characters = index.totals()
    score = Score(having, bodies, characters, now)
    with unhashed():
        candidates = []
        for copies in _candidates(index, query, frequency, score, filters):
            if copies and (counts := reader.counts(copies[0])):  # a body with a phrase's words may lack the phrase
                candidates.append((copies, counts))
            if len(candidates) == LOOKED_AT:
                break
    candidates.sort(key=lambda one: -score(one[1], one[0][0].size, one[0][0].time))
    fitting = (reader.fitting(copies, counts, score.weights) for copies, counts in candidates)
    return Searched(
        fitting=list(islice(filter(None, fitting), limit)), having=having, bodies=bodies, characters=characters
    )


def _candidates(
    index: TextIndex, query: Sequence[Term], frequency: Mapping[str, int], score: Score, filters: Filters
) -> list[list[IndexedBody]]:
    """The most promising bodies, each with its copies in other sessions, by what the index has: size, time, and roughly
    how often each word occurs."""
    rarest = sorted((word for word, count in frequency.items() if count), key=lambda word: frequency[word])
    terms: dict[tuple[int, ...], dict[str, int]] = {}

    def promise(candidate: Candidate) -> float:
        counts = tuple(rough[candidate])
        if counts not in terms:
            of_word = dict(zip(rarest, counts, strict=True))
            of_term = {term.text: min(of_word.get(word, 0) for word in term.parts) for term in query}
            terms[counts] = {term: count for term, count in of_term.items() if count}
        _, time, size, _ = candidate
        return score(terms[counts], size, time)

    rough = _rough_counts(index, rarest, filters)
    by_blob: dict[bytes, list[int]] = {}
    for number, _, _, blob in heapq.nlargest(_COPIES, rough, key=promise):
        by_blob.setdefault(blob, []).append(number)
    chosen = list(by_blob.values())[:_READ]
    bodies = index.bodies(chain.from_iterable(chosen))
    return [[bodies[number] for number in copies if number in bodies] for copies in chosen]


def _rough_counts(index: TextIndex, rarest: Sequence[str], filters: Filters) -> dict[Candidate, list[int]]:
    """The bodies to choose from → how often they have each word of `rarest` at least.

    They are the bodies added last that have all words, all but the last ones, or a single one, once or often."""
    numbers = range(len(rarest))
    levels = [numbers[:count] for count in range(len(rarest), 1, -1)][:_WORDS]
    together = [(level, 1) for level in levels] + [(level, times) for level in levels[:1] for times in OFTEN]
    alone = [([number], times) for number in numbers[:_WORDS] for times in (1, *OFTEN)]
    rough: dict[Candidate, list[int]] = {}
    for group, limit in ((together, _TOGETHER), (alone, _ALONE)):
        queries = [[often(rarest[number], times) for number in level] for level, times in group]
        for (level, times), candidates in zip(group, index.newest(queries, _within(filters), limit), strict=False):
            for candidate in candidates:
                counts = rough.get(candidate) or rough.setdefault(candidate, [0] * len(rarest))
                for number in level:
                    counts[number] = max(counts[number], times)
    return rough


def _within(filters: Filters) -> Within:
    """The filters in the form of the index, where a few sessions are facts."""
    many = filters.sessions if len(filters.sessions) > _AS_FACTS else ()
    fields = {"k": filters.kinds, "a": filters.agents, "f": filters.names, "s": () if many else filters.sessions}
    facts = [[text_index.fact(name, value) for value in values] for name, values in fields.items() if values]
    return Within(facts=facts, since=filters.since, until=filters.until, sessions=many)


class _Reader:
    """Reads what the index names from the store itself."""

    def __init__(self, store: Store, query: Sequence[Term], accepts: Callable[[Place], bool], project: str) -> None:
        self._store = store
        self._objects = Objects(store.repository)
        self._query = query
        self._accepts = accepts
        self._project = project
        self._sessions: dict[str, StoredSession] = {}
        self._of_session: dict[str, Mapping[str, str]] = {}

    def counts(self, body: IndexedBody) -> dict[str, int]:
        """How often each term occurs in a body; in the beginning of a long one, if any term occurs there."""
        text = self._text(body)
        head = relevance.frequencies(relevance.folded(text[:COUNTED]), self._query)
        return head or relevance.frequencies(relevance.folded(text[COUNTED:]), self._query)

    def fitting(
        self, copies: Sequence[IndexedBody], counts: Mapping[str, int], weights: Mapping[str, float]
    ) -> Fitting | None:
        """The block in its current state, from the first copy that is still there and accepted; None if none is."""
        for number, body in enumerate(copies):
            if (row := self._row(body)) is None:
                continue
            place = Place(body.session, body.scope, row, self._project)
            if self._accepts(place):
                text = self._text(body)
                line = relevance.best_line(relevance.folded(text), self._query, weights)
                excerpt, start, stop = _excerpt(text, line)
                return Fitting(
                    place=place, time=body.time, line=line.number, text=excerpt, start=start, stop=stop,
                    counts=counts, size=body.size, copies=len(copies) - number - 1,
                )  # fmt: skip
        return None

    def _row(self, body: IndexedBody) -> Row | None:
        """The row of the block, if it has that body."""
        with suppress(Damaged, NotFound):
            if self._store.journal_path(body.session).exists():
                return self._uncommitted(body)[0]
            if tip := self._tips(body.session).get(body.scope):
                there = self._store.reader.row(tip, body.block)
                return there[0] if there and there[1] == body.blob else None
        return None

    def _text(self, body: IndexedBody) -> str:
        """The text of a body; empty if the store no longer has it."""
        with suppress(Damaged, NotFound):
            try:
                data = self._objects.blob(body.blob)
            except Unreadable:
                data = self._uncommitted(body)[1]
            return text_of(body.form, data)
        return ""

    def _uncommitted(self, body: IndexedBody) -> tuple[Row | None, bytes]:
        """The row and the bytes of a body in a session that may not all be committed yet."""
        if body.session not in self._sessions:
            self._sessions[body.session] = StoredSession.for_reading(self._store, body.session)
        stored = self._sessions[body.session]
        row = stored.ledger(body.scope).get(f"B{body.block}") if body.scope in stored.scopes() else None
        if row is None:
            return None, b""
        file = truncation.whole(row)
        data = stored.file(row, file, body.scope) if file else stored.body(row, body.scope)
        return (row, data) if blob_id(data) == body.blob else (None, b"")

    def _tips(self, session: str) -> Mapping[str, str]:
        if session not in self._of_session:
            self._of_session[session] = self._store.tips(session)
        return self._of_session[session]


def _excerpt(text: str, line: relevance.Line) -> tuple[str, int, int]:
    """The line, or of a long one the part that fits, and the start and end of the match in it."""
    begin = 0
    for _ in range(line.number - 1):
        begin = text.find("\n", begin) + 1
    end = text.find("\n", begin)
    end = len(text) if end < 0 else end
    match = Match(line.number, begin, end, min(begin + line.start, end), min(begin + line.stop, end))
    excerpt = around(text, match)
    start = max(0, excerpt.find(text[match.start : match.stop]))
    return excerpt, start, min(start + match.stop - match.start, len(excerpt))
