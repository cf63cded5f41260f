"""When a plan is made true: the benefit in numbers, and the rules around it (Self-GC, "Cache-aware Commit")."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan import Action, Plan, Rehearsal, View, rehearse
from ctxvc.core.plan.timing import Timing, behind_first_edit, calls_a_turn, cuts_at_turn, moment
from ctxvc.core.prompt import cut as cuts
from tests.making.generated import next_view, numbered, plans, worked_on


class Flat:
    """Every text of a human is 10 tokens, every other body 100, and what stands for it 20."""

    def body(self, row: Row) -> int:
        return 10 if row.origin == "human" else 100

    def mask(self, row: Row) -> int:
        return min(20, self.body(row))

    def text(self, words: str) -> int:
        return 20 if words else 0


def talk(steps: int = 10, thinking_at: int = -1) -> View:
    """One turn of so many steps of a call (100 tokens) and a result (100 tokens) behind a request (10 tokens)."""
    messages = [Message(role="user", parts=(wire.text_part("Do it", "user", "human"),))]
    for step in range(steps):
        parts = [wire.call_part("sh", f"c{step}", b"{}")]
        if step == thinking_at:
            parts.insert(0, wire.part({"type": "thinking", "thinking": "Hm.", "signature": "s"}, "assistant", "model"))
        messages.append(Message(role="assistant", parts=tuple(parts)))
        messages.append(Message(role="user", parts=(wire.result_part("out", f"c{step}"),)))
    return View(ledger=numbered(messages)[0], price=Flat())


def folded(view: View, *blocks: str, cost: int = 0, pressure: bool = False) -> Rehearsal:
    actions = tuple(Action(verb="archive", targets=(block,)) for block in blocks)
    return rehearse.rehearse(view, Plan(actions=actions, actor="planner", cost=cost, pressure=pressure))


def test_the_benefit_is_that_of_the_paper() -> None:
    """N·(C - C') - L_cache_break - L_GC: 2,010 tokens, B11 leaves, 1,020 of 1,930 stand behind the first edit."""
    view = talk()
    rehearsal = folded(view, "B11", cost=30)
    judged = moment(view, rehearsal, Timing(calls=40))

    assert (rehearsal.tokens_before, rehearsal.freed, behind_first_edit(view, rehearsal)) == (2010, 80, 1020)
    assert judged.benefit == pytest.approx(40 * 80 * 0.1 - 1020 * 1.15 - 30)
    assert not judged.now
    assert judged.why == (
        "4% of the prompt leaves, which does not save more than it costs; 80 tokens fewer in the next 40 calls save "
        "320, rewriting 1,020 after the first edit costs 1,173, planning cost 30"
    )
    assert judged.cost == pytest.approx(1020 * 1.15 + 30)


def test_a_positive_benefit_commits_and_the_planning_or_the_broken_cache_can_veto() -> None:
    view = talk()
    late, early = folded(view, "B17", "B19"), folded(view, "B3", "B5")
    assert moment(view, late, Timing(calls=40)).now
    assert not moment(view, folded(view, "B17", "B19", cost=400), Timing(calls=40)).now
    assert not moment(view, early, Timing(calls=40)).now
    assert late.freed == early.freed


def test_above_the_share_it_is_committed_at_once_and_at_the_share_it_waits() -> None:
    view = talk(steps=5)
    rehearsal = folded(view, "B3", "B5", "B7", "B9")
    assert rehearsal.freed / rehearsal.tokens_before == pytest.approx(320 / 1010)
    judged = moment(view, rehearsal)
    assert judged.now and judged.benefit < 0
    assert "fewer in the next call save" in moment(view, rehearsal, Timing(calls=1)).why
    assert judged.why.startswith("32% of the prompt leaves, more than 30%; 320 tokens fewer in the next 5 calls save")
    assert not moment(view, rehearsal, Timing(share=320 / 1010)).now


def test_a_cache_that_is_gone_costs_nothing_to_break() -> None:
    view = talk()
    rehearsal = folded(view, "B3")
    idle = dataclasses.replace(view, idle=301.0)
    assert not moment(dataclasses.replace(view, idle=300.0), rehearsal).now
    judged = moment(idle, rehearsal)
    assert judged.now and judged.why.startswith("the last call was 301 s ago, so the cache (300 s) has expired")
    assert judged.benefit == pytest.approx(80 * (10 * 0.1 + 1.15))


def test_pressure_on_the_hard_budget_waits_for_nothing() -> None:
    view = talk()
    judged = moment(view, folded(view, "B3", cost=10**6, pressure=True))
    assert judged.now and judged.why.startswith(
        "the hard budget would be exceeded; 4% of the prompt leaves; 80 tokens fewer"
    )
    assert "rewriting 1,820 after the first edit costs 2,093, planning cost 1,000,000" in judged.why


def test_a_plan_of_which_nothing_is_left_is_not_committed() -> None:
    view = dataclasses.replace(talk(), idle=10**6)
    assert moment(view, folded(view, "B1", pressure=True)).now is False


def test_the_cut_that_comes_with_a_commit_is_an_edit_too() -> None:
    view = talk(thinking_at=1)
    rehearsal = folded(view, "B14")
    assert behind_first_edit(view, rehearsal) == rehearsal.tokens_after - 210 - 100  # all behind B3, less the thinking
    cut = view.ledger.with_meta(msgspec.structs.replace(view.ledger.meta, cuts=cuts.before_reply(view.ledger)))
    after = dataclasses.replace(view, ledger=cut)
    assert behind_first_edit(after, folded(after, "B14")) == 20 + 7 * 100 + 100


def test_calls_to_come_are_those_that_a_turn_had_so_far() -> None:
    view = talk(steps=6)
    more = [
        Message(role="user", parts=(wire.text_part("Go on", "user", "human"),)),
        Message(role="assistant", parts=(wire.text_part("Done.", "assistant", "model"),)),
    ]
    assert calls_a_turn(view.ledger) == 6
    assert calls_a_turn(numbered(more, view.ledger)[0]) == 3.5
    assert calls_a_turn(numbered([])[0]) == 1


def test_prices_are_of_tokens_as_the_provider_counts_them() -> None:
    view = talk()
    rehearsal = folded(view, "B11", cost=30)
    dear = dataclasses.replace(view, calibration=(1500, 900))
    assert moment(dear, rehearsal).benefit + 30 == pytest.approx(1.5 * (moment(view, rehearsal).benefit + 30))


@given(st.data())
def test_whatever_is_planned_its_moment_can_be_told(data: st.DataObject) -> None:
    view, _ = data.draw(worked_on())
    rehearsal = rehearse.rehearse(view, data.draw(plans(view.ledger)))
    judged = moment(view, rehearsal)
    assert judged.why
    assert 0 <= behind_first_edit(view, rehearsal) <= rehearsal.tokens_after
    settled = next_view(view, rehearsal)
    assert not moment(settled, rehearse.rehearse(settled, Plan(actions=(), actor="planner"))).now


class Deep(Flat):
    """As `Flat`, but a thought is 10,000 tokens."""

    def body(self, row: Row) -> int:
        return 10_000 if row.kind == "thinking" else super().body(row)


def of_render(view: View, render: int) -> View:
    return dataclasses.replace(
        view, ledger=view.ledger.with_meta(msgspec.structs.replace(view.ledger.meta, render=render))
    )


def test_a_turn_cuts_only_if_that_saves_more_than_the_cache_that_it_breaks_or_none_is_there() -> None:
    """10 calls without a thought of 100 tokens save 100 at 0.1 each; 400 tokens behind it cost 460 to write anew."""
    view = of_render(talk(thinking_at=8), 2)
    thought = next(row for row in view.ledger.rows() if row.kind == "thinking")
    assert cuts_at_turn(view) == view.ledger.meta.cuts == ()
    (deep,) = cuts_at_turn(dataclasses.replace(view, price=Deep()))  # 10,000 save 10,000
    assert deep >= thought.number
    assert cuts_at_turn(dataclasses.replace(view, idle=301.0)) == cuts.at_turn(view.ledger) != ()


def test_scopes_of_the_first_rules_cut_at_each_turn() -> None:
    view = of_render(talk(thinking_at=8), 1)
    assert cuts_at_turn(view) == cuts.at_turn(view.ledger) != ()
