"""A results file takes what is added, gives up nothing that is not its own, and goes on after a kill."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ctxvc.errors import BadInput, Refused
from ctxvc.replay.measures.retention import UNMEASURED, Counts, Split
from ctxvc.replay.results.file import ResultFile, code_version, key, line_of
from ctxvc.replay.results.result import (
    Options,
    Result,
    Timing,
    UsesMeasured,
    decode,
    decode_uses,
    encode_uses,
)

VERSION = "1+abc"


def result(policy: str = "keep", budget: int = 32_000, **fields: object) -> Result:
    usual = {
        "version": VERSION,
        "anchors": "1",
        "conversation": "talk",
        "file": "talk.jsonl",
        "sha256": "00",
        "aside": False,
    }
    return Result(**{**usual, "policy": policy, "budget": budget, **fields})  # type: ignore[arg-type]


def test_a_line_is_the_result_and_its_keys_stand_in_a_fixed_order() -> None:
    made = result(events={"restore": {"user": 1}, "archive": {"policy:clear": 3, "agent": 1}}, dropped={"pinned": 2})

    line = line_of(made)

    assert decode(line) == made
    assert line.startswith(b'{"schema":"ctxvc-replay/1","version":"1+abc","anchors":"1","conversation":"talk"')
    assert b'"events":{"archive":{"agent":1,"policy:clear":3},"restore":{"user":1}}' in line
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1


def test_timing_and_store_are_left_out_of_a_comparison() -> None:
    with_store = result(options=Options(store=True), store_bytes=7, timing=Timing(mean=1.5))

    assert with_store.comparable == result().comparable
    assert with_store.comparable != result(options=Options(bare=True)).comparable
    assert with_store.comparable != result(calls=1).comparable


@pytest.mark.parametrize("wrong", [{"calls": -1}, {"budget": "32k"}, {"schema": "ctxvc-replay/2"}])
def test_a_line_that_is_no_result_is_refused(wrong: dict[str, object]) -> None:
    fields = {**msgspec.json.decode(line_of(result())), **wrong}

    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.json.encode(fields))


def test_what_was_added_is_there_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResultFile(path, VERSION).add([result("keep"), result("window")])
    again = ResultFile(path, VERSION)
    again.add([result("clear")])

    assert [own.policy for own in ResultFile(path, VERSION).records] == ["keep", "window", "clear"]
    assert again.has(key(result("keep")))
    assert not again.has(key(result("mask")))
    assert not again.has(key(result("keep", 80_000)))
    assert not again.has(key(result("keep", options=Options(bare=True))))


def test_a_file_is_done_once_each_of_its_conversations_has_a_result(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "results.jsonl", VERSION)

    results.add([result(conversations=2)])
    assert not results.has(key(result()))

    results.add([result(conversation="talk/helper", conversations=2)])
    assert results.has(key(result()))


def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    whole, last = line_of(result("keep")), line_of(result("window"))
    for length in range(len(last)):
        path.write_bytes(whole + last[:length])
        results = ResultFile(path, VERSION)
        assert [own.policy for own in results.records] == ["keep"]
        results.add([result("clear")])
        assert path.read_bytes() == whole + line_of(result("clear"))


@pytest.mark.parametrize("content", [b"my notes\n", b"my notes", b'{"a": 1}\n', b"\0" * 100, b"\xff\n", b"[" * 9999])
def test_a_file_of_another_kind_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)

    with pytest.raises(BadInput, match="not a replay result"):
        ResultFile(path, VERSION)

    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (line_of(result(version="2+def")), r"version 2\+def, but this is 1\+abc"),
        (line_of(result()).replace(b"ctxvc-replay/1", b"ctxvc-replay/2"), "ctxvc-replay/2"),
    ],
)
def test_results_of_another_version_or_schema_are_not_mixed_with_these(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line)

    with pytest.raises(Refused, match=reason):
        ResultFile(path, VERSION)


def test_sorted_it_has_each_result_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    made = [result(policy, budget) for policy in ("window", "keep") for budget in (80_000, 32_000)]
    for path, order in ((one, made), (other, [*reversed(made), *made])):
        results = ResultFile(path, VERSION)
        results.add(order)
        results.sort()

    assert one.read_bytes() == other.read_bytes()
    assert [(own.policy, own.budget) for own in ResultFile(one, VERSION).records] == [
        ("keep", 32_000),
        ("keep", 80_000),
        ("window", 32_000),
        ("window", 80_000),
    ]


def test_the_version_changes_with_the_code_of_a_policy(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("KEEP = 1\n")
    before = code_version([own])
    own.write_text("KEEP = 2\n")

    assert before == before and code_version() == code_version()
    assert len({code_version(), before, code_version([own])}) == 3


def test_the_outcomes_of_uses_come_back_as_they_were() -> None:
    measured = UsesMeasured(bytes([0, 1, 2, 3, 4, UNMEASURED, 0]), nt=(1, 3, 5, 6), ar=(3, 6))

    assert decode_uses(encode_uses(measured)) == measured
    assert len(encode_uses(measured)) == 12
    assert decode_uses("") == UsesMeasured(b"", (), ())


def test_retention_adds_up() -> None:
    one = Split(all=Counts(visible=3, routed=1), nt=Counts(visible=1, lost=1))
    two = Split(all=Counts(visible=2, searchable=4), ar=Counts(recoverable=5))

    both = one + two

    assert both.all == Counts(visible=5, routed=1, searchable=4)
    assert (both.nt, both.ar, both.all.total) == (Counts(visible=1, lost=1), Counts(recoverable=5), 10)
