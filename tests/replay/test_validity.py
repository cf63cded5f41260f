"""The independent check of a prompt's messages."""

from __future__ import annotations

from typing import Any

import pytest

from ctxvc.replay.drive import faults


def _user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "sh", "input": {}}


def _result(name: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": "out"}


VALID = [_user(_text("q")), _model(_call("a"), _call("b")), _user(_result("b"), _result("a"), _text("and?"))]


def test_a_valid_prompt_has_no_faults() -> None:
    assert not list(faults(VALID))
    assert not list(faults([{"role": "user", "content": "q"}]))


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "no message"),
        ([_model(_text("a")), _user(_text("q"))], "the first message is not the user's"),
        (
            [_user(_text("q")), _model(_call("a")), _user(_text("x"))],
            "answers calls that are not in the message before it",
        ),
        ([_user(_text("q")), _user(_result("a"))], "answers calls that are not in the message before it"),
        (
            [_user(_text("q")), _model(_call("a")), _user(_result("a"), _result("a"))],
            "answers calls that are not in the message before it",
        ),
        ([_user(_text("q")), _model(_call("a")), _user(_text("x"), _result("a"))], "before its results"),
        ([_user(_text("q")), _model(_call("a")), _model(_text("x")), _user(_result("a"))], "before the results"),
        ([*VALID, _model(_call("a")), _user(_result("a"))], "repeats the id"),
        ([_user(_text(" \n"))], "an empty text"),
        ([_user(_text("q")), _user()], "is empty"),
        ([_user(_text("q")), _model(_call("a"))], "have no results"),
        ([_user(_text("q")), _model(_text("a"))], "the last message is the model's"),
    ],
)
def test_each_fault_is_seen(messages: list[dict[str, Any]], fault: str) -> None:
    assert any(fault in line for line in faults(messages))
