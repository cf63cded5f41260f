"""Encoded texts: found at every alignment, replaced so that the rest still decodes to what it was."""

from __future__ import annotations

import base64
import json
import re
import textwrap
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote, quote_plus, unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxvc.core.secrets.encodings import SHORTEST, Search, beginnings

SECRET = 'plum harbour/9431+vioé"let\n'.encode()
MARK = b"[REDACTED:purged:0123abcd]"
SEARCH = Search({SECRET: MARK})
#: What a mark in Base64 has behind it, so that the groups behind it stay where they are.
DOTTED = re.compile(re.escape(MARK) + rb"\.{0,2}")


class Form(NamedTuple):
    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]


def _wrapped(width: int, end: bytes) -> Callable[[bytes], bytes]:
    return lambda data: end.join(map(str.encode, textwrap.wrap(base64.b64encode(data).decode(), width)))


def _percent(data: bytes, digits: str) -> bytes:
    return "".join(f"%{byte:{digits}}" for byte in data).encode()


def _unplus(data: bytes) -> bytes:
    return unquote_to_bytes(data.replace(b"+", b" "))


def _from_json(data: bytes) -> bytes:
    return json.loads(b'"%s"' % data).encode()


def _quoted(data: bytes) -> bytes:
    return json.dumps(data.decode())[1:-1].encode()


FORMS = {
    "base64": Form(base64.b64encode, base64.b64decode),
    "base64 for URLs": Form(base64.urlsafe_b64encode, base64.urlsafe_b64decode),
    "base64 without padding": Form(
        lambda data: base64.b64encode(data).rstrip(b"="), lambda data: base64.b64decode(data + b"=" * (-len(data) % 4))
    ),
    "base64 in lines of 76": Form(_wrapped(76, b"\n"), base64.b64decode),
    "base64 in lines of 64": Form(_wrapped(64, b"\r\n    "), base64.b64decode),
    "base64 in lines within JSON": Form(_wrapped(76, b"\\n"), lambda data: base64.b64decode(data.replace(b"\\n", b""))),
    "base64 in a URL": Form(
        lambda data: quote(base64.b64encode(data), safe="").encode(),
        lambda data: base64.b64decode(unquote_to_bytes(data)),
    ),
    "base64 with its slashes escaped": Form(
        lambda data: base64.b64encode(data).replace(b"/", b"\\/"),
        lambda data: base64.b64decode(data.replace(b"\\", b"")),
    ),
    "hex": Form(lambda data: data.hex().encode(), lambda data: bytes.fromhex(data.decode())),
    "HEX": Form(lambda data: data.hex().upper().encode(), lambda data: bytes.fromhex(data.decode())),
    "a URL's path": Form(lambda data: quote(data).encode(), unquote_to_bytes),
    "a URL's component": Form(lambda data: quote(data, safe="").encode(), unquote_to_bytes),
    "a form": Form(lambda data: quote_plus(data).encode(), _unplus),
    "%xx": Form(lambda data: _percent(data, "02x"), unquote_to_bytes),
    "%XX": Form(lambda data: _percent(data, "02X"), unquote_to_bytes),
    "a URL in a URL": Form(
        lambda data: quote(quote(data, safe=""), safe="").encode(),
        lambda data: unquote_to_bytes(unquote_to_bytes(data)),
    ),
    "JSON in ASCII": Form(_quoted, _from_json),
    "JSON in JSON": Form(lambda data: _quoted(_quoted(data)), lambda data: _from_json(_from_json(data))),
    "JSON in JSON in JSON": Form(
        lambda data: _quoted(_quoted(_quoted(data))), lambda data: _from_json(_from_json(_from_json(data)))
    ),
    "JSON, each character escaped": Form(
        lambda data: re.sub("....", r"\\u\g<0>", data.decode().encode("utf-16-be").hex()).encode(), _from_json
    ),
}
# Neighbours that are encoded with it, and text around it. What JSON quotes is text, so all of it is.
NEIGHBOURS = st.text(st.characters(codec="utf-8", exclude_characters="+."), max_size=40).map(str.encode)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@given(before=NEIGHBOURS, after=NEIGHBOURS)
@example(b"", b"").via("alone")
@example(b"a", b"b").via("the second alignment")
@example(b"ab", b"cde").via("the third")
def test_a_text_is_replaced_at_every_alignment_and_its_neighbours_stay(form: Form, before: bytes, after: bytes) -> None:
    data = b'see "' + form.encode(before + SECRET + after) + b'", please'
    assert SEARCH.has(data)
    clean = SEARCH.without(data)
    assert not SEARCH.has(clean)
    assert (clean[:5], clean[-9:]) == (data[:5], data[-9:])
    assert DOTTED.sub(b"|", form.decode(clean[5:-9]), count=1) == before + b"|" + after


@pytest.mark.parametrize("name", ["base64", "base64 in lines of 76", "hex", "a URL's component", "JSON in JSON"])
def test_each_of_many_goes_and_the_rest_stays(name: str) -> None:
    form = FORMS[name]
    parts = [b"x" * number for number in range(40)]
    clean = SEARCH.without(form.encode(SECRET.join(parts)))
    assert not SEARCH.has(clean)
    assert DOTTED.split(form.decode(clean)) == parts


@pytest.mark.parametrize("name", ["base64", "base64 in lines of 76", "hex", "%xx", "JSON, each character escaped"])
def test_of_several_texts_each_gets_its_own_mark(name: str) -> None:
    first, second = b"[REDACTED:purged:00000001]", b"[REDACTED:purged:00000002]"
    search = Search({b"correct-horse": first, b"correct-horse-battery": second})
    clean = search.without(FORMS[name].encode(b"a correct-horse, correct-horse-battery?"))
    assert FORMS[name].decode(clean).replace(b".", b"") == b"a %s, %s?" % (first, second)


@given(st.binary(max_size=400), st.sampled_from([base64.b64encode, bytes.hex, quote]))
def test_what_only_resembles_it_stays(data: bytes, encode: Callable[[bytes], str | bytes]) -> None:
    written = encode(data.replace(SECRET, b""))
    text = written.encode() if isinstance(written, str) else written
    assert SEARCH.without(text) is text


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_text_of_which_a_part_is_missing_stays(cut: int) -> None:
    whole = base64.b64encode(SECRET)
    for part in (whole.rstrip(b"=")[:-cut], whole[cut:]):
        assert not SEARCH.has(b"(" + part + b")")


def test_of_a_short_text_no_encoded_form_is_looked_for_but_of_the_others_it_is() -> None:
    word = b"s3cre"
    assert len(word) == SHORTEST - 1
    search = Search({word: MARK})
    for form in (base64.b64encode(word), word.hex().encode(), _percent(word, "02x")):
        assert search.without(form) is form
    assert beginnings(word) == []
    assert Search({b"hunter": MARK}).without(base64.b64encode(b"me:hunter")) == base64.b64encode(b"me:" + MARK + b".")
    assert Search({b"abc": MARK, SECRET: MARK}).has(SECRET.hex().encode())


@given(NEIGHBOURS, st.integers(12, 30))
def test_the_usual_forms_begin_as_the_encoders_write_them(before: bytes, size: int) -> None:
    """They are looked for where a line was cut; the characters that also say something of what is before are not."""
    encoded = base64.b64encode(before + SECRET)
    assert any(form[:size] in encoded for form in beginnings(SECRET))


@pytest.mark.parametrize("glued", ["", "a", "ab", "a/b", "key/"])
@pytest.mark.parametrize("name", ["base64", "hex", "HEX"])
def test_what_looks_like_its_beginning_does_not_hide_it(glued: str, name: str) -> None:
    """A path or a word before it is of the same alphabet; where the text's own characters begin, nobody says."""
    form = FORMS[name]
    data = glued.encode() + form.encode(b"user:" + SECRET + b"?")
    clean = SEARCH.without(data)
    assert clean.startswith(glued.encode())
    assert DOTTED.sub(b"|", form.decode(clean[len(glued) :])) == b"user:|?"


@pytest.mark.parametrize("before", [1, 2])
def test_of_encoded_text_whose_beginning_is_missing_the_rest_goes(before: int) -> None:
    encoded = base64.b64encode(b"?" * before + SECRET + b" and more")
    data = encoded[before:]  # the characters that are missing say nothing of it
    assert SEARCH.has(data)
    clean = SEARCH.without(data)
    assert not SEARCH.has(clean)
    assert DOTTED.split(base64.b64decode(encoded[:before] + clean)) == [b"?" * before, b" and more"]


def test_a_text_whose_first_or_last_bits_are_missing_is_not_taken_for_it() -> None:
    """They would be zero where nothing stands: `p` ends with four zeros."""
    word = b"one long step and another long step"
    encoded = base64.b64encode(word).rstrip(b"=")
    assert Search({word: MARK}).has(encoded) and not Search({word: MARK}).has(encoded[:-1])
    word = b"\0\0\0one long step and another long step."
    encoded = base64.b64encode(word)
    assert Search({word: MARK}).has(encoded) and not Search({word: MARK}).has(encoded[1:])


@pytest.mark.parametrize("name", ["base64 in lines of 76", "base64 in lines of 64", "base64 in lines within JSON"])
def test_a_text_that_goes_over_the_end_of_a_line_goes(name: str) -> None:
    for size in range(30, 57):
        clean = SEARCH.without(FORMS[name].encode(b"x" * size + SECRET + b"y" * 60))
        assert DOTTED.split(FORMS[name].decode(clean)) == [b"x" * size, b"y" * 60]


def test_a_long_text_goes_from_lines_of_forty_characters() -> None:
    search = Search({3 * SECRET: MARK})
    clean = search.without(_wrapped(40, b"\n")(b"a" + 3 * SECRET + b"bc"))
    assert DOTTED.sub(b"|", base64.b64decode(clean)) == b"a|bc"


@pytest.mark.parametrize(("name", "deep"), [("JSON in ASCII", 3), ("a URL's component", 2)])
def test_encodings_within_encodings_are_followed_so_deep_that_no_text_decides_how_long_it_takes(
    name: str, deep: int
) -> None:
    nested = [SECRET]
    for _ in range(deep + 1):
        nested.append(FORMS[name].encode(nested[-1]))
    assert [SEARCH.has(data) for data in nested[1:]] == [True] * deep + [False]


def test_hexadecimal_digits_keep_their_case_and_base64_its_alphabet() -> None:
    assert FORMS["HEX"].encode(MARK) == SEARCH.without(FORMS["HEX"].encode(SECRET))
    data = base64.urlsafe_b64encode(b"\xfb\xef\xff" + SECRET + b"\xfb\xef\xbe")
    clean = SEARCH.without(data)
    assert not set(clean) & set(b"+/") and clean.startswith(data[:4])
    assert not set(Search({SECRET: b"\xff\xfb\xef\xbe" * 6}).without(data)) & set(b"+/")


def test_what_stands_as_it_is_beside_an_escape_stays() -> None:
    """It was replaced before: a mark may have the text in it."""
    assert Search({b"REDACTED": MARK}).without(data := b'"[REDACTED:purged:0123abcd] \\u00e9"') is data
