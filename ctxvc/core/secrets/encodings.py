"""Texts encoded as JSON escapes, URLs, hexadecimal digits and Base64: finding and replacing them.

The surroundings of a text stay valid in their encoding. Base64 writes three bytes as four characters, so a text shares
characters with its neighbours: whole groups are rewritten with the neighbours' bytes unchanged, and a mark is padded
with dots so that every later group stays aligned. Nothing is replaced because it merely resembles a text: all of the
text's bits must match.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ctxvc.core.patterns import any_of

#: Encoded forms of texts with fewer bytes are not searched for: digits of checksums would match them.
SHORTEST = 6
#: The forms searched for besides the plain text, by their names in reports.
FORMS = ("json", "url", "hex", "base64")

#: How many levels of nesting are followed: JSON in a JSON string, a URL in a URL.
_DEPTH = {"json": 3, "url": 2}
#: The most passes over a text. A pass replaces everything in one encoding, so that the last pass finds nothing.
_ROUNDS = 24
#: The pattern contains at most this many bytes of a text; the rest is compared.
_ANCHOR = 48
#: Lines of continuous Base64 or hexadecimal digits have at least this many characters, except the last one.
_LINE = 40

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#: Maps characters of either Base64 alphabet to `a`, all others to a blank.
_CLASSES = bytes(ord("a") if code in _ALPHABET + b"+/-_" else ord(" ") for code in range(256))
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_LETTER = ord("a")
_BREAK = re.compile(rb"\r?\n[ \t]*|(?:\\+r)?\\+n")
_BREAKS = frozenset((b"\r", b"\n", b"\\"))

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
#: JSON escapes other than those that ctxvc itself writes.
_UNUSUAL = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|/|\\\\)")
_ESCAPE = re.compile(
    rb'\\(?:u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|(["\\/bfnrt]))'
)
_SHORT = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_UNSAFE = re.compile(rb"[^A-Za-z0-9._~-]")


class Edit(NamedTuple):
    """Replaces what is between two offsets by `data`."""

    start: int
    end: int
    data: bytes


class Search:
    """Searches for encoded forms of some texts. A value: it keeps nothing of the data that it saw."""

    def __init__(self, marks: Mapping[bytes, bytes]) -> None:
        """`marks` maps each text to its replacement. Texts under `SHORTEST` bytes are ignored."""
        texts = sorted((text for text in marks if len(text) >= SHORTEST), key=len, reverse=True)
        self._marks = {text: marks[text] for text in texts}
        self._anchored: dict[bytes, list[bytes]] = {}
        size = min((*map(len, texts[-1:]), _ANCHOR))
        for text in texts:
            self._anchored.setdefault(text[:size], []).append(text)
        self._anchor = size
        # Anchors have equal lengths, so that each place matches at most one of them.
        self._pattern = any_of(self._anchored) if texts else None
        self._blank = any(b" " in text for text in texts)
        self._least = min(-(-size * 8 // 6), _LINE)
        self._digits = re.compile(rb"[0-9A-Fa-f]{%d,}" % (2 * size))

    def has(self, data: bytes) -> bool:
        """Whether `data` contains one of the texts in an encoded form."""
        return self._pattern is not None and any(True for _ in self._edits(data))

    def without(self, data: bytes) -> bytes:
        """The data with the texts replaced by marks in the same encoding; the same object if it contains none."""
        if self._pattern is None:
            return data
        for _ in range(_ROUNDS):
            edits = self._edits(data)
            first = next(edits, None)
            if first is None:
                break
            data = _applied(data, [first, *edits])
        return data

    # --- views: the bytes after decoding

    def _edits(self, data: bytes) -> Iterator[Edit]:
        """The replacements in the first encoding that contains a text; in order, without overlaps."""
        yield from _first(self._encodings(data, _DEPTH["json"], _DEPTH["url"]))

    def _encodings(self, data: bytes, json: int, url: int) -> Iterator[Iterable[Edit]]:
        yield self._in_runs(data)
        if json:
            yield _by_line(data, _UNUSUAL, lambda line: self._in_json(line, json - 1, url))
        if self._blank and url == _DEPTH["url"] and b"+" in data:  # forms write plus signs as %2B
            yield self._in_view(data, View(data.replace(b"+", b" "), _PERCENT, _unquoted), quoted, 0, 0)
        if url:
            yield _by_line(data, _PERCENT, lambda line: self._in_url(line, url - 1))

    def _in_json(self, line: bytes, json: int, url: int) -> Iterator[Edit]:
        return self._in_view(line, View(line, _ESCAPE, _unescaped), bytes, json, url)

    def _in_url(self, line: bytes, url: int) -> Iterator[Edit]:
        return self._in_view(line, View(line, _PERCENT, _unquoted), quoted, 0, url)

    def _in_view(
        self, data: bytes, view: View, encode: Callable[[bytes], bytes], json: int, url: int
    ) -> Iterator[Edit]:
        """The edits of what a view shows, in encoded form."""
        if view.data == data:
            return
        plain = [Edit(*hit) for hit in self._hits(view.data)]
        last = 0
        for edit in _differing(data, view, plain) or self._within(data, view, json, url):
            if edit.start >= last:  # two hits in one escape are one
                yield edit._replace(data=encode(edit.data))
                last = edit.end

    def _within(self, data: bytes, view: View, json: int, url: int) -> list[Edit]:
        """The edits from encodings nested within a view."""
        return _differing(data, view, _first(self._encodings(view.data, json, url)))

    def _hits(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The places of the texts in decoded data with their marks; the longest text if two begin alike."""
        assert self._pattern is not None
        at = 0
        while match := self._pattern.search(data, at):
            start = match.start()
            text = next((text for text in self._anchored[match[0]] if data.startswith(text, start)), None)
            if text is None:
                at = start + 1
            else:
                at = start + len(text)
                yield start, at, self._marks[text]

    # --- runs: characters that may be Base64 or hexadecimal digits

    def _in_runs(self, data: bytes) -> Iterator[Edit]:
        lines = self._lines(data) if len(data) >= self._least else []
        if not lines or not self._may_have(b"".join([data[start:end] for start, end, _ in lines])):
            return
        for run in _runs(lines):
            characters = b"".join([data[start:end] for start, end in run])
            for start, end, new in self._in_digits(characters) or self._in_base64(characters):
                yield Edit(_place(run, start), _place(run, end - 1) + 1, new)

    def _lines(self, data: bytes) -> list[tuple[int, int, bool]]:
        """Sufficiently long stretches of the alphabet, and whether each continues the line before."""
        classes = data.translate(_CLASSES) + b" "
        needle = b"a" * self._least
        lines = []
        start = classes.find(needle)
        while start >= 0:
            end = classes.find(b" ", start)
            lines.append((start, end, False))
            while data[end : end + 1] in _BREAKS and (broken := _BREAK.match(data, end)):
                start = broken.end()
                if classes[start] != _LETTER:
                    break
                end = classes.find(b" ", start)
                lines.append((start, end, True))
            start = classes.find(needle, end)
        return lines

    def _may_have(self, characters: bytes) -> bool:
        """Whether any of the runs can contain a text, decided by decoding all of them at once.

        In one of the phases each run is decoded correctly, whatever precedes it.
        """
        assert self._pattern is not None
        standard = characters.translate(_TO_STANDARD)
        if any(self._pattern.search(_decoded(standard, phase)) for phase in range(4)):
            return True
        digits = b"".join(self._digits.findall(characters))
        return any(self._pattern.search(_from_digits(digits, phase)) for phase in range(2) if digits)

    def _in_base64(self, characters: bytes) -> list[Edit]:
        """The edits of a run, from the first phase in which it contains one of the texts."""
        standard = characters.translate(_TO_STANDARD)
        for phase in range(4):
            decoded, bits = _decoded(standard, phase), 6 * (phase + len(characters))
            hits = [hit for hit in self._hits(decoded) if 8 * hit[0] >= 6 * phase and 8 * hit[1] <= bits]
            if hits:
                other = not set(characters) & set(b"+/") and bool(set(characters) & set(b"-_"))
                edits = _groups(decoded[: bits // 8], hits, phase, len(characters))
                return [edit._replace(data=edit.data.translate(_TO_URL)) for edit in edits] if other else list(edits)
        return []

    def _in_digits(self, characters: bytes) -> list[Edit]:
        edits = []
        for match in self._digits.finditer(characters):
            for phase in range(2):
                hits = [hit for hit in self._hits(_from_digits(match[0], phase)) if 2 * hit[0] >= phase]
                upper = match[0] == match[0].upper()
                for start, end, mark in hits:
                    new = binascii.hexlify(mark)
                    at = match.start() - phase
                    edits.append(Edit(at + 2 * start, at + 2 * end, new.upper() if upper else new))
                if hits:
                    break
        return edits


class View:
    """Decoded bytes, and the source position of each."""

    def __init__(self, data: bytes, pattern: re.Pattern[bytes], decode: Callable[[re.Match[bytes]], bytes]) -> None:
        """The view of `data` with each match of `pattern` decoded."""
        pieces, at, size = [], 0, 0
        #: Offset and size of each decoded piece, here and in the source; the rest is unchanged.
        self._escapes: list[tuple[int, int, int, int]] = []
        for match in pattern.finditer(data):
            start, end = match.span()
            piece = decode(match)
            pieces += [data[at:start], piece]
            size += start - at
            self._escapes.append((size, len(piece), start, end - start))
            size += len(piece)
            at = end
        self.data = b"".join((*pieces, data[at:]))
        self._starts = [escape[0] for escape in self._escapes]

    def source(self, edit: Edit) -> Edit:
        """An edit of the view as an edit of its source; an escape is replaced as a whole."""
        return Edit(self._before(edit.start), self._behind(edit.end), edit.data)

    def _before(self, offset: int) -> int:
        """The start in the source of the decoded byte at an offset."""
        at = bisect_right(self._starts, offset)
        if not at:
            return offset
        here, size, there, length = self._escapes[at - 1]
        return there if offset < here + size else offset - here - size + there + length

    def _behind(self, offset: int) -> int:
        """The end in the source of the decoded byte before an offset."""
        at = bisect_right(self._starts, offset - 1)
        if not at:
            return offset
        here, size, there, length = self._escapes[at - 1]
        return there + length if offset <= here + size else offset - here - size + there + length


def quoted(data: bytes) -> bytes:
    """Text as a URL writes it."""
    return _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], data)


def beginnings(text: bytes) -> list[bytes]:
    """The usual encoded forms of a text, which a truncated line may begin with. Empty for a short text."""
    if len(text) < SHORTEST:
        return []
    digits = binascii.hexlify(text)
    forms = [digits, digits.upper(), quoted(text), quoted(text).replace(b"%20", b"+")]
    for phase in range(3):
        # Only the characters that do not depend on the text's neighbours.
        encoded = binascii.b2a_base64(b"\0" * phase + text, newline=False)
        whole = encoded[-(-8 * phase // 6) : 8 * (phase + len(text)) // 6]
        forms += [whole, whole.translate(_TO_URL)]
    return [form for form in dict.fromkeys(forms) if form != text]


def _decoded(characters: bytes, phase: int) -> bytes:
    """Decoded Base64 whose first character is at `phase` in its group; missing characters count as zero."""
    size = phase + len(characters)
    return binascii.a2b_base64(b"A" * phase + characters + b"A" * (-size % 4))


def _from_digits(digits: bytes, phase: int) -> bytes:
    """The whole bytes of hexadecimal digits whose first digit is at `phase` in its pair."""
    digits = b"0" * phase + digits
    return binascii.unhexlify(digits[: len(digits) & ~1])


def _runs(lines: Iterable[tuple[int, int, bool]]) -> list[list[tuple[int, int]]]:
    """Lines grouped into runs."""
    runs: list[list[tuple[int, int]]] = []
    for start, end, continues in lines:
        if continues:
            runs[-1].append((start, end))
        else:
            runs.append([(start, end)])
    return runs


def _groups(decoded: bytes, hits: list[tuple[int, int, bytes]], phase: int, size: int) -> Iterator[Edit]:
    """The groups of four characters that encode part of a hit, rewritten; `size` is the size of the whole run."""
    at = 0
    while at < len(hits):
        first = hits[at][0] // 3
        start, pieces = 3 * first, []
        while True:
            begin, end, mark = hits[at]
            # Adds the replaced number of bytes modulo three, so that what follows keeps its place in its group.
            pieces += [decoded[start:begin], mark, b"." * ((end - begin - len(mark)) % 3)]
            start, last, at = end, -(-end // 3), at + 1
            if at == len(hits) or hits[at][0] // 3 >= last:
                break
        new = binascii.b2a_base64(b"".join((*pieces, decoded[start : 3 * last])), newline=False).rstrip(b"=")
        missing = max(0, phase - 4 * first)
        yield Edit(max(0, 4 * first - phase), min(4 * last - phase, size), new[missing:])


def _by_line(data: bytes, sign: re.Pattern[bytes], edits: Callable[[bytes], Iterable[Edit]]) -> Iterator[Edit]:
    """The edits of each line that contains a sign: neither a JSON string nor a URL extends past a line's end."""
    behind = 0
    while match := sign.search(data, behind):
        start = max(data.rfind(b"\n", behind, match.start()) + 1, behind)
        behind = data.find(b"\n", match.end())
        behind = len(data) if behind < 0 else behind
        for edit in edits(data[start:behind]):
            yield Edit(start + edit.start, start + edit.end, edit.data)


def _first(groups: Iterable[Iterable[Edit]]) -> list[Edit]:
    """The first group of edits that is not empty; later ones are not evaluated."""
    return next(filter(None, map(list, groups)), [])


def _differing(data: bytes, view: View, edits: Iterable[Edit]) -> list[Edit]:
    """Edits of a view as edits of its source, except at places where the source equals the view."""
    pairs = ((edit, view.source(edit)) for edit in edits)
    return [there for here, there in pairs if data[there.start : there.end] != view.data[here.start : here.end]]


def _place(run: list[tuple[int, int]], offset: int) -> int:
    """The position in the data of a run's character."""
    for start, end in run:
        if offset < end - start:
            return start + offset
        offset -= end - start
    raise AssertionError("behind the run")


def _applied(data: bytes, edits: Iterable[Edit]) -> bytes:
    pieces, at = [], 0
    for start, end, new in edits:
        pieces += [data[at:start], new]
        at = end
    return b"".join((*pieces, data[at:]))


def _unquoted(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 16),))


def _unescaped(match: re.Match[bytes]) -> bytes:
    high, low, code, short = match.groups()
    if short:
        return _SHORT.get(short, short)
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00).encode()
    return chr(int(code, 16)).encode("utf-8", "surrogatepass")
