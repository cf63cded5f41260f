"""The oracle as an entry beside policies, and the conversations in which a policy is above it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from ctxvc import policies
from ctxvc.errors import BadInput
from ctxvc.replay.conversation import Conversation, conversations
from ctxvc.replay.measures.retention import Counts, Split
from ctxvc.replay.results.comparison import above
from ctxvc.replay.results.result import Result, Visible
from ctxvc.replay.results.totals import advice, totals
from ctxvc.replay.run import Oracle, replay
from ctxvc.replay.work import Setup
from tests.replay.recordings import recording
from tests.replay.test_results_file import result

BUDGET = 6_000
parse = partial(policies.parse, more=(Oracle,))


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    (made,) = conversations(recording(tmp_path / "talk.jsonl", steps=12, lines=100))
    return made


def replayed(talk: Conversation, *names: str) -> dict[str, Result]:
    setups = [Setup(name, BUDGET) for name in names]
    return {own.policy: own for own in replay(talk, setups, parse=parse)}


def test_the_entry_shows_what_stands_beside_the_policy_at_whose_marks_it_is(talk: Conversation) -> None:
    made = replayed(talk, "window", "oracle:marks=window", "oracle:marks=window,results=on")
    window, oracle, belady = made.values()

    assert Visible(*(own.visible for own in _classes(oracle.retention))) == window.oracle == oracle.oracle
    assert Visible(*(own.visible for own in _classes(belady.retention))) == window.belady == belady.belady
    assert oracle.calls == window.calls and not oracle.over and oracle.tokens.peak <= BUDGET
    assert oracle.tokens.keep == window.tokens.keep
    assert oracle.tokens.total * 0.1 < oracle.cost.prompts < oracle.tokens.total * 1.25
    assert oracle.prefix_breaks and oracle.retention.all.lost == 0


def test_it_needs_no_run_of_that_policy_before_and_stands_beside_default_if_none_is_named(talk: Conversation) -> None:
    alone = replayed(talk, "oracle")["oracle"]

    assert msgspec.structs.replace(alone, policy="") == msgspec.structs.replace(
        replayed(talk, "default", "oracle:marks=default")["oracle:marks=default"], policy=""
    )


def test_no_session_can_be_run_under_it() -> None:
    with pytest.raises(BadInput, match="no policy 'oracle'"):
        policies.parse("oracle")


def test_it_is_never_recommended(talk: Conversation) -> None:
    best = advice(totals(replayed(talk, "oracle", "window").values()))

    assert best is not None and best.choice.policy == best.fullest.policy == "window"


def test_conversations_in_which_a_policy_is_clearly_above_it_are_listed() -> None:
    nt = Split(nt=Counts(visible=53, recoverable=47))
    rows = [
        result(conversation="above", retention=nt, oracle=Visible(nt=50)),
        result(conversation="further", retention=nt, oracle=Visible(nt=40)),
        result(conversation="nearly", retention=nt, oracle=Visible(nt=51)),
        result(conversation="over its budget", retention=nt, oracle=Visible(nt=40), over=1),
        result(conversation="the oracle's own", retention=nt, oracle=Visible(nt=40), policy="oracle:marks=window"),
        result(conversation="no uses", retention=Split(), oracle=Visible()),
    ]

    assert [(own.conversation, own.points, own.uses) for own in above(rows)] == [
        ("further", 13.0, 100),
        ("above", 3.0, 100),
    ]


def _classes(retention: Split) -> tuple[Counts, Counts, Counts]:
    return retention.all, retention.nt, retention.ar
