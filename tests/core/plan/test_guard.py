"""The guard: in which order what leaves leaves, that it takes no more than it must, and what it never touches."""

from __future__ import annotations

import msgspec
from hypothesis import given

from ctxvc.core.ledger.ledger import Counters, Ledger, Meta, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.plan import Rehearsal, View
from ctxvc.core.plan.guard import ACTOR, guard
from ctxvc.core.view.budget import Budget, Ladder
from ctxvc.core.view.view import measure
from tests.making.generated import Letters, worked_on


def conversation(*results: int, words: int = 10, thinking: int = 0) -> Ledger:
    """A human's question, then a step for each result: words, a call, its result."""
    rows: list[Row] = []

    def add(step: int, kind: str, size: int, **fields: object) -> None:
        number = len(rows) + 1
        role = "assistant" if kind in ("assistant", "tool_use", "thinking") else "user"
        row = Row(
            id=f"B{number}", kind=kind, role=role, origin="model" if role == "assistant" else "tool",  # type: ignore[arg-type]
            msg=number, step=step, turn=1, bytes=size, sha256=f"{number:064x}",
        )  # fmt: skip
        rows.append(msgspec.structs.replace(row, **fields))

    add(1, "user", 100, origin="human")
    for step, size in enumerate(results, 1):
        if thinking:
            add(step, "thinking", thinking)
        add(step, "assistant", words)
        add(step, "tool_use", 20, call=f"c{step}", tool="sh")
        add(step, "tool_result", size, call=f"c{step}", tool="sh", parent=f"B{len(rows)}")
    counters = Counters(block=len(rows), msg=len(rows), step=len(results), turn=1)
    return Ledger(Meta(format=1, session="s", scope="main", counters=counters)).with_rows(rows)


def view_of(ledger: Ledger, window: int) -> View:
    return View(ledger=ledger, price=Letters(), budget=Budget(window))


def acted(ledger: Ledger, window: int) -> Rehearsal:
    rehearsal = guard(view_of(ledger, window))
    assert rehearsal
    return rehearsal


def gone(rehearsal: Rehearsal) -> list[int]:
    """The steps whose result left."""
    return [row.step for row in rehearsal.after.rows() if row.kind == "tool_result" and not row.present]


def test_below_the_guard_nothing_is_done() -> None:
    ledger = conversation(1_000, 2_000, 500)
    assert guard(view_of(ledger, measure(ledger, Letters()) * 100 // 98 + 2)) is None


def test_at_a_ceiling_below_the_budget_it_goes_on_to_its_low_water_mark_too() -> None:
    """It took just what came in, so that in a long session each result needed a batch of its own."""
    ledger = conversation(*[300] * 40)
    ceiling = measure(ledger, Letters()) - 50
    budget = Budget(200_000, ladder=Ladder(guard_at_ceiling=True, episodes_most=ceiling))
    rehearsal = guard(View(ledger=ledger, price=Letters(), budget=budget), 40)
    assert rehearsal
    assert 0.8 * ceiling < rehearsal.tokens_after <= 0.9 * ceiling - 40


def test_the_largest_raw_results_leave_first() -> None:
    ledger = conversation(2_000, 6_000, 4_000, 3_000, 1_000)
    assert gone(acted(ledger, 15_000)) == [2]
    assert gone(acted(ledger, 9_000)) == [2, 3]
    assert gone(acted(ledger, 6_000)) == [2, 3, 4]


def test_it_is_recorded_as_the_guards_under_pressure() -> None:
    rehearsal = acted(conversation(2_000, 6_000, 4_000), 9_000)
    assert (rehearsal.plan.actor, rehearsal.plan.pressure) == (ACTOR, True)
    assert {row.removed_by for row in rehearsal.rows} == {ACTOR}
    assert "8,820 tokens" in rehearsal.plan.reason


def test_whole_old_steps_leave_next_and_the_newest_steps_result_last() -> None:
    ledger = conversation(500, 500, 500, 900, words=2_000)
    steps = acted(ledger, 6_000)
    texts = [row.step for row in steps.after.rows() if row.kind == "assistant" and not row.present]
    assert texts
    assert 4 not in texts
    assert 4 not in gone(steps)
    everything = acted(ledger, 3_000)
    assert gone(everything) == [1, 2, 3, 4]
    assert all(row.present for row in everything.after.rows() if row.step == 4 and row.role == "assistant")


def test_what_may_not_leave_is_left_also_where_that_is_too_much() -> None:
    ledger = conversation(3_000, 3_000)
    rehearsal = acted(ledger, 50)
    assert all(row.present for row in rehearsal.after.rows() if is_human(row.role, row.origin))
    assert rehearsal.tokens_after > 50


def test_pinned_results_stay() -> None:
    ledger = conversation(2_000, 6_000, 4_000)
    pinned = [msgspec.structs.replace(row, state="pinned") for row in ledger.rows() if row.bytes == 6_000]
    assert gone(acted(ledger.with_rows(pinned), 11_000)) == [1]


def test_overhead_and_calibration_count() -> None:
    ledger = conversation(2_000, 6_000, 4_000)
    fits = view_of(ledger, 14_000)
    assert guard(fits) is None
    assert guard(View(ledger=ledger, price=Letters(), budget=Budget(14_000), overhead=2_000))
    assert guard(View(ledger=ledger, price=Letters(), budget=Budget(14_000), calibration=(1500, 0)))


@given(worked_on())
def test_whatever_stands_it_takes_no_human_text_and_makes_nothing_larger(made: tuple[View, object]) -> None:
    view, _ = made
    whole = view.counted
    for share in (90, 50, 10):
        tight = View(ledger=view.ledger, price=view.price, budget=Budget(max(1, whole * share // 100)),
                     overhead=view.overhead, next_group=view.next_group)  # fmt: skip
        rehearsal = guard(tight)
        if rehearsal is None:
            continue
        assert rehearsal.tokens_after <= rehearsal.tokens_before
        assert rehearsal.tokens_after == view.overhead + measure(rehearsal.after, view.price)
        for row in rehearsal.rows:
            assert not is_human(row.role, row.origin)


def test_the_newest_reply_stays_whole_also_where_something_came_in_behind_its_results() -> None:
    ledger = conversation(900, 900, words=500, thinking=400)
    reminder = Row(
        id="B10", kind="user", role="user", origin="client", msg=10, step=3, turn=1, bytes=10, sha256="a" * 64
    )
    meta = msgspec.structs.replace(ledger.meta, counters=Counters(block=10, msg=10, step=3, turn=1))
    rehearsal = acted(ledger.with_rows([reminder]).with_meta(meta), 1_500)
    assert gone(rehearsal) == [1, 2]
    assert all(row.present for row in rehearsal.after.rows() if row.step == 2 and row.role == "assistant")


def test_what_an_instruction_file_said_stays_where_each_later_reply_has_left() -> None:
    """The law's checker took the newest reply in the prompt for the newest one, whose results may leave."""
    ledger = conversation(1_500, 300, 300, words=2_000)
    call = next(row for row in ledger.rows() if row.kind == "tool_use")
    ledger = ledger.with_rows([msgspec.structs.replace(call, label="Read: CLAUDE.md")])
    rehearsal = acted(ledger, 1_700)
    assert not any(row.present for row in rehearsal.after.rows() if row.role == "assistant" and row.step > 1)
    assert gone(rehearsal) == [2, 3]
