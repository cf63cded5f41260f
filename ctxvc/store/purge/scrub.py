"""The replacements that a purge makes: in bodies, rows, groups, messages and everything else in a store.

A `Scrub` knows the content to erase and changes one piece at a time; `purge.rewrite` finds the pieces.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.label import label
from ctxvc.core.ledger.ledger import Group, Row
from ctxvc.core.patterns import any_of
from ctxvc.core.secrets import encodings, redact
from ctxvc.core.secrets.redact import Redactor

#: The kind in the mark of content that was purged by its text or address.
KIND = "purged"

#: In a truncated text, a beginning of this many bytes is enough to recognise the rest.
_TELLING = 8
#: The most bytes of a line that ctxvc truncated.
_LONG = 2_000
#: What can follow the `…` of a text that ctxvc shortened to one line: the text's own end, in a stub, in a table.
_SHORTENED = re.compile(r'…(?=\Z|[\n;\])"|\\]|  | \|)'.encode())
#: One of these follows every text that ctxvc shortened to its beginning; it may be JSON-escaped.
_SIGNS = ("…".encode(), b"\\u2026", b"\n[ctxvc: ", b"\\n[ctxvc: ")
#: The text that a hook puts between the two ends of a truncated output.
_LEFT_OUT = re.compile(rb"\n\[ctxvc: [0-9,]{1,20} of [0-9,]{1,20} characters left out here; ")

#: A JSON string, or any other scalar: a number, `true`, `false`, `null`.
_SCALAR = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|[^\s\[\]{}:,"]+', re.DOTALL)
#: Our own fields that hold names: a mark would not be a valid name.
_NAMES = frozenset({b"session", b"scope", b"parent"})

#: The replacement of an image or document: the smallest one of its kind.
_SMALLEST = {
    "png": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==",
    "gif": "R0lGODlhAQABAIAAAAAAAP///yH5BAAAAAAALAAAAAABAAEAAAIBRAA7",
    "webp": "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==",
    "jpg": "/9j/2wBDAAMCAgICAgMCAgIDAwMDBAYEBAQEBAgGBgUGCQgKCgkICQkKDA8MCgsOCwkJDRENDg8QEBEQCgwSExIQEw8QEBD"
    "/yQALCAABAAEBAREA/8wABgAQEAX/2gAIAQEAAD8A0s8g/9k=",
}


@dataclass(frozen=True)
class Scrub:
    """`marks` maps each text to erase to its mark, `bodies` the id of each blob that changes to its replacement.

    `sums` is `bodies` keyed by the SHA-256 of the old body. `labels` are words of old labels, replaced in labels and
    stubs only. `redactor`, if given, also replaces secrets.
    """

    marks: Mapping[bytes, bytes] = field(default_factory=dict)
    bodies: Mapping[bytes, bytes] = field(default_factory=dict)
    sums: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[bytes, bytes] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()  # the checksums of bodies replaced as a whole
    redactor: Redactor | None = None
    _forms: Mapping[bytes, bytes] = field(init=False, repr=False)
    _pattern: re.Pattern[bytes] | None = field(init=False, repr=False)
    _encoded: encodings.Search = field(init=False, repr=False)
    _cut: Mapping[bytes, bytes] = field(init=False, repr=False)
    _heads: re.Pattern[bytes] | None = field(init=False, repr=False)
    _in_labels: re.Pattern[bytes] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        forms = {form: mark for word, mark in self.marks.items() for form in forms_of(word)}
        object.__setattr__(self, "_forms", forms)
        object.__setattr__(self, "_pattern", any_of(forms) if forms else None)
        object.__setattr__(self, "_encoded", encodings.Search(forms))
        encoded = {form: mark for word, mark in self.marks.items() for form in encodings.beginnings(word[:_LONG])}
        cut = {**encoded, **forms}
        object.__setattr__(self, "_cut", cut)
        heads = {form[:_TELLING] for form in cut if len(form) > _TELLING}
        object.__setattr__(self, "_heads", any_of(heads) if heads else None)
        object.__setattr__(self, "_in_labels", any_of(self.labels) if self.labels else None)

    @property
    def renamed(self) -> dict[str, str]:
        """SHA-256 of each body that changes → that of its replacement."""
        return {old: hashlib.sha256(new).hexdigest() for old, new in self.sums.items()}

    # --- text

    def data(self, data: bytes) -> bytes:
        """A recorded text without the content; the same object if it has none."""
        if self.has(data):
            data = self._marked(data)
        if self._begins(data):
            data = self._without_beginnings(data, _LEFT_OUT)
        return self.redactor.data(data) if self.redactor else data

    def written(self, data: bytes) -> bytes:
        """As `data`, for a text that ctxvc wrote and may have shortened to the beginning of the content."""
        data = self.data(data)
        if self._begins(data):
            data = self._without_beginnings(data, _SHORTENED)
        return data

    def line(self, value: str) -> str:
        """As `written`, for a `str`."""
        data = display.encode(value)
        clean = self.written(data)
        return value if clean is data else display.decode(clean)

    def name(self, value: str) -> str:
        """The id of a call or the name of a tool, without the content and in a form that a provider accepts."""
        data = display.encode(value)
        clean = self.data(data)
        return value if clean is data else display.decode(redact.as_name(clean))

    def json(self, data: bytes) -> bytes:
        """Recorded JSON without the content: strings are compared decoded, numbers by their digits; the rest stays."""
        if self.touches(data):
            data = redact.strings(data, self._string)
            if self.has(data):
                data = _SCALAR.sub(self._scalar, data)
        return self.redactor.body(data, "json") if self.redactor else data

    def written_json(self, data: bytes) -> bytes:
        """As `json`, for JSON that ctxvc wrote. Its numbers are ctxvc's own and stay."""
        clean = redact.strings(data, self._own_string) if self.touches(data) else data
        return self.redactor.body(clean, "json") if self.redactor else clean

    def value(self, value: Any) -> Any:
        """A recorded JSON value, as `json`."""
        data = wire.compact(value)
        clean = self.json(data)
        return value if clean == data else wire.parse(clean)

    def written_value(self, value: Any) -> Any:
        """As `value`, for a value that ctxvc wrote."""
        data = wire.compact(value)
        clean = self.written_json(data)
        return value if clean == data else wire.parse(clean)

    def has(self, data: bytes) -> bool:
        """Whether the bytes have any of the texts, plain or encoded."""
        if self._pattern is None:
            return False
        return self._pattern.search(data) is not None or self._encoded.has(data)

    def touches(self, data: bytes) -> bool:
        """Whether the bytes of a file may need a change."""
        plain = redact.plain(data)
        patterns = (self._pattern, self._in_labels)
        return (
            any(pattern is not None and pattern.search(plain) for pattern in patterns)
            or self._begins(plain)
            or self._encoded.has(data)
            or bool(self.redactor and redact.find(plain))
        )

    def _begins(self, data: bytes) -> bool:
        """Whether the bytes may have the beginning of a truncated text."""
        if self._heads is None or not any(sign in data for sign in _SIGNS):
            return False
        return self._heads.search(data) is not None

    def _marked(self, data: bytes) -> bytes:
        assert self._pattern is not None
        return self._encoded.without(self._pattern.sub(lambda match: self._forms[match[0]], data))

    def _string(self, value: bytes, key: bytes) -> bytes:
        clean = self.data(value)
        return redact.as_name(clean) if key in redact.IDS and clean is not value else clean

    def _own_string(self, value: bytes, key: bytes) -> bytes:
        clean = self.written(value)
        return redact.as_name(clean) if key in _NAMES and clean is not value else clean

    def _scalar(self, match: re.Match[bytes]) -> bytes:
        if match[1] or not self.has(match[0]):
            return match[0]
        return wire.compact(display.decode(self._marked(match[0])))

    def _without_beginnings(self, data: bytes, cut: re.Pattern[bytes]) -> bytes:
        """Replaces texts of which only the beginning is left, before the sign of a truncation."""
        assert self._heads is not None
        pieces, at = [], 0
        for match in self._heads.finditer(data):
            start = match.start()
            for word, mark in self._cut.items() if start >= at else ():
                size = _common(word, data[start : start + len(word)])
                if _TELLING <= size < len(word) and cut.match(data, start + size):
                    pieces += [data[at:start], mark]
                    at = start + size
                    break
        return b"".join((*pieces, data[at:])) if pieces else data

    # --- pieces of a tree

    def body(self, data: bytes, ext: str, *, ours: bool = False) -> bytes:
        """The replacement of a body; with `ours`, ctxvc wrote it.

        An image or document that has some of the content becomes an empty one.
        """
        if ext == "json":
            return self.json(data)
        if ext in redact.TEXTS:
            return self.written(data) if ours else self.data(data)
        return emptied(data, ext, b"[purged]") if self.has(data) else data

    def row(self, row: Row) -> Row:
        """The row that fits the replacement of its body."""
        new = self.sums.get(row.sha256)
        extra = row.extra and self.value(row.extra)
        tool, call = self.name(row.tool), self.name(row.call)
        fields: dict[str, Any] = {"stub": row.stub, "label": row.label}
        if tool != row.tool:
            fields["label"] = row.label.replace(row.tool, tool, 1)
        if new is not None:
            source = row.extra.get("source")
            media = str(source.get("media_type", "")) if isinstance(source, dict) else ""
            fields |= {"bytes": len(new), "sha256": hashlib.sha256(new).hexdigest()}
            fields["label"] = label(row.kind, new, row.ext, tool=tool, media=media)
            fields["stub"] = row.stub.replace(row.handle, f"{row.id}@{fields['sha256'][:6]}")
            if row.sha256 in self.whole:
                extra = {name: value for name, value in extra.items() if name in ("ctxvc", "source")}
                if metadata := wire.own_metadata(extra):  # what repeats a call's arguments
                    extra["ctxvc"] = {name: value for name, value in metadata.items() if name not in ("as", "original")}
            if row.kind == "thinking":
                extra = {name: value for name, value in extra.items() if name != "signature"}
        # Label and stub may show a part of an unchanged text, even shortened.
        fields["label"] = display.decode(self.data(display.encode(fields["label"])))
        fields["stub"] = self._stub(fields["stub"])
        return msgspec.structs.replace(row, extra=extra, tool=tool, call=call, **fields)

    def group(self, group: Group) -> Group:
        return msgspec.structs.replace(group, stub=self._stub(group.stub), label=self._stub(group.label))

    def renames(self, row: Row) -> bool:
        """Whether a row has some of the content: in an id, a name or the rest of its content block."""
        return (self.name(row.call), self.name(row.tool)) != (row.call, row.tool) or self.value(row.extra) != row.extra

    def _stub(self, stub: str) -> str:
        data = display.encode(stub)
        if self._in_labels is not None:
            data = self._in_labels.sub(lambda match: self.labels[match[0]], data)
        return display.decode(self.written(data))


def emptied(data: bytes, ext: str, mark: bytes) -> bytes:
    """The replacement of a whole body, of the same type."""
    if ext in _SMALLEST:
        return base64.b64decode(_SMALLEST[ext])
    if ext != "json":
        return mark
    text = mark.decode()
    value = wire.parsed(data, object)
    if isinstance(value, list):
        files = [item for item in value if isinstance(item, dict) and item.get("type") in ("image", "document")]
        return wire.compact([{"type": "text", "text": text}, *files])
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return wire.compact({"type": "text", "text": text})
    return wire.compact({"purged": text})


def forms_of(word: bytes) -> list[bytes]:
    """The forms of a text elsewhere: on one line, in a stub, on a terminal, JSON-quoted once and twice."""
    text = display.decode(word)
    line = " ".join(text.split())
    forms = [text, line, line.replace("[", "(").replace("]", ")"), display.visible_controls(text)]
    forms += [display.visible_controls(text).strip(), text.strip()]
    quoted = [wire.compact(form)[1:-1].decode("utf-8") for form in (text, line)]
    quoted += [wire.compact(form)[1:-1].decode("utf-8") for form in quoted]
    unique = {display.encode(form): None for form in (*forms, *quoted)}
    return [form for form in unique if len(form) >= min(4, len(word)) and form]


def _common(one: bytes, other: bytes) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
