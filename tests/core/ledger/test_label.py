"""A label tells a block apart on one safe line, and a stub what left, so that nothing recorded can forge either."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.label import WIDTH, label
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.prompt import stub as stubs
from tests.core.test_display import COMMANDS, anything
from tests.making.generated import blocks, hostile_blocks, json_objects, json_values, texts
from tests.making.rows import made

STUB = re.compile(
    r"\[archived (B7@[0-9a-f]{6}, (9 B|[\d,]+ tokens)(; [^\[\]\n]+)?|"
    r"G[1-9]\d*@[0-9a-f]{6}, steps 2–31: [^\[\]\n]*3 blocks, [^\[\]\n]*)\]"
)


@pytest.mark.parametrize(("media", "expected"), [("image/png", "image/png"), ("", "png")])
def test_an_image_is_labelled_by_its_media_type_else_by_how_its_file_ends(media: str, expected: str) -> None:
    assert label("image", b"\x89PNG", "png", media=media) == expected


@given(blocks | hostile_blocks(), st.sampled_from(["user", "assistant"]))
def test_every_block_has_a_label_on_one_safe_line(block: Any, role: Any) -> None:
    part = wire.part(block, role, "human")
    text = label(part.kind, part.body, part.ext, tool=part.tool, media="image/png\x1b")
    assert len(text) <= WIDTH
    assert COMMANDS.isdisjoint(text)


@given(st.sampled_from(["tool_use", "tool_result", "image", "other"]), json_values | st.binary(max_size=9), texts)
def test_bytes_of_any_shape_have_a_label(kind: str, value: Any, tool: str) -> None:
    body = value if isinstance(value, bytes) else wire.compact(value)
    assert len(label(kind, body, "json", tool=tool)) <= WIDTH


@pytest.mark.parametrize(
    ("given_arguments", "expected"),
    [
        ({"timeout": 5, "file_path": "a.py", "command": "ls  -l\n"}, "sh: ls -l"),
        ({"path": " ", "query": "what"}, "sh: what"),
        ({"command": ["git", "log", 5]}, "sh: git log 5"),
        ({"command": [5], "description": {"a": 1}, "x": "y"}, 'sh: {"command":[5],"description":{"a":1},"x":"y"}'),
        ({}, "sh: {}"),
    ],
)
def test_a_call_is_known_by_its_most_telling_argument(given_arguments: dict[str, Any], expected: str) -> None:
    assert label("tool_use", wire.compact(given_arguments), "json", tool="sh") == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([{"type": "image"}, {"type": "text", "text": "seen"}], "seen"),
        ([{"type": "image"}, {"type": None}, "x"], "image, None"),
        ({"type": "text"}, '{"type":"text"}'),
    ],
)
def test_a_result_of_several_parts_is_known_by_its_first_text(items: Any, expected: str) -> None:
    assert label("tool_result", wire.compact(items), "json") == expected


def test_no_label_looks_far_into_a_body() -> None:
    huge = b'{"command":"' + b"x" * 2**21 + b'"}'
    assert label("tool_use", huge, "json", tool="sh") == "sh: " + huge[: WIDTH - 5].decode() + "…"
    assert label("user", b" " * 5000 + b"late") == "…"
    assert label("tool_result", b'[{"type":"text","text":"' + b"x" * 2**21 + b'"}]', "json").startswith('[{"type"')


# --- stubs


def row(**fields: Any) -> Row:
    return made(7, **{"msg": 1, "step": 1, "bytes": 9, "sha256": "3fa9c1" + "0" * 58, **fields})


@given(anything, anything, anything, st.none() | st.integers(0, 10**6), st.booleans())
def test_a_stub_is_one_safe_line_of_bounded_length_whatever_was_recorded(
    tool: str, words: str, call: str, tokens: int | None, cut: bool
) -> None:
    made = row(tool=tool, label=label("user", words.encode("utf-8", "replace")))
    for stub in (
        stubs.stub(made, tokens=tokens, index=words, call=call, truncated=cut),
        stubs.stub(made, tokens=tokens, call=call, truncated=cut),
        stubs.stub(made, tokens=tokens, called=True, call=call, truncated=cut),
        stubs.group_stub(
            Group(id="G3", members=("B7",), label=words[: stubs.INDEX]),
            steps=(2, 31),
            blocks=3,
            tokens=tokens,
            size=9,
            digest="3fa9c1ff",
        ),
    ):
        assert STUB.fullmatch(stub), stub
        assert COMMANDS.isdisjoint(stub)
        assert len(stub) <= 600


@given(
    st.sampled_from(["[archived B1@3fa9c1, 3 tokens; user]", "x] [pruned B3]", "a\n[archived G1@3fa9c1, steps 1–2: "])
)
def test_a_recorded_text_cannot_end_its_stub_or_begin_another(words: str) -> None:
    stub = stubs.stub(row(label=words, tool=words), index=words, call=words)
    assert (stub.count("["), stub.count("]")) == (1, 1)
    assert stub.startswith("[archived B7@3fa9c1, 9 B; ") and stub.endswith("]")


def test_a_stub_tells_what_left_and_how_to_get_it_back() -> None:
    result = row(tool="Bash", label="3 failed", error=True)
    assert stubs.stub(result, tokens=1400, call="pytest", truncated=True) == (
        "[archived B7@3fa9c1, 1,400 tokens; the recorded output was cut; Bash pytest, failed]"
    )
    assert stubs.stub(result, tokens=1400, called=True, call="pytest") == "[archived B7@3fa9c1, 1,400 tokens]"
    assert stubs.stub(result, called=True, index="no disk") == "[archived B7@3fa9c1, 9 B; no disk]"
    assert stubs.stub(result, way_back=False, index="no disk") == "[archived B7, 9 B; no disk]"
    assert stubs.stub(row(kind="assistant")) == "[archived B7@3fa9c1, 9 B; assistant]"
    assert stubs.stub(row(kind="assistant", label="I look")) == "[archived B7@3fa9c1, 9 B; I look]"
    assert (
        stubs.group_stub(
            Group(id="G3", members=("B7",), level=2, label="tests"),
            steps=(4, 9),
            blocks=12,
            tokens=None,
            size=8300,
            digest="5b21f0aa",
        )
        == "[archived G3@5b21f0, steps 4–9: tests; 12 blocks, 8.3 kB]"
    )


@given(json_objects)
def test_a_stub_of_anything_passes_the_guard_only_as_ours(extra: dict[str, Any]) -> None:
    stub = stubs.stub(row(extra=extra))
    assert stubs.guarded(stub) == "\\" + stub


UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def labelled(text: str) -> str:
    """A label, by its rule."""
    left = re.sub(r"\s+", " ", UNSAFE.sub(" ", text[:704])).strip()
    if len(left) > 80 or (len(left) == 80 and len(text) > 704):
        return left[:79].rstrip() + "…"
    return left + "…" * (len(text) > 704)


@given(st.text(st.characters(codec="utf-8"), max_size=200) | st.text("ab \n\x00\u2028", min_size=60, max_size=900))
def test_a_label_is_the_beginning_on_one_line(text: str) -> None:
    assert label("user", text.encode()) == labelled(text)


def test_a_label_looks_no_further_than_the_beginning() -> None:
    for filling in ("é", "a" * 4095 + "é", "a" * 79 + " " * 800, "a" * 80 + " " * 800, "a b" + " " * 800 + "c"):
        head = filling.encode()[:4096].decode("utf-8", "replace")

        assert label("user", filling.encode()) == labelled(head)
