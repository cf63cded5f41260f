"""A body in chunks, read as fast as it passes: a model's answer comes as thousands of small ones."""

from __future__ import annotations

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
#: A size with its extensions, and trailers, are at most so long.
_LONGEST = 1 << 16


class Chunks:
    """Takes a chunked body as it comes, and gives its content. RFC 9112, section 7.1."""

    def __init__(self) -> None:
        self._ahead = b""  # what cannot be read before there is more
        self._due = 0  # bytes of a chunk's content that are still to come
        self._begun = False  # within a chunk, or before the line end behind it
        self._trailers = False
        self.over = False
        #: What came behind the body.
        self.behind = b""

    def content(self, data: bytes) -> bytes:
        """The content in the next bytes of the body. Raises: ValueError if they are not in chunks."""
        data = self._ahead + data if self._ahead else data
        place, pieces = 0, []
        while not self._trailers:
            if self._begun:
                piece = data[place : place + self._due]
                pieces.append(piece)
                place += len(piece)
                self._due -= len(piece)
                if len(data) < place + 2:
                    break
                if data[place : place + 2] != b"\r\n":
                    raise ValueError("a chunk that is longer than its size")
                place += 2
            size = _SIZE.match(data, place)
            self._begun = size is not None
            if size is None:
                if b"\r\n" in data[place : place + _LONGEST] or len(data) - place >= _LONGEST:
                    raise ValueError("a chunk without its size")
                break
            place, self._due = size.end(), int(size[1], 16)
            self._trailers = not self._due
        self._ahead = data[place:]
        if self._trailers:
            self._end()
        return b"".join(pieces)

    def _end(self) -> None:
        """Looks for the end of the trailers, which are lines up to an empty one."""
        while not self.over:
            line, end, behind = self._ahead.partition(b"\r\n")
            if not end:
                if len(line) > _LONGEST:
                    raise ValueError("trailers without an end")
                return
            self.over = not line
            self._ahead, self.behind = behind, behind if self.over else b""
