"""Secrets in recorded text: where they are, and the text with marks in their place.

Redacting twice is the same as redacting once. docs/secrets.md says what is found, and what is not. The rules are loaded
when a text is first examined, because so many patterns take time and most commands need none.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ctxvc.core import display as text
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.recording.events import Opened, Warned

#: Returns eight hexadecimal digits for a secret: the same for the same secret, and useless without the key.
Mac = Callable[[bytes], str]

MARK = re.compile(rb"\[REDACTED:[a-z0-9-]{1,40}:[0-9a-f]{8}\]")

#: Extensions of bodies that are text or may contain text. Images and PDFs are not examined.
TEXTS = frozenset({"txt", "json", "bin"})

#: The fields of content blocks that contain ids of calls, where a provider rejects a mark.
IDS = frozenset({b"id", b"tool_use_id", b"tool_id", b"call_id"})
_MARKED = re.compile(rb"\[REDACTED:([a-z0-9-]{1,40}):([0-9a-f]{8})\]")

#: Shorter names contain no secret that the rules know.
_NAMES = 20

#: The most passes over a text: removing one secret can expose another, though hardly ever.
_ROUNDS = 4

#: A JSON string whose escapes are covered: it ends at the next quote, or at the end of the text.
_STRING = re.compile(rb'"[^"]*(?:"(\s*:)?)?')
_CODE = re.compile(rb"\\u00([2-7][0-9a-fA-F])")
#: Each escape with its character; the backslash is last, so that it forms no new escape.
_ESCAPES = ((b'\\"', b'"'), (b"\\n", b"\n"), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\/", b"/"), (b"\0", b"\\"))


class Finding(NamedTuple):
    """A secret in a text: start and end as offsets in bytes, and its kind."""

    start: int
    end: int
    kind: str


#: Returns the secrets in a text besides those that the rules know, in any order. Its exceptions reach every caller.
Scan = Callable[[bytes], Sequence[Finding]]


class Criteria(NamedTuple):
    """What counts as a secret: findings of the rules and of `scan`, except allowed values.

    `allowed` contains the SHA-256 of each of those, in hexadecimal.
    """

    allowed: frozenset[str] = frozenset()
    scan: Scan | None = None

    def allow(self, secret: bytes) -> bool:
        return bool(self.allowed) and hashlib.sha256(secret).hexdigest() in self.allowed


RULES = Criteria()


def find(data: bytes, criteria: Criteria = RULES) -> list[Finding]:
    """The secrets in a text, in order and without overlaps.

    If two overlap, the more certain kind wins; one of the rules' and one of the scanner's are merged. Raises: as
    `scan`.
    """
    from ctxvc.core.secrets.find import places

    candidates = [Finding(*place) for place in places(data)]
    besides = criteria.scan(data) if criteria.scan else ()
    if not candidates and not besides:
        return []
    marks, allowed = _Spans(), _Spans()
    for match in MARK.finditer(data):
        marks.add(*match.span())
    findings: list[Finding] = []
    covered = bytearray(len(data))  # marks the bytes of findings: one lookup, however many there are
    for finding in candidates:
        if marks.hold(finding) or allowed.hold(finding):
            continue
        if criteria.allow(data[finding.start : finding.end]):
            allowed.add(finding.start, finding.end)
        elif covered.find(1, finding.start, finding.end) < 0:
            findings.append(finding)
            covered[finding.start : finding.end] = b"\1" * (finding.end - finding.start)
    findings.sort()
    for finding in besides:
        # A scanner does not know marks: what it finds around one is the mark.
        if (
            not criteria.allow(data[finding.start : finding.end])
            and not marks.meet(finding)
            and not allowed.meet(finding)
        ):
            where = _overlapped(findings, finding)
            all_of = [*findings[where], finding]
            findings[where] = [Finding(min(all_of).start, max(one.end for one in all_of), all_of[0].kind)]
    return findings


class _Spans:
    """Places in a text, ordered by their start. Lookups cost the same however many there are."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._longest = 0

    def add(self, start: int, end: int) -> None:
        insort(self._places, (start, end))
        self._longest = max(self._longest, end - start)

    def hold(self, finding: Finding) -> bool:
        """Whether the finding lies entirely within one of them."""
        return any(start <= finding.start and finding.end <= end for start, end in self._near(finding))

    def meet(self, finding: Finding) -> bool:
        """Whether the finding overlaps one of them."""
        return any(start < finding.end and finding.start < end for start, end in self._near(finding))

    def _near(self, finding: Finding) -> list[tuple[int, int]]:
        first = bisect(self._places, (finding.start - self._longest, 0))
        return self._places[first : bisect(self._places, (finding.end, 0))]


def redact(data: bytes, mac: Mac, criteria: Criteria = RULES, *, name: bytes = b"") -> bytes:
    """The text with each secret replaced by a mark; the same object if it has none.

    `name` is the name that the text is the value of, as in a JSON object. Raises: as `criteria.scan`.
    """
    for _ in range(_ROUNDS):
        findings = _find_value(data, name, criteria)
        if not findings:
            break
        pieces, at = [], 0
        for start, end, kind in findings:
            pieces += [data[at:start], mark(kind, data[start:end], mac)]
            at = end
        data = b"".join((*pieces, data[at:]))
    return data


def mark(kind: str, secret: bytes, mac: Mac) -> bytes:
    """The mark that replaces a secret."""
    return f"[REDACTED:{kind}:{mac(secret)}]".encode("ascii")


def as_name(clean: bytes) -> bytes:
    """An id or a name with its marks in characters that are valid there: `redacted-github-token-7c01f2e9`."""
    return _MARKED.sub(rb"redacted-\1-\2", clean)


class Redactor:
    """Removes the secrets from what is to be stored. A value: it keeps nothing of what it saw.

    Every method raises what the scanner of its criteria raises, so that nothing passes unexamined.
    """

    def __init__(self, mac: Mac, criteria: Criteria = RULES) -> None:
        self._mac = mac
        self._criteria = criteria

    def data(self, data: bytes) -> bytes:
        return redact(data, self._mac, self._criteria)

    def text(self, value: str) -> str:
        """A string redacted like `data`; the same object if nothing was found."""
        data = text.encode(value)
        clean = self.data(data)
        return value if clean is data else text.decode(clean)

    def name(self, value: str) -> str:
        """A call's id, or a tool's or model's name, redacted so that it stays a valid name."""
        if len(value) < _NAMES and not self._criteria.scan:
            return value
        data = text.encode(value)
        clean = self.data(data)
        return value if clean is data else text.decode(as_name(clean))

    def body(self, data: bytes, ext: str) -> bytes:
        """A body redacted by its file extension; in JSON each string is examined decoded, and the rest stays."""
        if ext == "json":
            return strings(data, self._string) if _has_some(data, self._criteria) else data
        return self.data(data) if ext in TEXTS else data

    def value(self, value: Any) -> Any:
        """A JSON value with its strings redacted."""
        data = wire.compact(value)
        clean = self.body(data, "json")
        return value if clean is data or clean == data else wire.parse(clean)

    def part(self, part: Part) -> Part:
        """A part with its body, files, remaining content block, call id and tool redacted.

        A call and its result get the same id, since one secret has one mark. Changed thinking loses its signature,
        because no provider would accept the two together.
        """
        files = tuple((suffix, self.body(data, suffix.rpartition(".")[2])) for suffix, data in part.files)
        body = self.body(part.body, part.ext)
        if files != part.files:
            body = renamed(
                body,
                {hashlib.sha256(old).hexdigest(): new for (_, old), (_, new) in zip(part.files, files, strict=True)},
            )
        extra = self.value(part.extra) if part.extra else part.extra
        call, tool = self.name(part.call), self.name(part.tool)
        if body is part.body and files == part.files and extra is part.extra and (call, tool) == (part.call, part.tool):
            return part
        if part.kind == "thinking" and body != part.body:
            extra = {name: value for name, value in extra.items() if name != "signature"}
        return msgspec.structs.replace(part, body=body, files=files, extra=extra, call=call, tool=tool)

    def message(self, message: Message) -> Message:
        parts, model = tuple(map(self.part, message.parts)), self.name(message.model)
        same = model is message.model and all(new is old for new, old in zip(parts, message.parts, strict=True))
        return message if same else msgspec.structs.replace(message, parts=parts, model=model)

    def row(self, row: Row) -> Row:
        """A row with its stub redacted; its recorded fields stay."""
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

    def opened(self, event: Opened) -> Opened:
        texts = {name: self.text(getattr(event, name)) for name in ("name", "title", "cwd", "branch", "agent")}
        system, tools = self.value(event.system), self.value(event.tools)
        return msgspec.structs.replace(event, system=system, tools=tools, model=self.name(event.model), **texts)

    def warned(self, event: Warned) -> Warned:
        return msgspec.structs.replace(event, text=self.text(event.text))

    def _string(self, value: bytes, name: bytes) -> bytes:
        clean = redact(value, self._mac, self._criteria, name=name)
        return as_name(clean) if name in IDS and clean is not value else clean


def secrets(data: bytes, ext: str, criteria: Criteria = RULES) -> Iterator[tuple[str, bytes]]:
    """Kind and bytes of each secret in a body, in order. Raises: as `criteria.scan`."""
    if ext == "json" and _has_some(data, criteria):
        collected: list[tuple[str, bytes]] = []

        def look(value: bytes, name: bytes) -> bytes:
            collected.extend((kind, value[start:end]) for start, end, kind in _find_value(value, name, criteria))
            return value

        strings(data, look)
        yield from collected
    elif ext in TEXTS and ext != "json":
        yield from ((kind, data[start:end]) for start, end, kind in find(data, criteria))


def strings(data: bytes, change: Callable[[bytes, bytes], bytes]) -> bytes:
    """JSON with the strings that `change` replaces; all other bytes stay as they are.

    `change` is called with a string's value and the key that it is the value of, empty for none.
    """
    key, behind = b"", 0
    pieces: list[bytes] = []
    # A pattern for escapes would need memory for each of them; with escapes covered, every quote delimits a string.
    covered = data.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0") if b"\\" in data else data
    for match in _STRING.finditer(covered):
        start, end = match.span()
        colon = data[slice(*match.span(1))] if match[1] else b""
        closed = covered.endswith(b'"', start + 1, end - len(colon))
        inside = data[start + 1 : end - len(colon) - closed]
        value = _string_value(inside)
        # A name applies to the string directly after it, not to those in an object or list that it names.
        name = b"" if data[behind:start].strip() else key
        pieces.append(data[behind:start])
        key, behind = (value if colon else b""), end
        new = change(value, name)
        if new == value:
            pieces.append(data[start:end])
        else:
            pieces.append(wire.compact(text.decode(new))[: None if closed else -1] + colon)
    return b"".join((*pieces, data[behind:]))


def renamed(body: bytes, files: Mapping[str, bytes]) -> bytes:
    """The body of a result whose sibling files were replaced; `files` maps each old SHA-256 to the new bytes."""
    listed = wire.parsed(body, list)
    for item in listed or ():
        match item:
            case {"source": {"data": {"sha256": str(digest)} as kind_by_name}} if digest in files:
                kind_by_name.update(bytes=len(files[digest]), sha256=hashlib.sha256(files[digest]).hexdigest())
    return body if listed is None else wire.compact(listed)


# --- looking


def _overlapped(findings: list[Finding], new: Finding) -> slice:
    """The slice of ordered, disjoint findings that a new one overlaps; an empty slice at its place if none."""
    first = bisect(findings, new)
    if first and findings[first - 1].end > new.start:
        first -= 1
    last = first
    while last < len(findings) and findings[last].start < new.end:
        last += 1
    return slice(first, last)


def _find_value(value: bytes, name: bytes, criteria: Criteria) -> list[Finding]:
    """The secrets in the value of a name; an empty name is none. The name alone may make the whole value a secret."""
    if not name:
        return find(value, criteria)
    from ctxvc.core.secrets.rules import kind_by_name

    kind = kind_by_name(name, value)
    if kind and not MARK.search(value) and not criteria.allow(value) and not find(value):
        return [Finding(0, len(value), kind)]
    return find(value, criteria._replace(scan=criteria.scan and _behind(name, criteria.scan)))


def _behind(name: bytes, scan: Scan) -> Scan:
    """A scanner that sees a value with its name before it, because some secrets are recognised only by their name."""
    before = b'"%s": "' % name

    def scanned(value: bytes) -> list[Finding]:
        findings = scan(before + value + b'"')
        inside = (
            Finding(max(0, start - len(before)), min(len(value), end - len(before)), kind)
            for start, end, kind in findings
        )
        return [finding for finding in inside if finding.start < finding.end]

    return scanned


# --- JSON


def _has_some(data: bytes, criteria: Criteria) -> bool:
    """Whether JSON may contain a secret, allowed or not: a quick check of all of it."""
    unescaped = plain(data)
    return bool(find(unescaped) or (criteria.scan and criteria.scan(unescaped)))


def plain(data: bytes) -> bytes:
    """JSON with its escapes decoded, precisely enough to tell whether it contains a secret."""
    if b"\\" not in data:
        return data
    data = data.replace(b"\\\\", b"\0")
    if b"\\u00" in data:
        data = _CODE.sub(lambda match: bytes([int(match[1], 16)]), data)
    for escape, character in _ESCAPES:
        data = data.replace(escape, character)
    return data


def _string_value(inside: bytes) -> bytes:
    """The value of a JSON string, as UTF-8; the bytes themselves if they are no JSON string."""
    if b"\\" not in inside:
        return inside
    try:
        return text.encode(str(wire.parse(b'"%s"' % inside)))
    except ValueError:
        return inside
