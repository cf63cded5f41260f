"""Where the rules find secrets in a text.

Ordinary text costs little: what has no long run of a token's characters, no address and no telling word is let go after
one look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import ascii_letters, digits

from ctxvc.core import secret_rules as rules
from ctxvc.core.secret_rules import Rule

#: Between which two offsets in bytes a secret stands, and its kind.
Place = tuple[int, int, str]


def places(data: bytes) -> list[Place]:
    """Where secrets stand in a text, the more certain kinds first. One may overlap another."""
    return [*_tokens(data), *_addresses(data), *_by_their_words(data), *_named(data)]


def _classes(kinds: Mapping[str, str], other: str) -> bytes:
    """A table for `bytes.translate`: each of these characters becomes the one that it is listed under."""
    table = bytearray(other.encode() * 256)
    for kind, characters in kinds.items():
        for character in characters.encode():
            table[character] = ord(kind)
    return bytes(table)


# Finding something in a translation is several times as fast as a pattern for it in the text itself.
_RUN = _classes({"a": ascii_letters + digits + "_-~"}, " ")
_LONG = b"a" * rules.RUN
_CLASSES = _classes({"d": digits, "a": ascii_letters + "_-+/.~!@#%^?", "=": ":=>", " ": " \t", '"': "\"'`\\"}, ".")
#: Where something is given a value of some length, in such a translation.
_GIVEN = re.compile(rb'=[ "]{0,5}(?:a{5,6} |a")?(?=[ad]{8})a{0,48}d')
#: Of a name and a key beside it, the fewest bytes.
_BESIDE = 20
_BEHIND_A_NAME = b" \t\"'`\\]:=0123456789"

# The longest of those that begin alike comes first.
_ANCHORS = re.compile(
    b"|".join(map(re.escape, sorted({anchor for rule in rules.TOKENS for anchor in rule.anchors}, reverse=True)))
)
#: The beginning of a token behind another word in the same run.
_GLUED = re.compile(
    b"[_-][A-Za-z]?(?:%s)"
    % b"|".join(
        sorted({re.escape(anchor) for rule in rules.TOKENS for anchor in rule.anchors if rules.is_telling(anchor)})
    )
)
# How the run of a token begins, and what stands before one: the end of a beginning with a dot in it, or what may stand
# before a token without being a part of it.
_HEADS = frozenset(anchor[:3] for rule in rules.TOKENS for anchor in rule.anchors if len(anchor) >= 3)
_SHORT_HEADS = frozenset(anchor for rule in rules.TOKENS for anchor in rule.anchors if len(anchor) == 2)
_BEFORE = (
    b"\\",
    b"%",
    b"[",
    b";",
    *(anchor for rule in rules.TOKENS for anchor in rule.anchors if anchor.endswith(b".") and len(anchor) > 1),
)


def _tokens(data: bytes) -> Iterator[Place]:
    """Tokens that are known by how they begin."""
    for start, end in _runs(data):
        if not (
            data[start : start + 3] in _HEADS
            or data[start : start + 2] in _SHORT_HEADS
            or data[max(0, start - 9) : start].endswith(_BEFORE)
            or (end - start >= 60 and data[start - 1 : start] == b".")
            or data[end - 5 : end - 1].find(b"-us") >= 0
            or (end - start >= 37 and data.find(b"Q~", start, end) >= 0)
            or (end - start <= 28 and data[start] in b"MNO" and data[end : end + 1] == b".")
            or _GLUED.search(data, start, end)
        ):
            continue
        there = {*_ANCHORS.findall(data, max(0, start - 9), end + 10)}
        for rule in rules.TOKENS if there else ():
            if not there.isdisjoint(rule.anchors) and end - start >= rule.least:
                yield from _matches(rule, data, max(0, start - 32), end + 512)


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where long runs of letters, digits and `_-~` stand. By translation: ten times as fast as a pattern."""
    plain = data.translate(_RUN)
    start = plain.find(_LONG)
    while start >= 0:
        end = plain.find(b" ", start)
        if end < 0:
            yield start, len(data)
            return
        yield start, end
        start = plain.find(_LONG, end)


def _addresses(data: bytes) -> Iterator[Place]:
    if b"://" in data:
        for rule in rules.ADDRESSES:
            if any(anchor in data for anchor in rule.anchors):
                yield from _matches(rule, data, 0, len(data))


def _by_their_words(data: bytes) -> Iterator[Place]:
    if b"PRIVATE KEY" in data:
        yield from _matches(rules.PRIVATE_KEY, data, 0, len(data))
    if b"django-insecure-" in data:
        yield from _matches(rules.DJANGO_KEY, data, 0, len(data))


def _named(data: bytes) -> Iterator[Place]:
    """Values that are secret by their name."""
    # Where a value is given to something, and soon has a digit: a name and a look at it come after that.
    for place in _GIVEN.finditer(data.translate(_CLASSES)):
        at = place.start()
        before = data[max(0, at - 24) : at].lower().rstrip(_BEHIND_A_NAME)
        if before.endswith(rules.NAME_ENDS):
            name = rules.NAME.search(data, max(0, at - 70), at)
            value = name and rules.VALUE.match(data, at)
            if name and value:
                yield from _value(name[1], value)
        elif before.endswith(rules.COOKIE_ENDS):
            yield from _cookie(data, at)
    yield from _beside(data)
    if b" --" not in data:
        return
    for match in rules.OPTION.finditer(data):
        yield from _value(match["name"], match)


def _beside(data: bytes) -> Iterator[Place]:
    """Values whose name stands before them, with no sign between."""
    if len(data) < _BESIDE:
        return
    lower = data.lower()
    for end in rules.BESIDE_ENDS:
        at = lower.find(end)
        while at >= 0:
            at += len(end)
            if value := rules.BESIDE.match(data, at):
                before = rules.SET if value["space"] else rules.WHOLE_NAME
                if before.search(data, max(0, at - 140), at) and (
                    name := rules.WHOLE_NAME.search(data, max(0, at - 62), at)
                ):
                    yield from _value(name[0], value)
            at = lower.find(end, at)


def _cookie(data: bytes, at: int) -> Iterator[Place]:
    """The value of a cookie, in a line with the header."""
    value = rules.VALUE.match(data, at)
    line = max(0, at - 4000, data.rfind(b"\n", 0, at))
    if value and rules.is_key(value["secret"]) and rules.COOKIE.search(data, line, at):
        yield *value.span("secret"), "cookie"


def _value(name: bytes, match: re.Match[bytes]) -> Iterator[Place]:
    value = match["secret"].rstrip(b".")
    if kind := rules.named(name, value):
        start = match.start("secret")
        yield start, start + len(value), kind


def _matches(rule: Rule, data: bytes, start: int, end: int) -> Iterator[Place]:
    group: int | str = "secret" if "secret" in rule.pattern.groupindex else 0
    for match in rule.pattern.finditer(data, start, end):
        if rule.check is None or rule.check(match[group]):
            yield *match.span(group), rule.kind
