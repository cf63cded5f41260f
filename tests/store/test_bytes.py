"""What stands on the disk is the same to the byte, whichever Python wrote it."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from ctxvc.core.ledger.ledger import Counters, Group, Meta, Row, Source
from ctxvc.store import format as fmt
from ctxvc.store.log.journal import Change, Head, Record, encode_head, encode_record


def anew(text: str) -> str:
    """An equal text that is another object."""
    return "".join([*text])


def row(**fields: object) -> Row:
    """A row of which every optional field equals its default, and is another object where there can be another."""
    held: dict[str, object] = {
        "id": "B7",
        "kind": "user",
        "role": "user",
        "origin": "human",
        "msg": 1,
        "step": 2,
        "turn": 3,
        "bytes": 5,
        "sha256": "ab" * 32,
        "ext": anew("txt"),
        "state": anew("visible"),
        "files": tuple(part for part in ()),
        "call": anew(""),
        "extra": {},
    }
    return Row(**{**held, **fields})  # type: ignore[arg-type]


ROW = (
    b'{"id":"B7","kind":"user","role":"user","origin":"human","msg":1,"step":2,"turn":3,"bytes":5,"sha256":"%s"}\n'
    % (b"ab" * 32)
)


def test_a_row_has_these_bytes() -> None:
    assert fmt.encode_rows([row()]) == ROW
    assert fmt.encode_rows(fmt.decode_rows(ROW, "")) == ROW
    assert fmt.encode_rows([row(ext=anew("json"), state=anew("masked"), files=("1.png",))]) == ROW.replace(
        b'"bytes":5', b'"ext":"json","files":["1.png"],"bytes":5'
    ).replace(b"}", b',"state":"masked"}')


def test_a_line_of_groups_has_these_bytes() -> None:
    group = Group(id="G1", members=("B7",), stub=anew(""), summary=tuple(part for part in ()), level=int("1"))

    assert fmt.encode_groups([group]) == b'{"id":"G1","members":["B7"]}\n'


def test_ctxvc_json_has_these_bytes() -> None:
    meta = Meta(
        format=1,
        session="demo",
        scope="main",
        counters=Counters(block=7),
        tokenizer=anew("o200k_base"),
        calibration=(1000, 0),
        cuts=tuple(part for part in ()),
        ladder={},
        source=Source(format="pi", id="x", finals=tuple(part for part in ()), missing=tuple(part for part in ())),
    )

    assert fmt.encode_meta(meta).decode() == (
        '{\n "format": 1,\n "session": "demo",\n "scope": "main",\n "counters": {\n  "block": 7,\n  "group": 0,\n'
        '  "msg": 0,\n  "step": 0,\n  "turn": 0\n },\n "source": {\n  "format": "pi",\n  "id": "x"\n }\n}\n'
    )


def test_a_journal_has_these_bytes() -> None:
    change = Change(
        scope="main",
        op="step",
        actor="agent",
        counters=Counters(block=7),
        rows=(row(),),
        bodies=(("B7", anew(""), b"hello"),),
        groups=(Group(id="G1", members=("B7",), summary=tuple(part for part in ())),),
        meta={"source": Source(format="pi", id="x", finals=tuple(part for part in ()))},
        written=1_795_200_000,
    )
    known = {
        "id": "B7",
        "kind": "user",
        "role": "user",
        "origin": "human",
        "msg": 1,
        "step": 2,
        "turn": 3,
        "bytes": 5,
        "sha256": "ab" * 32,
    }
    counters = {"block": 7, "group": 0, "msg": 0, "step": 0, "turn": 0}
    plain = ["main", "step", "agent", counters, "", 0, False, [known], [["B7", "", b"hello"]]]
    plain += [
        [{"id": "G1", "members": ["B7"]}],
        {"source": {"format": "pi", "id": "x"}},
        "",
        {},
        "",
        None,
        "",
        "",
        1795200000,
    ]

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
