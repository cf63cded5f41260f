"""How the provider counts is learned from what it reports; it moves thresholds and totals, never a byte of a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.session.session import Session
from ctxvc.store import revision
from ctxvc.store.store import create as create_store
from ctxvc.tokens import calibration as models
from ctxvc.tokens.calibration import MIN_SAMPLES, Calibrating, Calibration
from tests.making.provider import MODEL, WORDS, create

sizes = st.lists(st.integers(2_000, 150_000), min_size=30, max_size=30, unique=True)
NONE = Calibration()
slopes, offsets = st.integers(700, 2_500), st.integers(-500, 3_000)


def learned(
    ours: list[int], a: int, b: int, reported: dict[int, int] | None = None, start: Calibration = NONE
) -> Calibration:
    """The calibration after a prompt of each of these sizes, whose replies report a·ours + b, or what is `reported`."""
    calibrating, known = Calibrating(), start
    for at, tokens in enumerate(ours):
        calibrating.sent("main", tokens)
        told = (reported or {}).get(at, tokens * a // 1000 + b)
        known = calibrating.replied("main", {"input_tokens": told}, known, MODEL) or known
    return known


def near(found: Calibration, a: int, b: int) -> bool:
    return all(abs(found.actual(n) - (n * a // 1000 + b)) <= n // 100 + 150 for n in (2_000, 20_000, 150_000))


@given(sizes, slopes, offsets)
def test_after_enough_replies_a_prompt_is_known_as_the_provider_counts_it(ours: list[int], a: int, b: int) -> None:
    assert near(learned(ours, a, b), a, b)
    assert learned(ours[: MIN_SAMPLES - 1], a, b) == Calibration()


@given(sizes, slopes, offsets, st.integers(0, 29), st.integers(1, 3_000_000))
def test_one_reply_that_reports_nonsense_changes_nothing_much(
    ours: list[int], a: int, b: int, at: int, nonsense: int
) -> None:
    assert near(learned(ours, a, b, {at: nonsense}), a, b)


def test_where_the_replies_fix_no_line_what_was_learned_before_stays() -> None:
    assert learned([9_000] * 30, 1_500, 0, start=Calibration(1_340, 20)) == Calibration(1_340, 20)


def test_what_one_model_reported_says_nothing_of_another() -> None:
    calibrating = Calibrating()
    for at in range(15):
        calibrating.sent("main", 1_000 * at + 500)
        assert not calibrating.replied("main", {"input_tokens": 2_000 * at + 1_000}, (1000, 0), "claude-opus-5")
    for at in range(15):
        calibrating.sent("main", 1_000 * at + 500)
        assert not calibrating.replied("main", {"input_tokens": 1_000 * at + 500}, (1200, 0), "claude-opus-4-5")


# --- in a session


@pytest.mark.parametrize(
    ("model", "calibration"),
    [(MODEL, (1_500, 0)), ("claude-opus-4-5", (1_200, 0)), ("gpt-4o", (1_000, 0)), ("", (1_000, 0))],
)
def test_a_new_session_begins_with_what_is_known_of_its_model(
    place: Path, model: str, calibration: tuple[int, int]
) -> None:
    for _ in range(2):
        with Session.open(place, "demo", model=model) as session:
            assert session.ledger().meta.calibration == calibration


def test_a_session_that_was_there_keeps_its_own_calibration(place: Path) -> None:
    with create_store(place) as store:
        store.create_session("demo", model=MODEL)
    with Session.open(place, "demo", model=MODEL) as session:
        assert session.ledger().meta.calibration == (1_000, 0)


def replies(session: Session, count: int, a: int = 1_200, b: int = 300) -> None:
    for at in range(count):
        session.append({"role": "user", "content": f"{at} {WORDS}" * (3 + at)})
        session.request()
        asked = session.view().counted
        session.append(
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "So."}],
                "usage": {"input_tokens": 10, "cache_read_input_tokens": asked * a // 1000 + b - 10},
            }
        )


def settings(session: Session) -> list[str]:
    session.stored.flush()
    history = revision.history(session.store, session.stored.tip())
    return [each.subject for each in history if each.trailers.get("Ctxvc-Op") == "settings"]


def test_what_is_learned_is_one_commit_and_moves_the_totals(place: Path) -> None:
    with create(place, budget=128_000) as session:
        before = len(settings(session))
        replies(session, MIN_SAMPLES - 1)
        assert len(settings(session)) == before
        replies(session, 1)
        a, b = session.ledger().meta.calibration
        assert near(Calibration(a, b), 1_200, 300)
        assert settings(session)[0] == f"settings: calibration ({a}, {b})"
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
            asked = {"type": "tool_use", "id": f"c{at}", "name": "sh", "input": {}}
            session.append({"role": "assistant", "content": [asked]})
            answer = {"type": "tool_result", "tool_use_id": f"c{at}", "content": f"{at} {WORDS}" * (20 + at % 7)}
            session.append({"role": "user", "content": [answer]})
            first = session.request()
            stands = session.stored.tip(), session.stored.waiting()
            assert session.request().digest == first.digest
            assert (session.stored.tip(), session.stored.waiting()) == stands


# --- another model


def test_another_model_brings_its_own_window_thresholds_and_calibration_before_the_next_call(place: Path) -> None:
    with Session.open(place, "demo", model=MODEL) as session:
        session.append({"role": "user", "content": "Look."})
        for at in range(18):
            asked = {"type": "tool_use", "id": f"c{at}", "name": "sh", "input": {}}
            session.append({"role": "assistant", "content": [asked]})
            answer = {"type": "tool_result", "tool_use_id": f"c{at}", "content": f"{at} {WORDS}" * 500}
            session.append({"role": "user", "content": [answer]})
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
