"""What leaves first: words that stand elsewhere, and blocks that were not used for long."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from ctxvc.core.ledger.block import Message
from ctxvc.core.plan.value import Class, class_of, departures, runs_of
from ctxvc.policies.candidates import removable
from tests.making.conversation import human, reply, result, results, step
from tests.making.generated import conversations
from tests.policies.recorded import Run, running

UNIQUE = " ".join(f"name_{number:04}" for number in range(100))


def order(run: Run, window: int = 100_000, **more: object) -> list[tuple[str, ...]]:
    view = run.view(window)
    return [tuple(row.id for row in departure.rows) for departure in departures(view, removable(view), **more)]  # type: ignore[arg-type]


def exchange(call: str, output: str) -> list[Message]:
    return [reply("", call), results(result(call, output))]


def asking(call: str, output: str) -> list[Message]:
    """An exchange whose call is long enough to be worth a group's stub."""
    return [
        reply("", call + " please look at this " * 20),
        results(result(call + " please look at this " * 20, output)),
    ]


def test_a_result_whose_words_stand_in_another_leaves_before_one_whose_words_stand_nowhere_else() -> None:
    twice = UNIQUE.replace("name", "copy")
    run = running(
        human("Go"),
        *exchange("c1", UNIQUE),  # B3
        *exchange("c2", twice),  # B5
        *exchange("c3", twice + " more"),  # B7
        *exchange("c4", "newest"),
    )
    first, *others = [blocks for blocks in order(run) if blocks[0] in ("B3", "B5", "B7")]
    assert first == ("B5",)
    # Once the copy has gone, the words of the other stand nowhere else: then the older one is worth less.
    assert others == [("B3",), ("B7",)]


@pytest.mark.parametrize(
    "about",
    ["now I need name_0007", " ".join(UNIQUE.split()[:50]) + " as else_0007"],
    ids=["used later", "the subject"],
)
def test_of_two_alike_the_one_that_was_used_later_or_that_the_newest_replies_are_about_stays_longer(about: str) -> None:
    run = running(
        human("Go"),
        *exchange("c1", UNIQUE),  # B3
        *exchange("c2", UNIQUE.replace("name", "else")),  # B5
        *[message for at in range(6) for message in exchange(f"d{at}", "ok")],
        reply(about, "e1"),
        results(result("e1", "newest")),
        *exchange("f1", "newest"),
    )
    assert [blocks for blocks in order(run) if blocks[0] in ("B3", "B5")] == [("B5",), ("B3",)]


@pytest.mark.parametrize(("window", "later", "first"), [(12_000, 15, "B5"), (100_000, 15, "B3"), (12_000, 30, "B3")])
def test_in_a_narrow_window_more_replies_tell_what_the_work_is_about(window: int, later: int, first: str) -> None:
    other = UNIQUE.replace("name", "else")
    run = running(
        human("Go"),
        *exchange("c1", UNIQUE),  # B3
        *exchange("c2", other),  # B5
        reply(" ".join(UNIQUE.split()[:50]) + " as else_0007", "e1"),
        results(result("e1", "ok")),
        *[message for at in range(later) for message in exchange(f"d{at}", "ok")],
    )
    assert next(blocks for blocks in order(run, window) if blocks[0] in ("B3", "B5")) == (first,)


@pytest.mark.parametrize(("window", "first"), [(12_000, "B3"), (100_000, "B4")])
def test_in_a_narrow_window_what_the_model_wrote_lately_stays_longer(window: int, first: str) -> None:
    written = " ".join(f"else_{number:04}" for number in range(30))
    run = running(
        human("Go"),
        *exchange("c1", UNIQUE),  # B3
        reply(" ".join([written] * 3), "d1"),  # B4
        results(result("d1", "ok")),
        *exchange("e1", "ok"),
        *exchange("f1", "newest"),
    )
    assert next(blocks for blocks in order(run, window) if blocks[0] in ("B3", "B4")) == (first,)


@pytest.mark.parametrize(("window", "first"), [(12_000, "B4"), (100_000, "B2")])
def test_in_a_narrow_window_a_call_stays_longer_than_other_text(window: int, first: str) -> None:
    called, written = (" ".join(f"{name}_{number:04}" for number in range(30)) for name in ("call", "text"))
    run = running(
        human("Go"),
        *exchange(called, "ok"),  # B2, with B3
        reply(written, "d1"),  # B4
        results(result("d1", "ok")),
        *exchange("e1", "newest"),
    )
    leaving = order(run, window, narrow_call=2.0)
    assert next(blocks[0] for blocks in leaving if blocks[0] in ("B2", "B4")) == first


def test_a_result_leaves_before_its_call_and_a_small_one_with_it() -> None:
    run = running(human("Go"), *asking("c1", UNIQUE), *asking("c2", "it is done " * 8), *exchange("c3", "newest"))
    leaving = order(run)
    assert leaving.index(("B3",)) < leaving.index(("B2",))
    assert ("B4", "B5") in leaving


def test_a_failed_call_is_worth_less_than_one_that_worked() -> None:
    run = running(
        human("Go"), *step(1, UNIQUE), *step(2, UNIQUE.replace("name", "else"), error=True), *step(3, "newest")
    )
    large = [blocks for blocks in order(run) if blocks[0] in ("B3", "B5")]
    assert large == [("B5",), ("B3",)]


def test_a_turns_last_answer_leaves_after_other_texts() -> None:
    run = running(human("Go"), reply(UNIQUE), human("And"), reply(UNIQUE.replace("name", "else")), *exchange("c", "x"))
    assert order(run, last=frozenset({"B2"})) == [("B4",), ("B2",)]
    assert order(run) == [("B2",), ("B4",)]


@pytest.mark.parametrize(
    ("tool", "command", "kind"),
    [
        ("Bash", "cd /x && git log", "vcs"),
        ("exec_command", "rg -n name src", "search"),
        ("Bash", "sed -n 1,40p a.py", "read"),
        ("Bash", "go test ./...", "test"),
        ("shell", "make", "run"),
        ("Read", "a.py", "read"),
        ("MultiEdit", "a.py", "edit"),
        ("apply_patch", "*** Begin", "edit"),
        ("TodoWrite", "", "todo"),
        ("Task", "look", "report"),
        ("Grep", "x", "search"),
        ("weather", "Rome", "call"),
    ],
)
def test_a_call_is_classed_by_its_tool_and_a_shells_by_its_command(tool: str, command: str, kind: Class) -> None:
    run = running(human("Go"), *step(1, "out", tool=tool))
    call = run.ledger["B2"]
    labelled = msgspec.structs.replace(call, label=f"{tool}: {command}")
    assert class_of(labelled, None) == kind


@given(conversations(odd=False, unique_calls=True))
def test_each_block_leaves_at_most_once_and_only_free_ones(messages: list[Message]) -> None:
    run = running(*messages)
    view = run.view(100_000)
    free = removable(view)
    leaving = [row.id for departure in departures(view, free) for row in departure.rows]
    assert len(leaving) == len(set(leaving))
    assert set(leaving) <= {row.id for row in free}


def test_a_run_ends_at_a_humans_words_a_turn_and_what_stays() -> None:
    run = running(human("Go"), *exchange("c1", "a"), *exchange("c2", "b"), human("And then?"), *exchange("c3", "c"))
    rows = list(run.ledger.rows())
    pinned = run.ledger.with_rows([msgspec.structs.replace(rows[2], state="pinned")])
    runs = runs_of(pinned)
    assert [runs[row.id] for row in rows] == [1, 1, 2, 2, 2, 3, 3, 3]
