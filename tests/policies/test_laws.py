"""Every policy, and some of them composed, on recorded runs and generated ones, at every budget: DESIGN's laws."""

from __future__ import annotations

import pytest

from ctxvc.core.policy import Policy
from ctxvc.policies import POLICIES, Composed, parse, spec
from tests.policies.cases import survives
from tests.policies.laws import BUDGETS, check, drive
from tests.policies.recorded import messages, run, trajectories

#: What is composed, besides each policy alone.
COMPOSED = ("layered+episodes", "scoped+layered", "planned+default", "mask+clear+window", "episodes+tool_prune")
ALL = (*(kind.name for kind in POLICIES), *COMPOSED)

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
@pytest.mark.parametrize("budget", BUDGETS[:2])
@pytest.mark.parametrize("words", ALL)
def test_the_laws_hold_all_along_many_runs(words: str, budget: int) -> None:
    for file in trajectories()[ALL.index(words) % 9 :: 9]:
        drive(parse(words), messages(file), budget)


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
