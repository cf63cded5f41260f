"""The dashboard shows every block once, alone, in its group or in a range, and its sums are those of its blocks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.ledger import Counters, Group, Ledger, Meta, Row, Source
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.dashboard import BAR, BIGGEST, NEWEST, Cost, Dashboard, Line, dashboard, folded
from tests.making.rows import made

STATES = ("visible", "visible", "pinned", "masked", "archived", "pruned", "blocked", "deleted")


def ledger_of(*rows: Row, groups: tuple[Group, ...] = (), **meta: object) -> Ledger:
    step = max((row.step for row in rows), default=0)
    usual = Meta(format=1, session="s", scope="main", counters=Counters(step=step))
    return Ledger(msgspec.structs.replace(usual, **meta)).with_rows(rows).with_groups(groups)


def priced(ledger: Ledger, tokens: int = 10) -> dict[str, Cost]:
    return {row.id: Cost(tokens, tokens if row.present else 1) for row in ledger.rows()}


@st.composite
def views(draw: st.DrawFn) -> tuple[Ledger, dict[str, Cost]]:
    """A ledger with gaps in its numbers, groups in groups, a sent dashboard or two, and what its blocks cost."""
    gaps = draw(st.lists(st.integers(1, 3), max_size=120))
    rows: list[Row] = []
    costs: dict[str, Cost] = {}
    number = 0
    for at, gap in enumerate(gaps):
        number += gap
        state = STATES[(at * 5 + gap) % len(STATES)]
        row = made(
            number,
            kind="dashboard" if at % 17 == 16 else "tool_result" if at % 3 else "user",
            step=at // 3 + 1,
            state="visible" if at % 17 == 16 else state,
            group=f"G{at % 9 // 2 + 1}" if state == "archived" and gap == 2 else "",
            parent=f"B{draw(st.integers(0, number + 1))}",
            reads=gap - 1,
        )
        rows.append(row)
        body = (at * 7919) % 1000
        costs[row.id] = Cost(body=body, shown=body if row.present else gap)
    names = sorted({row.group for row in rows if row.group and row.group != "G5"})  # G5 is not there
    groups = [
        Group(id=name, members=tuple(row.id for row in rows if row.group == name), group="G1" if name == "G2" else "")
        for name in names
    ]
    return ledger_of(*rows, groups=tuple(groups)), costs


def covered(line: Line, ledger: Ledger) -> list[str]:
    """The blocks that a line of a whole dashboard stands for."""
    if line.type != "group":
        return [line.id]
    names = {line.id, *(group.id for group in ledger.groups.values() if group.group == line.id)}
    return [row.id for row in ledger.rows() if row.group in names and not row.present]


def listed(ledger: Ledger) -> list[str]:
    return [row.id for row in ledger.rows() if row.kind != "dashboard"]


@given(views(), st.booleans(), st.integers(0, 10**6))
def test_every_block_is_in_one_line_and_the_sums_are_theirs(
    view: tuple[Ledger, dict[str, Cost]], every: bool, overhead: int
) -> None:
    ledger, costs = view
    board = dashboard(ledger, costs, 200_000, overhead, every=every)

    told = [block for line in board.lines for block in covered(line, ledger)]
    assert sorted(told) == sorted(listed(ledger))
    if every:
        assert told == listed(ledger)
    for line in board.lines:
        blocks = covered(line, ledger)
        assert line.blocks == len(blocks)
        assert line.tokens == sum(costs[block].body for block in blocks)
        assert line.shown == sum(costs[block].shown for block in blocks)
        assert line.reads == sum(ledger[block].reads for block in blocks)
        assert line.age == min(ledger.meta.counters.step - ledger[block].step for block in blocks)
        assert line.parent == "" or ledger[line.parent].present
        assert f"B{line.first}" == blocks[0]
    assert board.conversation == sum(line.shown for line in board.lines)
    assert board.dashboards == sum(costs[row.id].shown for row in ledger.rows() if row.kind == "dashboard")
    assert board.used == overhead + sum(cost.shown for cost in costs.values())


@given(views(), st.integers(0, 40), st.integers(0, 20))
def test_folding_loses_no_block_and_no_token(view: tuple[Ledger, dict[str, Cost]], newest: int, biggest: int) -> None:
    ledger, costs = view
    lines = dashboard(ledger, costs, 200_000).lines
    fewer = folded(lines, newest, biggest)

    for field in ("tokens", "shown", "reads", "blocks"):
        assert sum(getattr(line, field) for line in fewer) == sum(getattr(line, field) for line in lines)
    assert [line.first for line in fewer] == sorted(line.first for line in fewer)
    assert len(fewer) <= newest + 2 * biggest + 1
    kept = {line.id for line in fewer if line.type != "range"}
    assert {line.id for line in lines[max(0, len(lines) - newest) :]} <= kept or not newest
    old = sorted(lines[: max(0, len(lines) - newest)], key=lambda line: (-line.shown, -line.first))
    assert {line.id for line in old[:biggest] if line.shown} <= kept
    if len(lines) <= newest + biggest:
        assert fewer == list(lines)


def test_people_see_the_newest_and_the_biggest_singly() -> None:
    ledger = ledger_of(*(made(number) for number in range(1, 101)))
    costs = priced(ledger) | {"B7": Cost(5000, 5000)}
    lines = folded(dashboard(ledger, costs, 1000).lines)
    assert [line.id for line in lines[-NEWEST:]] == [f"B{number}" for number in range(77, 101)]
    assert "B7" in {line.id for line in lines}
    assert sum(line.type != "range" for line in lines) == NEWEST + BIGGEST


def test_a_range_says_what_is_in_it_and_ends_where_the_next_line_begins() -> None:
    rows = [
        made(number, kind="user" if number % 4 else "assistant", step=1, state="archived" if number % 3 else "visible")
        for number in range(1, 49)
    ]
    ledger = ledger_of(*rows, counters=Counters(step=4))

    first = folded(dashboard(ledger, {row.id: Cost(1, 0) for row in rows}, 1000).lines)[0]

    assert first == Line(
        id="B1–B24", type="range", tokens=24, shown=0, age=3, status="16 archived, 8 visible",
        label="24 blocks: 18 user, 6 assistant", blocks=24, first=1, last=24,
    )  # fmt: skip

    rows = [made(number, state="archived", group="G1" if number in (2, 3, 6) else "") for number in range(1, 7)]
    rows[4] = made(5)
    ledger = ledger_of(*rows, groups=(Group(id="G1", members=("B2", "B3", "B6")),))
    lines = dashboard(ledger, priced(ledger), 1000).lines

    assert [(line.id, line.first, line.last) for line in lines] == [
        ("B1", 1, 1), ("G1", 2, 3), ("B4", 4, 4), ("B5", 5, 5),
    ]  # fmt: skip
    assert [(line.id, line.label) for line in folded(lines[:2], 0, 0)] == [
        ("B1–B3", "4 blocks: 3 in groups, 1 tool_result")
    ]


def test_a_group_is_one_line_at_the_place_of_its_first_block_with_its_label_or_what_is_in_it() -> None:
    rows = [
        made(1, kind="user"),
        made(2, kind="tool_use", state="archived", group="G1", parent="B1"),
        made(3, state="archived", group="G1", parent="B2", reads=2),
        made(4, kind="assistant"),
        made(5, state="pruned", group="G2"),
    ]
    groups = (
        Group(id="G1", members=("B2", "B3"), group="G2", level=1),
        Group(id="G2", members=("G1", "B5"), level=2, label="the search", removed_by="agent"),
    )
    ledger = ledger_of(*rows, groups=groups)
    costs = {"B1": Cost(5, 5), "B2": Cost(20, 7), "B3": Cost(300, 0), "B4": Cost(6, 6), "B5": Cost(40, 0)}

    lines = dashboard(ledger, costs, 1000).lines

    assert [line.id for line in lines] == ["B1", "G2", "B4"]
    assert lines[1] == Line(
        id="G2", type="group", tokens=360, shown=7, age=0, status="archived", label="the search", level=2, parent="B1",
        reads=2, blocks=3, removed_by="agent", first=2, last=3,
    )  # fmt: skip

    rows = (made(1, state="archived", group="G1"), made(2, state="archived", group="G1"))
    ledger = ledger_of(*rows, groups=(Group(id="G1", members=("B1", "B2")),))

    assert dashboard(ledger, priced(ledger), 1000).lines[0].label == "2 blocks: 2 tool_result"


def test_a_line_says_who_removed_a_block_and_where_it_went() -> None:
    row = made(1, step=2, state="archived", group="G3", level=1, parent="B7", label="3 failed", removed_by="guard",
               reads=2)  # fmt: skip
    ledger = ledger_of(row, groups=(Group(id="G3", members=("B1",)),), counters=Counters(step=5))
    assert dashboard(ledger, {"B1": Cost(400, 12)}, 1000, every=True).lines == (
        Line(
            id="B1", type="tool_result", tokens=400, shown=12, age=3, status="archived in G3", label="3 failed",
            level=1, parent="", reads=2, removed_by="guard", first=1, last=1,
        ),
    )  # fmt: skip


def test_the_parent_is_the_nearest_ancestor_that_is_in_the_prompt() -> None:
    rows = [
        made(1, kind="user"),
        made(2, kind="tool_use", parent="B1", state="archived"),
        made(3, parent="B2"),
        made(4, parent="B3", state="deleted"),
        made(5, parent="B4"),
        made(6, parent="no block"),
    ]
    ledger = ledger_of(*rows)
    parents = {line.id: line.parent for line in dashboard(ledger, priced(ledger), 1000).lines}

    assert parents == {"B1": "", "B2": "B1", "B3": "B1", "B4": "B3", "B5": "B3", "B6": ""}


def test_thinking_that_a_cut_took_away_is_not_called_visible() -> None:
    ledger = ledger_of(made(1, kind="thinking"), made(2, kind="thinking"), cuts=(1,))
    assert [line.status for line in dashboard(ledger, priced(ledger), 1000).lines] == ["cut", "visible"]


@pytest.mark.parametrize("every", [True, False])
def test_a_block_that_is_in_the_prompt_is_in_no_group(every: bool) -> None:
    ledger = ledger_of(made(1, group="G1"), groups=(Group(id="G1", members=("B1",)),))
    assert [(line.id, line.status) for line in dashboard(ledger, priced(ledger), 1000, every=every).lines] == [
        ("B1", "visible")
    ]


def test_the_protocol_is_overhead_as_long_as_it_stands_and_has_no_line() -> None:
    told = made(1, state="pinned", extra={"ctxvc": {"protocol": True}})
    ledger = ledger_of(told, made(2), made(3, extra={"ctxvc": {"protocol": 1}}))
    board = dashboard(ledger, priced(ledger), 1000, 5)
    assert [line.id for line in board.lines] == ["B2", "B3"]
    assert (board.overhead, board.conversation, board.dashboards, board.used) == (15, 20, 0, 35)
    left = ledger_of(msgspec.structs.replace(told, state="archived", stub="[archived B1]"), made(2))
    board = dashboard(left, priced(left), 1000, 5)
    assert [line.id for line in board.lines] == ["B1", "B2"]
    assert board.overhead == 5


@given(st.integers(500, 3000), st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000))
def test_calibrated_totals_add_up_and_lines_stay_as_counted(a: int, b: int, overhead: int, tokens: int) -> None:
    ledger = ledger_of(made(1), made(2, kind="dashboard"))
    costs = {"B1": Cost(tokens, tokens), "B2": Cost(7, 7)}
    board = dashboard(ledger, costs, 100_000, overhead, calibration=(a, b))
    assert board.used == (overhead + tokens + 7) * a // 1000 + b
    assert (board.conversation, board.dashboards) == (tokens * a // 1000, 7 * a // 1000)
    assert [line.tokens for line in board.lines] == [tokens]


@given(st.integers(-5, 10**7), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_bar_never_shows_more_than_there_is(window: int, overhead: int, conversation: int) -> None:
    board = Dashboard(
        session="s", scope="main", limit=window, overhead=overhead, conversation=conversation, lines=(), prompt="exact"
    )

    assert len(board.bar) == BAR and set(board.bar) <= {"█", "░"}
    assert board.bar == "█" * board.bar.count("█") + "░" * board.bar.count("░")
    assert 0 <= board.percent <= 100
    if window > 0:
        assert board.percent == min(100, (overhead + conversation) * 100 // window)
        assert (board.bar.count("█") == BAR) == (overhead + conversation >= window)
    else:
        assert (board.percent, board.bar) == (100, "█" * BAR)


def test_only_a_recording_is_reconstructed() -> None:
    meta = Meta(format=1, session="s", scope="main")
    source = Source(format="pi", id="x", missing=("system prompt",))
    assert dashboard(Ledger(meta), {}, 1000).prompt == "exact"
    told = dashboard(Ledger(msgspec.structs.replace(meta, source=source)), {}, 1000)
    assert (told.prompt, told.missing) == ("reconstructed", ("system prompt",))


@pytest.mark.parametrize(("window", "reserve", "effective"), [(200_000, 0, 200_000), (12_000, 4_000, 8_000)])
def test_the_reserve_for_the_reply_is_no_room_for_the_prompt(window: int, reserve: int, effective: int) -> None:
    assert Budget(window, reserve).effective == effective
