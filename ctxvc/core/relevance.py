"""How well a text fits a query: by its words (BM25), and by its age. Pure.

A query consists of words and "quoted phrases". A name such as `max_tokens` or `src/app.py` counts as a whole, even if
an index knows only its parts.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import NamedTuple

from ctxvc.errors import BadInput

#: The most terms and characters of a query.
MOST_TERMS = 16
LONGEST = 300
#: BM25's two constants, as in Lucene.
_SATURATION, _LENGTH = 1.2, 0.75
#: Seconds after which half of the loss from age has occurred, and the share of a score that is never lost.
_HALF_LIFE = 90 * 86_400
_FLOOR = 0.5
#: Places of a term in a text that are considered for the line to show.
_PLACES = 200
#: Further occurrences of a term in a text are not counted.
_MOST = 64
#: Characters of a text that are searched for words.
_READ = 20_000
#: Letters of a word too short to be telling, and the number of texts too few to show what is common.
_SHORT, _FEW = 3, 3
_ACCENT = re.compile("[\u0300-\u036f]+")
#: Scripts without spaces between words: each letter is a word.
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_LETTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TERM = re.compile(r'"([^"]*)"|(\S+)')


class Term:
    """A word, a name or a phrase of a query. `parts` are the words that an index knows, in lower case."""

    def __init__(self, text: str) -> None:
        self.text = folded(text)
        self.parts = tuple(_WORD.findall(self.text))

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each occurrence in a folded text; blanks in the term match any white space."""
        at = text.find(self._first)
        while at >= 0:
            begins = at == 0 or not text[at - 1].isalnum() or _LETTER.match(text, at)
            if begins and (match := self._pattern.match(text, at)):
                yield match.span()
            at = text.find(self._first, at + 1)

    @cached_property
    def _first(self) -> str:
        return self.text.split()[0]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        end = "" if _LETTER.match(self.text[-1]) else r"(?![^\W_])"
        return re.compile(r"\s+".join(map(re.escape, self.text.split())) + end)


def folded(text: str) -> str:
    """A text in the form in which terms are searched for: in lower case, without accents."""
    lower = text.lower()
    return lower if lower.isascii() else _ACCENT.sub("", unicodedata.normalize("NFD", lower))


def parts(text: str) -> list[str]:
    """The words of a text, in the form of a term's parts."""
    return _WORD.findall(folded(text))


def spaced(text: str) -> str:
    """A text prepared for an index that only knows ASCII word breaks.

    Blanks replace everything that is not a letter or digit, and surround the letters of scripts without spaces.
    """
    return _BEYOND_ASCII.sub(lambda run: _parted(run[0]), text)


@lru_cache(4096)
def _parted(run: str) -> str:
    letters = unicodedata.normalize("NFC", run)
    return "".join(
        f" {letter} " if _LETTER.match(letter) else letter if letter.isalnum() else " " for letter in letters
    )


class Line(NamedTuple):
    """A line of a text: its number from 1, and start and end of the match in it, both 0 for none."""

    number: int
    start: int = 0
    stop: int = 0


def terms(query: str) -> tuple[Term, ...]:
    """The distinct terms of a query. Raises: BadInput if it has none, or too many."""
    texts = (quoted or word.strip("\"'`.,;:!?()[]{}<>") for quoted, word in _TERM.findall(query))
    by_text = {term.text: term for text in texts if (term := Term(text.strip())).parts}
    if not by_text:
        raise BadInput(f"{query[:60]!r} has no word to search for", hint="give letters or digits")
    if len(by_text) > MOST_TERMS or len(query) > LONGEST:
        size = f"{len(by_text)} words and {len(query)} characters"
        raise BadInput(
            f"a query may have {MOST_TERMS} words and {LONGEST} characters; this one has {size}",
            hint="give the words that matter most",
        )
    return tuple(by_text.values())


def of_question(question: str) -> tuple[Term, ...]:
    """The terms of a person's question: its words, or the longest if they are many. Empty if it has none."""
    by_word = dict.fromkeys(word for word in parts(question[:_READ]) if len(word) > 1 or _LETTER.match(word))
    longest = set(sorted(by_word, key=len, reverse=True)[:MOST_TERMS])
    return tuple(Term(word) for word in by_word if word in longest)


def telling(text: str, texts: Sequence[str]) -> list[Term]:
    """At most 16 words of a text that best distinguish the folded `texts`, the rarest first.

    They occur in some of the texts; short words are left out, and with more than three texts also words in most of
    them.
    """
    long_words = (word for word in _WORD.findall(folded(text)[:_READ]) if len(word) > _SHORT or _LETTER.match(word))
    by_text = {word: Term(word) for word in long_words}
    having = {word: sum(bool(frequencies(one, [term])) for one in texts) for word, term in by_text.items()}
    rare = [word for word in having if having[word] > 0 and (len(texts) <= _FEW or having[word] <= len(texts) / 2)]
    return [by_text[word] for word in sorted(rare, key=lambda word: having[word])][:MOST_TERMS]


def frequencies(text: str, query: Iterable[Term]) -> dict[str, int]:
    """How often each occurring term is in a folded text, 64 at most."""
    counts = {term.text: sum(1 for _ in islice(term.places(text), _MOST)) for term in query}
    return {term: count for term, count in counts.items() if count}


def weight(having: int, texts: int) -> float:
    """The weight of a term that `having` of `texts` texts contain: BM25's inverse document frequency, more than 0."""
    return math.log(1 + (max(0, texts - having) + 0.5) / (having + 0.5))


def score(counts: Mapping[str, int], weights: Mapping[str, float], size: int, average: float) -> float:
    """BM25 of a text of `size` characters, where `average` is the mean size."""
    length = 1 - _LENGTH + _LENGTH * size / max(average, 1.0)
    return sum(
        weights[term] * count * (_SATURATION + 1) / (count + _SATURATION * length) for term, count in counts.items()
    )


def aged(value: float, seconds: float) -> float:
    """A score after this many seconds: it falls towards half its value, fastest at first."""
    return value * (_FLOOR + (1 - _FLOOR) * math.pow(2.0, -max(0.0, seconds) / _HALF_LIFE))


def best_line(text: str, query: Sequence[Term], weights: Mapping[str, float]) -> Line:
    """The first line of a folded text whose terms weigh most; the text's first line if no line has a term."""
    matches: dict[int, dict[str, tuple[int, int]]] = {}
    for term in query:
        for start, stop in islice(term.places(text), _PLACES):
            begin = text.rfind("\n", 0, start) + 1
            matches.setdefault(begin, {}).setdefault(term.text, (start - begin, stop - begin))
    if not matches:
        return Line(1)
    begin = max(sorted(matches), key=lambda at: sum(weights.get(term, 0.0) for term in sorted(matches[at])))
    span = matches[begin][max(sorted(matches[begin]), key=lambda term: weights.get(term, 0.0))]
    return Line(text.count("\n", 0, begin) + 1, *span)
