"""Finds secrets in a text by the rules.

Ordinary text is cheap: one pass suffices if it has no long run of a token's characters, no address and no telling word.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect
from collections.abc import Iterator, Mapping
from string import ascii_letters, digits

from ctxvc.core.patterns import any_of
from ctxvc.core.secrets import rules
from ctxvc.core.secrets.rules import Rule

#: Start and end of a secret as offsets in bytes, and its kind.
Place = tuple[int, int, str]


def places(data: bytes) -> list[Place]:
    """The places of secrets in a text, the more certain kinds first. They may overlap."""
    return [*_tokens(data), *_addresses(data), *_by_their_words(data), *_secret_by_name(data)]


def _classes(kinds: Mapping[str, str], other: str) -> bytes:
    """A table for `bytes.translate` that maps each of these characters to its key in `kinds`, others to `other`."""
    table = bytearray(other.encode() * 256)
    for kind, characters in kinds.items():
        for character in characters.encode():
            table[character] = ord(kind)
    return bytes(table)


# Searching a translation is several times as fast as matching a pattern in the text itself.
_RUN = _classes({"a": ascii_letters + digits + "_-~"}, " ")
_LONG = b"a" * rules.RUN
_CLASSES = _classes({"d": digits, "a": ascii_letters + "_-+/.~!@#%^?", "=": ":=>", " ": " \t", '"': "\"'`\\"}, ".")
#: An assignment of a sufficiently long value, in such a translation.
_GIVEN = re.compile(rb'=[ "]{0,5}(?:a{5,6} |a")?(?=[ad]{8})a{0,48}d')
#: The fewest bytes of a name with a key beside it.
_BESIDE = 20
#: What may follow such a name; nothing does at the end of a text.
_BESIDE_FIRST = frozenset({b'"', b"'", b"`", b" ", b"\t", b"|", b","})
_BEHIND_A_NAME = b" \t\"'`\\]:=0123456789"

#: How far before the run of its anchor, and how far after it, a token is searched for.
_BEFORE_RUN = 32
_BEHIND_RUN = 512

#: Anchor → the numbers of the rules that have it.
_RULES_OF: dict[bytes, list[int]] = {}
for _number, _rule in enumerate(rules.TOKENS):
    for _anchor in _rule.anchors:
        _RULES_OF.setdefault(_anchor, []).append(_number)
_ANCHORS = any_of(_RULES_OF)
#: The beginning of a token that follows another word in the same run.
_GLUED = re.compile(b"[_-][A-Za-z]?" + any_of(filter(rules.is_telling, _RULES_OF)).pattern)
# How the run of a token begins, and what precedes one: the end of a beginning with a dot in it, or what may precede a
# token without being part of it.
_HEADS = frozenset(anchor[:3] for rule in rules.TOKENS for anchor in rule.anchors if len(anchor) >= 3)
_SHORT_HEADS = frozenset(anchor for rule in rules.TOKENS for anchor in rule.anchors if len(anchor) == 2)
_BEFORE = (
    b"\\",
    b"%",
    b"[",
    b";",
    *(anchor for rule in rules.TOKENS for anchor in rule.anchors if anchor.endswith(b".") and len(anchor) > 1),
)


def _tokens(data: bytes) -> list[Place]:
    """Tokens recognised by their beginning: in the order of their runs, and for one run in the order of the rules.

    A rule examines no byte twice, however many runs are close together.
    """
    plain = data.translate(_RUN)
    starts, ends = array("q"), array("q")
    runs_of: dict[int, array[int]] = {}
    for start, end in _runs(plain):
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
        for number in {
            number
            for anchor in {*_ANCHORS.findall(data, max(0, start - 9), end + 10)}
            for number in _RULES_OF[anchor]
            if end - start >= rules.TOKENS[number].least
        }:
            if not starts or starts[-1] != start:
                starts.append(start)
                ends.append(end)
            runs_of.setdefault(number, array("q")).append(len(starts) - 1)
    matches: list[tuple[int, int, Place]] = []
    for number, runs in runs_of.items():
        for run, place in _around(rules.TOKENS[number], data, plain, [(starts[at], ends[at], at) for at in runs]):
            matches.append((run, number, place))
    return [place for _, _, place in sorted(matches)]


def _around(rule: Rule, data: bytes, plain: bytes, runs: list[tuple[int, int, int]]) -> Iterator[tuple[int, Place]]:
    """The matches of a rule around some runs (start, end, number), each with the number of the first run near it.

    The text around several runs is examined once.
    """
    first = behind = 0
    while first < len(runs):
        begin, end = max(0, runs[first][0] - _BEFORE_RUN), runs[first][1] + _BEHIND_RUN
        while behind < len(runs) and runs[behind][0] - _BEFORE_RUN <= end:
            end = runs[behind][1] + _BEHIND_RUN
            behind += 1
        for place in _jwts(data, plain, begin, end) if rule is rules.JWT else _matches(rule, data, begin, end):
            while runs[first][1] + _BEHIND_RUN < place[1]:
                first += 1
            yield runs[first][2], place
        first = behind


def _runs(plain: bytes) -> Iterator[tuple[int, int]]:
    """The places of long runs of letters, digits and `_-~`; translation is ten times as fast as a pattern."""
    start = plain.find(_LONG)
    while start >= 0:
        end = plain.find(b" ", start)
        if end < 0:
            yield start, len(plain)
            return
        yield start, end
        start = plain.find(_LONG, end)


def _jwts(data: bytes, plain: bytes, start: int, end: int) -> Iterator[Place]:
    """Tokens of three parts, located by the dot before the second; each part is read once."""
    dot = data.find(b".eyJ", start, end)
    while dot >= 0:
        begin = None
        if rest := rules.JWT_REST.match(data, dot, end):
            part = max(start, plain.rfind(b" ", start, dot) + 1, data.rfind(b"~", start, dot) + 1)
            begin = rules.JWT.pattern.search(data, part, max(part, dot - rules.JWT_PART))
        start = dot + 1
        if begin and rest:
            start = rest.end()
            if rules.JWT.check is None or rules.JWT.check(data[begin.start() : start]):
                yield begin.start(), start, rules.JWT.kind
        dot = data.find(b".eyJ", start, end)


def _addresses(data: bytes) -> Iterator[Place]:
    if b"://" in data:
        for rule in rules.ADDRESSES:
            if any(anchor in data for anchor in rule.anchors):
                yield from _matches(rule, data, 0, len(data))


def _by_their_words(data: bytes) -> Iterator[Place]:
    if b"PRIVATE KEY" in data:
        yield from _private_keys(data)
    if b"django-insecure-" in data:
        yield from _matches(rules.DJANGO_KEY, data, 0, len(data))


def _private_keys(data: bytes) -> Iterator[Place]:
    """Private keys with the lines around them; without an end, as far as lines look like those of a key."""
    ends = [match.span() for match in rules.KEY_END.finditer(data)]
    at = 0
    for match in rules.KEY_BEGIN.finditer(data):
        start, inside = match.start(), match.end() + rules.DASHES
        if start < at:
            continue
        behind = bisect(ends, (inside, len(data)))  # something is between the two
        if behind < len(ends) and ends[behind][0] - inside <= rules.KEY_BYTES:
            at = ends[behind][1] + rules.DASHES
        elif lines := rules.KEY_LINES.match(data, inside):
            at = lines.end()
        else:
            continue
        if rules.is_private(data[start:at]):
            yield start, at, "private-key"


def _secret_by_name(data: bytes) -> Iterator[Place]:
    """Values that are secret because of their name."""
    # Only assignments whose value soon contains a digit are examined further, by name and looks.
    headers: list[tuple[int, int]] | None = None
    for place in _GIVEN.finditer(data.translate(_CLASSES)):
        at = place.start()
        before = data[max(0, at - 24) : at].lower().rstrip(_BEHIND_A_NAME)
        if before.endswith(rules.NAME_ENDS):
            name = rules.NAME.search(data, max(0, at - 70), at)
            value = name and rules.VALUE.match(data, at)
            if name and value:
                yield from _value(name[1], value["secret"], value.start("secret"))
        elif before.endswith(rules.COOKIE_ENDS):
            if headers is None:
                headers = [(match.end(), match.start()) for match in rules.COOKIE.finditer(data)]
            yield from _cookie(data, at, headers)
    yield from _beside(data)
    if b" --" in data:
        yield from _options(data)


def _options(data: bytes) -> Iterator[Place]:
    """The values of command-line options."""
    behind = 0
    for match in rules.OPTION_END.finditer(data):
        start, at = match.span()
        if start >= behind and (
            begin := rules.OPTION_BEGIN.search(data, max(behind, start - rules.OPTION_BYTES), start)
        ):
            value = rules.OPTION_VALUE.match(data, at)
            assert value is not None
            behind = value.end()
            yield from _value(begin["name"] + match[0].rstrip(b" =\"'"), value[0], at)


def _beside(data: bytes) -> Iterator[Place]:
    """Values that follow their name with no sign in between."""
    if len(data) < _BESIDE:
        return
    lower = data.lower()
    for end in rules.BESIDE_ENDS:
        at = lower.find(end)
        while at >= 0:
            at += len(end)
            if data[at : at + 1] in _BESIDE_FIRST and (value := rules.BESIDE.match(data, at)):
                before = rules.SET if value["space"] else rules.WHOLE_NAME
                if before.search(data, max(0, at - 140), at) and (
                    name := rules.WHOLE_NAME.search(data, max(0, at - 62), at)
                ):
                    yield from _value(name[0], value["secret"], value.start("secret"))
            at = lower.find(end, at)


def _cookie(data: bytes, at: int, headers: list[tuple[int, int]]) -> Iterator[Place]:
    """The value of a cookie on the header's line; `headers` lists where header names end and begin, in order."""
    line = max(0, at - 4000)
    line = max(line, data.rfind(b"\n", line, at))
    nearest = bisect(headers, (at, len(data))) - 1
    if nearest < 0 or headers[nearest][1] < line:
        return
    value = rules.VALUE.match(data, at)
    if value and rules.is_key(value["secret"]):
        yield *value.span("secret"), "cookie"


def _value(name: bytes, value: bytes, start: int) -> Iterator[Place]:
    value = value.rstrip(b".")
    if kind := rules.kind_by_name(name, value):
        yield start, start + len(value), kind


def _matches(rule: Rule, data: bytes, start: int, end: int) -> Iterator[Place]:
    group: int | str = "secret" if "secret" in rule.pattern.groupindex else 0
    for match in rule.pattern.finditer(data, start, end):
        if rule.check is None or rule.check(match[group]):
            yield *match.span(group), rule.kind
