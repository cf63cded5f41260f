"""Recorded text can be printed anywhere: it stays on its line, moves no cursor, and is no longer than asked."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core import display
from tests.making.generated import texts

#: Every code point that a terminal could take for a command, or that could reorder what stands around it. None lies
#: higher, but for the surrogates.
COMMANDS = {
    chr(point)
    for point in (*range(0x3000), *range(0xD800, 0xE000))
    if unicodedata.category(chr(point)) in ("Cc", "Cs", "Zl", "Zp")
    or unicodedata.bidirectional(chr(point)) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
} | set("\u200e\u200f\ufeff")

anything = st.lists(texts | st.sampled_from(sorted(COMMANDS)), max_size=8).map("".join)


@given(anything, st.integers(1, 100))
def test_one_line_is_one_safe_line_of_at_most_that_width(value: str, width: int) -> None:
    line = display.one_line(value, width)
    assert len(line) <= width
    assert COMMANDS.isdisjoint(line)
    assert line == line.strip()


@given(st.text("ab", min_size=1, max_size=40).map(lambda word: word), st.integers(1, 60))
def test_one_line_shows_all_or_says_that_more_follows(word: str, width: int) -> None:
    line = display.one_line(word, width)
    assert line == (word if len(word) <= width else word[: width - 1] + "…")


@pytest.mark.parametrize("filling", [" ", "\0", "a ", "\n\n"])
def test_one_line_of_a_huge_text_costs_no_more_and_says_that_more_follows(filling: str) -> None:
    line = display.one_line("begin " + filling * 10**6, 40)
    assert line.startswith("begin") and line.endswith("…") and len(line) <= 40


def test_every_character_takes_the_columns_that_unicode_gives_it() -> None:
    for char in map(chr, range(0x3100)):
        assert display.columns(char) == (2 if unicodedata.east_asian_width(char) in "WF" else 1), hex(ord(char))


@given(anything, st.integers(1, 20))
def test_one_line_does_not_depend_on_how_much_of_the_text_is_looked_at(value: str, width: int) -> None:
    cleaned = " ".join("".join(" " if char in COMMANDS else char for char in value[: width * 8 + 64]).split())
    if len(cleaned) > width:
        assert display.one_line(value, width) == cleaned[: width - 1].rstrip() + "…"
    elif len(value) <= width * 8 + 64:
        assert display.one_line(value, width) == cleaned


@given(anything)
def test_visible_controls_changes_nothing_but_controls(value: str) -> None:
    unsafe = COMMANDS - {"\t", "\n"}
    assert display.visible_controls(value) == "".join(display.visible_controls(c) if c in unsafe else c for c in value)
    assert unsafe.isdisjoint(display.visible_controls(value))


def test_controls_are_written_by_their_numbers() -> None:
    assert display.visible_controls("a\x1b[2J\u202e\x85\t\n") == "a\\x1b[2J\\u202e\\x85\t\n"


@given(st.text(st.characters(exclude_categories=[]), max_size=30))
def test_what_is_encoded_is_decoded(value: str) -> None:
    assert display.decode(display.encode(value)) == value


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded(body: bytes) -> None:
    decoded = display.decode(body)
    assert display.encode(decoded) == body or "\ufffd" in decoded


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (6100, "6.1 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (10**9, "1.0 GB"), (10**13, "10000.0 GB")],
)  # fmt: skip
def test_sizes_are_for_people(count: int, words: str) -> None:
    assert display.human_bytes(count) == words


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_larger_size_never_looks_smaller(one: int, two: int) -> None:
    def size(count: int) -> float:
        number, unit = display.human_bytes(count).split(" ")
        return float(number) * {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}[unit]

    assert (one <= two) <= (size(one) <= size(two))


@pytest.mark.parametrize(
    ("count", "short"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (9_950, "10k"), (999_499, "999k"), (999_500, "1.0M"),
     (9_949_999, "9.9M"), (12_345_678, "12M")],
)  # fmt: skip
def test_tokens_have_one_unit(count: int, short: str) -> None:
    assert display.human_tokens(count) == short
