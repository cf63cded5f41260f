"""The words of blocks, and when a block was last used."""

from __future__ import annotations

import pytest

from ctxvc.core.plan.value import frequencies, last_uses, named_since, vocabulary, words_of
from tests.making.conversation import human, reply, result, results
from tests.policies.recorded import Run, running


def uses(run: Run) -> dict[str, int]:
    shown = [row for row in run.ledger.rows() if row.present]
    return last_uses(run.ledger, run.words, frequencies(run.ledger, shown, run.words))


def test_words_are_names_of_four_letters_and_numbers_of_four_digits_in_any_script_each_once() -> None:
    assert vocabulary("open src/rate_limit.py: 12 1234 if rate_limit fo") == ("open", "rate_limit", "1234")
    assert vocabulary("naïve_name café 1234 if rate_limit") == ("naïve_name", "café", "1234", "rate_limit")
    assert vocabulary("x1234 ٣٤٥٦ naïve") == ("x1234", "٣٤٥٦", "naïve")


def test_a_block_is_used_where_the_model_names_a_word_that_few_hold_and_it_was_the_newest_to() -> None:
    run = running(
        human("Fix it"),  # B1
        reply("", "a1"),
        results(result("a1", "alpha_name beta_name")),  # B3, step 1
        reply("", "b2"),
        results(result("b2", "alpha_name again")),  # B5, step 2
        reply("", "c3"),
        results(result("c3", "nothing here")),
        reply("I change beta_name now"),  # names B3, in step 4
    )
    steps = {row.id: row.step for row in run.ledger.rows()}
    newest = max(steps.values())
    assert uses(run)["B3"] == newest
    assert "B5" not in uses(run)

    parts = [message for at in range(14) for message in (reply("", f"c{at}"), results(result(f"c{at}", "common_word")))]
    run = running(human("Go"), *parts, reply("common_word it is"))
    assert not uses(run)


def test_what_the_newest_replies_name_is_their_words_and_not_those_of_results() -> None:
    run = running(
        human("Go"),
        reply("first_plan", "a1"),
        results(result("a1", "result_text")),
        reply("second_plan", "b2"),
        results(result("b2", "other_text")),
    )
    assert named_since(run.ledger, run.words, 2) == {"second_plan"}
    assert named_since(run.ledger, run.words, 0) >= {"first_plan", "second_plan"}
    assert not named_since(run.ledger, run.words, 0) & {"result_text", "other_text"}


def test_words_are_worked_out_once_for_a_checksum() -> None:
    run = running(human("Go"), reply("", "c1"), results(result("c1", "some_name")))
    row = run.ledger["B3"]
    first = words_of(run.ledger, row, run.words)
    assert words_of(run.ledger, row, lambda _row: "other words entirely") is first


@pytest.mark.timeout(60)
def test_hostile_text_has_few_words() -> None:
    """In the square of its length, it would take minutes."""
    for text in ("a" * 1_000_000, "_1" * 500_000, "9" * 1_000_000, "abc " * 250_000):
        assert len(vocabulary(text)) < 5
