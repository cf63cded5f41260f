"""Tables of a terminal, by their characters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.cli.answers.shared import Item, struct_of, table_of
from ctxvc.cli.output import Column
from ctxvc.cli.terminal.table import _ONE_CELL_EACH, _graphemes, aligned, breadth, cut, wrapped

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


def test_the_least_important_columns_are_left_out_and_named() -> None:
    rows = [["B1", "12", "3", "a label that is quite long, and longer still"]]

    def drawn(width: int) -> list[str]:
        return list(
            aligned(HEADER, rows, width=width, right=[False, True, True, False], least=[0, 0, 0, 20], rank=[0, 1, 2, 0])
        )

    assert drawn(39)[0] == "ID  tokens  reads  label"
    assert drawn(38)[0] == "ID  tokens  label"
    assert drawn(38)[-1] == "(no room for: reads)"
    assert drawn(30)[0] == "ID  label"
    assert drawn(30)[-1] == "(no room for: tokens, reads)"
    assert drawn(80)[-1].endswith("still"), "where there is room, nothing is left out"


def test_where_not_even_the_least_has_room_every_text_is_narrowed() -> None:
    rows = [["a-long-identifier", "12", "3", "a label that is quite long"]]
    lines = list(aligned(HEADER, rows, width=40, right=[False, True, True, False], least=[0, 0, 0, 24]))
    assert max(map(breadth, lines)) <= 40
    assert lines[1].split()[1:3] == ["12", "3"], "numbers stay whole"


def test_of_a_long_text_both_ends_are_shown() -> None:
    assert cut("Bash go test ./internal && go vet -v", 30) == "Bash go test ./internal && go…"
    assert cut("a sentence of words, and the last of them", 30) == "a sentence of words,…t of them"
    assert cut("20-02395c1048-0-and-more", 12) == "20-02395…ore"
    assert cut("a sentence whose end is missing alread…", 30) == "a sentence whose end is missi…"


def test_a_sentence_is_broken_at_spaces_and_a_path_is_not() -> None:
    assert list(wrapped("one two three", 8)) == ["one two", "three"]
    assert list(wrapped("  one two three", 9)) == ["  one two", "  three"]
    assert list(wrapped("see /a/path/that/is/long now", 10)) == ["see", "/a/path/that/is/long", "now"]
    assert list(wrapped("日本 日本", 5)) == ["日本", "日本"]


@given(st.text("ab日 /", max_size=40), st.integers(4, 20))
def test_no_word_is_lost_where_a_sentence_is_broken(text: str, width: int) -> None:
    lines = list(wrapped(text, width))
    assert " ".join(lines).split() == text.split()
    assert all(breadth(line) <= width or len(line.split()) == 1 for line in lines)


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


def _digits(commit: str) -> str:
    return commit[:4]


class Fruit(Item, frozen=True, kw_only=True):
    """An item with a field that only programs see, and a column that only people do."""

    TABLE = "size name skin"

    name: Annotated[str, Column("fruit", least=8)]
    commit: str
    size: Annotated[str, Column("cm", right=True, cell=_digits)]

    @property
    def skin(self) -> Annotated[str, Column("peel")]:
        return f"of {self.name}"


def test_a_table_has_the_columns_that_its_items_name() -> None:
    fruits = [Fruit(name="fig", commit="c", size="123456"), Fruit(name="plum", commit="d", size="7")]
    table = table_of(Fruit, fruits, dim=lambda fruit: fruit.name == "plum")
    assert [(column.name, column.right, column.least) for column in table.columns] == [
        ("cm", True, 0), ("fruit", False, 8), ("peel", False, 0),
    ]  # fmt: skip
    assert table.rows == [["1234", "fig", "of fig"], ["7", "plum", "of plum"]]
    assert table.dim == {1}
    assert table_of(Fruit, []).columns == table.columns, "no rows leave the header"


def test_an_item_takes_the_attributes_of_its_source_but_for_its_own() -> None:
    source = SimpleNamespace(name="fig", commit=("a", "b"), size="1", other="not a field")
    assert struct_of(Fruit, source, size="2") == Fruit(name="fig", commit=["a", "b"], size="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="commit"):
        struct_of(Fruit, SimpleNamespace(name="fig"), size="2")


def test_of_several_sources_the_first_that_has_a_field_gives_it() -> None:
    first, second = SimpleNamespace(name="fig"), SimpleNamespace(name="pear", size="3")
    assert struct_of(Fruit, first, second, commit="c") == Fruit(name="fig", commit="c", size="3")
