"""Several policies as one: one plan, recorded as the composition's, and each part judged on what it wants itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ctxvc.core.plan import Action, Plan, Rehearsal, View
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.plan.timing import CommitDecision
from ctxvc.core.policy import READING, Policy
from ctxvc.policies import context_text, parse
from ctxvc.policies.composed import Composed
from ctxvc.session.session import Session
from tests.policies.cases import working
from tests.policies.planned.test_policy import Scripted, fold, low

WORDS = "one more line of output, as long as such lines are\n"


class Takes(Policy, frozen=True, kw_only=True):
    """Archives some blocks, if they stand; it says now or not yet, as it was told to, and of what it was asked."""

    name = "takes"

    blocks: tuple[str, ...] = ()
    now: bool = True

    def propose(self, view: View) -> Plan:
        stand = tuple(block for block in self.blocks if (row := view.ledger.get(block)) and row.present)
        actions = tuple(Action(verb="archive", targets=(block,)) for block in stand)
        return Plan(actions=actions, actor=self.actor, reason=f"{len(stand)} stand")

    def moment(self, view: View, rehearsal: Rehearsal) -> CommitDecision:  # noqa: ARG002  # part of the contract
        return CommitDecision(self.now, f"asked of {' '.join(row.id for row in rehearsal.rows)}")


class Waits(Takes, frozen=True, kw_only=True):
    name = "waits"

    now: bool = False


def judged(*parts: Policy) -> CommitDecision:
    """What a composition of these says of its own plan for the same four turns."""
    view = working().view(20_000)
    policy = Composed(parts=parts)
    return policy.moment(view, rehearse(view, policy.propose(view)))


def test_the_plan_is_the_compositions_whichever_part_acts() -> None:
    view = working().view(20_000)
    for parts in ((Takes(blocks=("B3",)), Waits()), (Takes(blocks=("B3",)), Waits(blocks=("B5",)))):
        plan = Composed(parts=parts).propose(view)
        assert plan.actor == "policy:takes+waits"
        assert plan.reason == f"takes: 1 stand; waits: {len(parts[1].blocks)} stand"
        assert [action.part for action in plan.actions] == [1, 2][: len(plan.actions)]


def test_only_a_part_that_acts_is_asked_of_the_moment_and_its_knobs_decide() -> None:
    assert judged(Takes(), Waits(blocks=("B3",))) == CommitDecision(False, "waits: asked of B3")
    assert judged(parse("keep"), Waits(blocks=("B3",))) == CommitDecision(False, "waits: asked of B3")
    assert judged(parse("scoped"), Takes(blocks=("B5",), now=False)).why.startswith("scoped: a task's scope")
    ask = Scripted(fold("conversation:user:1"), fold("conversation:user:2"))
    patient, eager = (low(ask=ask, share=share, calls=1.0) for share in (0.99, 0.1))
    assert not judged(parse("keep"), patient).now
    assert judged(parse("keep"), eager).now


def test_each_part_is_asked_of_what_it_wants_itself_and_goes_with_one_that_breaks_the_prefix() -> None:
    both = judged(Waits(blocks=("B3",)), Waits(blocks=("B5", "B7")))
    assert not both.now
    assert both.why.startswith("waits: asked of B3; including all other parts; ")
    assert both.cost > 0
    both = judged(Waits(blocks=("B3",)), Takes(blocks=("B5",)))
    assert both.now
    assert both.why.startswith("takes: asked of B5; including all other parts; ")


def test_a_composition_in_a_composition_is_one() -> None:
    inner = Composed(parts=(Takes(), Waits(blocks=("B3",))))
    assert Composed(parts=(inner, Takes())).parts == (*inner.parts, Takes())
    assert judged(inner, Takes()) == CommitDecision(False, "waits: asked of B3")


def test_a_planner_counts_new_tokens_from_its_last_round_in_a_composition_too() -> None:
    held = working(turns=8)
    ask = Scripted(fold("conversation:user:7"))
    policy = Composed(parts=(low(ask=ask, trigger=0.5, least=4_000), parse("keep")))
    rehearsal = rehearse(held.view(30_000), policy.propose(held.view(30_000)))
    held.ledger = rehearsal.after
    assert {row.removed_by for row in rehearsal.rows} == {"policy:planned+keep"}
    assert "since the last round, less than 4,000" in policy.propose(held.view(30_000)).reason


# --- in a session


def worked(place: Path, policy: str, *, steps: int) -> Session:
    """A session of many short turns, and one more of so many steps under the policy."""
    session = Session.open(place, "demo", model="claude-opus-4-5", budget=100_000, policy=policy)
    made = 0

    def step() -> None:
        nonlocal made
        made += 1
        call = {"type": "tool_use", "id": f"t{made}", "name": "sh", "input": {"cmd": f"look {made}"}}
        session.append({"role": "assistant", "content": [call]})
        output = WORDS * 60
        session.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{made}", "content": output}]}
        )

    for turn in range(12):
        session.append({"role": "user", "content": f"turn {turn}"})
        step()
        session.append({"role": "assistant", "content": "done"})
    session.append({"role": "user", "content": "a long one"})
    session.request()
    for _ in range(steps):
        step()
        session.request()
    return session


@pytest.mark.parametrize("words", ["mask:batch=1,age=3", "mask:batch=1,age=3+keep", "keep+mask:batch=1,age=3"])
def test_while_its_plan_waits_a_composition_makes_no_other(tmp_path: Path, words: str) -> None:
    with worked(tmp_path / "store", words, steps=4) as session:
        (held,) = session.pending()
        assert held.plan.actor == parse(words).actor
        assert "; waits: " in held.plan.reason


def test_a_plan_of_the_planner_that_waits_is_no_other_policys(tmp_path: Path) -> None:
    with worked(tmp_path / "store", "keep", steps=1) as session:
        theirs = session.propose(Plan(actions=(Action(verb="archive", targets=("B3",)),), actor="planner"))
        session.policy = Takes(blocks=("B7",))
        session.request()
        assert session.pending() == (theirs,)
        assert [row.id for row in session.ledger().rows() if not row.present] == ["B7"]


# --- what the harness is asked for


@pytest.mark.parametrize("other", ["layered", "default", "self_managed:wording=alt"])
@pytest.mark.parametrize("turned", [False, True])
def test_where_one_hides_the_way_back_nothing_of_the_others_tells_it(other: str, turned: bool) -> None:
    parts = ["self_managed:recover=off", other]
    terms = parse("+".join(reversed(parts) if turned else parts)).terms()
    assert not terms.handles
    assert READING.isdisjoint(terms.tools)
    assert "archive" in terms.tools
    assert not re.search("recover|restore|search|checksum", terms.protocol)


@pytest.mark.parametrize("spec", ["layered+episodes", "scoped+layered", "keep+mask"])
def test_what_left_is_within_reach_whatever_is_composed(spec: str) -> None:
    terms = parse(spec).terms()
    assert terms.handles
    assert {"recover", "search"} <= set(terms.tools)


def test_what_one_lacks_another_may_bring_and_the_text_fits_what_is_there() -> None:
    terms = parse("self_managed:archive=off+self_managed:dashboard=off").terms()
    lines = terms.protocol.split("\n\n")
    assert len(lines) == len(set(lines))
    assert context_text.paragraph("full") not in lines
    assert context_text.paragraph("want") in lines and "archive" in terms.tools
