"""How the provider counts is learned from what it reports; it moves thresholds and totals, never a byte of a prompt."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.errors import BadInput, UnknownVocabularyWarning
from ctxvc.session.session import Session
from ctxvc.store.read import revision
from ctxvc.store.store import create as create_store
from ctxvc.tokens import calibration as models
from ctxvc.tokens.calibration import (
    FORMERLY,
    MIN_SAMPLES,
    SILENT_REPLIES,
    Calibrating,
    Calibration,
    early,
    initial,
    is_guess,
)
from tests.making.provider import MODEL, WORDS, called, create

sizes = st.lists(st.integers(2_000, 150_000), min_size=30, max_size=30, unique=True)
NONE = Calibration()
slopes, offsets = st.integers(700, 2_500), st.integers(-500, 3_000)


def learned(
    ours: list[int], a: int, b: int, reported: dict[int, int] | None = None, start: Calibration = NONE
) -> Calibration:
    """The calibration after a prompt of each of these sizes, whose replies report a·ours + b, or what is `reported`."""
    calibrating, known, guess = Calibrating(), start, initial("llama", 8_000)
    for at, tokens in enumerate(ours):
        calibrating.sent("main", tokens)
        told = (reported or {}).get(at, tokens * a // 1000 + b)
        known = calibrating.replied("main", {"input_tokens": told}, known, MODEL, guess) or known
    return known


def near(found: Calibration, a: int, b: int) -> bool:
    return all(abs(found.actual(n) - (n * a // 1000 + b)) <= n // 100 + 150 for n in (2_000, 20_000, 150_000))


@given(sizes, slopes, offsets)
def test_after_enough_replies_a_prompt_is_known_as_the_provider_counts_it(ours: list[int], a: int, b: int) -> None:
    assert near(learned(ours, a, b), a, b)


@given(sizes, st.integers(600, 2_500), st.integers(0, 1_500), st.integers(1, MIN_SAMPLES - 1))
def test_from_the_first_reply_on_a_larger_prompt_is_not_underestimated(
    ours: list[int], a: int, b: int, replies: int
) -> None:
    calibration = learned(ours[:replies], a, b, start=Calibration(1_500, 0))
    newest = ours[replies - 1]
    for size in (newest, newest * 2, 200_000):
        if size >= newest:
            assert calibration.actual(size) * 1.011 + 2 >= size * a // 1000 + b
    assert calibration.actual(newest) <= max(1.15 * (newest * a // 1000 + b) + 16, 1.06 * (newest * 1.5))


def test_a_line_from_one_reply_is_that_of_its_ratio_and_a_tenth() -> None:
    # 3,500 of ours are 6,000 with a factor of 1.6 and 400 for the template: 1.7143, and a tenth above it 1.8858
    assert early([(3_500, 6_000)]) == Calibration(1_886, 0)
    # 300 of ours are mostly template: a factor of 2, and the rest of 880 is 280 more; a tenth above both
    assert early([(300, 880)]) == Calibration(2_200, 308)
    # between 3,500 and 5,500 of ours lie 3,200 of theirs: the slope is 1.6, and the rest 400; a twentieth above both
    assert early([(3_500, 6_000), (5_500, 9_200)]) == Calibration(1_680, 420)


def test_a_first_reply_replaces_a_guess_in_both_directions_and_a_known_line_is_only_raised() -> None:
    guess = initial("llama", 8_000)
    for nonsense in (1, 300, 20_000):  # it reports no size of its prompt
        assert learned([5_000], 0, nonsense, start=guess) == guess
    for a in (1_000, 2_900):
        assert abs(learned([5_000], a, 0, start=initial("llama", 8_000)).a_milli - 1.1 * a) < 2
    assert learned([5_000], 1_000, 0, start=Calibration(1_340, 20)) == Calibration(1_340, 20)
    assert learned([5_000], 1_600, 0, start=Calibration(1_340, 20)).a_milli == 1_760
    assert learned([5_000, 5_100, 5_200], 1_000, 0, start=Calibration(1_340, 20)).a_milli < 1_040


@given(sizes, slopes, offsets, st.integers(0, 29), st.integers(1, 3_000_000))
def test_one_reply_that_reports_nonsense_changes_nothing_much(
    ours: list[int], a: int, b: int, at: int, nonsense: int
) -> None:
    assert near(learned(ours, a, b, {at: nonsense}), a, b)


def test_where_the_replies_fix_no_line_what_was_learned_before_stays() -> None:
    assert learned([9_000] * 30, 1_340, 20, start=Calibration(1_340, 20)) == Calibration(1_340, 20)
    assert learned([9_000] * 30, 1_500, 0, start=Calibration(1_340, 20)) == Calibration(1_550, 0)


def test_what_one_model_reported_says_nothing_of_another() -> None:
    calibrating = Calibrating()
    for at in range(15):
        calibrating.sent("main", 1_000 * at + 500)
        assert not calibrating.replied("main", {"input_tokens": 2_000 * at + 1_000}, (2000, 0), "claude-opus-5")
    calibrating.sent("main", 9_000)
    line = calibrating.replied("main", {"input_tokens": 9_000}, (1200, 0), "claude-opus-4-5")
    assert line == Calibration(1_100, 0), "the line of one reply, not of sixteen"


# --- in a session


@pytest.mark.parametrize(
    ("model", "calibration"),
    [(MODEL, (1_500, 0)), ("claude-opus-4-5", (1_200, 0)), ("gpt-4o", (1_000, 0)), ("", (1_000, 0))],
)
def test_a_new_session_begins_with_what_is_known_of_its_model_and_another_keeps_its_own(
    place: Path, model: str, calibration: tuple[int, int]
) -> None:
    for _ in range(2):
        with Session.open(place, "demo", model=model) as session:
            assert session.ledger().meta.calibration == calibration
    with create_store(place.with_name("other")) as store:
        store.create_session("demo", model=model)
    with Session.open(place.with_name("other"), "demo", model=model) as session:
        assert session.ledger().meta.calibration == (1_000, 0)


@pytest.mark.parametrize(
    ("model", "window", "calibration"),
    [
        ("qwen3-coder", 8_192, (1_400, 512)),
        ("qwen3-coder", 131_072, (1_000, 0)),
        ("gpt-4o", 8_192, (1_000, 0)),
        (MODEL, 8_192, (1_500, 0)),
    ],
)
def test_of_a_model_that_nobody_knows_the_worst_is_assumed_where_its_window_is_small(
    place: Path, model: str, window: int, calibration: tuple[int, int]
) -> None:
    with Session.open(place, "demo", model=model, budget=window) as session:
        assert session.ledger().meta.calibration == calibration
        session.set(budget=131_072)
        session.set(budget=window)
        assert session.ledger().meta.calibration == calibration
        session.set(calibration=(1_100, 7), budget=9_000)
        session.set(budget=window)
        assert session.ledger().meta.calibration == (1_100, 7)


Replies = Callable[[int], object]


def silent(_: int) -> object:
    return None


def in_dictionary(counted: int) -> object:
    return {"prompt_tokens": counted * 13 // 10, "completion_tokens": 3}


class Usage(NamedTuple):
    """The usage of a provider's client."""

    input_tokens: int

    def model_dump(self) -> dict[str, int]:
        return self._asdict()


def work(session: Session, replies: int, usage: Replies = silent) -> list[str]:
    """A loop of so many replies, and one request more; gives the warnings."""
    session.append({"role": "user", "content": "go"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for at in range(replies):
            session.request()
            called(session, at, f"{at} {WORDS}" * 50, usage=usage(session.view().counted))
        session.request()
    assert all(issubclass(one.category, UnknownVocabularyWarning) for one in caught)
    return [f"{one.filename}: {one.message}" for one in caught]


def test_a_guess_that_no_reply_replaces_is_warned_of_once_with_both_ways_out(place: Path) -> None:
    with Session.open(place, "demo", model="qwen3-coder", budget=32_000) as session:
        assert not work(session, SILENT_REPLIES - 1)
        (told,) = work(session, 1)
        assert told.startswith(__file__) and "`model=`" in told and "`tokens_per_count=`" in told
        assert not work(session, 3)
        assert "vocabulary" not in json.dumps(session.prompt().messages), "it is for people"


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"model": "qwen3-coder", "budget": 32_000}, in_dictionary),
        ({"model": "qwen3-coder", "budget": 32_000}, lambda counted: Usage(counted * 13 // 10)),
        ({"model": "gpt-4o", "budget": 32_000}, silent),
        ({"model": "qwen3-coder", "budget": 131_072}, silent),
        ({"budget": 32_000, "tokens_per_count": 1.2}, silent),
    ],
)
def test_of_what_is_known_is_not_warned(place: Path, fields: dict[str, Any], usage: Replies) -> None:
    with Session.open(place, "demo", **fields) as session:
        assert not work(session, SILENT_REPLIES + 2, usage)
        assert not is_guess(session.ledger().meta.calibration)


def test_tokens_per_count_holds_until_a_reply_reports_more(place: Path) -> None:
    with Session.open(place, "demo", model="qwen3-coder", budget=32_000, tokens_per_count=1.25) as session:
        work(session, 3)
        assert session.ledger().meta.calibration == (1_250, 0)
    with Session.open(place, "demo") as session:
        assert session.ledger().meta.calibration == (1_250, 0), "it is in the session"
    with Session.open(place, "demo", tokens_per_count=2.5) as session:
        assert session.ledger().meta.calibration == (2_500, 0)
        work(session, 1, in_dictionary)
        assert 1_300 <= session.ledger().meta.calibration[0] <= 1_500, "a first report replaces what a person gave"


def test_the_guess_of_former_versions_is_replaced_when_a_session_is_opened(place: Path) -> None:
    with Session.open(place, "demo", model="qwen3-coder", budget=32_000) as session:
        session.set(calibration=tuple(FORMERLY))
        assert is_guess(session.ledger().meta.calibration)
    with Session.open(place, "demo") as session:
        assert session.ledger().meta.calibration == tuple(initial("qwen3-coder", 32_000)) != tuple(FORMERLY)


@pytest.mark.parametrize("tokens_per_count", [0.2, 3.5, -1, float("nan")])
def test_a_factor_that_no_vocabulary_has_is_refused(place: Path, tokens_per_count: float) -> None:
    with pytest.raises(BadInput, match="tokens of one of ours"):
        Session.open(place, "demo", budget=32_000, tokens_per_count=tokens_per_count)


def replies(session: Session, count: int, a: int = 1_200, b: int = 300) -> None:
    session._calibrating = Calibrating()
    for at in range(count):
        session.append({"role": "user", "content": f"{at} {WORDS}" * (3 + at)})
        session.request()
        asked = session.view().counted
        usage = {"input_tokens": 10, "cache_read_input_tokens": asked * a // 1000 + b - 10}
        session.append({"role": "assistant", "content": [{"type": "text", "text": "So."}], "usage": usage})


def settings(session: Session) -> list[str]:
    session.stored.flush()
    history = revision.history(session.store, session.stored.tip())
    return [each.subject for each in history if each.trailers.get("Ctxvc-Op") == "settings"]


def test_what_is_learned_is_one_commit_and_moves_the_totals(place: Path) -> None:
    with create(place, budget=128_000) as session:
        replies(session, MIN_SAMPLES)
        before = len(settings(session)) - 1
        a, b = session.ledger().meta.calibration
        assert near(Calibration(a, b), 1_200, 300)
        assert settings(session)[0] == f"settings: calibration {a / 1000:g} × our count + {b} tokens"
        replies(session, 2 * MIN_SAMPLES)
        assert len(settings(session)) == before + 1, "what is known already is not recorded again"
        assert session.used() == session.view().used


def test_a_calibration_changes_no_byte_of_a_prompt(place: Path) -> None:
    with create(place, budget=32_000) as session:
        replies(session, 12)
        session.append({"role": "user", "content": "Go on."})
        session.archive("B2-B5")
        before = session.prompt()
        session.set(calibration=(1_300, 900))
        assert session.prompt().digest == before.digest
        assert session.prompt().body() == before.body()


@pytest.mark.parametrize("calibration", [(1_000, 0), (1_500, 0), (2_500, 400)])
def test_asking_again_gives_the_same_bytes_and_commits_nothing_however_the_provider_counts(
    place: Path, calibration: tuple[int, int]
) -> None:
    with create(place, budget=12_000) as session:
        session.set(calibration=calibration)
        session.append({"role": "user", "content": "go"})
        for at in range(30):
            called(session, at, f"{at} {WORDS}" * (20 + at % 7))
            first = session.request()
            stands = session.stored.tip(), session.stored.waiting()
            assert session.request().digest == first.digest
            assert (session.stored.tip(), session.stored.waiting()) == stands


# --- another model


def test_another_model_brings_its_own_window_thresholds_and_calibration_before_the_next_call(place: Path) -> None:
    with Session.open(place, "demo", model=MODEL) as session:
        session.append({"role": "user", "content": "Look."})
        for at in range(18):
            called(session, at, f"{at} {WORDS}" * 500)
        session.request()
        assert session.budget.window == 1_000_000
        assert {row.state for row in session.ledger().rows() if row.kind == "tool_result"} == {"visible"}
        assert session.used() > 200_000

        session.set(model="gpt-4o")

        assert session.ledger().meta.calibration == tuple(models.initial("gpt-4o"))
        assert session.budget.window == 128_000
        assert session.budget.clear < 128_000
        session.request()
        assert session.used() <= session.budget.guard
        assert "archived" in {row.state for row in session.ledger().rows()}


def test_the_dated_name_of_a_model_is_no_switch(place: Path) -> None:
    with Session.open(place, "demo", model="claude-opus-4-5") as session:
        session.set(calibration=(1_111, 11))
        session.set(model="claude-opus-4-5-20251101")
        assert session.ledger().meta.calibration == (1_111, 11)
        session.set(model="claude-opus-4-6")
        assert session.ledger().meta.calibration == (1_200, 0)


def test_thinking_of_another_model_leaves_also_where_one_name_begins_with_the_other(place: Path) -> None:
    with Session.open(place, "demo", model="claude-opus-5") as session:
        thought = {"type": "thinking", "thinking": "hm", "signature": "abc"}
        asked = {"type": "tool_use", "id": "c", "name": "sh", "input": {}}
        session.append({"role": "user", "content": "Look."})
        session.append({"role": "assistant", "content": [thought, asked]})
        session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "so"}]})
        session.append({"role": "assistant", "content": [{"type": "text", "text": "Seen."}]})
        session.append({"role": "user", "content": "Thanks."}, origin="client")
        assert "'thinking'" in str(session.prompt().messages)
        session.set(model="claude-opus-5-5")
        assert "'thinking'" not in str(session.prompt().messages)
