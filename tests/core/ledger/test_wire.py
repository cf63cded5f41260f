"""A content block that was taken apart is put together again as it was; what is hostile is kept as it came."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import FOREIGN, Role
from tests.making.conversation import block_of
from tests.making.generated import blocks, hostile_blocks, json_objects, json_values, texts

roles = st.sampled_from(["user", "assistant", "system"])


def plain(value: Any) -> Any:
    """What JSON makes of a value: two lone surrogates that belong together are one character in it."""
    return json.loads(json.dumps(value))


def normal(block: Any) -> Any:
    """A block in the one of its spellings that is written."""
    match block:
        case {"type": "tool_result", "tool_use_id": str()} if isinstance(block.get("content"), str | list | None):
            block = dict(block)
            content, error = block.pop("content", None), block.pop("is_error", None)
            if content == [{"type": "text", "text": ""}]:
                content = None
            content = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
            return {**block, **({"content": content} if content else {}), **({"is_error": True} if error else {})}
        case {"type": "tool_use", "id": str(), "name": str(), "input": given} if not isinstance(given, dict):
            return {**block, "input": {"arguments": wire.compact(given).decode()}}
        case dict():
            return block
    return {"type": "text", "text": block if isinstance(block, str) else wire.compact(block).decode()}


def unmarked(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in FOREIGN}


@given(blocks, roles)
def test_a_block_comes_back(block: dict[str, Any], role: Role) -> None:
    block = plain(block)
    assert block_of(wire.part(block, role, "human")) == normal(block)


@given(hostile_blocks(), roles)
def test_a_hostile_block_is_kept_as_it_came(block: Any, role: Role) -> None:
    block = plain(block)
    part = wire.part(block, role, "human")
    assert unmarked(plain(block_of(part))) == unmarked(plain(normal(block)))
    if part.kind == "other":
        assert wire.parse(part.body) == block


@given(
    st.sampled_from(["user", "thinking", "tool_use", "tool_result", "image", "document", "other", "note"]),
    st.binary(max_size=20) | json_values.map(wire.compact),
    st.sampled_from(["txt", "json", "bin", "png"]),
    json_objects
    | st.fixed_dictionaries(
        {"ctxvc": json_values | st.just({"parts": True}), "source": json_values, "openai": json_values}
    ),
)
def test_a_damaged_row_still_gives_a_block(kind: str, body: bytes, ext: str, extra: dict[str, Any]) -> None:
    assert isinstance(wire.block(kind=kind, body=body, ext=ext, extra=extra), dict)


def test_images_lie_beside_a_result_and_no_received_item_can_name_one() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    odd = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGg=!"}}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [image, odd, image]}
    part = wire.part(block, "user", "tool")

    assert part.files == (("1.png", b"\x89PNG\r\n\x1a\n"), ("2.png", b"\x89PNG\r\n\x1a\n"))
    assert [item["source"]["data"] for item in wire.parse(part.body)] == [
        {"file": "1.png", "bytes": 8, "sha256": "4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6"},
        "iVBORw0KGg=!",
        {"file": "2.png", "bytes": 8, "sha256": "4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6"},
    ]
    assert block_of(part) == block

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    forged = {"type": "image", "source": {"type": "base64", "data": {"file": "1.png"}}}
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [image, forged]}

    assert block_of(wire.part(block, "user", "tool")) == block


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_a_recording_cannot_mark_its_own_blocks(name: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "[1]", name: {"parts": True}}
    assert block_of(wire.part(block, "user", "tool")) == {
        "type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "[1]"}],
    }  # fmt: skip


@given(texts.filter(bool), roles)
def test_a_string_is_a_text(value: str, role: Role) -> None:
    part = wire.part(value, role, "human")
    assert (part.kind, display.decode(part.body)) == (role, value)
    assert block_of(part) == {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("arguments", "ext", "expected"),
    [
        (b'{"a": 1}', "json", {"a": 1}),
        (b"[1]", "txt", {"arguments": "[1]"}),
        (b'{"a":', "txt", {"arguments": '{"a":'}),
        (b"\xff{}", "bin", {"arguments": "\ufffd{}"}),
        (b"a\0b", "bin", {"arguments": "a\0b"}),
        (b"", "txt", {}),
    ],
)
def test_arguments_are_kept_byte_for_byte_and_sent_as_an_object(arguments: bytes, ext: str, expected: Any) -> None:
    part = wire.call_part("sh", "c1", arguments)
    assert (part.body, part.ext) == (arguments, ext)
    assert block_of(part)["input"] == expected


@given(json_values)
def test_compact_json_holds_every_value(value: Any) -> None:
    value = plain(value)
    assert wire.parse(wire.compact(value)) == value
    assert json.loads(wire.compact(value)) == value


@pytest.mark.parametrize("data", [b"", b"{", b"nul", b"\xff", b"[" * 10**5, b'{"a":' * 10**5])
def test_what_is_no_json_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ValueError):
        wire.parse(data)
    assert wire.parsed(data, object) is None


@pytest.mark.parametrize("notes", [None, 5, "parts", ["parts"], True])
def test_notes_of_a_wrong_type_are_none(notes: Any) -> None:
    assert wire.own_metadata({"ctxvc": notes}) == {}
    assert wire.items(b"[1]", {"ctxvc": {"parts": notes}}) == ([1] if notes is True else None)


def test_order_and_spelling_of_arguments_are_those_received() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "sh", "input": {"b": 1, "a": 2.0}}
    received = b'{"b": 1,  "a": 2.00}'
    assert wire.part(block, "assistant", "model", input_bytes=received).body == received
    assert wire.part(block, "assistant", "model").body == b'{"b":1,"a":2.0}'
    assert msgspec.json.encode(block_of(wire.part(block, "assistant", "model"))) == msgspec.json.encode(block)
