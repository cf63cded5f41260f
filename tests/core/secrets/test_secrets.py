"""Secrets in text: those that are planted are found, ordinary text is left alone, and twice is once."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.patterns import any_of
from ctxvc.core.recording.events import Opened
from ctxvc.core.secrets import redact as secrets
from ctxvc.core.secrets.redact import MARK, Criteria, Finding, Redactor, find, redact
from tests.making import secrets as planting

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


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


@pytest.mark.parametrize("seed", [1, 2])
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


#: What stands before each line: numbers and the signs of a diff are known also where the end of the key is missing.
NUMBERED = ("{:6}→", "{:>4}\t", "+", "> ")


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        *((before, slice(None)) for before in (*NUMBERED, "  │ ", "id_rsa:{}:", "é ")),
        *((before, slice(4)) for before in NUMBERED),
    ],
)
def test_a_private_key_goes_whole_whatever_stands_before_its_lines(before: str, lines: slice) -> None:
    key = planting.KINDS["private-key"](random.Random(7)).split("\n")[lines]
    text = "\n".join(before.format(number) + line for number, line in enumerate(key, 1))
    clean = redact(f"$ cat é\n{text}\n\nLet me see é.".encode(), mac).decode()
    assert "REDACTED:private-key" in clean and not any(line in clean for line in key[1:4])
    assert clean.startswith("$ cat é\n") and clean.endswith("see é.")


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("github-token", "curl -u{}: https://api.internal"),
        ("github-token", "branch fix-{}"),
        ("github-token", "token_{}"),
        ("aws-access-key", "fix-{}"),
        ("slack-token", "for_{}"),
        ("aws-secret-key", "SecretAccessKey\t{}"),
        ("aws-secret-key", "| SecretAccessKey | {} |"),
        ("aws-secret-key", "SecretAccessKey  |  {}"),
        ("secret-hex", "api_key,{}"),
        ("secret-hex", "define('AUTH_KEY', '{}');"),
        ("secret-hex", "set -x API_TOKEN {}"),
        ("secret-hex", "setx MY_SECRET {}"),
        ("secret-hex", "{{'secret': b'{}'}}"),
        ("secret-hex", "machine api.internal login bob password {}"),
        ("secret-hex", "machine api.internal\n  login bob\n  password {}"),
        ("secret-hex", "SECRET_KEY = 'django-insecure-(^$&*{}'"),
        ("secret-hex", "Set-Cookie: theme=dark; session={}; HttpOnly"),
        ("secret-hex", "> cookie: connect.sid={}"),
    ],
)
def test_what_stands_right_before_a_secret_does_not_hide_it(kind: str, line: str) -> None:
    for seed in range(5):
        secret = planting.KINDS[kind](random.Random(seed))
        clean = redact(line.format(secret).encode(), mac).decode()
        assert secret not in clean and "[REDACTED:" in clean, clean
        assert redact(clean.encode(), mac) == clean.encode()


@pytest.mark.parametrize(
    "line",
    [
        "the commit token 3b1f7ac09dbd4cf4b1b7f7b2c7d2b3a1ad0e4b8c is no secret",
        "with open(key, path_of_the_file_1234) as file:",
        "| key | tests/core/test_secrets.py::test_17 |",
        "session=3b1f7ac09dbd4cf4b1b7f7b2c7d2b3a1ad0e4b8c",
        "task_sk-learn-2024-11-20-report-of-the-second-run-77",
        "set the password tests/data/file_1234567",
        "self_npm_install_with_a_very_long_name_of_a_function",
    ],
)
def test_what_only_stands_where_a_secret_may_is_left_alone(line: str) -> None:
    assert find(line.encode()) == []


def test_words_between_the_lines_around_a_key_are_none() -> None:
    text = "-----BEGIN PRIVATE KEY-----\nis how a key begins, and this is how it ends: " + "words " * 40
    text += "\n-----END PRIVATE KEY-----"
    assert find(text.encode()) == []


PLANTED = st.sampled_from([planted.text for planted in planting.make(9, 120)])


@given(st.lists(PLANTED | st.binary(max_size=100), max_size=4), st.text(max_size=40))
def test_redacting_twice_is_redacting_once(texts: list[str | bytes], between: str) -> None:
    data = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts]
    once = redact(between.encode("utf-8", "surrogatepass").join(data), mac)
    assert redact(once, mac) is once


def test_json_stays_json_and_only_the_secret_changes_also_if_it_is_escaped() -> None:
    body = b'{ "cmd" : "curl -H \\"X: %s\\"\\n", "n":1.50,"password":"hT7!kQz9#xY2" , "u":"\\u00e9" }' % TOKEN.encode()

    clean = Redactor(mac).body(body, "json")

    assert clean == (
        b'{ "cmd" : "curl -H \\"X: [REDACTED:github-token:%s]\\"\\n", "n":1.50,"password":"[REDACTED:password:%s]" , '
        b'"u":"\\u00e9" }' % (mac(TOKEN.encode()).encode(), mac(b"hT7!kQz9#xY2").encode())
    )
    assert Redactor(mac).body(clean, "json") == clean

    escaped = "".join(f"\\u{ord(letter):04x}" for letter in TOKEN).encode()

    clean = Redactor(mac).body(b'{"a":"' + escaped + b'"}', "json")

    assert json.loads(clean) == {"a": f"[REDACTED:github-token:{mac(TOKEN.encode())}]"}


def test_thinking_that_was_changed_has_no_signature_any_more() -> None:
    parts = [
        wire.part({"type": "thinking", "thinking": f"so {words}", "signature": "abc"}, "assistant", "model")
        for words in (TOKEN, "what")
    ]
    changed, same = Redactor(mac).message(Message(role="assistant", parts=tuple(parts))).parts
    assert b"REDACTED" in changed.body and "signature" not in changed.extra
    assert same is parts[1]


def test_the_rest_of_a_content_block_is_looked_at_too() -> None:
    block = {"type": "text", "text": "hi", "citations": [{"cited_text": f"the key {TOKEN}"}]}
    clean = Redactor(mac).part(wire.part(block, "assistant", "model"))
    assert TOKEN not in str(clean.extra) and "REDACTED" in str(clean.extra)


def test_a_secret_in_an_id_or_a_name_becomes_a_name_that_a_provider_takes() -> None:
    name = f"redacted-github-token-{mac(TOKEN.encode())}"
    call = wire.call_part(f"mcp.{TOKEN}", f"c.{TOKEN}", b"{}", caller={"tool_id": TOKEN, "said": TOKEN})
    message = Message(role="assistant", parts=(call,), model=f"m/{TOKEN}")
    told = Message(role="user", parts=(wire.result_part("ok", f"c.{TOKEN}"),))

    redactor = Redactor(mac)
    clean, answer = redactor.message(message), redactor.message(told)

    assert clean.parts[0].call == answer.parts[0].call == f"c.{name}"
    assert (clean.parts[0].tool, clean.model) == (f"mcp.{name}", f"m/{name}")
    assert clean.parts[0].extra["caller"] == {"tool_id": name, "said": f"[REDACTED:github-token:{mac(TOKEN.encode())}]"}
    assert redactor.opened(Opened(format="x", model=TOKEN)).model == name
    assert redactor.message(clean) is clean and redactor.message(answer) is answer


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


def test_the_rules_are_loaded_when_a_text_is_looked_at() -> None:
    code = "import sys; from ctxvc.core.secrets.redact import Redactor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ctxvc.core.secrets.redact" in loaded
    assert not {"ctxvc.core.secrets.rules", "ctxvc.core.secrets.find"}.intersection(loaded)


# --- a scanner beside the rules


def scanning(pattern: bytes, kind: str = "other") -> Criteria:
    """Criteria with a scanner that finds what a pattern matches; of that the first group, where it has one."""
    compiled = re.compile(pattern)

    def scan(data: bytes) -> list[Finding]:
        return [Finding(*match.span(compiled.groups), kind) for match in compiled.finditer(data)]

    return Criteria(scan=scan)


def test_what_a_scanner_finds_besides_gets_a_mark_of_its_kind() -> None:
    clean = redact("é plum-4711 and plum-4711é".encode(), mac, scanning(b"plum-[0-9]+", "fruit"))
    assert clean == f"é [REDACTED:fruit:{mac(b'plum-4711')}] and [REDACTED:fruit:{mac(b'plum-4711')}]é".encode()


@pytest.mark.parametrize("around", [(b"", b""), (b"with ", b""), (b"", b"?tail"), (b"with ", b"?tail")])
def test_where_both_find_something_all_of_it_goes_as_one_of_the_rules_kind(around: tuple[bytes, bytes]) -> None:
    both = TOKEN.encode().join(around)
    criteria = scanning(re.escape(both), "other")
    assert redact(b"so: %s ." % both, mac, criteria) == b"so: [REDACTED:github-token:%s] ." % mac(both).encode()


def test_a_finding_over_two_of_the_rules_takes_both_in() -> None:
    first, second = (planting.KINDS["github-token"](random.Random(seed)).encode() for seed in (1, 2))
    text = b"- %s, %s -" % (first, second)
    clean = redact(text, mac, scanning(b"gh.*[^- ](?= -)"))
    assert clean == b"- [REDACTED:github-token:%s] -" % mac(text[2:-2]).encode()


def test_what_is_allowed_stays_whoever_finds_it() -> None:
    allowed = frozenset(hashlib.sha256(each).hexdigest() for each in (TOKEN.encode(), b"plum-4711"))
    text = b"plum-4711 is not with " + TOKEN.encode()
    assert redact(text, mac, scanning(b"plum-[0-9]+|with ghp_.*")._replace(allowed=allowed)) is text
    assert redact(text, mac, scanning(b"plum-[0-9]+|with ghp_.*")) is not text


def test_a_mark_is_no_secret_to_a_scanner() -> None:
    criteria = scanning(rb"[A-Za-z0-9:\[\]]{6,}")
    once = redact(b"say nothing of it", mac, criteria)
    (mark,) = MARK.findall(once)
    quoted = b"x%sy" % mark
    assert redact(once, mac, criteria) is once
    assert redact(quoted, mac, criteria) is quoted


@given(
    st.lists(PLANTED, max_size=3),
    st.text(max_size=40),
    st.sampled_from([rb"[a-z]{3,}[0-9]", rb"[0-9a-f:]{5,}", rb"=[^\n]{4,30}", rb"[^\x00-\x7f]+", rb"D:.", rb"\S+$"]),
)
def test_with_a_scanner_too_twice_is_once(texts: list[str], between: str, pattern: bytes) -> None:
    criteria = scanning(pattern)
    once = redact(between.join(texts).encode("utf-8", "surrogatepass"), mac, criteria)
    assert redact(once, mac, criteria) is once


def test_a_scanner_is_asked_about_what_json_strings_say() -> None:
    body = rb'{ "cmd" : "say \"plum-4711\"\n" , "n":4711, "u":"\u0070lum-12" }'

    redactor = Redactor(mac, scanning(b"plum-[0-9]+", "fruit"))
    clean = redactor.body(body, "json")

    first, second = (mac(each).encode() for each in (b"plum-4711", b"plum-12"))
    marks = rb'{ "cmd" : "say \"[REDACTED:fruit:%s]\"\n" , "n":4711, "u":"[REDACTED:fruit:%s]" }'
    assert clean == marks % (first, second)
    assert redactor.body(clean, "json") == clean
    assert list(secrets.secrets(body, "json", scanning(b"plum-[0-9]+", "fruit"))) == [
        ("fruit", b"plum-4711"),
        ("fruit", b"plum-12"),
    ]


def test_a_scanner_sees_the_name_that_a_string_is_given_to_and_only_the_value_goes() -> None:
    value = b"ab12cd_ef34gh_ij56kl"
    body = b'{"plum_id": "%s", "pear_id": "%s", "other": ["plum_id", "%s"]}' % (value, value, value)
    for pattern in (rb'"plum_id": "(\w+)"', rb'"plum_id": "\w+"'):
        clean = Redactor(mac, scanning(pattern)).body(body, "json")
        assert clean == body.replace(value, b"[REDACTED:other:%s]" % mac(value).encode(), 1)


def test_nothing_passes_a_scanner_that_fails() -> None:
    def fails(data: bytes) -> list[Finding]:
        raise OSError("no scanner")

    redactor = Redactor(mac, Criteria(scan=fails))
    block = {"type": "text", "text": "hi"}

    for ask in (
        lambda: redactor.text("hi"),
        lambda: redactor.body(b'{"a": "b"}', "json"),
        lambda: redactor.part(wire.part(block, "user", "human")),
        lambda: list(secrets.secrets(b"hi", "txt", Criteria(scan=fails))),
    ):
        with pytest.raises(OSError, match="no scanner"):
            ask()
