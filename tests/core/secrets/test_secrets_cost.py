"""What a search for secrets costs, and that it finds what it found when each rule looked through all of a text."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.secrets import find as secret_search
from ctxvc.core.secrets import rules
from ctxvc.core.secrets.redact import Criteria, Finding, find, strings
from tests.core import adversarial
from tests.making import secrets as planting

#: As one pattern, which reads a text again from each line that begins a key.
PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:[\s\S]{1,16384}?-----END (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
    rb"|(?:(?:\s|\\[nr])+(?:(?:[0-9]+(?:\xe2\x86\x92|\xe2\x94\x82|[:|\t ])|[+>|-])[ \t]*)?[A-Za-z0-9+/=]{16,})+)"
)
JWT = re.compile(
    rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9\[][mK]))"
    rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
)

KEY_PIECES = st.sampled_from(
    [
        b"-----BEGIN RSA PRIVATE KEY-----",
        b"-----BEGIN PRIVATE KEY BLOCK-----",
        b"-----END PRIVATE KEY-----",
        b"-----END RSA PRIVATE KEY-----",
        b"-----",
        b"BEGIN PRIVATE KEY-----",
        b"END PRIVATE KEY-----",
        b"\n",
        b"\\n",
        b"12: ",
        b"+",
        b" ",
        b"x",
        b"A" * 5 + b"b1c2d3e4f5g6h7i8" * 3,
        b"Q7" * 8_000,
    ]
)
JWT_PIECES = st.sampled_from(
    [b"eyJ", b".eyJ", b".", b"~", b"a" * 10, b"b1-_" * 4, b"0m", b"\\n", b"%41", b"-", b" ", b"eyJaaaaaaaaaaaaaaaa."]
)


@example(b"-----BEGIN PRIVATE KEY----------END PRIVATE KEY-----\n" + b"A1b2C3d4" * 10 + b"\n-----END PRIVATE KEY-----")
@given(st.lists(KEY_PIECES, max_size=12).map(b"".join))
def test_a_private_key_is_found_as_by_one_pattern(data: bytes) -> None:
    expected = [match.span() for match in PRIVATE_KEY.finditer(data) if rules.is_private(match[0])]
    assert [place[:2] for place in secret_search._private_keys(data)] == expected


@given(st.lists(JWT_PIECES, max_size=14).map(b"".join))
def test_a_token_of_three_parts_is_found_as_by_one_pattern(data: bytes) -> None:
    check = rules.JWT.check
    assert check is not None
    expected = [match.span() for match in JWT.finditer(data) if check(match[0])]
    plain = data.translate(secret_search._RUN)
    assert [place[:2] for place in secret_search._jwts(data, plain, 0, len(data))] == expected


def _texts(seed: int, count: int) -> list[bytes]:
    """Secrets, halves of them, and what may stand between, put together by chance."""
    chance = random.Random(seed)
    anchors = sorted({anchor for rule in rules.TOKENS for anchor in rule.anchors})
    between = b' |\n|.|-|_|~|\\n|%41|0m|"|=|: |://|@|--| --token=|password=|api_key: |Cookie: |sid=|-u|key|\t'.split(
        b"|"
    )

    def letters(most: int) -> bytes:
        return "".join(chance.choices(planting.ALNUM, k=chance.randrange(most))).encode()

    pieces: list[Callable[[], bytes]] = [
        lambda: chance.choice(anchors) + letters(60),
        lambda: letters(40),
        lambda: chance.choice(between),
        lambda: chance.choice(between),
        lambda: planting.KINDS[chance.choice(sorted(planting.KINDS))](chance).encode(),
        lambda: b".eyJ" + letters(30),
    ]
    return [b"".join(chance.choice(pieces)() for _ in range(chance.randrange(1, 14))) for _ in range(count)]


def test_what_is_found_is_what_was_found_before() -> None:
    found = [[tuple(each) for each in find(data)] for data in _texts(20261122, 1_500)]
    assert sum(map(len, found)) == GOLDEN[0]
    assert hashlib.sha256(repr(found).encode()).hexdigest() == GOLDEN[1]


#: How many findings, and their checksum, as the rules gave them when each looked at each run by itself.
GOLDEN = (932, "d53bf1c02378581ce3fa10521ef09cdabc41ee5c5a20fb63acbf9ea1b281bed4")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [*adversarial.TEXTS, *adversarial.DENSE])
def test_a_text_made_to_cost_much_is_read_to_its_end(name: str) -> None:
    """In the square of its length, it would take minutes."""
    made = {**adversarial.TEXTS, **adversarial.DENSE}[name]
    assert find(made(60_000 if name in adversarial.DENSE else 400_000)) == []


@pytest.mark.timeout(60)
def test_many_findings_among_many_marks_and_allowed_ones_take_no_square() -> None:
    secret = b"AKIAQWERTYUIOPASDFGH"
    data = (secret + b" [REDACTED:github-token:00000000] AKIAQWERTYUIOPASDFGJ ") * 1_500
    allowed = Criteria(frozenset({hashlib.sha256(secret).hexdigest()}))
    assert len(find(data)) == 3_000
    assert len(find(data, allowed)) == 1_500


def test_what_another_scanner_finds_around_a_mark_is_the_mark() -> None:
    data = b"a [REDACTED:github-token:00000000] b"
    around = Criteria(scan=lambda _: [Finding(0, 20, "else"), Finding(35, 36, "else")])
    assert find(data, around) == [Finding(35, 36, "else")]


# --- JSON

JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab"\\/\n\t :é'), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('ab"\\ '), max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
def test_each_string_of_json_is_seen_once_with_its_key(value: Any) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def look(word: bytes, name: bytes) -> bytes:
        seen.append((word, name))
        return word

    data = wire.compact(value)
    assert strings(data, look) == data
    assert [(word.decode(), name.decode()) for word, name in seen] == list(_strings(value))


def _strings(value: Any, name: str = "") -> Any:
    match value:
        case str():
            yield value, name
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for key, item in value.items():
                yield key, ""
                yield from _strings(item, key) if isinstance(item, str) else _strings(item)


@given(JSON, st.sampled_from([b"x", b'"', b"\\", b'\\"']))
def test_a_changed_string_leaves_the_rest_as_it_is(value: Any, new: bytes) -> None:
    data = wire.compact(value)
    changed = wire.parse(strings(data, lambda word, _: new if word == b"a" else word))
    assert changed == _replaced(value, new.decode())


def _replaced(value: Any, new: str) -> Any:
    match value:
        case str():
            return new if value == "a" else value
        case list():
            return [_replaced(item, new) for item in value]
        case dict():
            return {_replaced(key, new): _replaced(item, new) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    "data", [b'"' * 50_000, b'"' + b'\\"' * 50_000, b'"' + b"\\n" * 50_000, b'["a' + b" " * 50_000]
)
@pytest.mark.timeout(60)
def test_json_that_is_none_stays_as_it_is(data: bytes) -> None:
    """In the square of its length, it would take minutes."""
    assert strings(data, lambda word, _: word) == data


def test_a_string_that_has_no_end_is_looked_at_too() -> None:
    assert strings(b'{"a": "b', lambda word, _: b"c" if word == b"b" else word) == b'{"a": "c'
