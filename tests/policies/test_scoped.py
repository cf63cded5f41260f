"""Explicit scopes as a policy: each finished task leaves its notes, and nothing else of it stays in the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from ctxvc.core.ledger.block import Message
from ctxvc.core.plan import Action, Plan
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.view.view import measure
from ctxvc.policies.baselines import Keep
from ctxvc.policies.scoped import TOOLS, Scoped
from tests.making.conversation import LONG, human, injected, reply, step, steps
from tests.policies.laws import settled
from tests.policies.recorded import Run, moved, running, states

POLICY = Scoped()


def task(number: int, output: str = LONG) -> list[Message]:
    """What a human asks, two steps of work, and what the model says in the end."""
    learned = f"Task {number} is done: the helper in module {number} takes seconds, not minutes."
    work = [*step(10 * number, output), *step(10 * number + 1, output)]
    return [human(f"Please fix issue {number} of the list."), *work, reply(learned)]


# --- what leaves, and what stays of it


def test_a_finished_task_leaves_both_notes_and_the_humans_words_stay() -> None:
    """Section 1.5, asymmetric notes: why one went there, and what one came back with."""
    made = running(*task(1), *task(2))
    settled(POLICY, made, 128_000)
    (group,) = made.ledger.groups.values()
    header, went, came = group.stub.split("\n")
    assert header.startswith(f"[archived G1@{header[13:19]}, steps 1–3: 5 blocks, ")
    # As in any recorded text, a backslash keeps what begins like a note of ours from being taken for one.
    assert went == "\\[→ task-1] Please fix issue 1 of the list."
    assert came == "\\[← task-1] Task 1 is done: the helper in module 1 takes seconds, not minutes."
    assert states(made.ledger, "user") == ["visible", "visible"]
    assert states(made.ledger) == ["archived", "archived", "visible", "visible"]


def test_a_task_leaves_when_the_next_one_is_under_way_and_not_before() -> None:
    made = running(*task(1))
    assert not POLICY.propose(made.view()).actions
    made.append(human("Next"))
    plan = POLICY.propose(made.view())
    assert (plan.actions, plan.reason) == ((), "1,743 of 128,000 tokens: no task has finished since, 1,743 left")
    made.append(*step(99, LONG))
    rehearsal = settled(POLICY, made, 128_000)
    assert [row.id for row in rehearsal.rows] == ["B2", "B3", "B4", "B5", "B6"]
    moment = POLICY.moment(made.view(), rehearsal)
    assert moment.now
    assert moment.why.startswith("a task's scope was left; ") and "rewriting" in moment.why


def test_a_task_of_a_few_words_stays_since_its_notes_would_cost_more() -> None:
    made = running(human("Hello"), reply("Hello."), *task(2), human("Next"), reply("Yes."))
    settled(POLICY, made, 128_000)
    assert made.ledger["B2"].present
    assert [group.label[:10] for group in made.ledger.groups.values()] == ["[→ task-2]"]


def test_what_came_in_and_what_left_by_itself_goes_with_its_task() -> None:
    made = running(human("Fix it"), injected("reminder " * 50), *steps(4), reply("Fixed."), *task(2))
    archive = Plan(actions=(Action(verb="archive", targets=("B4",)),), actor="agent")
    moved(made, rehearse(made.view(), archive))
    settled(POLICY, made, 128_000)
    assert {made.ledger[f"B{number}"].group for number in range(2, 12)} == {"G1"}


def test_what_the_agent_took_back_out_of_a_task_stays() -> None:
    made = running(*task(1), *task(2))
    settled(POLICY, made, 128_000)
    back = Plan(actions=(Action(verb="restore", targets=("B3",)),), actor="agent")
    moved(made, rehearse(made.view(), back))
    assert not settled(POLICY, made, 128_000)
    assert made.ledger["B3"].present


def test_a_long_last_word_is_clipped_and_a_task_without_one_says_so() -> None:
    made = running(human("A"), *steps(2), reply("very long " * 400), human("B"), *steps(2, first=8), *task(3))
    settled(Scoped(note=100), made, 128_000)
    first, second = (group.stub.splitlines()[-1] for group in made.ledger.groups.values())
    assert first.startswith("\\[← task-1] very long very long") and len(first) < 120
    assert second == "\\[← task-2] 4 blocks, without a last word"


# --- the paper's token economics (sections 1.1 and 1.5)


def played(policy: Policy, tasks: Sequence[Sequence[Message]]) -> tuple[int, int]:
    """The largest prompt of a run under the policy, and the last one, in tokens; asked after each message."""
    made, peak = Run(), 0
    for message in (message for task in tasks for message in task):
        made.append(message)
        if message.role == "user":
            peak = max(peak, measure(made.ledger, made.view().price))
            moved(made, rehearse(made.view(), policy.propose(made.view())))
    return peak, measure(made.ledger, made.view().price)


def test_fifteen_tasks_in_scopes_peak_at_a_small_part_of_the_linear_run_and_a_single_one_gains_nothing() -> None:
    """Fifteen tasks that add about 780 tokens each: 12,059 at the peak there, 1,402 in scopes (88 % less), 801 at the
    end. Here the humans' words stay and each task's stub has an address, so that a little more remains. A task alone
    favours the linear conversation (section 1.5).
    """
    tasks = [task(number, LONG[:1_480]) for number in range(1, 16)]
    linear, _ = played(Keep(), tasks)
    scoped, last = played(POLICY, tasks)
    assert 11_000 < linear < 12_500
    assert scoped < 0.2 * linear
    assert last < scoped

    assert played(POLICY, [task(1)]) == played(Keep(), [task(1)])


def test_a_prompt_in_scopes_grows_with_the_notes_and_not_with_the_work() -> None:
    def ends(output: str) -> list[int]:
        return [played(POLICY, [task(n, output) for n in range(1, most)])[1] for most in (6, 11)]

    (short_5, short_10), (long_5, long_10) = ends(LONG), ends(LONG * 5)
    assert long_10 - long_5 < (short_10 - short_5) * 1.1


# --- what the harness is asked for


def test_the_agent_gets_the_four_commands_and_is_nudged_to_note_before_it_leaves() -> None:
    """Section 1.4: scope, goto, note, and to look at what there is."""
    terms = POLICY.terms()
    assert TOOLS == ("scope", "goto", "note", "scopes", "notes")
    assert terms.tools == (*TOOLS, "recover", "search", "dashboard")
    assert "Before you leave a scope, note what you learned" in terms.protocol
    assert "archive" not in terms.protocol
