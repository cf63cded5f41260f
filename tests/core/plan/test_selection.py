"""Whatever a model writes for ids: what exists is found, what does not is told in a few words, at once."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row
from ctxvc.core.plan import selection
from tests.making.generated import FORGED, texts


def row(number: int) -> Row:
    digest = f"{number:06x}" + "0" * 58
    return Row(id=f"B{number}", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=1, sha256=digest)


#: B1-B9 without B4, as where another scope has it, B11 and B12; G2 and G3.
LEDGER = (
    Ledger(Meta(format=1, session="s", scope="main"))
    .with_rows(map(row, (1, 2, 3, 5, 6, 7, 8, 9, 11, 12)))
    .with_groups([Group(id="G2", members=("B11",)), Group(id="G3", members=("G2", "B12"), level=2)])
)


def found(words: str | list[str]) -> str:
    """What is found without any problem."""
    names, problems = selection.expand(words, LEDGER)
    assert not problems, problems
    return " ".join(names)


def why(words: str) -> tuple[str, list[str]]:
    names, problems = selection.expand(words, LEDGER)
    return " ".join(names), [f"{problem.why} {problem.target}" for problem in problems]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("B3", "B3"),
        ("b3", "B3"),
        ("B3,B5-B7,G2", "B3 B5 B6 B7 G2"),
        ("  B3 ;\tB5 ; ", "B3 B5"),
        ("B5:B7", "B5 B6 B7"),
        ("B5–B7", "B5 B6 B7"),
        ("B5 to B7", "B5 B6 B7"),
        ("B5 TO b7", "B5 B6 B7"),
        ("B5 - B7", "B5 B6 B7"),
        ("B5-7", "B5 B6 B7"),
        ("B7-B5", "B5 B6 B7"),
        ("B3-B5", "B3 B5"),
        ("B1 B12", "B1 B12"),
        ("G2-G3 B9", "B9 G2 G3"),
        ("g3", "G3"),
        ("B9,B3,B9,B2-B3", "B2 B3 B9"),
        ("B3@000003", "B3"),
        ("B3@0000", "B3"),
        ("B11@00000B", "B11"),
        ("B5@000005-B7@000007", "B5 B6 B7"),
    ],
)
def test_each_way_to_write_ids(words: str, expected: str) -> None:
    assert found(words) == expected


def test_a_group_is_known_by_the_checksum_of_all_that_is_in_it() -> None:
    from ctxvc.core.ledger.ledger import digest

    assert found(f"G3@{digest([row(11), row(12)])[:6]}") == "G3"
    assert why(f"G3@{digest([row(11)])[:6]}")[0] == ""


@pytest.mark.parametrize(
    ("words", "names", "problems"),
    [
        ("B3,B99", "B3", ["unknown B99"]),
        ("B4 G9", "", ["unknown B4"]),
        ("B3@ffffff B5", "B5", ["stale B3@ffffff"]),
        ("B3 B3@ffffff", "", ["stale B3@ffffff"]),
        ("B2-B3@ffffff", "B2", ["stale B3@ffffff"]),
        ("B11-B20", "B11 B12", ["unknown B11-B20"]),
        ("B20-B30", "", ["unknown B20-B30"]),
        ("B4-B4", "", ["unknown B4-B4"]),
        ("B1-G3", "B1 G3", ["unknown -"]),
        ("B5-", "B5", ["unknown -"]),
        ("-B5", "B5", ["unknown -"]),
        ("B0", "", ["unknown B0"]),
        ("B01", "", ["unknown B01"]),
        ("B１", "", ["unknown B１"]),
        ("B3x, all, B3", "B3", ["unknown B3x"]),
        ("B3@", "", ["unknown B3@"]),
        ("B1234567890123", "", ["unknown B1234567890123"]),
        ("", "", ["unknown "]),
        (" ,;\n", "", ["unknown "]),
    ],
)
def test_what_is_found_is_given_and_what_is_not_is_told(words: str, names: str, problems: list[str]) -> None:
    assert why(words) == (names, problems)


@pytest.mark.parametrize(
    "words",
    [
        "B1-B100000",
        "B1-B999999999999",
        "B999999999999-B1",
        ",".join(["B1-B999999999999"] * 2_000),
        ",".join(f"B{number}-B{number + 50_000}" for number in range(1, 2_000)),
        ",".join(f"B{number}" for number in range(1, 5_000)),
        "B1-" * 5_000,
        " " * 500_000 + "B1" + " " * 500_000,
        "9" * 500_000,
        "B" + "9" * 500_000,
        "x " * 2_000,
    ],
    ids=lambda words: f"{words[:12]}…",
)
def test_no_words_make_much_work_or_a_long_answer(words: str) -> None:
    lines = 0

    def counted(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        assert lines <= 1_000 + 30 * len(words), "more than 30 lines of Python for a character"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        names, problems = selection.expand(words, LEDGER)
    finally:
        sys.settrace(before)
    assert len(names) <= 12
    assert sum(len(problem.text) for problem in problems) < 400


def test_a_huge_range_is_told_of_once() -> None:
    names, problems = selection.expand("B1-B100000", LEDGER)
    assert len(names) == len(LEDGER)
    assert [problem.text for problem in problems] == ["not (all) in this scope: B1-B100000"]


atoms = st.one_of(
    st.builds("{}{}".format, st.sampled_from("BGbgx"), st.integers(0, 14)),
    st.sampled_from(["-", "–", ":", "to", "@000003", "B3@000003", "G2@ffffff", ",", ";", " ", *FORGED]),
    texts,
)


@given(st.lists(atoms, max_size=30).map("".join) | st.lists(atoms, max_size=30))
def test_all_that_is_found_exists_once_in_order_and_every_answer_is_short_and_safe(words: str | list[str]) -> None:
    names, problems = selection.expand(words, LEDGER)
    everything = [*(row.id for row in LEDGER.rows()), *LEDGER.groups]
    assert list(names) == [name for name in everything if name in set(names)]
    assert names or problems
    assert sum(len(problem.text) for problem in problems) < 400
    assert not any(set("[]\n\x1b") & set(problem.text + problem.target) for problem in problems)
    again, none = selection.expand(names, LEDGER) if names else ((), ())
    assert (again, none) == (names, ())
