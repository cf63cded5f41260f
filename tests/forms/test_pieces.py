"""A body in pieces is that body, and a longer conversation has the same pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.forms.splice import in_pieces

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(['"[', "]}\\", "é\0"]),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=3), values, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES | st.lists(VALUES), max_size=5)
SPACING = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", "\r\n :  ")])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    value = draw(OBJECTS)
    text = json.dumps(value, separators=draw(SPACING), ensure_ascii=draw(st.booleans()))
    text = draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", "\r\n"]))
    if draw(st.booleans()):
        text = text.replace("{", '{"a": [1], "a": [2]' + (", " if value else ""), 1)  # a name that is there twice
    body = text.encode("utf-8", "surrogatepass")
    return body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body


@given(st.binary(max_size=60) | bodies())
@example(b"")
@example(b"{}")
@example(b'{"a":[]}')
@example(b'\xef\xbb\xbf{"a":[1]}')
@example(b"[" * 100_000)
@example(b'{"a":' + b"[" * 100_000)
@example(b'{"a":[1,2], "a":[3]}')
@example(b'{"a":["\xff"]}')
@example(json.dumps({f"{n}": [n] for n in range(400)}).encode())
def test_the_pieces_are_the_body(body: bytes) -> None:
    pieces = in_pieces(body)
    names = [name for name, _ in pieces]

    assert b"".join(data for _, data in pieces) == body
    assert names == sorted(names) and len(set(names)) == len(names)
    assert not {name for name in names if any(other.startswith(f"{name}/") for other in names)}


@given(st.lists(VALUES, max_size=5), st.lists(VALUES, min_size=1, max_size=3), SPACING)
def test_pieces_stay_when_items_are_appended(items: list[Any], more: list[Any], spacing: tuple[str, str]) -> None:
    def pieces(messages: list[Any]) -> dict[str, bytes]:
        request = {"model": "m", "messages": messages, "tools": [{"name": "t"}], "system": "s"}
        return dict(in_pieces(json.dumps(request, separators=spacing).encode()))

    before, after = pieces(items), pieces([*items, *more])
    assert before.items() <= after.items()
    assert len(after) == len(before) + len(more)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (
            b'{"model": "m", "messages": [{"a": 1}, {"b": [2]}], "tools": []}',
            ["00.json", "01-messages/00/00.json", "01-messages/00/01.json", "02.json", "04.json"],
        ),
        (b'{"../x y": [1]}', ["00.json", "01-___x_y/00/00.json", "02.json"]),
        (b'{"": [1]}', ["00.json", "01-_/00/00.json", "02.json"]),
        (b'{"a": {"b": [1]}}', ["00.json"]),
        (b'{"a": [1], "a": [2, 3]}', ["00.json"]),
        (b'{"a": [1], "a": [1]}', ["00.json"]),
        (b'{"a": 1, "a": 1, "b": 1}', ["00.json"]),
        (b"[1]", ["00.json"]),
        (b'{"a": [1', ["00.bin"]),
        (b"\x1f\x8b", ["00.bin"]),
    ],
)
def test_names_tell_what_a_piece_is_of(body: bytes, names: list[str]) -> None:
    assert [name for name, _ in in_pieces(body)] == names


def test_a_list_without_end_has_its_rest_in_one_piece() -> None:
    body = json.dumps({"messages": [1] * 70_000}).encode()
    pieces = in_pieces(body)

    assert len(pieces) == 2 + (1 << 16) and pieces[-2][0] == "01-messages/ff/ff.json"
    assert b"".join(data for _, data in pieces) == body
