"""Segments are an immutable mapping, and a comparison of two finds the segments that differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.segments import NO_SEGMENTS, Segments
from tests.core.ledger.test_ledger import row
from tests.making.generated import Choices, choices

#: Numbers of segments around the ends of pages, and far away.
EDGES = (63, 64, 127, 128, 4096, 10**9)


def _changes(choose: Choices) -> list[dict[int, tuple[Row, ...]]]:
    def change() -> tuple[int, tuple[Row, ...]]:
        number = choose.number(0, 200) if choose.coin() else choose.of(EDGES)
        return number, tuple(map(row, sorted(set(choose.some(range(1, 10), 1, 3)))))

    return [dict(change() for _ in range(choose.number(0, 8))) for _ in range(choose.number(0, 8))]


changes = choices(500).map(_changes)


@given(changes)
def test_they_hold_what_a_dict_holds_in_ascending_order(updates: list[dict[int, tuple[Row, ...]]]) -> None:
    segments, model = NO_SEGMENTS, dict[int, tuple[Row, ...]]()
    for update in updates:
        before, then = segments, dict(model)
        segments = segments.updated(update)
        model |= update

        assert list(before.items()) == sorted(then.items())
        assert list(segments.items()) == sorted(model.items())
        assert list(segments) == sorted(model) == list(reversed(list(reversed(segments))))
        assert list(segments.values()) == [model[key] for key in sorted(model)]
        assert (len(segments), segments.rows) == (len(model), sum(map(len, model.values())))
        assert segments == Segments(model)
        for key in (*update, 0, 64, 10**9 + 1):
            assert segments.get(key) == model.get(key, ())
            assert (key in segments) == (key in model)


@given(changes, st.data())
def test_what_changed_is_what_has_other_rows(updates: list[dict[int, tuple[Row, ...]]], data: st.DataObject) -> None:
    history = [NO_SEGMENTS]
    for update in updates:
        history.append(history[-1].updated(update))
    earlier, later = (data.draw(st.sampled_from(history)) for _ in range(2))
    expected = [key for key in later if key not in earlier or later[key] is not earlier[key]]
    assert later.changed_since(earlier) == expected


@given(changes, st.data())
def test_what_is_removed_is_what_the_later_has_not(
    updates: list[dict[int, tuple[Row, ...]]], data: st.DataObject
) -> None:
    earlier = Segments({key: rows for update in updates for key, rows in update.items()})
    kept = data.draw(st.sets(st.sampled_from([*earlier, 10**9 + 1])))
    later = Segments({key: earlier.get(key) for key in kept})
    assert later.removed_since(earlier) == [key for key in earlier if key not in kept]
    assert earlier.removed_since(later) == sorted(kept - set(earlier))
    assert earlier.removed_since(earlier.updated({0: ()})) == [0] * (0 not in earlier)
