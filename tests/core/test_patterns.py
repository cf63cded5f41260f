"""The end of a search: each look has one, and all of them together."""

from __future__ import annotations

import pytest

from ctxvc.core.patterns import Slow, compiled

TEXT = "\n".join(f"line {number}" for number in range(100))


class Clock:
    """A clock that goes on by a second whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_search_ends_when_its_time_is_over_and_what_it_found_stands() -> None:
    pattern = compiled("l.ne").until(20, Clock())
    found = []
    with pytest.raises(Slow, match="stopped after 20 s"):
        for match in pattern.lines(TEXT):
            found.append(match.line)
    assert found == list(range(1, len(found) + 1)) and 5 <= len(found) < 20


def test_a_search_without_an_end_comes_to_the_end_of_the_text() -> None:
    assert len(list(compiled("l.ne").until(0, Clock()).lines(TEXT))) == 100
    assert len(list(compiled("l.ne").lines(TEXT))) == 100


def test_the_last_look_gets_the_time_that_is_left() -> None:
    pattern = compiled("l.ne").until(1.125, lambda: 0.0)
    assert pattern.patience() == 0.2
    times = iter([0.0, 1.0])
    assert compiled("l.ne").until(1.125, lambda: next(times)).patience() == pytest.approx(0.125)
