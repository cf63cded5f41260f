"""The dashboard shows every block once, alone or in a range, and its sums are those of its blocks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.budget import Budget
from ctxvc.core.ledger import Counters, Ledger, Meta, Row, Source
from ctxvc.core.view import BAR, BIGGEST, NEWEST, Cost, Dashboard, Line, dashboard

STATES = ("visible", "visible", "pinned", "masked", "archived", "pruned", "blocked", "deleted")


@st.composite
def views(draw: st.DrawFn) -> tuple[Ledger, dict[str, Cost]]:
    """A ledger with gaps in its numbers, and what its blocks cost."""
    gaps = draw(st.lists(st.integers(1, 3), max_size=120))
    rows: list[Row] = []
    costs: dict[str, Cost] = {}
    number = 0
    for at, gap in enumerate(gaps):
        number += gap
        state = STATES[(at * 5 + gap) % len(STATES)]
        row = Row(
            id=f"B{number}",
            kind="tool_result" if at % 3 else "user",
            role="user",
            origin="client",
            msg=at + 1,
            step=at // 3 + 1,
            turn=1,
            bytes=1,
            sha256="0" * 64,
            state=state,  # type: ignore[arg-type]
            group="G1" if state == "archived" and gap == 2 else "",
            reads=gap - 1,
        )
        rows.append(row)
        body = (at * 7919) % 1000
        costs[row.id] = Cost(body=body, shown=body if row.present else gap)
    meta = Meta(format=1, session="s", scope="main", counters=Counters(step=len(rows) // 3 + 1))
    return Ledger(meta).with_rows(rows), costs


def covered(line: Line, ledger: Ledger) -> list[str]:
    first, _, last = line.id.partition("–")
    numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
    return [row.id for row in ledger.rows() if row.number in numbers]


@settings(max_examples=100, deadline=None)
@given(views(), st.booleans(), st.integers(0, 10**6))
def test_every_block_is_in_one_line_and_the_sums_are_theirs(
    view: tuple[Ledger, dict[str, Cost]], folded: bool, overhead: int
) -> None:
    ledger, costs = view
    board = dashboard(ledger, costs, 200_000, overhead, folded=folded)

    assert [block for line in board.lines for block in covered(line, ledger)] == [row.id for row in ledger.rows()]
    for line in board.lines:
        blocks = covered(line, ledger)
        assert line.blocks == len(blocks)
        assert line.tokens == sum(costs[block].body for block in blocks)
        assert line.shown == sum(costs[block].shown for block in blocks)
        assert line.reads == sum(ledger[block].reads for block in blocks)
        assert line.age == ledger.meta.counters.step - ledger[blocks[-1]].step
    assert board.conversation == sum(line.shown for line in board.lines) == sum(cost.shown for cost in costs.values())
    assert board.used == overhead + board.conversation


@settings(max_examples=100, deadline=None)
@given(views())
def test_the_newest_and_the_biggest_stay_single(view: tuple[Ledger, dict[str, Cost]]) -> None:
    ledger, costs = view
    board = dashboard(ledger, costs, 200_000)
    single = {line.id for line in board.lines if line.blocks == 1}
    rows = list(ledger.rows())
    old = rows[:-NEWEST]
    biggest = sorted(old, key=lambda row: costs[row.id].shown, reverse=True)[:BIGGEST]

    assert {row.id for row in rows[-NEWEST:]} <= single
    assert {row.id for row in biggest if costs[row.id].shown} <= single
    assert len(board.lines) <= NEWEST + 2 * BIGGEST + 1
    if len(rows) <= NEWEST + BIGGEST:
        assert len(single) == len(rows)


def test_a_range_says_what_is_in_it() -> None:
    rows = [
        Row(
            id=f"B{number}",
            kind="user" if number % 4 else "assistant",
            role="user",
            origin="client",
            msg=1,
            step=1,
            turn=1,
            bytes=0,
            sha256="0" * 64,
            state="archived" if number % 3 else "visible",
            group="G1" if number == 2 else "",
        )
        for number in range(1, 49)
    ]
    ledger = Ledger(Meta(format=1, session="s", scope="main", counters=Counters(step=4))).with_rows(rows)
    first = dashboard(ledger, {row.id: Cost(1, 0) for row in rows}, 1000).lines[0]

    assert first == Line(
        id="B1–B24", type="range", tokens=24, shown=0, age=3, status="16 archived, 8 visible",
        label="18 user, 6 assistant", blocks=24,
    )  # fmt: skip


def test_a_line_says_who_removed_a_block_and_where_it_went() -> None:
    row = Row(
        id="B1", kind="tool_result", role="user", origin="tool", msg=1, step=2, turn=1, bytes=0, sha256="0" * 64,
        state="archived", group="G3", level=1, parent="B7", label="3 failed", removed_by="guard", reads=2,
    )  # fmt: skip
    ledger = Ledger(Meta(format=1, session="s", scope="main", counters=Counters(step=5))).with_rows([row])

    assert dashboard(ledger, {"B1": Cost(400, 12)}, 1000).lines == (
        Line(
            id="B1", type="tool_result", tokens=400, shown=12, age=3, status="archived in G3", label="3 failed",
            level=1, parent="B7", reads=2, removed_by="guard",
        ),
    )  # fmt: skip


@given(st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_bar_never_shows_more_than_there_is(window: int, overhead: int, conversation: int) -> None:
    board = Dashboard(
        session="s", scope="main", window=window, overhead=overhead, conversation=conversation, lines=(), prompt="exact"
    )

    assert len(board.bar) == BAR and set(board.bar) <= {"█", "░"}
    assert board.bar == "█" * board.bar.count("█") + "░" * board.bar.count("░")
    assert 0 <= board.percent <= 100
    if window:
        assert board.percent == min(100, (overhead + conversation) * 100 // window)
        assert (board.bar.count("█") == BAR) == (overhead + conversation >= window)


def test_only_a_recording_is_reconstructed() -> None:
    meta = Meta(format=1, session="s", scope="main")
    source = Source(format="pi", id="x", missing=("system prompt",))

    assert dashboard(Ledger(meta), {}, 1000).prompt == "exact"
    told = dashboard(Ledger(msgspec.structs.replace(meta, source=source)), {}, 1000)
    assert (told.prompt, told.missing) == ("reconstructed", ("system prompt",))


@pytest.mark.parametrize(("window", "reserve", "effective"), [(200_000, 0, 200_000), (12_000, 4_000, 8_000)])
def test_the_reserve_for_the_reply_is_no_room_for_the_prompt(window: int, reserve: int, effective: int) -> None:
    assert Budget(window, reserve).effective == effective
