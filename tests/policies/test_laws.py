"""The compliance suite of policies: the laws, for every one, some variants and some compositions, at every budget.

A new policy of the table is in it by being there; a variant that decides otherwise gets its words in `VARIANTS`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core.plan.guard import guard
from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.prompt import recover
from ctxvc.core.view.view import measure
from ctxvc.policies import POLICIES, parse, spec
from ctxvc.policies.composed import Composed
from ctxvc.session.session import Session
from tests.policies.cases import Talk, growing, survives, working
from tests.policies.laws import BUDGETS, check, check_generated, drive, keep, read_out
from tests.policies.recorded import Run, messages, run, sample, trajectories, transcript

#: What is composed, besides each policy alone.
COMPOSED = (
    "layered+episodes",
    "scoped+layered",
    "planned+default",
    "mask+clear+window",
    "episodes+tool_prune",
    "scoped+self_managed+clear",
)
#: Knobs with which a policy goes another way.
VARIANTS = (
    "self_managed:agent=off",
    "self_managed:archive=off",
    "episodes:derive=on",
    "episodes:derive=on,low_water=1.0,order=oldest",
)
ALL = (*(kind.name for kind in POLICIES), *VARIANTS, *COMPOSED)

#: The same, so eager that they have something to do in a short conversation.
EAGER = (
    "default:trigger=0,low_water=0",
    "planned:least=0",
    "episodes:ceiling=1,low_water=1.0,implicit=1",
    "episodes:ceiling=1,low_water=1.0,implicit=1,derive=on",
    "scoped:note=1",
    "clear:trigger=0,keep=0,least=0",
    "mask:age=1,batch=1",
    "skeleton:trigger=0,low_water=0,keep=0,least=0",
    "summary:trigger=0,keep=0,room=0.2,least=0",
    "layered:keep=1+episodes:implicit=1",
    "scoped:note=9+self_managed+clear:trigger=0,keep=0,least=0",
    "planned:least=0+default:trigger=0,low_water=0",
    "mask:age=1,batch=1+clear:trigger=0,keep=0,least=0+window",
)

#: Those that take nothing away by themselves, or only what is very large.
IDLE = ("keep", "self_managed", "self_managed:archive=off")

#: Conversations that are looked at and not changed.
MADE = (working(turns=9), growing())

needs_recordings = pytest.mark.skipif(not trajectories(), reason="CTXVC_TEST_DATA names no folder of recordings")
every_policy = pytest.mark.parametrize("words", ALL)


def own(files: Sequence[Path], words: str, count: int) -> list[tuple[Path, int]]:
    """So many of the files, others for each policy, with the number of the round, from 0."""
    start = ALL.index(words) * count
    return [(files[(start + number) % len(files)], number) for number in range(count)]


@needs_recordings
@every_policy
def test_the_laws_hold_on_recorded_runs(words: str) -> None:
    policy = parse(words)
    done = 0
    for number, file in enumerate(sample()):  # -m slow takes all files
        recorded = run(file)
        budget = BUDGETS[(ALL.index(words) + number) % len(BUDGETS) if number > 1 else 0]
        tried = check(policy, recorded.view(budget), recorded)
        assert not tried.problems, "something is proposed that is refused"
        done += bool(tried)
    assert done or words in IDLE, "the policy did nothing at all"


@needs_recordings
@every_policy
def test_the_laws_hold_all_along_a_run(words: str) -> None:
    files = [file for file in trajectories() if 20_000 < file.stat().st_size < 60_000]
    ((file, _),) = own([*files, *sample()[1:3]], words, 1)
    played = drive(parse(words), messages(file)[:150], BUDGETS[0], every=12)
    assert played.ledger.meta.counters.step
    _fits(played, BUDGETS[0])


def _fits(played: Run, budget: int) -> None:
    """The guard behind the policy brought the run into its budget, but for what humans wrote."""
    if guarded := guard(played.view(budget)):  # a last reply came after it
        keep(played, guarded)
    view = played.view(budget)
    own = sum(view.price.body(row) for row in view.ledger.rows() if row.origin == "human")
    assert measure(view.ledger, view.price) <= max(budget, own + budget // 2)


@needs_recordings
def test_fixed_rules_take_at_once_what_may_leave_beside_what_they_take() -> None:
    """`planned` took more when it was applied again: blocks too small for a stub joined a group that it had made."""
    (file,) = (file for file in trajectories() if file.name.startswith("entire-cli-26-2cf8fa0634-0."))
    recorded = run(file)
    check(parse("planned"), recorded.view(12_000), recorded)


@pytest.mark.slow
@needs_recordings
@pytest.mark.parametrize("budget", BUDGETS)
@every_policy
def test_the_laws_hold_on_all_recorded_runs(words: str, budget: int) -> None:
    policy = parse(words)
    for file in trajectories():
        recorded = run(file)
        check(policy, recorded.view(budget), recorded)


@pytest.mark.slow
@needs_recordings
@pytest.mark.parametrize("budget", BUDGETS)
@every_policy
def test_the_laws_hold_all_along_many_runs(words: str, budget: int) -> None:
    """Runs that the budget is too small for, as far as there are some."""
    every = 9 if budget in BUDGETS[:2] else 3
    for file in trajectories()[ALL.index(words) % every :: every]:
        recorded = run(file).view(budget)
        if budget in BUDGETS[:2] or measure(recorded.ledger, recorded.price) > budget / 2:
            drive(parse(words), messages(file), budget)


@pytest.mark.parametrize("words", (*ALL, *EAGER))
@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(data=st.data())
def test_the_laws_hold_on_generated_conversations(words: str, data: st.DataObject) -> None:
    check_generated(parse(words), data)


@pytest.mark.slow
@pytest.mark.parametrize("words", (*ALL, *EAGER))
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_the_laws_hold_on_many_generated_conversations(words: str, data: st.DataObject) -> None:
    check_generated(parse(words), data)


@pytest.mark.parametrize("budget", [4_000, 20_000])
@every_policy
def test_a_policy_plans_nothing_that_is_refused(words: str, budget: int) -> None:
    policy = parse(words)
    for made in MADE:
        view = made.view(budget)
        assert rehearse(view, policy.propose(view)).problems == ()


# --- in a store


@pytest.fixture(scope="module")
def recorded_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a recorded session."""
    place = tmp_path_factory.mktemp("laws") / ".ctxvc"
    with Session.open(place, "run", budget=10**6) as session:
        session.append(*transcript())
    return place


@pytest.mark.parametrize("words", ("default", "self_managed", "planned:least=0", "episodes", "window", EAGER[-1]))
def test_what_left_in_a_store_is_recovered_byte_for_byte_and_all_of_it_comes_back(
    words: str, recorded_store: Path, tmp_path: Path
) -> None:
    place = tmp_path / ".ctxvc"
    shutil.copytree(recorded_store, place, symlinks=True)
    policy = parse(words)
    with Session.open(place, "run", budget=6_000, policy=policy) as session:
        before = session.ledger()
        bodies = {row.id: session.body(row.id) for row in before.rows()}
        tried = session.commit(policy.propose(session.view()))
    gone = [row for row in tried.rows if before[row.id].present and not row.present]
    assert gone, "the policy took nothing away"
    with Session.open(place, "run") as session:  # as another process finds it
        assert {row.id for row in session.ledger().rows() if not row.present} >= {row.id for row in gone}
        for row in gone:
            assert [(read.id, body) for read, body in session.recover_bytes(row.handle)] == [(row.id, bodies[row.id])]
        row = max(gone, key=lambda row: row.bytes)
        assert read_out(row, session.body(row.id)) == recover.readable(row, bodies[row.id])
    with Session.open(place, "run", budget=10**6, actor="user") as session:
        assert not session.restore([row.id for row in tried.rows if row.state != before[row.id].state]).problems
        assert [row.state for row in session.ledger().rows()][: len(before)] == [row.state for row in before.rows()]
        assert {block: session.body(block) for block in bodies} == bodies


# --- the guard


def test_a_conversation_of_questions_and_long_answers_comes_below_the_budget() -> None:
    talk = Talk()
    for number in range(40):
        talk.says(f"And {number}?")
        talk.answers("It is a long story. " * 100)
    talk.says("Well?")
    guarded = guard(talk.run.view(12_000))
    assert guarded
    assert guarded.tokens_after <= 12_000


@every_policy
def test_the_papers_cases_survive_every_policy(words: str) -> None:
    assert any(survives(parse(words))) or words in IDLE


@every_policy
def test_a_policy_is_what_its_words_say(words: str) -> None:
    policy = parse(words)
    assert parse(spec(policy)) == policy
    parts = policy.parts if isinstance(policy, Composed) else (policy,)
    for part in parts:
        assert isinstance(part, Policy)
        assert part.name
        assert part.source
        assert part.__doc__
