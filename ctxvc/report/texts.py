"""The texts of a page: each once, compressed in pieces, without the largest if they are too long. Pure."""

from __future__ import annotations

import base64
import hashlib
import heapq
import zlib
from collections.abc import Iterable, Sequence

#: The bytes of a piece before compression, and the most of all pieces after it.
PIECE = 65_536
MOST = 2_000_000
#: The most bytes of all texts before compression: few texts shrink to a twelfth.
_KEPT = 12 * MOST
#: The share of the room for a first choice of texts, by the estimate; it shrinks by this factor at each retry.
_ROOM = 0.97


#: Separates two texts.
_BETWEEN = b"\n"


class TextPool:
    """Distinct texts by number. While they are too long in all, the largest is dropped."""

    def __init__(self, limit: int = _KEPT) -> None:
        self._limit = limit
        self._texts: list[bytes | None] = []
        self._numbers: dict[bytes, int] = {}
        self._largest: list[tuple[int, int]] = []  # a heap: size, negated, and number
        self._size = 0

    def add(self, text: bytes) -> int:
        """Adds a text; returns its number."""
        key = hashlib.sha256(text).digest()
        number = self._numbers.setdefault(key, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
            self._size += len(text)
            heapq.heappush(self._largest, (-len(text), number))
            while self._size > self._limit:
                self._leave_out()
        return number

    def _leave_out(self) -> None:
        """Drops the largest text."""
        size, number = heapq.heappop(self._largest)
        self._texts[number] = None
        self._size += size

    def packed(self, limit: int = MOST) -> tuple[list[tuple[int, int] | None], list[str]]:
        """The start and length of each text, None for those left out; and the compressed pieces in Base64.

        The pieces have at most `limit` bytes before Base64; the largest texts are dropped for that.
        """
        packed = _compressed(self._texts)
        room = limit * _ROOM
        while (size := sum(map(len, packed))) > limit:
            target = self._size * room / size
            while self._size > target:
                self._leave_out()
            packed = _compressed(self._texts)
            room *= _ROOM
        places: list[tuple[int, int] | None] = []
        at = 0
        for text in self._texts:
            places.append(None if text is None else (at, len(text)))
            at += 0 if text is None else len(text) + len(_BETWEEN)
        return places, [base64.b64encode(piece).decode("ascii") for piece in packed]


def unpacked(chunks: Sequence[str]) -> bytes:
    """All texts in a row, from the pieces of `packed`."""
    return b"".join(zlib.decompress(base64.b64decode(piece)) for piece in chunks)


def _compressed(texts: Iterable[bytes | None]) -> list[bytes]:
    data = memoryview(b"".join(text + _BETWEEN for text in texts if text is not None))
    return [zlib.compress(data[at : at + PIECE], 9) for at in range(0, len(data), PIECE)]
