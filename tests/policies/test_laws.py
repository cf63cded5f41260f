"""Every policy, and some of them composed, on recorded runs and generated ones, at every budget: the laws."""

from __future__ import annotations

import shutil
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
from ctxvc.store.git import program
from tests.core.strategies import conversations, plans
from tests.policies.cases import Talk, survives
from tests.policies.laws import BUDGETS, check, drive, read_out
from tests.policies.recorded import messages, run, trajectories
from tests.policies.test_baselines import moved, running, transcript

#: What is composed, besides each policy alone.
COMPOSED = (
    "layered+episodes",
    "scoped+layered",
    "planned+default",
    "mask+clear+window",
    "episodes+tool_prune",
    "scoped+self_managed+clear",
)
ALL = (*(kind.name for kind in POLICIES), *COMPOSED)

#: The same, so eager that they have something to do in a short conversation.
EAGER = (
    "layered:keep=1+episodes:implicit=1",
    "scoped:note=9+self_managed+clear:trigger=0,keep=0,least=0",
    "planned:least=0+default:keep=1,low_water=0,least=0",
    "mask:age=1,batch=1+clear:trigger=0,keep=0,least=0+window",
)

#: What is tried in a store.
STORED = ("default", "self_managed", "planned:least=0", "layered", "episodes", "window", *EAGER)

#: Every so many recorded runs is tried in the ordinary suite, another one for each policy.
EVERY = 27

needs_recordings = pytest.mark.skipif(not trajectories(), reason="CTXVC_TEST_DATA names no folder of recordings")


@needs_recordings
@pytest.mark.parametrize("words", ALL)
def test_the_laws_hold_on_recorded_runs(words: str) -> None:
    policy = parse(words)
    done = 0
    for file in trajectories()[ALL.index(words) % EVERY :: EVERY]:
        recorded = run(file)
        for budget in BUDGETS:
            done += bool(check(policy, recorded.view(budget), recorded))
    assert done or words in ("keep", "self_managed"), "the policy did nothing at all"


@needs_recordings
@pytest.mark.parametrize("words", ALL)
def test_the_laws_hold_all_along_a_run(words: str) -> None:
    files = [file for file in trajectories() if 20_000 < file.stat().st_size < 60_000]
    drive(parse(words), messages(files[ALL.index(words) % len(files)]), BUDGETS[0], every=12)


@pytest.mark.slow
@needs_recordings
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("words", ALL)
def test_the_laws_hold_on_all_recorded_runs(words: str, budget: int) -> None:
    policy = parse(words)
    for file in trajectories():
        recorded = run(file)
        check(policy, recorded.view(budget), recorded)


@pytest.mark.slow
@needs_recordings
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("words", ALL)
def test_the_laws_hold_all_along_many_runs(words: str, budget: int) -> None:
    """Runs that the budget is too small for, as far as there are some."""
    every = 9 if budget in BUDGETS[:2] else 3
    for file in trajectories()[ALL.index(words) % every :: every]:
        recorded = run(file).view(budget)
        if budget in BUDGETS[:2] or measure(recorded.ledger, recorded.price) > budget / 2:
            drive(parse(words), messages(file), budget)


def on_generated(policy: Policy, data: st.DataObject) -> None:
    """The laws on a generated conversation, of which something may have left already, at a budget of the four that is
    to what the conversation costs as it is to 128,000 tokens."""
    made = running(*data.draw(conversations(odd=False, unique_calls=True)))
    for _ in range(data.draw(st.integers(0, 2))):
        if made.ledger.rows():
            moved(made, rehearse(made.view(10**6), data.draw(plans(made.ledger, actors=["agent", "guard"]))))
    view = made.view()
    cost = measure(view.ledger, view.price)
    check(policy, made.view(max(1, cost * data.draw(st.sampled_from(BUDGETS)) // BUDGETS[-1])), made)


@pytest.mark.parametrize("words", EAGER)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_laws_hold_for_compositions_on_generated_conversations(words: str, data: st.DataObject) -> None:
    on_generated(parse(words), data)


@pytest.mark.slow
@pytest.mark.parametrize("words", (*ALL, *EAGER))
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_the_laws_hold_on_many_generated_conversations(words: str, data: st.DataObject) -> None:
    on_generated(parse(words), data)


# --- in a store


@pytest.fixture(scope="module")
def recorded_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a recorded session."""
    place = tmp_path_factory.mktemp("laws") / ".ctxvc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_CONFIG", (*program._CONFIG, "core.fsync=none"))
        with Session.open(place, "run", budget=10**6) as session:
            session.append(*transcript())
    return place


@pytest.mark.parametrize(
    "words", ("default", "self_managed", "planned:least=0", "layered", "episodes", "window", *EAGER)
)
def test_what_left_in_a_store_is_recovered_byte_for_byte_and_all_of_it_comes_back(
    words: str, recorded_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_CONFIG", (*program._CONFIG, "core.fsync=none"))
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


@pytest.mark.parametrize("words", ALL)
def test_the_papers_cases_survive_every_policy(words: str) -> None:
    survives(parse(words))


@pytest.mark.parametrize("words", ALL)
def test_a_policy_is_what_its_words_say(words: str) -> None:
    policy = parse(words)
    assert parse(spec(policy)) == policy
    parts = policy.parts if isinstance(policy, Composed) else (policy,)
    for part in parts:
        assert isinstance(part, Policy)
        assert part.name
        assert part.source
        assert part.__doc__
