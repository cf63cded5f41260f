"""What a terminal would show of an output in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxvc.agent.shell import settled, tail


def test_progress_collapses_to_its_last_state() -> None:
    bar = "".join(f"\r{share:3}% [{'#' * (share // 10):10}]" for share in range(101))
    assert settled(f"begin{bar}\nend\n") == "100% [##########]\nend\n"


def test_of_a_line_that_is_written_again_the_last_version_stays() -> None:
    assert settled("downloading 99\r\x1b[Kdone") == "done"
    assert settled("99 %\r") == "99 %"
    assert settled("|\b/\b-\bready") == "ready"
    assert settled("left out\x1b[2K\rin") == "in"


def test_colours_titles_and_other_controls_are_left_out() -> None:
    assert settled("\x1b[31mred\x1b[0m \x1b]0;title\x07and\x07 bell\x00") == "red and bell"


def test_ordinary_text_is_as_it_was() -> None:
    text = "a\tb\n  c  \n\né\n"
    assert settled(text) == text
    assert settled("a\r\nb\r\n") == "a\nb\n"


def test_the_tail_says_what_is_not_shown() -> None:
    assert tail("a\nb\nc", lines=2, chars=100) == "[2 characters above left out]\nb\nc"
    assert tail("a\nb\nc", lines=3, chars=100) == "a\nb\nc"
    assert tail("abcdef", lines=3, chars=2) == "[4 characters above left out]\nef"


@given(st.text(st.sampled_from("ab \r\b\n\x1b[K2;5GCD\x9b]0\x07"), max_size=60))
def test_whatever_comes_nothing_of_control_is_left(output: str) -> None:
    shown = settled(output)
    assert not set(shown) & set("\r\b\x1b\x9b\x07")
    assert settled(shown) == shown
    assert shown.count("\n") == output.count("\n")


def test_a_huge_line_of_progress_is_its_last_state() -> None:
    assert settled("".join(f"\r{number}" for number in range(60_000))) == "59999"
