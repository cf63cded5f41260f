"""What left the prompt can be read out again, in parts, and nothing of it is lost."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.ledger.ledger import Group, Ledger, Meta, Row
from ctxvc.core.patterns import LONGEST, OVERLAP, WINDOW, compiled
from ctxvc.core.prompt.recover import Count, Range, Recovered, members, readable, recovered, span
from ctxvc.errors import BadInput, Refused
from ctxvc.tokens import count as tokens
from tests.making.generated import characters

CALL = re.compile(r"recover B17(?: --grep (?P<grep>\S+))? --(?P<unit>lines|chars) (?P<range>[0-9:]+)")


def quarter(words: str) -> int:
    """A count of tokens that is no sum of its parts'."""
    return (len(words) + 3) // 4


def row(body: bytes, part: Part | None = None, **fields: Any) -> Row:
    part = part or Part(kind="tool_result", role="user", origin="tool", body=body)
    known = {
        "id": "B17",
        "kind": part.kind,
        "role": part.role,
        "origin": part.origin,
        "msg": 1,
        "step": 1,
        "turn": 1,
        "ext": part.ext,
        "files": tuple(suffix for suffix, _ in part.files),
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "extra": part.extra,
    }
    return Row(**{**known, **fields})


def asked(call: str) -> dict[str, Any]:
    """What a call for the next part asks for, as arguments of `recovered`."""
    match = CALL.fullmatch(call)
    assert match, call
    where = {match["unit"]: span(match["range"])}
    return {**where, "grep": match["grep"]} if match["grep"] else where


def parts(body: bytes, most: int, count: Count = quarter, **first: Any) -> Iterator[Recovered]:
    """All the parts, each asked for as the one before says."""
    held = row(body)
    while True:
        part = recovered(held, body, most=most, count=count, **first)
        assert part.tokens == count(part.text) <= most
        assert "\n" not in part.header
        assert part.complete == (part.next == "")
        assert part.next in part.header
        yield part
        if part.complete:
            return
        assert part.content, "a part that holds nothing would be asked for again, for ever"
        first = asked(part.next)


bodies = st.one_of(
    st.lists(st.text(characters, max_size=400), max_size=30).map("\n".join).map(display.encode),
    st.lists(st.text("ab \r", max_size=300), max_size=20).map("\r\n".join).map(display.encode),
    st.binary(max_size=600),
    st.integers(0, 5000).map(lambda size: b"x" * size),
    st.sampled_from(
        [b"", b"\n", b"\n\n\n", b"\0", b"a", b"\xff\xfe\n" * 300, "\ud800\n".encode("utf-8", "surrogatepass")]
    ),
)


@given(bodies, st.integers(80, 400))
def test_all_parts_together_are_the_text(body: bytes, most: int) -> None:
    assert "".join(part.content for part in parts(body, most)) == display.decode(body)


@given(bodies, st.integers(160, 400))
def test_a_count_that_is_more_for_the_whole_than_for_its_parts_loses_nothing(body: bytes, most: int) -> None:
    def count(text: str) -> int:
        return quarter(text) + (40 if text.startswith("[recovered") and len(text) > 200 else 0)

    assert "".join(part.content for part in parts(body, most, count=count)) == display.decode(body)


@given(bodies, st.integers(80, 400), st.data())
def test_all_parts_of_a_range_are_the_range(body: bytes, most: int, data: st.DataObject) -> None:
    words = display.decode(body)
    lines = re.findall(r"[^\n]*\n|[^\n]+", words)
    if not lines:
        return
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines) + 3))
    end = data.draw(st.integers(1, len(words)))

    assert "".join(part.content for part in parts(body, most, lines=(first, last))) == "".join(lines[first - 1 : last])
    assert "".join(part.content for part in parts(body, most, chars=(end, None))) == words[end - 1 :]
    assert "".join(part.content for part in parts(body, most, chars=(1, end))) == words[:end]


def test_a_part_is_whole_lines_and_says_which_and_how_to_go_on_if_there_is_more() -> None:
    body = "".join(f"line {number}\n" for number in range(1, 101)).encode()

    first, *_, last = parts(body, 100)

    assert re.fullmatch(
        r"\[recovered B17@[0-9a-f]{6}: lines 1-(\d+) of 100; next: recover B17 --lines (\d+):\]", first.header
    )
    assert (first.first, first.total, first.unit, first.complete) == (1, 100, "lines", False)
    assert first.content == "".join(f"line {number}\n" for number in range(1, first.last + 1))
    assert last.header.endswith("of 100]")
    assert last.last == 100

    part = recovered(row(b"a\r\nb"), b"a\r\nb", most=1000, count=quarter)

    assert (part.content, part.first, part.last, part.total, part.complete, part.next) == ("a\r\nb", 1, 2, 2, True, "")


def test_a_giant_line_is_read_by_characters_and_the_lines_behind_it_by_lines() -> None:
    body = b"short\n" + b"x" * 3000 + b"\nafter\nend"
    units = [(part.unit, part.first, part.last) for part in parts(body, 250)]
    assert units[0] == ("lines", 1, 1)
    assert units[1][:2] == ("characters", 7)
    assert units[-1] == ("lines", 3, 4) or units[-1][0] == "characters"
    assert {unit for unit, _, _ in units[1:-1]} == {"characters"}


def test_five_megabytes_in_one_line_take_few_counts_of_little() -> None:
    body = b"0123456789abcdef" * 327_680
    counts: list[int] = []

    def count(text: str) -> int:
        counts.append(len(text))
        return quarter(text)

    part = recovered(row(body), body, chars=(2_000_000, None), most=5_000, count=count)

    assert 4_500 < part.tokens <= 5_000
    assert len(counts) < 10 and sum(counts) < 500_000
    assert max(counts) < 200_000


@pytest.mark.parametrize(
    "words", ["a" * 60_000, " " * 60_000, "漢" * 60_000, "ab12" * 9_000 + " " * 90_000, "\n" * 9000]
)
def test_parts_are_full_whatever_a_token_holds(words: str) -> None:
    count = tokens.count
    part = recovered(row(words.encode()), words.encode(), most=1_000, count=count)
    assert part.tokens == count(part.text) <= 1_000
    assert part.complete or part.tokens > 700


def test_where_there_is_no_room_that_is_said() -> None:
    for most in (-5, 0, 1, 20):
        with pytest.raises(Refused, match="no room"):
            recovered(row(b"a\nb"), b"a\nb", most=most, count=quarter)
        with pytest.raises(Refused, match="no room"):
            recovered(row(b"a\nb"), b"a\nb", grep="a", most=most, count=quarter)
    for most in (-5, 0, 1):
        with pytest.raises(Refused, match="no room"):
            recovered(row(b"a\nb"), b"a\nb", grep="nothing", most=most, count=quarter)
        with pytest.raises(Refused, match="no room"):
            recovered(row(b""), b"", most=most, count=quarter)


@pytest.mark.parametrize(
    ("words", "expected"), [("41:80", (41, 80)), ("41:", (41, None)), (":80", (1, 80)), ("7", (7, 7)), ("1:1", (1, 1))]
)
def test_a_range_can_be_open(words: str, expected: Range) -> None:
    assert span(words) == expected


@pytest.mark.parametrize("words", ["", ":", "a:b", "0:3", "0", "5:4", "-1:3", "1:2:3", "１:２", "9" * 40, "1 : 2"])
def test_what_is_no_range_is_refused(words: str) -> None:
    with pytest.raises(BadInput, match="range"):
        span(words)


def test_a_range_behind_the_end_is_told_the_end() -> None:
    with pytest.raises(BadInput, match="no line 4: it has 3"):
        recovered(row(b"a\nb\nc"), b"a\nb\nc", lines=(4, None), most=500, count=quarter)
    with pytest.raises(BadInput, match="no character 9: it has 5"):
        recovered(row(b"a\nb\nc"), b"a\nb\nc", chars=(9, 9), most=500, count=quarter)
    with pytest.raises(BadInput, match="cannot be combined"):
        recovered(row(b"a"), b"a", chars=(1, 1), lines=(1, 1), most=500, count=quarter)
    assert recovered(row(b""), b"", lines=(1, None), most=500, count=quarter).complete


def test_what_is_no_text_is_said_to_be_none_with_the_way_to_get_it() -> None:
    told = recovered(row(b"caf\xe9\n\0"), b"caf\xe9\n\0", most=500, count=quarter)
    genuine = recovered(row("\ufffd".encode()), "\ufffd".encode(), most=500, count=quarter)

    assert told.content == "caf\ufffd\n\0"
    assert "not UTF-8" in told.header
    assert "recover B17 --file" in told.header
    assert "UTF-8" not in genuine.header

    part = Part(kind="image", role="user", origin="human", body=b"\x89PNG", ext="png")

    told = recovered(row(b"\x89PNG", part), b"\x89PNG", most=500, count=quarter)

    assert "image of 4 B" in told.header
    assert "recover B17 --file" in told.header
    assert (told.content, told.complete) == ("", True)


def test_of_a_result_of_several_parts_the_texts_are_read_and_images_are_named() -> None:
    import base64

    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}
    content = [{"type": "text", "text": 'say "hi"\n'}, {"type": "image", "source": image}, {"type": "odd", "x": 1}]
    part = wire.part({"type": "tool_result", "tool_use_id": "c", "content": content}, "user", "tool")
    told = recovered(row(part.body, part), part.body, most=500, count=quarter)
    assert told.content == 'say "hi"\n\n[image B17-1.png]\n{"type":"odd","x":1}'
    assert "with B17-1.png: recover B17 --file" in told.header


# --- lines that match


def test_lines_that_match_are_shown_with_their_numbers_and_of_a_long_one_what_is_around() -> None:
    body = b"one\ntwo\nthree\ntwelve"

    told = recovered(row(body), body, grep="tw.", most=500, count=quarter)

    assert told.content == "2: two\n4: twelve\n"
    assert "2 of 2 lines that match tw., of 4 lines" in told.header
    assert (told.unit, told.first, told.last, told.total, told.complete) == ("matches", 1, 2, 2, True)

    told = recovered(row(b"a\nb"), b"a\nb", grep="z", lines=(2, None), most=500, count=quarter)

    assert (told.content, told.total, told.complete) == ("", 0, True)
    assert "0 of 0 lines that match z" in told.header

    body = b"x" * 9000 + b"needle" + b"y" * 9000

    told = recovered(row(body), body, grep="n.edle", most=500, count=quarter)

    assert "needle" in told.content
    assert len(told.content) < 400


@given(st.lists(st.sampled_from(["a", "b", "ab", "a" * 500, "", "ba\r"]), max_size=80), st.integers(160, 400))
def test_all_parts_of_a_search_are_all_lines_that_match(lines: list[str], most: int) -> None:
    body = "\n".join(lines).encode()
    text = "".join(part.content for part in parts(body, most, grep="a"))
    numbers = [int(line.partition(":")[0]) for line in text.split("\n")[:-1]]
    assert numbers == [number for number, line in enumerate(body.decode().split("\n"), 1) if "a" in line]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*!x", "((a{1,99}){1,99}){1,99}b", "(?R)", r"(\w+)\1+!"])
@pytest.mark.timeout(60)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    body = b"a" * 20_000 + b"\n" + b"a" * 3_000 + b"\n"
    try:
        recovered(row(body), body, grep=pattern, most=500, count=quarter)
    except BadInput as refused:
        assert "takes too long" in str(refused)


@pytest.mark.parametrize("pattern", ["", "(", "[a", "*", "a" * (LONGEST + 1), "a\nb", "(?P<n", "{1\\13"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput) as told:
        recovered(row(b"a"), b"a", grep=pattern, most=500, count=quarter)
    assert len(str(told.value)) < 400


def test_a_match_never_reaches_into_the_next_line() -> None:
    found = [match.line for match in compiled(r"\s+b|a[^x]*c").lines("a\nb c\n a b\nac")]
    assert found == [3, 4]


@pytest.mark.parametrize("pattern", [r"a(?!\nb)", r"a$", r"^a", r"a\Z", r"(?<!\n)b", r"[^x]++", r"(?i)A"])
def test_a_line_matches_or_not_whatever_stands_around_it(pattern: str) -> None:
    text = "a\nb\nxa\nax\n\nb a"
    alone = [number for number, line in enumerate(text.split("\n"), 1) if list(compiled(pattern).lines(line))]
    assert [match.line for match in compiled(pattern).lines(text)] == alone


def test_in_a_giant_line_a_match_across_two_windows_is_found() -> None:
    for at in (0, *range(WINDOW - OVERLAP - 8, WINDOW + 8), 49_994):
        words = "x" * at + "needle" + "x" * (49_994 - at)
        (match,) = compiled("need?le+").lines(words)
        assert words[match.start : match.stop] == "needle"


# --- groups


def test_a_group_is_listed_by_its_members() -> None:
    a = row(b"out", id="B1", tool="Bash", label="pytest -q", group="G2")
    stub = f"[archived {row(b'x', id='B3').handle}: tool_result, 9 tokens; arguments a]b; the [index] text; recover B3]"
    b, c = row(b"in", id="B2", label="inner", group="G1"), row(b"x", id="B3", stub=stub, group="G2")
    inner = Group(id="G1", members=("B2", "G1"), label="a nested\none", group="G2")
    group = Group(id="G2", members=("B1", "G1", "B3", "B9", "nonsense", "G9"), level=2)
    ledger = Ledger(meta=Meta(format=1, session="s", scope="main")).with_rows([a, b, c]).with_groups([inner, group])

    told = members(group, ledger, tokens=lambda each: each.bytes, most=500, count=quarter)

    assert told.content.split("\n") == [
        f"{a.handle}  tool_result of Bash, 3 tokens: pytest -q",
        "G1  group of 1 blocks, 2 tokens: a nested one; recover G1",
        f"{c.handle}  tool_result, 1 tokens: arguments a)b; the (index) text",
        "B9  not in this scope",
        "nonsense  not in this scope",
        "G9  not in this scope",
    ]
    assert told.header == "[recovered G2: lines 1-6 of 6]"


def test_a_large_group_is_listed_in_parts() -> None:
    rows = [row(b"x", id=f"B{number}", label=f"block {number}") for number in range(1, 300)]
    group = Group(id="G1", members=tuple(row.id for row in rows))
    ledger = Ledger(meta=Meta(format=1, session="s", scope="main")).with_rows(rows).with_groups([group])
    found, call = "", "recover G1 --lines 1:"

    while call:
        where = span(call.rpartition(" ")[2])
        told = members(group, ledger, tokens=lambda each: each.bytes, most=300, count=quarter, lines=where)
        assert quarter(told.text) <= 300
        found += told.content
        call = told.next

    assert re.findall(r"^B[0-9]+", found, re.MULTILINE) == [row.id for row in rows]


def test_readable_never_fails() -> None:
    for body in (b"[1,null,{}]", b"{", b"[" * 100_000, b"\xff", b""):
        for kind in ("tool_result", "tool_use", "other"):
            held = row(body, kind=kind, ext="json", extra={"ctxvc": {"parts": True}})
            assert isinstance(readable(held, body), str)
            assert isinstance(readable(msgspec.structs.replace(held, extra={"ctxvc": 7}), body), str)
