"""What guard and roll-up keep of a session that grows is what they would work out of rows seen for the first time."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan.guard import guard, oldest_steps
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.prompt.outline import outline
from ctxvc.core.view.view import Price, measure
from tests.policies.episodes.test_course import changes, goes_on, unseen
from tests.policies.episodes.test_graph import Talk, read
from tests.policies.recorded import moved


def test_the_guard_does_the_same_to_a_session_that_grew_and_to_one_seen_for_the_first_time() -> None:
    chance, talk = random.Random(1), Talk()
    rolled = 0
    for number in range(30):
        goes_on(talk, chance, marked=False)
        if chance.random() < 0.3:
            changes(talk, chance)
        budget = chance.choice([600, 1_200, 2_500])
        view = talk.run.view(budget)
        first = replace(view, ledger=unseen(view.ledger))
        for relief in (None, oldest_steps):
            acted, expected = guard(view, relief=relief), guard(first, relief=relief)
            assert _outcome(acted) == _outcome(expected), number
            rolled += bool(acted and acted.rolled)
        if acted and chance.random() < 0.5:
            moved(talk.run, acted)
    assert rolled > 3


def _outcome(rehearsal: Rehearsal | None) -> object:
    if rehearsal is None:
        return None
    return rehearsal.rows, rehearsal.groups, rehearsal.done, rehearsal.problems, rehearsal.tokens_after


def test_an_outline_is_that_of_its_own_cuts_whichever_was_made_before() -> None:
    chance, talk = random.Random(3), Talk()
    for number in range(25):
        goes_on(talk, chance, marked=False)
        talk.calls(read("/repo/a.py", 90), thinking="hm")
        ledger = talk.run.ledger
        cut = ledger.with_meta(msgspec.structs.replace(ledger.meta, cuts=(max(1, len(ledger) - 9),)))
        for one in (ledger, cut, ledger):
            assert outline(one) == outline(unseen(one)), number
    assert len(outline(cut)) < len(outline(ledger))


def test_of_a_prompt_only_what_changed_is_counted() -> None:
    """The slots of what stands as it stood, stubs of groups too, are the same objects."""
    talk = Talk()
    for number in range(30):
        talk.calls(read(f"/repo/{number}.py", 90))
    view = talk.run.view(600)
    acted = guard(view, relief=oldest_steps)
    assert acted and acted.groups
    price, counted = CountingPrice(view.price), acted.after
    before = outline(counted)
    measure(counted, price)
    stands = next(slot.row for slot in reversed(before) if slot.row.kind == "tool_result" and slot.show == "body")
    archived = msgspec.structs.replace(stands, state="archived", stub="[a stub]")

    then = counted.with_rows([archived])
    price.asked = 0
    assert measure(then, price) == measure(unseen(then), view.price)
    assert price.asked <= 3 < len(before)
    assert any(slot.group for slot in before)
    assert {id(slot) for slot in before if slot.group} <= {id(slot) for slot in outline(then)}


class CountingPrice:
    """A price that knows how often it was asked."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self.asked = 0

    def body(self, row: Row) -> int:
        self.asked += 1
        return self._price.body(row)

    def mask(self, row: Row) -> int:
        self.asked += 1
        return self._price.mask(row)

    def text(self, text: str) -> int:
        self.asked += 1
        return self._price.text(text)
