"""Requests as values: one hash for what means the same, breakpoints where the provider takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.prompt.request import BREAKPOINTS, Request, canonical, request, up_to
from tests.making.generated import bodies_of, conversations, numbered

MARK = {"type": "ephemeral"}


def made(*messages: tuple[str, Any], **fields: Any) -> Request:
    return Request(
        model="m",
        messages=[
            {"role": role, "content": [{"type": "text", "text": given}] if isinstance(given, str) else given}
            for role, given in messages
        ],
        **fields,
    )


def marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(marks, value))
    return (value.get("cache_control") == MARK) + sum(map(marks, value.values())) if isinstance(value, dict) else 0


TURNS = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e"), ("assistant", "f"),
         ("user", "g")]  # fmt: skip


def test_the_hash_is_of_canonical_json_whatever_the_order_of_keys() -> None:
    one = Request(model="m", messages=[{"role": "user", "content": [{"type": "text", "text": "é"}]}], system="s")
    other = Request(model="n", messages=[{"content": [{"text": "é", "type": "text"}], "role": "user"}], system="s")
    assert one.digest == other.digest
    assert len(one.digest) == 64
    assert one.digest != made(("user", "é")).digest
    assert one.digest != made(("user", "e"), system="s").digest
    assert canonical({"b": [1, {"d": None, "c": "x y"}], "a": True}) == b'{"a":true,"b":[1,{"c":"x y","d":null}]}'


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_canonical_json_is_read_back_also_with_half_a_pair(words: str) -> None:
    assert json.loads(canonical({"text": words})) == {"text": words}


def test_marks_do_not_change_the_hash_nor_the_request() -> None:
    plain = made(*TURNS, system="s", tools=({"name": "t"},))
    before = plain.digest
    assert marks(plain.body(marked=True))
    assert plain.digest == before
    assert not marks(plain.body())


@pytest.mark.parametrize("system", [None, "", "s", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]])
@pytest.mark.parametrize("tools", [(), ({"name": "t"}, {"name": "u"})])
def test_there_are_no_more_breakpoints_than_the_provider_takes(system: Any, tools: tuple[Any, ...]) -> None:
    body = made(*TURNS, system=system, tools=tools).body(marked=True)
    assert marks(body) == BREAKPOINTS - (not system and not tools)
    assert ("system" in body) == bool(system)
    assert not system or body["system"][-1]["cache_control"] == MARK
    assert body["messages"][-1]["content"][-1]["cache_control"] == MARK
    assert not any(marks(message) for message in body["messages"] if message["role"] == "assistant")


def test_only_the_last_block_of_a_message_is_marked_and_thinking_never() -> None:
    two = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    thought = [{"type": "thinking", "thinking": "x", "signature": "y"}]
    body = made(("user", two), ("assistant", thought), ("user", thought)).body(marked=True)
    assert [marks(block) for block in body["messages"][0]["content"]] == [0, 1]
    assert marks(body["messages"][1:]) == 0
    assert made().body(marked=True) == {"messages": []}


def test_thinking_without_its_signature_is_not_sent() -> None:
    from ctxvc.core.ledger.wire import text_part

    said = [
        Message(role="user", parts=(text_part("Hi", "user", "human"),)),
        Message(role="assistant", parts=(text_part("hm", "assistant", "model", kind="thinking"),)),
        Message(
            role="assistant",
            parts=(
                text_part("hm", "assistant", "model", kind="thinking", signature="sig"),
                text_part("Hello", "assistant", "model"),
            ),
        ),
    ]
    ledger, held = numbered(said)
    made = request(ledger, bodies_of(held), None, None)
    assert made.messages[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Hello"},
    ]


@given(conversations())
def test_a_ledger_gives_one_request_and_up_to_a_block_only_what_came_until_then(said: list[Message]) -> None:
    ledger, held = numbered(said)
    whole = request(ledger, bodies_of(held), "s", None)
    assert whole == request(ledger, bodies_of(held), "s", None)
    last = ledger.last()
    assert whole.last == (last.id if last else "")
    assert up_to(ledger, whole.last).segments == ledger.segments
    assert not up_to(ledger, "").segments
    for row in ledger.rows():
        until = up_to(ledger, row.id)
        assert [one.id for one in until.rows()] == [one.id for one in ledger.rows() if one.number <= row.number]
        assert isinstance(until, Ledger)
