"""Cuts: what is bound to a prefix that changes leaves once, and what the provider still needs stays."""

from __future__ import annotations

from collections.abc import Callable

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


SEVERAL = "thinking assistant thinking tool_use tool_use tool_result tool_result"


@pytest.mark.parametrize(
    ("cut", "steps", "until"),
    [
        pytest.param(at_end, (f"user {ROUND}", "thinking assistant"), 6, id="at the end all of it leaves"),
        pytest.param(at_end, ("dashboard thinking",), 2, id="also where that is all"),
        pytest.param(before_reply, (f"user dashboard {ROUND}", f"dashboard {ROUND}"), 6, id="but the newest reply"),
        pytest.param(before_reply, (f"user {ROUND}", ROUND, "user dashboard"), 4, id="also if something follows"),
        pytest.param(before_reply, ("user thinking assistant", SEVERAL), 3, id="and as a whole"),
        pytest.param(at_turn, (f"user {ROUND}", "thinking assistant"), 6, id="a turn takes the thinking before it"),
        pytest.param(at_turn, (f"user {ROUND}", f"dashboard {ROUND}"), 5, id="but not inside a round"),
    ],
)  # fmt: skip
def test_a_cut_is_made_where_what_it_takes_ends_and_once(
    cut: Callable[[Ledger], tuple[int, ...]], steps: tuple[str, ...], until: int
) -> None:
    assert cut(ledger_of(*steps)) == (until,)
    assert cut(ledger_of(*steps, cuts=(until,))) == (until,)
    assert cut(ledger_of(*steps, cuts=(99,))) == (99,), "it never goes back"


def test_replies_that_have_left_take_their_dashboards_along_and_the_newest_that_has_not_is_spared() -> None:
    """They piled up: a recording of 133 replies had nine of them when its prompt was over the budget."""
    ledger = ledger_of("user assistant", "user dashboard assistant", "user dashboard assistant")
    left = [msgspec.structs.replace(row, state="archived") for row in ledger.rows() if row.id in ("B5", "B8")]
    assert before_reply(ledger.with_rows(left)) == (7,)
    ledger = ledger_of(f"user {ROUND}", "dashboard assistant")
    assert before_reply(ledger.with_rows([msgspec.structs.replace(ledger["B6"], state="archived")])) == ()
