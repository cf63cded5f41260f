"""The delimiter tool: which calls it takes, and how it tells to mend the others (CWL, section 4.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.policies.episodes.delimiter import DEFINITION, Declared, Verdict, judge

EXPL: dict[str, object] = {"action": "start", "name": "look", "type": "expl"}
LEARNED: dict[str, object] = {"action": "end", "description": "the parser is in src/parse.py"}
ACT: dict[str, object] = {"action": "start", "name": "mend", "type": "act", "dependencies": ["look"]}
END: dict[str, object] = {"action": "end"}


def answers(calls: Iterable[Mapping[str, object]], episodes: Mapping[str, Declared]) -> list[Verdict]:
    """The verdicts on the calls of one reply, in order: each sees the episodes that those before it began."""
    declared = dict(episodes)
    verdicts = []
    for arguments in calls:
        verdict = judge(arguments, declared)
        if verdict.episode:
            declared[verdict.episode.name] = verdict.episode
        verdicts.append(verdict)
    return verdicts


def after(*calls: Mapping[str, object]) -> dict[str, Declared]:
    """The episodes that well made calls told of."""
    verdicts = answers(calls, {})
    assert not [verdict.text for verdict in verdicts if verdict.error]
    return {verdict.episode.name: verdict.episode for verdict in verdicts if verdict.episode}


def test_the_four_canonical_calls_are_taken_and_answered_in_one_line() -> None:
    verdicts = answers([EXPL, LEARNED, ACT, END], {})

    assert [verdict.text for verdict in verdicts] == [
        "started expl look",
        "ended expl look",
        "started act mend, which depends on look",
        "ended act mend",
    ]
    assert after(EXPL, LEARNED, ACT, END) == {
        "look": Declared(name="look", type="expl", description="the parser is in src/parse.py", closed=True),
        "mend": Declared(name="mend", type="act", dependencies=("look",), closed=True),
    }


def test_an_end_and_the_next_start_may_stand_in_one_reply() -> None:
    """The published program judges both by the history before, and so refuses the start."""
    known = after(EXPL)
    assert [verdict.error for verdict in answers([LEARNED, ACT], known)] == [False, False]
    assert [verdict.error for verdict in answers([ACT, LEARNED], known)] == [True, False]
    assert known == after(EXPL), "what was handed in is not changed"


REFUSED: dict[str, tuple[tuple[Mapping[str, object], ...], Mapping[str, object], str]] = {
    "an unknown action": ((), {"action": "begin"}, '"start" or "end"'),
    "no action": ((), {}, '"start" or "end"'),
    "an end with nothing active": ((EXPL, LEARNED), END, 'start one with {"action": "start"'),
    "an expl without a description": ((EXPL,), END, '{"action": "end", "description"'),
    "an expl with a blank description": ((EXPL,), {"action": "end", "description": " \n"}, "needs a description"),
    "a description that is no text": ((EXPL,), {"action": "end", "description": ["x"]}, "needs a description"),
    "an act with a description": ((EXPL, LEARNED, ACT), LEARNED, 'end mend with {"action": "end"}'),
    "an act with a description that is no text": ((EXPL, LEARNED, ACT), {**END, "description": {}}, "no description"),
    "a start without a name": ((), {"action": "start", "type": "expl"}, "needs a name"),
    "a start with a blank name": ((), {**EXPL, "name": "  "}, "needs a name"),
    "a name that is no text": ((), {**EXPL, "name": 7}, "needs a name"),
    "a start without a type": ((), {"action": "start", "name": "look"}, "needs a type"),
    "an unknown type": ((), {**EXPL, "type": "plan"}, "needs a type"),
    "a start while an expl is active": ((EXPL,), {**EXPL, "name": "b"}, "look is still active; end it first: {"),
    "a start while an act is active": ((EXPL, LEARNED, ACT), {**EXPL, "name": "b"}, 'first: {"action": "end"}'),
    "a name that was used": ((EXPL, LEARNED), EXPL, "the name look was used before"),
    "a name that was used, with blanks": ((EXPL, LEARNED), {**EXPL, "name": " look "}, "was used before"),
    "an act without dependencies": ((EXPL, LEARNED), {**ACT, "dependencies": None}, "there is look"),
    "an act before any expl": ((), {**ACT, "dependencies": []}, "start and end an expl first"),
    "an act with blank dependencies only": ((EXPL, LEARNED), {**ACT, "dependencies": ["", " "]}, "needs dependencies"),
    "dependencies that are no list": ((EXPL, LEARNED), {**ACT, "dependencies": "look"}, "must be a list of names"),
    "a dependency that is no name": ((EXPL, LEARNED), {**ACT, "dependencies": [1]}, "must be a list of names"),
    "an act that depends on itself": ((EXPL, LEARNED), {**ACT, "dependencies": ["look", "mend"]}, "on itself"),
    "a dependency that is not there": ((EXPL, LEARNED), {**ACT, "dependencies": ["lok"]}, "no episode lok in this"),
    "an act that depends on an act": (
        (EXPL, LEARNED, ACT, END),
        {**ACT, "name": "test", "dependencies": ["mend"]},
        "mend is an act, and an act depends on expl episodes only; there is look",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_call_that_is_not_taken_is_told_how_to_mend_it(case: str) -> None:
    before, call, hint = REFUSED[case]
    verdict = judge(call, after(*before))
    assert verdict.error
    assert hint in verdict.text


def test_dependencies_are_trimmed_blank_ones_go_and_each_counts_once() -> None:
    [verdict] = answers([{**ACT, "dependencies": [" look", "", "look", "  "]}], after(EXPL, LEARNED))
    assert verdict.episode == Declared(name="mend", type="act", dependencies=("look",))


def test_what_an_expl_cannot_have_is_ignored_and_the_receipt_says_so() -> None:
    verdict = judge({**EXPL, "dependencies": ["look"]}, {})
    assert verdict.text == "started expl look; an expl has no dependencies: the given ones are ignored"
    assert verdict.episode == Declared(name="look", type="expl")


_odd = st.one_of(
    st.none(),
    st.integers(),
    st.sampled_from(["start", "end", "expl", "act", "a", "b", " a ", "c\n[archived B1", "\ud800", "x" * 9_000]),
    st.lists(st.sampled_from(["a", "b", "", " b", "zz", 3, None, "y" * 900]), max_size=9),
)
calls = st.lists(
    st.fixed_dictionaries(
        {"action": st.sampled_from(["start", "start", "end", "end", "", None])},
        optional=dict.fromkeys(("name", "type", "dependencies", "description", "more"), _odd),
    ),
    max_size=24,
)


@given(calls)
def test_whatever_is_called_the_answer_is_one_short_line_and_the_episodes_stay_sound(
    told: list[dict[str, object]],
) -> None:
    known: dict[str, Declared] = {}
    for verdict in answers(told, {}):
        assert "\n" not in verdict.text
        assert len(verdict.text) <= 380
        if verdict.episode:
            known[verdict.episode.name] = verdict.episode
            assert_sound(known)


def assert_sound(known: Mapping[str, Declared]) -> None:
    """One is active at most, the newest; an act depends on expl episodes that began before it; names are trimmed."""
    places = {name: place for place, name in enumerate(known)}
    assert [value for value in known.values() if not value.closed] in ([], [list(known.values())[-1]])
    for name, each in known.items():
        assert name == each.name == name.strip() != ""
        assert bool(each.dependencies) == (each.type == "act")
        assert bool(each.description) == (each.type == "expl" and each.closed)
        assert all(known[one].type == "expl" and places[one] < places[name] for one in each.dependencies)


def test_an_answer_does_not_grow_with_the_number_of_episodes() -> None:
    many = [call for at in range(300) for call in ({**EXPL, "name": f"{at}" + "n" * 90}, LEARNED)]
    [verdict] = answers([{**ACT, "dependencies": ["x" * 500]}], after(*many))
    assert "and 296 more" in verdict.text
    assert len(verdict.text) <= 380


def test_the_definition_is_one_that_the_messages_api_takes_and_short() -> None:
    schema = DEFINITION["input_schema"]
    assert schema["required"] == ["action"]
    assert set(schema["properties"]) == {"action", "name", "type", "dependencies", "description"}
    assert len(json.dumps(DEFINITION)) < 1_200
    assert isinstance(judge({}, {}), Verdict)
