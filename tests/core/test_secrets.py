"""Secrets in text: those that are planted are found, ordinary text is left alone, and twice is once."""

from __future__ import annotations

import hashlib
import hmac
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxvc.core import secrets, wire
from ctxvc.core.blocks import Message
from ctxvc.core.secrets import Allowed, Redactor, any_of, find, redact
from tests.core import planting


def mac(secret: bytes) -> str:
    return hmac.new(b"key", secret, hashlib.sha256).hexdigest()[:8]


def cores(planted: planting.Planted) -> list[bytes]:
    """What must not be left of a secret, as it may be quoted: of an address, the part that is secret."""
    secret = planted.secret
    if planted.kind == "connection-string":
        secret = secret.split(":")[2].split("@")[0]
    if planted.kind == "slack-webhook":
        secret = secret.split("/")[-1]
    once = json.dumps(secret)[1:-1]
    return [form.encode() for form in (secret, once, json.dumps(once)[1:-1])]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_a_thousand_planted_secrets_nearly_all_are_found(seed: int) -> None:
    missed = []
    for planted in planting.make(seed, 1000):
        clean = redact(planted.text.encode(), mac)
        if any(core in clean for core in cores(planted)):
            missed.append(planted)

    assert len(planting.KINDS) >= 20
    assert len(missed) <= 5, [(each.kind, each.text) for each in missed]


@pytest.mark.parametrize("line", planting.LINES)
def test_what_only_looks_like_a_secret_is_left_alone(line: str) -> None:
    assert find(line.encode()) == []


def test_one_secret_has_one_mark_and_another_has_another() -> None:
    first, second = (planting.KINDS["github-token"](random.Random(seed)) for seed in (1, 2))

    clean = redact(f"{first} and {second} and {first}".encode(), mac).decode()

    marks = clean.split(" and ")
    assert marks[0] == marks[2] != marks[1]
    assert marks[0] == f"[REDACTED:github-token:{mac(first.encode())}]"


def test_what_is_allowed_stays() -> None:
    planted = next(planting.make(5, 1))
    allowed = Allowed(frozenset({hashlib.sha256(planted.secret.encode()).hexdigest()}))

    assert find(planted.text.encode())
    assert find(planted.text.encode(), allowed) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([planted.text for planted in planting.make(9, 120)]), max_size=4), st.text(max_size=40))
def test_redacting_twice_is_redacting_once(texts: list[str], between: str) -> None:
    once = redact(between.join(texts).encode("utf-8", "surrogatepass"), mac)

    assert redact(once, mac) is once


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_can_be_looked_at(data: bytes) -> None:
    redact(data, mac)


def test_json_stays_json_and_only_the_secret_changes() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    body = b'{ "cmd" : "curl -H \\"X: %s\\"\\n", "n":1.50,"password":"hT7!kQz9#xY2" , "u":"\\u00e9" }' % token.encode()

    clean = Redactor(mac).body(body, "json")

    assert clean == (
        b'{ "cmd" : "curl -H \\"X: [REDACTED:github-token:%s]\\"\\n", "n":1.50,"password":"[REDACTED:password:%s]" , '
        b'"u":"\\u00e9" }' % (mac(token.encode()).encode(), mac(b"hT7!kQz9#xY2").encode())
    )
    assert Redactor(mac).body(clean, "json") == clean


def test_a_secret_that_is_escaped_in_json_is_found() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in token).encode()

    clean = Redactor(mac).body(b'{"a":"' + escaped + b'"}', "json")

    assert json.loads(clean) == {"a": f"[REDACTED:github-token:{mac(token.encode())}]"}


def test_thinking_that_was_changed_has_no_signature_any_more() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    parts = [
        wire.part({"type": "thinking", "thinking": f"so {words}", "signature": "abc"}, "assistant", "model")
        for words in (token, "what")
    ]

    changed, same = Redactor(mac).message(Message(role="assistant", parts=tuple(parts))).parts

    assert b"REDACTED" in changed.body and "signature" not in changed.extra
    assert same is parts[1]


def test_the_rest_of_a_content_block_is_looked_at_too() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    block = {"type": "text", "text": "hi", "citations": [{"cited_text": f"the key {token}"}]}

    clean = Redactor(mac).part(wire.part(block, "assistant", "model"))

    assert token not in str(clean.extra) and "REDACTED" in str(clean.extra)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=12), st.binary(max_size=40))
def test_any_of_finds_what_each_word_finds(words: list[bytes], data: bytes) -> None:
    found = any_of(words).search(data)

    places = [at for at in (data.find(word) for word in words) if at >= 0]
    assert (found.start() if found else -1) == min(places, default=-1)
    if found:
        assert len(found[0]) == max(len(word) for word in words if data.startswith(word, found.start()))


def test_a_long_text_without_secrets_comes_back_as_it_is() -> None:
    data = ("\n".join(planting.LINES) * 200).encode()

    assert redact(data, mac) is data
    assert list(secrets.secrets(data, "txt")) == []
