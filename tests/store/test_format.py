"""What is written is read back, in one spelling; what is damaged or newer is refused with a word, never a traceback."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxvc.core.ledger.block import PRESENT
from ctxvc.core.ledger.ledger import SEGMENT, Counters, Group, Ledger, Meta, Row, Source, segment_of
from ctxvc.errors import CtxvcError, Damaged, Refused
from ctxvc.store import format as fmt
from tests.making.generated import arranged, conversations, json_values, numbered

DECODERS: list[Any] = [fmt.decode_rows, fmt.decode_groups, fmt.decode_meta]

block_numbers = st.integers(1, 10**5) | st.sampled_from([1, 63, 64, 4095, 4096, 262143, 262144, 10**11])


def row(number: int, **fields: Any) -> Row:
    made = Row(
        id=f"B{number}", kind="user", role="user", origin="human", msg=1, step=1, turn=1, bytes=0, sha256="0" * 64
    )
    return msgspec.structs.replace(made, **fields)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    return draw(arranged(numbered(draw(conversations()))[0]))


numbers = st.integers(0, 10**6)
plain_texts = st.text(st.characters(codec="utf-8"), max_size=9)
metas = st.builds(
    Meta,
    format=st.just(fmt.FORMAT),
    session=plain_texts,
    scope=plain_texts,
    parent=plain_texts,
    counters=st.builds(Counters, block=numbers, group=numbers, msg=numbers, step=numbers, turn=numbers),
    model=plain_texts,
    budget=numbers,
    calibration=st.tuples(numbers, numbers),
    cuts=st.lists(numbers, max_size=3).map(tuple),
    source=st.none()
    | st.builds(
        Source,
        format=plain_texts,
        id=plain_texts,
        offset=numbers,
        finals=st.lists(numbers, max_size=3).map(tuple),
        missing=st.lists(plain_texts, max_size=2).map(tuple),
    ),
)


@given(ledgers())
def test_rows_and_groups_are_read_as_they_were_written(ledger: Ledger) -> None:
    for rows in ledger.segments.values():
        assert fmt.decode_rows(fmt.encode_rows(rows), "here") == rows
    assert fmt.decode_groups(fmt.encode_groups(ledger.groups.values()), "here") == ledger.groups


@given(metas)
def test_what_a_scope_knows_of_itself_is_read_as_it_was_written(meta: Meta) -> None:
    written = fmt.encode_meta(meta)

    assert fmt.decode_meta(written, "here") == meta
    assert fmt.encode_meta(fmt.decode_meta(written, "here")) == written
    assert written.endswith(b"}\n")


@given(ledgers())
def test_a_line_is_one_row_with_its_keys_in_the_order_of_the_fields(ledger: Ledger) -> None:
    order = list(Row.__struct_fields__)
    for rows in ledger.segments.values():
        lines = fmt.encode_rows(rows).split(b"\n")
        assert lines.pop() == b"" and len(lines) == len(rows)
        for line in lines:
            keys = list(json.loads(line))
            assert keys == sorted(keys, key=order.index)
            assert {"id", "kind", "role", "origin", "msg", "step", "turn", "bytes", "sha256"} <= set(keys)


def test_what_is_at_its_default_is_not_written() -> None:
    assert fmt.encode_rows([row(7)]) == (
        b'{"id":"B7","kind":"user","role":"user","origin":"human","msg":1,"step":1,"turn":1,"bytes":0,"sha256":"'
        + b"0" * 64
        + b'"}\n'
    )
    assert fmt.encode_groups([Group(id="G10", members=("B2",)), Group(id="G9", members=("B1",))]) == (
        b'{"id":"G9","members":["B1"]}\n{"id":"G10","members":["B2"]}\n'
    )


def test_a_second_empty_tuple_is_not_written_either() -> None:
    """Python 3.10 makes one for each that an iterator leaves empty."""

    class Other(tuple[Any, ...]):
        __slots__ = ()

    group, meta = Group(id="G1", members=("B1",)), Meta(format=1, session="s", scope="main")
    sourced = msgspec.structs.replace(meta, source=Source(format="f", id="i"))
    changed = msgspec.structs.replace(meta, cuts=Other(), source=Source(format="f", id="i", missing=Other()))
    assert fmt.encode_rows([row(1, files=Other())]) == fmt.encode_rows([row(1)])
    assert fmt.encode_groups([msgspec.structs.replace(group, summary=Other())]) == fmt.encode_groups([group])
    assert fmt.encode_meta(changed) == fmt.encode_meta(sourced)


@given(block_numbers, st.sampled_from(["visible", "pinned", "masked", "archived", "pruned", "blocked", "deleted"]))
def test_a_path_leads_back_to_its_block_and_to_no_other(number: int, state: Any) -> None:
    made = row(number, state=state, ext="json", files=("1.png", "12.bin"))
    body, *siblings = fmt.paths(made)

    top = "blocks" if state in PRESENT else "archive"
    assert body == f"{top}/{fmt.folder(number)}/B{number}.json"
    assert siblings == [f"{top}/{fmt.folder(number)}/B{number}-{suffix}" for suffix in made.files]
    assert {fmt.block_of_path(path) for path in (body, *siblings)} == {made.id}
    assert fmt.segment_number(fmt.segment_path(segment_of(number))) == segment_of(number)
    assert fmt.segment_path(segment_of(number)) == f"ledger/{fmt.folder(number)}.jsonl"


@given(block_numbers, block_numbers)
def test_a_folder_is_shared_by_the_blocks_of_one_segment(one: int, two: int) -> None:
    assert (fmt.folder(one) == fmt.folder(two)) == (one // SEGMENT == two // SEGMENT)


@pytest.mark.parametrize(
    "path", ["", "B1.txt", "ledger/00/00.jsonl", "blocks/00/00/", "blocks/00/00/B0.txt", "archive/x", "request/B1.txt"]
)
def test_what_is_no_body_is_no_blocks(path: str) -> None:
    assert fmt.block_of_path(path) == ""


@pytest.mark.parametrize(
    "path", ["", "ledger", "ledger/00.jsonl", "ledger/zz/00.jsonl", "x/00/00.jsonl", "ledger/groups.jsonl"]
)
def test_what_is_no_segment_has_no_number(path: str) -> None:
    with pytest.raises(ValueError):
        fmt.segment_number(path)


# --- what cannot be read


def test_a_newer_format_is_refused_even_if_nothing_else_is_known() -> None:
    with pytest.raises(Refused, match="format 3; this ctxvc reads formats up to 2"):
        fmt.decode_meta(b'{"format":3,"counters":"in Roman numerals"}', "here")


def test_rows_out_of_order_are_damage() -> None:
    for rows in ([row(2), row(1)], [row(1), row(1)]):
        with pytest.raises(Damaged, match="out of order"):
            fmt.decode_rows(fmt.encode_rows(rows), "here")


@pytest.mark.parametrize("address", ["b1", "B0", "B01", "G1", "", "B1\\n"])
def test_an_address_that_is_none_is_damage(address: str) -> None:
    with pytest.raises(Damaged, match="here: not a ledger"):
        fmt.decode_rows(fmt.encode_rows([row(7)]).replace(b'"B7"', f'"{address}"'.encode()), "here")


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A file of a tree with anything in any place: another value, a cut, other bytes."""
    good = draw(
        st.sampled_from(
            [
                fmt.encode_rows([row(7, state="archived", stub="s", files=("1.png",), extra={"a": 1}), row(8)]),
                fmt.encode_groups([Group(id="G3", members=("B1",), summary=("B2",))]),
                fmt.encode_meta(Meta(format=1, session="s", scope="main", source=Source(format="pi", id="x"))),
            ]
        )
    )
    match draw(st.sampled_from(["value", "cut", "bytes", "other"])):
        case "value":
            first, *rest = good.split(b"\n") if good.count(b"\n") < 3 else [good]
            value = json.loads(first)
            value[draw(st.sampled_from(sorted(value)))] = draw(json_values)
            return b"\n".join([json.dumps(value).encode(), *rest])
        case "cut":
            return good[: draw(st.integers(0, len(good)))]
        case "bytes":
            at = draw(st.integers(0, len(good)))
            return good[:at] + draw(st.binary(max_size=4)) + good[at + draw(st.integers(0, 4)) :]
    return draw(st.binary(max_size=30) | json_values.map(lambda value: json.dumps(value).encode()))


@given(hostile(), st.sampled_from(DECODERS))
def test_hostile_bytes_are_damaged_or_refused_and_never_a_traceback(data: bytes, decode: Any) -> None:
    assume(is_text(data))
    assert_refused_or_read(decode, data)


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def assert_refused_or_read(decode: Any, data: bytes) -> None:
    try:
        decode(data, "here")
    except CtxvcError as error:
        assert isinstance(error, Damaged | Refused)
        assert "here" in str(error)


NOT_TEXT = b'{"format":1,"session":"\xff","scope":"","id":"G1\xff","members":[]}'
NESTED = b'{"format":1,"session":"s","scope":"m","id":"G1","members":[],"x":' + b"[" * 10**5 + b"]" * 10**5 + b"}"


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (fmt.decode_rows, NOT_TEXT),
        (fmt.decode_groups, NOT_TEXT),
        (fmt.decode_meta, NOT_TEXT),
        *((decode, NESTED) for decode in DECODERS),
    ],
)
def test_bytes_that_are_no_text_or_nested_without_end_are_damage(decode: Any, data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data, "here")
