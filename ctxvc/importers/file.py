"""Files as importers read them: plain or gzipped, line by line, each with its offsets."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.prompt.truncation import Truncation
from ctxvc.errors import BadInput

#: The longest line or document to read, in bytes: far above any recorded message (an API body has at most 32 MB), and
#: low enough that a hostile file cannot fill the memory.
LONGEST = 256 * 1024 * 1024
_CHUNK = 1024 * 1024
#: A file of at most this many bytes is read in one call: some recordings have a file for each message.
_SMALL = 64 * 1024
#: The bytes to read ahead. At each read another thread may take the interpreter, and an import has several.
_BUFFER = 256 * 1024
_GZIP = b"\x1f\x8b"


class Line(msgspec.Struct, frozen=True):
    """A line in UTF-8, without its newline.

    `start` and `end` are byte offsets in the unpacked file, `end` after the newline.
    """

    number: int
    start: int
    end: int
    data: bytes
    complete: bool = True  # False for a last line that has no newline


class Recording:
    """A recording to read, with options.

    `progress` is called with the number of raw bytes read since its last call. `growing` leaves out an unfinished last
    line. `projects` limits a recording of many projects to these; empty for no limit. `stored_output` returns the whole
    output that a hook truncated, None if it was not stored. Lines are read up to the byte `end`. Nothing follows a
    recording that has `ended`.
    """

    ended = False

    def __init__(
        self,
        path: Path,
        progress: Callable[[int], None] = lambda _: None,
        *,
        growing: bool = False,
        projects: Sequence[Path] = (),
        stored_output: Callable[[Truncation], bytes | None] = lambda _: None,
        end: int | None = None,
    ) -> None:
        self.path = path
        self.growing = growing
        self.projects = projects
        self.stored_output = stored_output
        self._progress = progress
        self._end = end
        #: Line → its number of bytes that are not UTF-8. Each becomes a lone surrogate, U+DC00 plus the byte.
        self.misread: dict[int, int] = {}
        #: Bytes of the unpacked file, set by `document`.
        self.length = 0

    def sibling(self, path: Path) -> Recording:
        """Another file of the recording, with the same options."""
        return Recording(
            path, self._progress, growing=self.growing, projects=self.projects, stored_output=self.stored_output
        )

    @property
    def stem(self) -> str:
        """The file's name without its endings (`.jsonl`, `.json`, `.gz`, `.traj`)."""
        name = self.path.name
        for ending in (".gz", ".jsonl", ".json", ".traj"):
            name = name.removesuffix(ending)
        return name

    def head(self, size: int = 65536) -> bytes:
        """The first `size` unpacked bytes in UTF-8, by which formats are recognised."""
        with self._open() as stream, self._guarded():
            return _legible(stream.read(size))[0]

    def first_line(self) -> bytes:
        """The first line unchanged; of a longer one its first 16 MB."""
        with self._open() as stream, self._guarded():
            return stream.readline(16 * _CHUNK)

    def beginning(self, size: int) -> bytes:
        """The first `size` unpacked bytes unchanged, at most `LONGEST`."""
        with self._open() as stream, self._guarded():
            return stream.read(min(size, LONGEST))

    def document(self) -> bytes:
        """The whole file in UTF-8. Raises: BadInput if it has more than `LONGEST` bytes."""
        with self._guarded():
            data = self._small()
        if data is None:
            with self._open() as stream, self._guarded():
                data = stream.read(_CHUNK)
                if len(data) == _CHUNK:  # memory for the longest is not asked for a small file
                    data += stream.read(LONGEST + 1 - _CHUNK)
        if len(data) > LONGEST:
            raise BadInput(f"{self.path}: a single JSON document of more than {LONGEST >> 20} MB", hint=_TOO_LONG)
        self._progress(len(data))
        self.length = len(data)
        data, bad = _legible(data)
        if bad:
            self.misread[0] = bad
        return data

    def lines(self) -> Iterator[Line]:
        """Every line that is not blank, in order, without an unfinished last one while `growing`.

        Raises: BadInput for a line longer than `LONGEST`.
        """
        number = offset = 0
        with self._open() as stream:
            pending: list[bytes] = []
            size = 0
            for piece in chain(self._pieces(stream), (b"",)):
                if piece:
                    self._progress(len(piece))
                    pending.append(piece)
                    size += len(piece)
                    if size > LONGEST:
                        raise BadInput(
                            f"{self.path}: line {number + 1} is longer than {LONGEST >> 20} MB", hint=_TOO_LONG
                        )
                    if not piece.endswith(b"\n"):
                        continue
                if not pending:
                    return
                data = pending[0] if len(pending) == 1 else b"".join(pending)
                number, start, offset = number + 1, offset, offset + size
                pending, size = [], 0
                complete = data.endswith(b"\n")
                if self._end is not None and offset > self._end:
                    return
                if self.growing and not complete:
                    return
                if stripped := data.strip():
                    if not stripped.isascii():
                        stripped, bad = _legible(stripped)
                        if bad and complete:
                            self.misread[number] = bad
                    yield Line(number, start, offset, stripped, complete)

    def _pieces(self, stream: BinaryIO) -> Iterator[bytes]:
        """The lines, those longer than a chunk in several pieces."""
        with self._guarded():
            while piece := stream.readline(_CHUNK):
                yield piece

    def progress(self, size: int) -> None:
        """Reports `size` raw bytes that an importer read by other means."""
        self._progress(size)

    def _small(self) -> bytes | None:
        """The bytes of a small file that is not gzipped; None for any other file. Raises: OSError."""
        with self._raw() as raw:
            data = raw.read(_SMALL)
            return None if raw.read(1) or data.startswith(_GZIP) else data

    def _raw(self) -> io.FileIO:
        """The open file, not unpacked. Raises: BadInput if it is a pipe or device, which may never end; OSError."""
        if self.path.exists() and not self.path.is_file():
            raise BadInput(f"{self.path} is not a file", hint="copy it into a file first")
        return open(self.path, "rb", buffering=0)

    def _open(self) -> BinaryIO:
        try:
            # Closed by the caller's with.
            raw = io.BufferedReader(self._raw(), _BUFFER)
            if raw.peek(2)[:2] != _GZIP:
                return raw
            raw.close()
            return io.BufferedReader(cast(io.RawIOBase, gzip.open(self.path)), _BUFFER)
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns errors in reading into BadInput."""
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadInput(
                f"{self.path}: the gzip data is truncated or damaged: {error}", hint="get the file again"
            ) from error
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}") from error


def json_lines(lines: Iterable[Line]) -> Iterator[tuple[Line, Any]]:
    """Each line with its JSON value, or None if it is not JSON.

    A last line that is not JSON and has no newline is left out: it is still being written.
    """
    for line in lines:
        try:
            value = wire.parse(line.data)
        except ValueError:
            if not line.complete:
                continue
            value = None
        yield line, value


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file beside recordings; empty if there is none."""
    try:
        return wire.parsed(path.read_bytes(), dict) or {}
    except OSError:
        return {}


def _legible(data: bytes) -> tuple[bytes, int]:
    """JSON in UTF-8, and the number of bytes that were not UTF-8, which become escapes of lone surrogates.

    So a bad byte does not cost its line: such an escape is valid in a JSON string.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        decoded = data.decode("utf-8", "surrogateescape")
        text, bad = _ESCAPED.subn(lambda match: f"\\u{ord(match[0]):04x}", decoded)
        return text.encode("utf-8"), bad
    return data, 0


_ESCAPED = re.compile("[\udc80-\udcff]")
_TOO_LONG = "no known recorder writes such a line; import only the part before it"
