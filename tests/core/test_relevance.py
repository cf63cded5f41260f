"""What a query means, and how well a text fits it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core import relevance
from ctxvc.core.relevance import folded, frequencies, terms
from ctxvc.errors import BadInput


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("timeout", {"timeout": ("timeout",)}),
        ("Timeout, timeout!", {"timeout": ("timeout",)}),
        ("max_tokens src/app.py", {"max_tokens": ("max", "tokens"), "src/app.py": ("src", "app", "py")}),
        ('"connection  refused" by', {"connection  refused": ("connection", "refused"), "by": ("by",)}),
        ('an "open phrase', {"an": ("an",), "open": ("open",), "phrase": ("phrase",)}),
        ("Café --", {"cafe": ("cafe",)}),
    ],
)
def test_a_query_is_words_names_and_phrases(query: str, expected: dict[str, tuple[str, ...]]) -> None:
    assert {term.text: term.parts for term in terms(query)} == expected


@pytest.mark.parametrize("query", ["", '" "', "-- ::", " ".join(f"w{number}" for number in range(17)), "x" * 301])
def test_a_query_without_words_or_with_too_many_is_refused(query: str) -> None:
    with pytest.raises(BadInput):
        terms(query)


@pytest.mark.parametrize(
    ("query", "text", "count"),
    [
        ("cat", "Cat, cat; concatenate category bobcat", 2),
        ("max_tokens", "max_tokens max-tokens xmax_tokens max_tokens2", 1),
        ('"connection refused"', "connection\n  refused, connection was refused", 1),
        ("cafe", "a café", 1),
        ("a", "a " * 100, 64),
    ],
)
def test_a_term_counts_where_it_stands_by_itself(query: str, text: str, count: int) -> None:
    (term,) = terms(query)
    assert frequencies(folded(text), [term]) == {term.text: count}


def test_rare_words_weigh_more_and_long_or_old_texts_less() -> None:
    weights = {"rare": relevance.weight(1, 1000), "common": relevance.weight(900, 1000)}
    assert weights["rare"] > 10 * weights["common"] > 0
    scores = [relevance.score({"rare": count}, weights, size, 100) for count, size in ((2, 100), (1, 100), (1, 1000))]
    assert scores == sorted(scores, reverse=True)
    ages = [relevance.aged(1.0, days * 86_400) for days in (-1, 0, 30, 90, 10_000)]
    assert ages[:2] == [1.0, 1.0]
    assert ages[3] == 0.75
    assert ages[1:] == sorted(ages[1:], reverse=True)
    assert ages[-1] >= 0.5


def test_the_best_line_has_the_terms_that_weigh_most() -> None:
    query = terms("timeout retry the")
    text = folded("the start\nthe TIMEOUT\nthe Timeout of a retry\ntimeout retry")
    line = relevance.best_line(text, query, {"timeout": 2.0, "retry": 3.0, "the": 0.1})
    assert line == (3, 17, 22), "the retry of the third line"
    assert relevance.best_line("nothing", query, {}) == (1, 0, 0)


@given(st.text(max_size=60))
def test_whatever_is_asked_is_a_query_or_refused(query: str) -> None:
    try:
        for term in terms(query):
            assert term.parts
            assert frequencies(folded(f"({query})"), [term]).keys() <= {term.text}
    except BadInput:
        pass


def test_the_words_that_tell_texts_apart_are_rare_and_long() -> None:
    texts = ["the tests need a database", "the tests need a tenant", "the tests", "tests of the key"]
    assert [term.text for term in relevance.telling("Which tests need the tenant?", texts)] == ["tenant", "need"]
    assert [term.text for term in relevance.telling("tests of the zebra", texts[:1])] == ["tests"]
    words = " ".join(f"word{number}" for number in range(40))
    assert len(relevance.telling(words, [words])) == relevance.MOST_TERMS
