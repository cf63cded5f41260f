"""A message of the Messages API as it comes in: what becomes of the reason for which a reply ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.session.append import message, stopped
from tests.making.provider import create

TEXT = {"type": "text", "text": "Well."}


@pytest.mark.parametrize(("stop", "kept"), [("max_tokens", "max_tokens"), ("end_turn", ""), (None, ""), (7, "")])
def test_why_a_reply_is_incomplete_is_known_until_something_comes_after_it(
    place: Path, stop: object, kept: str
) -> None:
    with create(place) as session:
        session.append({"role": "user", "content": "Go."})
        session.append({"role": "assistant", "content": "One, two, ", "stop_reason": stop})
        assert stopped(session.ledger()) == kept
        session.append({"role": "user", "content": "Go on.", "stop_reason": stop})
        assert stopped(session.ledger()) == ""


def test_only_the_last_part_of_a_reply_has_it() -> None:
    parts = message({"role": "assistant", "content": [TEXT, TEXT], "stop_reason": "refusal"}, "human").parts
    assert [part.extra for part in parts] == [{}, {"ctxvc": {"stop": "refusal"}}]


def test_a_message_of_nobody_but_the_model_has_it_and_no_empty_one() -> None:
    (part,) = message({"role": "user", "content": [TEXT], "stop_reason": "max_tokens"}, "human").parts
    assert part.extra == {}
    assert message({"role": "assistant", "content": [], "stop_reason": "max_tokens"}, "human").parts == ()
