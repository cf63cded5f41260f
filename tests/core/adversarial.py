"""Texts that are made to cost a search for secrets as much as they can; none of them holds one.

Each was slower than ordinary text once, or is of a form that some rule begins to match everywhere in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def repeated(unit: bytes, size: int) -> bytes:
    return (unit * (size // len(unit) + 1))[:size]


def _random(characters: bytes, size: int) -> bytes:
    return bytes(random.Random(7).choices(characters, k=size))


#: name → a text of about so many bytes.
TEXTS: dict[str, Callable[[int], bytes]] = {
    "lines that begin a private key": lambda size: repeated(b"-----BEGIN RSA PRIVATE KEY-----\n", size),
    "keys whose end is cut": lambda size: repeated(b"-----BEGIN RSA PRIVATE KEY-----\n-----END RSA PRIVATE KE", size),
    "one line of base64": lambda size: _random(_BASE64, size),
    "one line of letters": lambda size: repeated(b"a", size),
    "equals signs": lambda size: repeated(b"=", size),
    "quotes": lambda size: repeated(b'"', size),
    "signs of an assignment": lambda size: repeated(b"=\"'`\\", size),
    "AKIA without end": lambda size: repeated(b"AKIA", size),
    "ghp_ without end": lambda size: repeated(b"ghp_", size),
    "eyJ behind colours": lambda size: repeated(b"0meyJ", size),
    "first halves of tokens of three parts": lambda size: repeated(b"eyJaaaaaaaaaaaa.eyJaaaaaaaaaaaa.-", size),
    "escaped escapes": lambda size: repeated(b"\\\\\\\\n", size),
    "addresses with half a password": lambda size: repeated(b"https://user:pass/", size),
    "one address without end": lambda size: b"://@" + repeated(b"a", size),
    "dashes": lambda size: b" " + repeated(b"-", size),
    "names without a value": lambda size: repeated(b"key=", size),
}

#: Up to thirty times as slow as ordinary text, but no slower for each byte where there are more: names that are looked
#: at one by one, with a value of the longest kind behind each.
DENSE: dict[str, Callable[[int], bytes]] = {
    "cookies without a header": lambda size: repeated(b"session=a1b2c3d4e5f6a7b8c9d0e1f2 ", size),
    "names with values that are none": lambda size: repeated(b"api_key=aaaaaaaa1", size),
    "an option in an option": lambda size: repeated(b" --password-password-token-secret", size),
    "marks": lambda size: repeated(b"[REDACTED:github-token:00000000]", size),
    "the beginnings of all tokens": lambda size: repeated(
        b" ".join(anchor + b"a" * 25 for anchor in (b"ghp_", b"sk-", b"xoxb-", b"npm_", b"AKIA", b"hf_", b"r8_")), size
    ),
}
