"""What is known of a ledger that grew, or changed, is what would be worked out of its rows seen for the first time."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Meta, Row
from ctxvc.core.ledger.pairs import pairs


def row(number: int, **fields: Any) -> Row:
    known = {"kind": "assistant", "role": "assistant", "origin": "model", "bytes": 9, "sha256": f"{number:064x}"}
    return Row(id=f"B{number}", msg=number, step=number, turn=1, **{**known, **fields})


def call_or_result(number: int, chance: random.Random) -> Row:
    """A call or a result by one of few ids, so that ids come back, and results come late or were interrupted."""
    name = f"c{chance.randrange(number // 9 + 1)}"
    if chance.random() < 0.5:
        return row(number, kind="tool_use", call=name)
    extra = {"ctxvc": {"interrupted": True}} if chance.random() < 0.2 else {}
    return row(number, kind="tool_result", role="user", origin="tool", call=name, extra=extra)


def agree(ledger: Ledger) -> None:
    unseen = Ledger(meta=ledger.meta, segments=ledger.segments, groups=ledger.groups)
    assert pairs(ledger) == pairs(unseen)
    assert list(ledger.by_id().items()) == [(own.id, own) for own in ledger.rows()]
    assert list(ledger.by_place().items()) == [(own.id, at) for at, own in enumerate(ledger.rows())]
    assert all(ledger.get(own.id) is own for own in ledger.rows())


def test_pairs_rows_and_places_of_a_ledger_that_grew_and_changed() -> None:
    chance, ledger, number = random.Random(5), Ledger(Meta(format=2, session="s", scope="main")), 0
    for _ in range(25):
        added = [
            call_or_result(number + more, chance) for more in range(1, chance.randrange(2, 30), chance.choice((1, 2)))
        ]
        number = added[-1].number if added else number
        ledger = ledger.with_rows(added)
        agree(ledger)
        changed = [msgspec.structs.replace(own, state="archived") for own in ledger.rows() if chance.random() < 0.02]
        agree(ledger.with_rows(changed))  # a plan that is only weighed
        if chance.random() < 0.5:
            ledger = ledger.with_rows(changed)
        agree(ledger)


def test_ledgers_beside_the_one_that_grew_are_known_as_they_are() -> None:
    chance = random.Random(6)
    rows = [call_or_result(number, chance) for number in range(1, 400)]
    ledger = Ledger(Meta(format=2, session="s", scope="main")).with_rows(rows[:200])
    grown = ledger.with_rows(rows[200:])
    for one in (grown, ledger, grown.with_rows([row(1_000)]), ledger.with_rows([row(900, kind="note")]), ledger):
        agree(one)

    ledger = Ledger(Meta(format=2, session="s", scope="main")).with_rows([row(1), row(9)])
    agree(ledger)
    agree(ledger.with_rows([row(5)]))
    assert [own.id for own in ledger.with_rows([row(5), row(3)]).rows()] == ["B1", "B3", "B5", "B9"]
