"""Cuts: what is bound to a prefix that changes leaves once, and what the provider still needs stays."""

from __future__ import annotations

import msgspec
import pytest

from ctxvc.core.ledger.block import Kind, Role
from ctxvc.core.ledger.ledger import Counters, Ledger, Meta, Row
from ctxvc.core.prompt.cut import at_end, at_turn, before_reply, is_cut

ROLES: dict[str, Role] = {"thinking": "assistant", "assistant": "assistant", "tool_use": "assistant"}


def ledger_of(*steps: str, cuts: tuple[int, ...] = ()) -> Ledger:
    """A ledger of steps, each the kinds of its rows in order."""
    rows: list[Row] = []
    for step, kinds in enumerate(steps, 1):
        for word in kinds.split():
            kind: Kind = word  # type: ignore[assignment]
            number = len(rows) + 1
            role = ROLES.get(kind, "user")
            rows.append(
                Row(
                    id=f"B{number}", kind=kind, role=role, origin="model" if role == "assistant" else "client",
                    msg=number, step=step, turn=1, bytes=1, sha256="0" * 64, label="x",
                )
            )  # fmt: skip
    meta = Meta(format=1, session="s", scope="main", counters=Counters(step=len(steps)), cuts=cuts)
    return Ledger(meta).with_rows(rows)


ROUND = "thinking tool_use tool_result"


def test_only_thinking_and_dashboards_up_to_the_cut_have_left() -> None:
    ledger = ledger_of("user dashboard thinking assistant", "user thinking", cuts=(3,))
    assert [row.id for row in ledger.rows() if is_cut(row, ledger.meta)] == ["B2", "B3"]
    assert not any(is_cut(row, ledger.meta.__class__(format=1, session="s", scope="m")) for row in ledger.rows())


@pytest.mark.parametrize(
    "steps", [(), ("user",), ("user assistant", "user"), (f"user {ROUND.replace('thinking ', '')}",)]
)
def test_where_nothing_would_leave_no_cut_is_made(steps: tuple[str, ...]) -> None:
    ledger = ledger_of(*steps)
    assert at_end(ledger) == before_reply(ledger) == at_turn(ledger) == ()


def test_a_cut_at_the_end_takes_everything() -> None:
    assert at_end(ledger_of(f"user {ROUND}", "thinking assistant")) == (6,)


def test_what_is_all_that_there_is_leaves_too() -> None:
    assert at_end(ledger_of("dashboard thinking")) == (2,)


def test_a_cut_inside_a_turn_spares_the_newest_reply() -> None:
    ledger = ledger_of(f"user dashboard {ROUND}", f"dashboard {ROUND}")
    assert before_reply(ledger) == (6,)


def test_what_came_in_behind_the_results_opens_a_step_and_spares_the_reply_all_the_same() -> None:
    ledger = ledger_of(f"user {ROUND}", ROUND, "user dashboard")
    assert before_reply(ledger) == (4,)


def test_a_reply_of_several_blocks_is_spared_as_a_whole() -> None:
    ledger = ledger_of(
        "user thinking assistant", "thinking assistant thinking tool_use tool_use tool_result tool_result"
    )
    assert before_reply(ledger) == (3,)


def test_a_turn_that_begins_after_the_last_word_takes_all_thinking() -> None:
    ledger = ledger_of(f"user {ROUND}", "thinking assistant")
    assert at_turn(ledger) == (6,)


def test_a_turn_that_begins_inside_a_round_leaves_its_thinking() -> None:
    ledger = ledger_of(f"user {ROUND}", f"dashboard {ROUND}")
    assert at_turn(ledger) == (5,)


def test_a_cut_is_made_once() -> None:
    for cut in (at_end, before_reply, at_turn):
        ledger = ledger_of(f"user dashboard {ROUND}", f"dashboard {ROUND}", "thinking assistant")
        made = cut(ledger)
        assert made
        again = ledger_of(f"user dashboard {ROUND}", f"dashboard {ROUND}", "thinking assistant", cuts=made)
        assert cut(again) == made


def test_a_cut_never_goes_back() -> None:
    ledger = ledger_of(f"user dashboard {ROUND}", f"dashboard {ROUND}", cuts=(9,))
    assert before_reply(ledger) == (9,)


def test_dashboards_leave_where_the_replies_that_they_came_with_have_left() -> None:
    """They piled up: a recording of 133 replies had nine of them when its prompt was over the budget."""
    ledger = ledger_of("user assistant", "user dashboard assistant", "user dashboard assistant")
    left = [msgspec.structs.replace(row, state="archived") for row in ledger.rows() if row.id in ("B5", "B8")]
    assert before_reply(ledger.with_rows(left)) == (7,)


def test_the_thinking_of_the_newest_reply_in_the_prompt_stays_where_later_ones_have_left() -> None:
    ledger = ledger_of(f"user {ROUND}", "dashboard assistant")
    assert before_reply(ledger.with_rows([msgspec.structs.replace(ledger["B6"], state="archived")])) == ()
