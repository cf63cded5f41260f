"""Streams as servers write them, with something missing: the values that the forms put together of their events."""

from __future__ import annotations

from typing import Any

from ctxvc.forms import anthropic, chat


def test_a_block_is_begun_by_its_first_piece_and_a_number_in_use_begins_another() -> None:
    def piece(index: object, kind: str, **text: str) -> tuple[str, dict[str, Any]]:
        return "content_block_delta", {"index": index, "delta": {"type": kind, **text}}

    events = [
        ("message_start", {"message": {"id": "m"}}),
        piece(0, "text_delta", text="a"),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": "b"}}),
        piece(0, "text_delta", text="c"),
        piece([1], "input_json_delta", partial_json='{"d'),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}}),
        ("message_delta", {"delta": {"stop_reason": None}}),
    ]
    message, complete, error = anthropic.assembled(events)

    assert message["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "bc"},
        {"type": "tool_use", "input": '{"d'},
    ]
    assert (message["stop_reason"], complete, error) == ("end_turn", False, "")


def test_a_piece_of_a_call_is_of_the_newest_of_its_number_or_of_the_newest_of_all() -> None:
    def piece(text: object, **fields: object) -> tuple[str, dict[str, Any]]:
        return "", {"choices": [{"delta": {"tool_calls": [{**fields, "function": {"arguments": text}}]}}]}

    events = [piece("a", index=0, id="1"), piece("b", index=0, id="2"), piece("c", index=0), piece({"d": 1})]
    completion, complete, _ = chat.assembled(events)

    calls = completion["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [("1", "a"), ("2", 'bc{"d":1}')]
    assert not complete
