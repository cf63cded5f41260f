"""What guard and roll-up keep of a session that grows is what they would work out of rows seen for the first time."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec

from ctxvc.core.plan.guard import guard, oldest_steps
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.prompt.outline import outline
from tests.policies.episodes.test_course import changes, goes_on, unseen
from tests.policies.episodes.test_graph import Talk, read
from tests.policies.recorded import moved


def test_the_guard_does_the_same_to_a_session_that_grew_and_to_one_seen_for_the_first_time() -> None:
    chance, talk = random.Random(1), Talk()
    rolled = 0
    for number in range(50):
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
