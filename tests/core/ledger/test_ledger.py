"""A ledger is a value: what is put in is there, in the order of its numbers, and the older value stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.ledger import SEGMENT, Group, Ledger, Meta, Row, segment_of
from ctxvc.core.ledger.segments import Segments
from tests.making.generated import Choices, choices
from tests.making.rows import made

META = Meta(format=1, session="s", scope="main")
EDGES = (63, 64, 65, 127, 128, 4095, 4096, 10**11)


def _batches(choose: Choices) -> list[list[tuple[int, int]]]:
    """Changes of rows, each by its number and how often it was read."""

    def change() -> tuple[int, int]:
        return choose.number(1, 400) if choose.coin() else choose.of(EDGES), choose.number(0, 9)

    return [[change() for _ in range(choose.number(0, 40))] for _ in range(choose.number(0, 6))]


batches = choices(1000).map(_batches)


def row(number: int, reads: int = 0) -> Row:
    return made(number, kind="user", origin="client", msg=1, step=1, bytes=0, reads=reads)


@given(batches)
def test_it_holds_what_was_put_in_last(changes: list[list[tuple[int, int]]]) -> None:
    ledger, model = Ledger(META), dict[int, Row]()
    for change in changes:
        before, held = ledger, list(ledger.rows())
        rows = [row(number, reads) for number, reads in change]
        ledger = ledger.with_rows(rows)
        model.update((row.number, row) for row in rows)

        assert list(before.rows()) == held
        expected = [model[number] for number in sorted(model)]
        assert list(ledger.rows()) == expected
        assert list(ledger.backwards()) == expected[::-1]
        assert len(ledger) == len(expected)
        assert ledger.last() == (expected[-1] if expected else None)


@given(batches)
def test_a_segment_holds_the_numbers_of_one_file(changes: list[list[tuple[int, int]]]) -> None:
    ledger = Ledger(META)
    for change in changes:
        ledger = ledger.with_rows(row(number, reads) for number, reads in change)
    for segment, rows in ledger.segments.items():
        assert 0 < len(rows) <= SEGMENT
        assert {segment_of(row.number) for row in rows} == {segment}


@given(batches, st.integers(1, 500))
def test_a_row_is_found_by_its_address(changes: list[list[tuple[int, int]]], number: int) -> None:
    ledger, model = Ledger(META), dict[int, int]()
    for change in changes:
        ledger = ledger.with_rows(row(*each) for each in change)
        model.update(change)

    found = ledger.get(f"B{number}")
    assert (found and found.reads) == model.get(number)
    if found is None:
        with pytest.raises(KeyError):
            ledger[f"B{number}"]
    else:
        assert ledger[f"B{number}"] is found


def test_an_untouched_segment_is_the_same_object() -> None:
    before = Ledger(META).with_rows(map(row, range(1, 200)))
    after = before.with_rows([row(70, 1), row(200)])
    assert [after.segments[segment] is before.segments[segment] for segment in (0, 1, 2, 3)] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("address", ["", "B", "B0", "B01", "b1", "G1", "B1 ", "B-1", "B1\n", "B１", "B" + "9" * 13])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not a block id"):
        Ledger(META).get(address)


def test_an_empty_segment_has_no_last_row() -> None:
    assert Ledger(META, Segments({0: ()})).last() is None
    assert Ledger(META, Segments({0: (row(1),), 1: ()})).last() == row(1)


def test_a_handle_is_the_address_and_the_beginning_of_the_checksum() -> None:
    assert row(17).handle == "B17@000000"


def test_a_group_is_replaced_by_its_id_and_goes_without_members() -> None:
    one, two = Group(id="G1", members=("B1",)), Group(id="G2", members=("B2",))
    ledger = Ledger(META).with_groups([one, two])
    smaller = ledger.with_groups(
        [Group(id="G1", members=()), Group(id="G2", members=("B3",), stub="s"), Group(id="G9", members=())]
    )
    assert ledger.groups == {"G1": one, "G2": two}
    assert smaller.groups == {"G2": Group(id="G2", members=("B3",), stub="s")}
