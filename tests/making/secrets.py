"""Secrets that nobody owns, in the forms that real ones have, and tool output to plant them in."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
URL = ALNUM + "_-"
BASE64 = ALNUM + "+/"
BASE32 = string.ascii_uppercase + "234567"


class Planted(NamedTuple):
    """A secret in some output; `text` is what the tool printed."""

    kind: str
    secret: str
    text: str


def make(seed: int, count: int) -> Iterator[Planted]:
    """That many secrets, each kind as often as another, each in one of the surroundings."""
    chance = random.Random(seed)
    kinds = list(KINDS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        secret = KINDS[kind](chance)
        yield Planted(kind, secret, _around(chance, NAMES.get(kind, "TOKEN"), secret, named=kind in NAMED))


def _some(chance: random.Random, characters: str, count: int) -> str:
    return "".join(chance.choices(characters, k=count))


def _jwt(chance: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": _some(chance, string.digits, 10), "iat": chance.randrange(1_500_000_000, 1_800_000_000)}
    return ".".join((part({"alg": "HS256", "typ": "JWT"}), part(claims), _some(chance, URL, 43)))


def _private_key(chance: random.Random) -> str:
    kind = chance.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = "\n".join(_some(chance, BASE64, 64) for _ in range(chance.randrange(4, 27)))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n{_some(chance, BASE64, 30)}==\n-----END {kind}PRIVATE KEY-----"


def _password(chance: random.Random) -> str:
    least = [string.ascii_lowercase, string.ascii_uppercase, string.digits, "!@#%^"]
    letters = [chance.choice(each) for each in least] + list(_some(chance, ALNUM, 9))
    chance.shuffle(letters)
    return "".join(letters)


KINDS: dict[str, Callable[[random.Random], str]] = {
    "aws-access-key": lambda c: "AKIA" + _some(c, BASE32, 16),
    "aws-secret-key": lambda c: _some(c, BASE64, 40),
    "github-token": lambda c: c.choice(["ghp_", "gho_", "ghs_"]) + _some(c, ALNUM, 36),
    "github-pat": lambda c: f"github_pat_{_some(c, ALNUM, 22)}_{_some(c, ALNUM, 59)}",
    "gitlab-token": lambda c: "glpat-" + _some(c, URL, 20),
    "slack-token": lambda c: f"xoxb-{_some(c, string.digits, 12)}-{_some(c, string.digits, 12)}-{_some(c, ALNUM, 24)}",
    "slack-webhook": lambda c: (
        f"https://hooks.slack.com/services/T{_some(c, BASE32, 8)}/B{_some(c, BASE32, 8)}/" + _some(c, ALNUM, 24)
    ),
    "stripe-key": lambda c: "sk_live_" + _some(c, ALNUM, 24),
    "npm-token": lambda c: "npm_" + _some(c, ALNUM, 36),
    "pypi-token": lambda c: "pypi-AgEIcHlwaS5vcmcC" + _some(c, URL, 120),
    "private-key": _private_key,
    "jwt": _jwt,
    "connection-string": lambda c: (
        f"postgres://app:{_password(c).replace('@', '!').replace('#', '!')}@db.internal:5432/app"
    ),
    "anthropic-key": lambda c: f"sk-ant-api03-{_some(c, URL, 93)}AA",
    "openai-key": lambda c: f"sk-proj-{_some(c, URL, 74)}T3BlbkFJ{_some(c, URL, 74)}",
    "openai-key-old": lambda c: f"sk-{_some(c, ALNUM, 20)}T3BlbkFJ{_some(c, ALNUM, 20)}",
    "google-api-key": lambda c: "AIza" + _some(c, URL, 35),
    "google-oauth": lambda c: "GOCSPX-" + _some(c, URL, 28),
    "azure-account-key": lambda c: _some(c, BASE64, 86) + "==",
    "azure-secret": lambda c: f"{_some(c, ALNUM, 3)}8Q~{_some(c, URL, 34)}",
    "sendgrid-key": lambda c: f"SG.{_some(c, URL, 22)}.{_some(c, URL, 43)}",
    "twilio-key": lambda c: "SK" + _some(c, HEX, 32),
    "telegram-token": lambda c: f"{_some(c, '123456789', 10)}:AA{_some(c, URL, 33)}",
    "discord-token": lambda c: f"M{_some(c, ALNUM, 23)}.{_some(c, ALNUM, 6)}.{_some(c, URL, 38)}",
    "huggingface-token": lambda c: "hf_" + _some(c, string.ascii_letters, 34),
    "password": _password,
    "secret-hex": lambda c: _some(c, HEX, 32),
    "bearer": lambda c: _some(c, URL, 40),
}

#: What such a secret is called where it is given to a name.
NAMES = {
    "aws-secret-key": "aws_secret_access_key", "azure-account-key": "AccountKey", "password": "DB_PASSWORD",
    "secret-hex": "APP_SECRET_KEY", "connection-string": "DATABASE_URL", "bearer": "access_token",
    "private-key": "SSH_KEY",
}  # fmt: skip
#: Kinds that only their name gives away.
NAMED = frozenset({"aws-secret-key", "azure-account-key", "password", "secret-hex", "bearer"})


def _around(chance: random.Random, name: str, secret: str, *, named: bool) -> str:
    """Output with the secret in it, as programs print it."""
    before = "\n".join(chance.sample(LINES, 3))
    forms = [
        f"{name}={secret}",
        f'export {name}="{secret}"',
        json.dumps({"region": "eu-west-1", name: secret}, indent=1),
        json.dumps({"stdout": json.dumps({name: secret})}),
        f"{name}: {secret}",
        f"{name} = '{secret}'  # production",
    ]
    if not named:
        forms += [
            f"2026-11-20 10:31:02 INFO using {secret} for the upload",
            f"curl -H 'Authorization: Bearer {secret}' https://api.internal/v1/things",
            f"https://api.internal/v1?key={secret}&page=2",
            f"+  client = Client({secret!r})",
        ]
    return f"{before}\n{chance.choice(forms)}\n{chance.choice(LINES)}\n"


LINES = [
    "drwxr-xr-x  4 root root 4096 Nov 20 18:00 node_modules",
    "commit 3b1f7ac09dbd4cf4b1b7f7b2c7d2b3a1ad0e4b8c",
    "integrity sha512-Qb6uSXT0xAfX0yh1zCMbvVL9VfGfUkYOqsQcKp7UQf1rDdTkO2nNFqJg3b0d8b8jYFsB9aVQy2PFK2xQf7mQbA==",
    "toolu_01A09q90qw90lq917835lq9",
    "tests/test_login.py::test_the_second_writer_is_told PASSED",
    'id: 7f0c1de4-13f1-4c5e-9c0f-2b8a3b6d2f10, trace "4bf92f3577b34da6a3ce929d0e0e4736"',
    "max_tokens=4096 input_tokens: 1523 token_count = 77",
    "https://example.com/a/b?x=1&y=2#part",
    "def authenticate(user, password): return check(user, password)",
    'password = os.environ["DB_PASSWORD"]',
    "sk_test_your_key_here AKIAIOSFODNN7EXAMPLE ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "Downloading torch-2.4.0-cp311-cp311-manylinux1_x86_64.whl (797.3 MB)",
]
