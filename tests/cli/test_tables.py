"""Tables of a terminal, by their characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.cli.table import _ONE_CELL_EACH, _graphemes, aligned, breadth, cut

HEADER = ["ID", "tokens", "reads", "label"]
ROWS = [["B1", "12", "0", "a short one"], ["B200", "1,234", "0", "a label that is quite long, and longer still"]]


def drawn(width: int, rows: list[list[str]] = ROWS) -> list[str]:
    right = [False, True, True, False]
    return list(aligned(HEADER, rows, width=width, right=right, least=[0, 0, 0, 8]))


def test_where_there_is_room_nothing_is_cut() -> None:
    assert drawn(100) == [
        "ID    tokens  reads  label",
        "B1        12      0  a short one",
        "B200   1,234      0  a label that is quite long, and longer still",
    ]


def test_a_column_of_zeros_makes_room_first() -> None:
    assert drawn(58) == [
        "ID    tokens  label",
        "B1        12  a short one",
        "B200   1,234  a label that is quite long, and longer still",
    ]


def test_then_what_may_be_cut_is_cut() -> None:
    assert drawn(34)[2] == "B200   1,234  a label that is qui…"
    assert drawn(5)[2] == "B200   1,234  a label…"


def test_no_rows_leave_the_header() -> None:
    assert drawn(10, []) == ["ID  tokens  reads  label"]


def test_wide_characters_take_two_cells_and_marks_none() -> None:
    assert breadth("日本") == 4
    assert breadth("e\u0301") == 1
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    lines = drawn(100, [["日本", "1", "1", "x"], ["abc", "1", "1", "x"]])
    assert len({breadth(line) for line in lines[1:]}) == 1


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("❤️", 2),
        ("1️⃣", 2),
        ("👩‍💻", 2),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("❤", 1),
        ("e\u0301", 1),
        ("café → “x” …", 12),
        ("\x07é日", 4),
    ],
)
def test_an_emoji_of_several_code_points_is_one_character(text: str, cells: int) -> None:
    assert breadth(text) == cells


def test_columns_are_straight_beside_emoji() -> None:
    lines = drawn(100, [["👩‍💻 ❤️", "1", "1", "x"], ["👍🏽", "1", "1", "x"], ["plain", "1", "1", "x"]])

    assert lines[1:] == ["👩‍💻 ❤️       1      1  x", "👍🏽          1      1  x", "plain       1      1  x"]


def test_no_character_is_taken_apart_where_a_text_is_cut() -> None:
    assert cut("👩‍💻👩‍💻👩‍💻", 5) == "👩‍💻👩‍💻…"
    assert cut("👩‍💻👩‍💻👩‍💻", 4) == "👩‍💻…"
    assert cut("a❤️", 2) == "a…"


@given(st.text("aé…→日\u0301\ufe0f\u200d❤👩💻🏽🇩\x07\xad", max_size=12))
def test_a_table_of_plain_characters_agrees_with_the_look_up(text: str) -> None:
    assert breadth(text) == sum(cells for _, cells in _graphemes(text))


def test_each_plain_character_takes_one_cell() -> None:
    plain = [chr(number) for number in range(0x3000) if _ONE_CELL_EACH.fullmatch(chr(number))]

    assert not [character for character in plain if [cells for _, cells in _graphemes(character)] != [1]]


@given(st.text(max_size=30), st.integers(1, 20))
def test_what_is_cut_fits(words: str, width: int) -> None:
    assert breadth(cut(words, width)) <= max(width, 1)
    assert cut(words, 100) == words


@given(st.lists(st.lists(st.text(max_size=20), min_size=4, max_size=4), max_size=5), st.integers(1, 60))
def test_every_row_has_a_line(rows: list[list[str]], width: int) -> None:
    assert len(drawn(width, rows)) == len(rows) + 1
