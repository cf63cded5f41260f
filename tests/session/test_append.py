"""A message of the Messages API as it comes in: the reason for which a reply ended, and what is counted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.view.budget import HUMAN_PASTE
from ctxvc.session.append import message, stopped
from ctxvc.tokens.meter import Meter
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


def test_a_text_is_counted_once_something_depends_on_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    count = Meter.bodies

    def counting(
        meter: Meter, blocks: Iterable[tuple[Row, Bodies]], model: str, *, fresh: bool = False
    ) -> dict[str, int]:
        blocks = list(blocks)
        counted.extend(row.id for row, _ in blocks)
        return count(meter, blocks, model, fresh=fresh)

    monkeypatch.setattr(Meter, "bodies", counting)
    with create(place) as session:
        for number in range(3):
            session.append({"role": "user", "content": f"Go {number}."})
            session.append({"role": "assistant", "content": "Gone."})
        assert counted == []
        session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]})
        session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "b c"}]})
        assert sorted(counted) == [f"B{number}" for number in range(1, 9)]
        session.append({"role": "user", "content": "word " * (HUMAN_PASTE + 1)})
        assert counted[8:] == ["B9"]
