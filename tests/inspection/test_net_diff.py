"""What the edits of a file come to together, whoever has the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.inspection.edits import Change
from ctxvc.inspection.net_diff import GAP, NEW, OLD, SAME, NetDiff, counts, diff_lines

LINES = st.lists(st.sampled_from(["a", "b", "", "c c", "d"]), max_size=12)


def replaced(old: str, new: str, **how: bool) -> Change:
    return Change("a.py", new, "replace", old, **how)


def written(new: str) -> Change:
    return Change("a.py", new)


def net(*changes: Change) -> list[str]:
    diff = NetDiff()
    for change in changes:
        diff.add(change)
    return diff.lines()


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ([replaced("one\ntwo", "one\n2")], [" one", "-two", "+2"]),
        ([replaced("two", "2"), replaced("2", "zwei")], ["-two", "+zwei"]),
        ([replaced("two", "2"), replaced("one\n2\nthree", "all")], ["-one", "-two", "-three", "+all"]),
        ([replaced("two", "2"), replaced("2", "two")], []),
        ([replaced("a", "b"), replaced("x", "y")], ["-a", "+b", "@", "-x", "+y"]),
        ([written("1\n2\n3\n"), replaced("2", "two")], ["+1", "+two", "+3"]),
        ([replaced("2", "two"), written("new\n")], ["+new"]),
        ([written("a a\n"), replaced("a", "b", every=True)], ["+b b"]),
        ([written("a a\n"), replaced("a", "b")], ["+b a"]),
        ([replaced("ab\nb", "ab\nx"), replaced("x", "y", whole_lines=True)], [" ab", "-b", "+y"]),
        ([Change("a.py", "more\n", "insert")], ["+more"]),
        ([written("1\n"), Change("a.py", "2\n", "insert", scripted=True)], ["+1", "+2"]),
    ],
)
def test_edits_of_a_file_are_put_together(changes: list[Change], lines: list[str]) -> None:
    assert net(*changes) == lines


@given(LINES, st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4), LINES), max_size=6))
def test_edits_of_a_text_that_was_written_whole_give_that_text(
    lines: list[str], edits: list[tuple[int, int, list[str]]]
) -> None:
    text = "\n".join(lines) + "\n"
    changes = [written(text)]
    for at, count, fresh in edits:
        old = "\n".join(text.split("\n")[at : at + count])
        if old:
            changes.append(replaced(old, "\n".join(fresh)))
            text = text.replace(old, "\n".join(fresh), 1)
    assert "\n".join(line[1:] for line in net(*changes)) == text.removesuffix("\n")


@given(LINES, LINES)
def test_a_diff_has_both_texts(before: list[str], after: list[str]) -> None:
    lines = diff_lines("\n".join([*before, "end"]), "\n".join([*after, "end"]), around=100)
    assert [line[1:] for line in lines if line[0] in (SAME, OLD)] == ([*before, "end"] if before != after else [])
    assert [line[1:] for line in lines if line[0] in (SAME, NEW)] == ([*after, "end"] if before != after else [])


def test_equal_lines_far_from_a_difference_are_left_out() -> None:
    numbers = [str(number) for number in range(30)]
    other = ["x" if number in ("5", "25") else number for number in numbers]
    lines = diff_lines("\n".join(numbers), "\n".join(other))
    assert lines.count(GAP) == 1 and len(lines) == 2 * 8 + 1
    assert counts(lines) == (2, 2)
