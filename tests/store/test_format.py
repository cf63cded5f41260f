"""What is written is read back, in one spelling; what is damaged or newer is refused with a word, never a traceback."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ctxvc.core.ledger.block import PRESENT, Kind, Origin, State
from ctxvc.core.ledger.ledger import SEGMENT, Counters, Group, Ledger, Meta, Row, Source, segment_of
from ctxvc.errors import CtxvcError, Damaged, Refused
from ctxvc.store import format as fmt
from ctxvc.store import store as stores
from ctxvc.store.log.journal import Change, Head, Record, encode_head, encode_record
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.making.conversation import result, results
from tests.making.generated import arranged, conversations, json_values, numbered
from tests.making.store import complaints, git
from tests.stores import make_golden

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


def test_what_is_no_body_or_no_segment_has_no_block_or_number() -> None:
    for path in (
        "",
        "B1.txt",
        "ledger/00/00.jsonl",
        "blocks/00/00/",
        "blocks/00/00/B0.txt",
        "archive/x",
        "request/B1.txt",
    ):
        assert fmt.block_of_path(path) == ""
    for path in ("", "ledger", "ledger/00.jsonl", "ledger/zz/00.jsonl", "x/00/00.jsonl", "ledger/groups.jsonl"):
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


# --- the same to the byte, whichever Python wrote it


def anew(text: str) -> str:
    """An equal text that is another object."""
    return "".join([*text])


class Other(tuple[Any, ...]):
    """An empty tuple that is not Python's own, as 3.10 makes one for each that an iterator leaves empty."""

    __slots__ = ()


PLAIN = {
    "id": "B7", "kind": "user", "role": "user", "origin": "human", "msg": 1, "step": 2, "turn": 3, "bytes": 5,
    "sha256": "ab" * 32,
}  # fmt: skip


def odd(**fields: object) -> Row:
    """A row of which every optional field equals its default, and is another object where there can be another."""
    others = {"ext": anew("txt"), "state": anew("visible"), "files": Other(), "call": anew(""), "extra": {}}
    return Row(**{**PLAIN, **others, **fields})  # type: ignore[arg-type]


ROW = (
    b'{"id":"B7","kind":"user","role":"user","origin":"human","msg":1,"step":2,"turn":3,"bytes":5,"sha256":"%s"}\n'
    % (b"ab" * 32)
)


def test_a_row_has_these_bytes() -> None:
    assert fmt.encode_rows([odd()]) == ROW
    assert fmt.encode_rows(fmt.decode_rows(ROW, "")) == ROW
    assert fmt.encode_rows([odd(ext=anew("json"), state=anew("masked"), files=("1.png",))]) == ROW.replace(
        b'"bytes":5', b'"ext":"json","files":["1.png"],"bytes":5'
    ).replace(b"}", b',"state":"masked"}')


def test_a_line_of_groups_has_these_bytes() -> None:
    group = Group(id="G1", members=("B7",), stub=anew(""), summary=Other(), level=int("1"))

    assert fmt.encode_groups([group]) == b'{"id":"G1","members":["B7"]}\n'
    tenth, ninth = Group(id="G10", members=("B2",)), Group(id="G9", members=("B1",))
    assert fmt.encode_groups([tenth, ninth]) == b'{"id":"G9","members":["B1"]}\n{"id":"G10","members":["B2"]}\n'


def test_ctxvc_json_has_these_bytes() -> None:
    meta = Meta(
        format=1, session="demo", scope="main", counters=Counters(block=7), tokenizer=anew("o200k_base"),
        calibration=(1000, 0), cuts=Other(), ladder={},
        source=Source(format="pi", id="x", finals=Other(), missing=Other()),
    )  # fmt: skip

    assert fmt.encode_meta(meta).decode() == (
        '{\n "format": 1,\n "session": "demo",\n "scope": "main",\n "counters": {\n  "block": 7,\n  "group": 0,\n'
        '  "msg": 0,\n  "step": 0,\n  "turn": 0\n },\n "source": {\n  "format": "pi",\n  "id": "x"\n }\n}\n'
    )


def test_a_journal_has_these_bytes() -> None:
    change = Change(
        scope="main", op="step", actor="agent", counters=Counters(block=7), rows=(odd(),),
        bodies=(("B7", anew(""), b"hello"),), groups=(Group(id="G1", members=("B7",), summary=Other()),),
        meta={"source": Source(format="pi", id="x", finals=Other())}, written=1_795_200_000,
    )  # fmt: skip
    counters = {"block": 7, "group": 0, "msg": 0, "step": 0, "turn": 0}
    plain = ["main", "step", "agent", counters, "", 0, False, [PLAIN], [["B7", "", b"hello"]]]
    plain += [[{"id": "G1", "members": ["B7"]}], {"source": {"format": "pi", "id": "x"}}]
    plain += ["", {}, "", None, "", "", 1795200000]

    written = encode_record(3, Record(changes=(change,)))
    assert msgspec.msgpack.decode(written[24:]) == [[plain], ""]
    assert hashlib.sha256(written).hexdigest() == RECORD
    assert encode_head(Head(1, "5f0c6a41d2b98e37", 5, 9, 0)).hex() == (
        "43584a31170000000000000000000000a066667689191d449601b035663063366134316432623938653337050900c2"
    )


RECORD = "63f0d6e0d9983c3330ff3757751e33c32c28c13ab351450c0671542b34c75367"


@pytest.mark.parametrize("name", ["files", "ext", "state"])
def test_these_fields_of_a_row_are_looked_at(name: str) -> None:
    """`plain_rows` knows by name which fields can be equal to their default and another object."""
    can_differ = {
        field.name
        for field in msgspec.structs.fields(Row)
        if not field.required
        and (isinstance(field.default, tuple) or (isinstance(field.default, str) and field.default))
    }

    assert name in can_differ and len(can_differ) == 3


@pytest.mark.parametrize(
    ("number", "folder"),
    [(1, "00/00"), (64, "00/01"), (64 * 64 - 1, "00/3f"), (64 * 64, "01/00"), (50_000, "0c/0d"),
     (64**2 * 256, "100/00")],
)  # fmt: skip
def test_paths_fan_out_as_the_format_says(number: int, folder: str) -> None:
    assert fmt.folder(number) == folder


# --- what a store of one format held is read for ever, and written the same way while it is current


GOLDEN = Path(__file__).parent.parent / "stores"


def held(number: int) -> dict[str, Any]:
    """What the golden store of that format holds: the same, but for what its scopes say of themselves."""
    scopes: dict[str, Any] = json.loads((GOLDEN / "format-2.json").read_text())
    if number == 1:
        for scope in scopes.values():
            scope["meta"] = {name: value for name, value in scope["meta"].items() if name != "render"} | {"format": 1}
    return scopes


HELD = {number: held(number) for number in (1, 2)}


@pytest.fixture(params=HELD)
def number(request: pytest.FixtureRequest) -> int:
    """A format."""
    value: int = request.param
    return value


@pytest.fixture
def golden(number: int, tmp_path: Path) -> Store:
    """The golden store of that format as a new clone holds it, with the journal that was beside it."""
    path = tmp_path / ".ctxvc"
    stores.create(path).close()
    git(path, "fetch", "-q", str(GOLDEN / f"format-{number}.bundle"), "refs/heads/*:refs/heads/*")
    (path / "ctxvc" / "journal" / "golden").write_bytes((GOLDEN / f"format-{number}.journal").read_bytes())
    opened = Store(path)
    opened.set_current_scope("golden", "main")
    return opened


def test_the_golden_store_holds_what_it_held(golden: Store, number: int) -> None:
    assert json.loads(json.dumps(make_golden.described(golden))) == HELD[number]
    assert complaints(golden.path) == ""


def test_the_golden_store_has_every_kind_state_and_origin(number: int) -> None:
    rows = [row for scope in HELD[number].values() for row in scope["rows"]]
    assert {row["kind"] for row in rows} == set(get_args(Kind))
    assert {row.get("state", "visible") for row in rows} == set(get_args(State))
    assert {row["origin"] for row in rows} == set(get_args(Origin))
    assert {row.get("ext", "txt") for row in rows} >= {"txt", "json", "bin", "png", "pdf"}


def test_the_golden_store_can_be_written_on(golden: Store, number: int) -> None:
    with StoredSession.open(golden, "golden", "main") as session:
        assert session.waiting() == HELD[number]["main"]["waiting"] > 0
        newest = HELD[number]["side"]["meta"]["counters"]["block"]
        assert session.append(results(result("open", "slept"))) == [f"B{newest + 3}"]
        session.flush()
        assert session.waiting() == 0
    assert git(golden.path, "log", "-2", "--format=%s", "golden/main").splitlines()[0] == "pin B20"
    assert complaints(golden.path) == ""


@pytest.mark.parametrize("number", [fmt.FORMAT], indirect=True)
def test_today_s_code_writes_the_golden_content_the_same_way(golden: Store, tmp_path: Path) -> None:
    made = make_golden.build(tmp_path / "today" / ".ctxvc")
    for scope in ("main", "side"):
        ours, theirs = (git(path, "ls-tree", "-r", f"golden/{scope}") for path in (made.path, golden.path))
        assert ours == theirs
    assert made.journal_path("golden").read_bytes() == golden.journal_path("golden").read_bytes()
    made.close()


def test_every_tree_in_the_golden_history_can_be_read(golden: Store) -> None:
    commits = git(golden.path, "rev-list", "--branches").split()
    for commit in commits:
        ledger = golden.reader.ledger(commit)
        for row in ledger.rows():
            assert len(golden.reader.body(commit, row)) == row.bytes
    assert len(commits) > 30
