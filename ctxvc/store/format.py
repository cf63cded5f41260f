"""Ledger ⇄ bytes and paths: formats 1 and 2 of a scope's tree. Pure functions; docs/format.md is the specification."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.block import block_number
from ctxvc.core.ledger.ledger import SEGMENT, Group, Meta, Row, Source
from ctxvc.errors import Damaged, Phrase, Refused

FORMAT = 2
META = "ctxvc.json"
GROUPS = "ledger/groups.jsonl"
ATTRIBUTES = ".gitattributes"
#: The folder with the body of the request that the newest reply answers, in pieces that are concatenated.
BODY = "request/body"
#: CLIENT: the same for the client's own request, if a different one was sent to the model. ASIDES: exchanges between
#: only the model and us, which the client's requests do not have.
CLIENT = "request/client"
ASIDES = "request/asides"

#: Turns off all conversions; a textconv runs if one is configured (`hooks/git`).
ATTRIBUTES_TEXT = b"* -text -ident -filter -working-tree-encoding\n*.json diff=ctxvc\n"
S = TypeVar("S", bound=msgspec.Struct)
_row_encoder = msgspec.json.Encoder()
_row_decoder = msgspec.json.Decoder(Row)
_group_decoder = msgspec.json.Decoder(Group)
_meta_decoder = msgspec.json.Decoder(Meta)
_ROW_DEFAULTS: dict[str, Any] = {field.name: field.default for field in msgspec.structs.fields(Row)}
_NO_FILES, _TEXT, _VISIBLE = (_ROW_DEFAULTS[name] for name in ("files", "ext", "state"))

#: A decoder's errors for invalid bytes: not JSON, not text, nested too deeply.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_PIECE = re.compile(
    rf"(?:{BODY}|{CLIENT})/[0-9a-f]{{2}}(?:\.(?:json|bin)|-[A-Za-z0-9_]{{1,64}}/[0-9a-f]{{2}}/[0-9a-f]{{2}}\.json)"
    rf"|{ASIDES}/[0-9a-f]{{4}}\.json"
)


class _Version(msgspec.Struct):
    format: int


def folder(number: int) -> str:
    """The two folder names of block `number`: 64 numbers share the second, 64 of those the first."""
    segment = number // SEGMENT
    return f"{segment // SEGMENT:02x}/{segment % SEGMENT:02x}"


def segment_path(segment: int) -> str:
    return f"ledger/{segment // SEGMENT:02x}/{segment % SEGMENT:02x}.jsonl"


def segment_number(path: str) -> int:
    """The number of the segment in a ledger file. Raises: ValueError if `path` is not one."""
    top, high, low = path.removesuffix(".jsonl").split("/")
    if top != "ledger":
        raise ValueError(path)
    return int(high, 16) * SEGMENT + int(low, 16)


def body_path(row: Row) -> str:
    """The path of the body: under `blocks/` while the block is in the prompt, else under `archive/`."""
    return f"{_top(row)}/{folder(row.number)}/{row.id}.{row.ext}"


def paths(row: Row) -> Iterator[str]:
    """The paths of the body and its sibling files."""
    yield body_path(row)
    for suffix in row.files:
        yield file_path(row, suffix)


def file_path(row: Row, suffix: str) -> str:
    """The path of a sibling file: `B18-1.png` for suffix `1.png`."""
    return f"{_top(row)}/{folder(row.number)}/{row.id}-{suffix}"


def block_of_path(path: str) -> str:
    """The block whose body or sibling file is at `path`; empty if there is none."""
    if not path.startswith(("blocks/", "archive/")):
        return ""
    name = path.rsplit("/", 1)[-1].split(".", 1)[0].split("-", 1)[0]
    try:
        block_number(name)
    except ValueError:
        return ""
    return name


def is_piece(path: str) -> bool:
    """Whether `path` is a piece of a request's body, or one of the asides."""
    return _PIECE.fullmatch(path) is not None


#: The suffix of the formats of sessions that are recorded while a program runs.
_LIVE = "-live"


def live_format(agent: str) -> str:
    """The format of sessions that are recorded while a program runs: inside it, or between it and its model."""
    return f"{agent}{_LIVE}"


def is_live(source: Source | None) -> bool:
    """Whether a session is recorded while a program runs, so that there is no file to import."""
    return source is not None and source.format.endswith(_LIVE)


def lacks_nothing(source: Source | None) -> bool:
    """Whether a session is recorded with everything that its model sees, as between an agent and its model."""
    return source is not None and is_live(source) and not source.missing


@cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    """Each field with its default; the default of a required field equals nothing."""
    return tuple((field.name, field.default) for field in msgspec.structs.fields(kind))


def plain(value: S) -> S:
    """The value, with each field that equals its default replaced by the default object itself.

    The encoder omits only that very object, and which of two equal values are the same object differs between versions
    of Python. The bytes on the disk must not.
    """
    other = {
        name: default
        for (name, default), own in zip(_defaults(type(value)), msgspec.structs.astuple(value), strict=True)
        if own is not default and own == default and isinstance(own, type(default))
    }
    return msgspec.structs.replace(value, **other) if other else value


def plain_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows after `plain`; only these fields can equal a default without being the default object."""
    return [
        row
        if (row.files or row.files is _NO_FILES) and (row.ext is _TEXT or row.ext != _TEXT)
        and (row.state is _VISIBLE or row.state != _VISIBLE)
        else plain(row)
        for row in rows
    ]  # fmt: skip


def _top(row: Row) -> str:
    return "blocks" if row.present else "archive"


def encode_rows(rows: Iterable[Row]) -> bytes:
    """One JSON object per line, keys in the order of `Row`'s fields, defaults left out."""
    return _row_encoder.encode_lines(plain_rows(rows))


def decode_rows(data: bytes, where: str) -> tuple[Row, ...]:
    """The rows of a segment. Raises: Damaged if a line is not a row or the numbers are not in order."""
    try:
        rows = tuple(_row_decoder.decode_lines(data))
        numbers = [row.number for row in rows]
    except _UNREADABLE as error:
        raise Damaged(f"{where}: not a ledger: {error}", hint=Phrase("verify")) from error
    if any(number < 1 or row.id != f"B{number}" for row, number in zip(rows, numbers, strict=True)):
        raise Damaged(f"{where}: not a ledger: an id is not a block's", hint=Phrase("verify"))
    if any(first >= second for first, second in pairwise(numbers)):
        raise Damaged(f"{where}: the rows are out of order", hint=Phrase("verify"))
    return rows


def encode_groups(groups: Iterable[Group]) -> bytes:
    return _row_encoder.encode_lines(sorted(map(plain, groups), key=lambda group: int(group.id[1:])))


def decode_groups(data: bytes, where: str) -> dict[str, Group]:
    """The groups by id. Raises: Damaged."""
    try:
        return {group.id: group for group in _group_decoder.decode_lines(data)}
    except _UNREADABLE as error:
        raise Damaged(f"{where}: not a list of groups: {error}", hint=Phrase("verify")) from error


def encode_meta(meta: Meta) -> bytes:
    source = plain(meta.source) if meta.source else None
    fields = plain(msgspec.structs.replace(meta, source=source))
    return msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n"


def decode_meta(data: bytes, where: str) -> Meta:
    """The parsed `ctxvc.json`. Raises: Refused for a newer format, Damaged if it is unreadable."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
    except _UNREADABLE as error:
        raise Damaged(f"{where}: not a ctxvc.json: {error}", hint=Phrase("verify")) from error
    if version > FORMAT:
        raise Refused(f"{where} has format {version}; this ctxvc reads formats up to {FORMAT}", hint="update ctxvc")
    try:
        return _meta_decoder.decode(data)
    except _UNREADABLE as error:
        raise Damaged(f"{where}: not a ctxvc.json: {error}", hint=Phrase("verify")) from error


SUBJECT = 72  # columns of a subject
_LONGEST_MESSAGE = 2000  # characters of a trailer, and of a subject before it is fitted
_TRAILER = re.compile(r"^(Ctxvc-.*?): (.*)$", re.MULTILINE)


def message(subject: str, trailers: Mapping[str, str], body: str = "") -> str:
    """A commit message: a subject of at most 72 columns, `body`, and git trailers, which are the last paragraph.

    Control characters are made visible: names and texts may be recorded, git refuses NUL, `git log` prints escapes.
    """
    lines = [
        f"{name}: {line}" for name, value in trailers.items() if (line := display.one_line(value, _LONGEST_MESSAGE))
    ]
    first = display.fitted(display.one_line(subject, _LONGEST_MESSAGE), SUBJECT)
    parts = (first, display.visible_controls(body), "\n".join(lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def trailers_of(message: str) -> dict[str, str]:
    """The trailers of one of our commit messages."""
    return dict(_TRAILER.findall(message.rstrip("\n").rsplit("\n\n", 1)[-1]))


HEADS = "refs/heads/"


def ref_of(session: str, scope: str) -> str:
    return f"{HEADS}{session}/{scope}"


def scope_of(ref: str) -> tuple[str, str] | None:
    """(session, scope); None if `ref` is not a scope's."""
    if not ref.startswith(HEADS):
        return None
    session, _, scope = ref.removeprefix(HEADS).partition("/")
    return (session, scope) if session and scope else None


def head_ref(session: str) -> str:
    """The symbolic ref that names the session's current scope on this machine."""
    return f"refs/ctxvc/{session}/HEAD"
