"""Secrets in recorded text: where they are, and the text with marks in their place.

Ordinary text costs little: what has no long run of a token's characters, no address and no telling word is let go after
one look. Redacting twice is the same as redacting once. docs/secrets.md says what is found, and what is not.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from string import ascii_letters, digits
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import secret_rules as rules
from ctxvc.core import text, wire
from ctxvc.core.blocks import Message, Part
from ctxvc.core.events import Compacted, Event, Opened, Said, Warned
from ctxvc.core.ledger import Group, Row
from ctxvc.core.secret_rules import Rule

#: Gives eight hexadecimal digits for a secret: the same for the same secret, of no use to who does not have the key.
Mac = Callable[[bytes], str]

MARK = re.compile(rb"\[REDACTED:[a-z0-9-]{1,40}:[0-9a-f]{8}\]")

#: Endings of bodies that are text, or may have text in them. Pictures and PDFs are not looked into.
TEXTS = frozenset({"txt", "json", "bin"})

#: How often a text is gone through: cutting out one secret can bring another to light, though hardly ever.
_ROUNDS = 4


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
_GIVEN = re.compile(rb'=[ "]{0,5}(?:a{5,6} )?(?=[ad]{8})a{0,48}d')
_BEHIND_A_NAME = b" \t\"'`\\]:=0123456789"
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?', re.DOTALL)
_CODE = re.compile(rb"\\u00([2-7][0-9a-fA-F])")
#: What an escape stands for; a backslash last, so that it makes no other.
_ESCAPES = ((b'\\"', b'"'), (b"\\n", b"\n"), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\/", b"/"), (b"\0", b"\\"))


class Finding(NamedTuple):
    """A secret in a text, between two offsets in bytes."""

    start: int
    end: int
    kind: str


class Allowed(NamedTuple):
    """What is no secret here, whatever it looks like: by its SHA-256, in hexadecimal."""

    digests: frozenset[str] = frozenset()

    def has(self, secret: bytes) -> bool:
        return bool(self.digests) and hashlib.sha256(secret).hexdigest() in self.digests


NOTHING = Allowed()


def find(data: bytes, allowed: Allowed = NOTHING) -> list[Finding]:
    """The secrets in a text, in order; none overlaps another. The more certain kind counts where two do."""
    found = [*_tokens(data), *_addresses(data), *_private_keys(data), *_named(data)]
    if not found:
        return []
    marks = [match.span() for match in MARK.finditer(data)]
    kept: list[Finding] = []
    for each in found:
        inside = any(start <= each.start and each.end <= end for start, end in marks)
        if not inside and not allowed.has(data[each.start : each.end]) and _free(kept, each):
            kept.insert(bisect(kept, each), each)
    return kept


def redact(data: bytes, mac: Mac, allowed: Allowed = NOTHING) -> bytes:
    """The text with a mark in the place of each secret; the same object where it has none."""
    for _ in range(_ROUNDS):
        found = find(data, allowed)
        if not found:
            break
        pieces, at = [], 0
        for start, end, kind in found:
            pieces += [data[at:start], mark(kind, data[start:end], mac)]
            at = end
        data = b"".join((*pieces, data[at:]))
    return data


def mark(kind: str, secret: bytes, mac: Mac) -> bytes:
    """What stands in the place of a secret."""
    return f"[REDACTED:{kind}:{mac(secret)}]".encode("ascii")


class Redactor:
    """Takes the secrets out of what is to be stored. A value: it keeps nothing of what it saw."""

    def __init__(self, mac: Mac, allowed: Allowed = NOTHING) -> None:
        self._mac = mac
        self._allowed = allowed

    def data(self, data: bytes) -> bytes:
        return redact(data, self._mac, self._allowed)

    def text(self, value: str) -> str:
        """A string, as `data`; the same object where nothing was found."""
        data = text.encode(value)
        clean = self.data(data)
        return value if clean is data else text.decode(clean)

    def body(self, data: bytes, ext: str) -> bytes:
        """A body, by the ending of its file: in JSON each string is looked at as what it says, and the rest stays."""
        if ext == "json":
            return strings(data, self._string) if find(plain(data)) else data
        return self.data(data) if ext in TEXTS else data

    def value(self, value: Any) -> Any:
        """A JSON value with its strings redacted."""
        data = wire.compact(value)
        clean = self.body(data, "json")
        return value if clean is data or clean == data else wire.parse(clean)

    def part(self, part: Part) -> Part:
        """A part with its body, its files and the rest of its content block redacted.

        Thinking that was changed loses its signature: no provider would take the two together.
        """
        files = tuple((suffix, self.body(data, suffix.rpartition(".")[2])) for suffix, data in part.files)
        body = self.body(part.body, part.ext)
        if files != part.files:
            body = renamed(
                body,
                {hashlib.sha256(old).hexdigest(): new for (_, old), (_, new) in zip(part.files, files, strict=True)},
            )
        extra = self.value(part.extra) if part.extra else part.extra
        if body is part.body and files == part.files and extra is part.extra:
            return part
        if part.kind == "thinking" and body != part.body:
            extra = {name: value for name, value in extra.items() if name != "signature"}
        return msgspec.structs.replace(part, body=body, files=files, extra=extra)

    def message(self, message: Message) -> Message:
        parts = tuple(map(self.part, message.parts))
        same = all(new is old for new, old in zip(parts, message.parts, strict=True))
        return message if same else msgspec.structs.replace(message, parts=parts)

    def row(self, row: Row) -> Row:
        """A row whose words, other than those it was recorded with, are redacted."""
        if not row.stub:
            return row
        stub = self.text(row.stub)
        return row if stub is row.stub else msgspec.structs.replace(row, stub=stub)

    def group(self, group: Group) -> Group:
        stub, label = self.text(group.stub), self.text(group.label)
        return (
            group
            if (stub, label) == (group.stub, group.label)
            else msgspec.structs.replace(group, stub=stub, label=label)
        )

    def event(self, event: Event) -> Event:
        """What an importer tells, redacted."""
        match event:
            case Said():
                message = self.message(event.message)
                return event if message is event.message else msgspec.structs.replace(event, message=message)
            case Compacted():
                summary, detail = tuple(map(self.message, event.summary)), self.value(event.detail)
                return msgspec.structs.replace(event, summary=summary, detail=detail)
            case Opened():
                return self.opened(event)
            case Warned():
                return self.warned(event)
        return event

    def opened(self, event: Opened) -> Opened:
        words = {name: self.text(getattr(event, name)) for name in ("name", "title", "cwd", "branch", "agent")}
        system, tools = self.value(event.system), self.value(event.tools)
        return msgspec.structs.replace(event, system=system, tools=tools, **words)

    def warned(self, event: Warned) -> Warned:
        return msgspec.structs.replace(event, text=self.text(event.text))

    def _string(self, value: bytes, name: bytes) -> bytes:
        kind = rules.named(name, value)
        if kind and not MARK.search(value) and not self._allowed.has(value) and not find(value):
            return mark(kind, value, self._mac)
        return self.data(value)


def any_of(words: Iterable[bytes]) -> re.Pattern[bytes]:
    """A pattern that finds each of some words, of which none is empty; the longest where two begin alike.

    What they have in common is factored out, so that a thousand of them cost little more than ten.
    """
    return re.compile(_branches(sorted(set(words))))


def _branches(words: list[bytes]) -> bytes:
    """A pattern for sorted words. The empty one among them comes first."""
    ends = not words[0]
    branches = []
    for _, group in groupby(words[ends:], key=lambda word: word[0]):
        alike = list(group)
        # Of sorted words, the first and the last have in common what all have.
        common = next((n for n, (a, b) in enumerate(zip(alike[0], alike[-1], strict=False)) if a != b), len(alike[0]))
        branches.append(re.escape(alike[0][:common]) + _branches([word[common:] for word in alike]))
    if not branches:
        return b""
    return b"(?:%s)" % b"|".join(branches) + (b"?" if ends else b"")


def secrets(data: bytes, ext: str, allowed: Allowed = NOTHING) -> Iterator[tuple[str, bytes]]:
    """Kind and bytes of each secret in a body, in order."""
    if ext == "json" and find(plain(data)):
        held: list[tuple[str, bytes]] = []

        def look(value: bytes, name: bytes) -> bytes:
            found = find(value, allowed)
            held.extend((kind, value[start:end]) for start, end, kind in found)
            kind = rules.named(name, value)
            if kind and not found and not allowed.has(value) and not MARK.search(value):
                held.append((kind, value))
            return value

        strings(data, look)
        yield from held
    elif ext in TEXTS and ext != "json":
        yield from ((kind, data[start:end]) for start, end, kind in find(data, allowed))


def strings(data: bytes, change: Callable[[bytes, bytes], bytes]) -> bytes:
    """JSON with each string that `change` gives another for; all other bytes stay as they are.

    It is called with what a string says and the key that it is the value of, empty for none.
    """
    key, behind = b"", -1

    def changed(match: re.Match[bytes]) -> bytes:
        nonlocal key, behind
        inside, colon = match.groups()
        value = _said(inside)
        # A name counts for the string right behind it, and not for those of an object or list that it names.
        name = b"" if data[behind : match.start()].strip() else key
        key, behind = (value if colon else b""), match.end()
        new = change(value, name)
        if new == value:
            return match[0]
        return wire.compact(text.decode(new)) + (colon or b"")

    return _STRING.sub(changed, data)


def renamed(body: bytes, files: Mapping[str, bytes]) -> bytes:
    """The body of a result whose siblings are others now, by the SHA-256 of what each was."""
    listed = wire.parsed(body, list)
    for item in listed or ():
        match item:
            case {"source": {"data": {"sha256": str(digest)} as named}} if digest in files:
                named.update(bytes=len(files[digest]), sha256=hashlib.sha256(files[digest]).hexdigest())
    return body if listed is None else wire.compact(listed)


# --- looking

_ANCHORS = any_of(anchor for rule in rules.TOKENS for anchor in rule.anchors)
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


def _tokens(data: bytes) -> Iterator[Finding]:
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


def _addresses(data: bytes) -> Iterator[Finding]:
    if b"://" in data:
        for rule in rules.ADDRESSES:
            if any(anchor in data for anchor in rule.anchors):
                yield from _matches(rule, data, 0, len(data))


def _private_keys(data: bytes) -> Iterator[Finding]:
    if b"PRIVATE KEY" in data:
        yield from _matches(rules.PRIVATE_KEY, data, 0, len(data))


def _named(data: bytes) -> Iterator[Finding]:
    """Values that are secret by their name."""
    # Where a value is given to something, and soon has a digit: a name and a look at it come after that.
    for place in _GIVEN.finditer(data.translate(_CLASSES)):
        at = place.start()
        if data[max(0, at - 24) : at].lower().rstrip(_BEHIND_A_NAME).endswith(rules.NAME_ENDS):
            name = rules.NAME.search(data, max(0, at - 70), at)
            value = name and rules.VALUE.match(data, at)
            if name and value:
                yield from _value(name[1], value)
    if b" --" not in data:
        return
    for match in rules.OPTION.finditer(data):
        yield from _value(match["name"], match)


def _value(name: bytes, match: re.Match[bytes]) -> Iterator[Finding]:
    value = match["secret"].rstrip(b".")
    if kind := rules.named(name, value):
        start = match.start("secret")
        yield Finding(start, start + len(value), kind)


def _matches(rule: Rule, data: bytes, start: int, end: int) -> Iterator[Finding]:
    group: int | str = "secret" if "secret" in rule.pattern.groupindex else 0
    for match in rule.pattern.finditer(data, start, end):
        if rule.check is None or rule.check(match[group]):
            yield Finding(*match.span(group), rule.kind)


def _free(kept: list[Finding], new: Finding) -> bool:
    """Whether a finding overlaps none of those that are kept already."""
    at = bisect(kept, new)
    return not (at and kept[at - 1].end > new.start) and not (at < len(kept) and kept[at].start < new.end)


# --- JSON


def plain(data: bytes) -> bytes:
    """JSON with its escapes taken for what they stand for: good enough to see whether it has a secret."""
    if b"\\" not in data:
        return data
    data = data.replace(b"\\\\", b"\0")
    if b"\\u00" in data:
        data = _CODE.sub(lambda match: bytes([int(match[1], 16)]), data)
    for escape, character in _ESCAPES:
        data = data.replace(escape, character)
    return data


def _said(inside: bytes) -> bytes:
    """What a JSON string says, as UTF-8; what is no JSON string says what it is."""
    if b"\\" not in inside:
        return inside
    try:
        return text.encode(str(wire.parse(b'"%s"' % inside)))
    except ValueError:
        return inside
