"""The texts of a page: each once, compressed in pieces, the largest left out where all are too many. Pure."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence

#: Bytes of a piece before it is compressed, and of all pieces after.
PIECE = 65_536
MOST = 2_000_000
#: How much of the room a first choice of texts may fill by what was estimated; less each time that it was too much.
_ROOM = 0.97


#: Between two texts, so that none reads on into the next.
_BETWEEN = b"\n"


class TextPool:
    """Texts by their number. What is added twice has one number."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, text: bytes) -> int:
        """The number of a text."""
        key = hashlib.sha256(text).digest()
        number = self._numbers.setdefault(key, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def packed(self, limit: int = MOST) -> tuple[list[tuple[int, int] | None], list[str]]:
        """Where each text begins and how long it is, None for those left out; and the compressed pieces in Base64.

        The pieces have at most `limit` bytes; the largest texts are left out.
        """
        sizes = [len(text) for text in self._texts]
        packed = _compressed(self._texts)
        room = limit * _ROOM
        left_out: set[int] = set()
        by_size = sorted(range(len(sizes)), key=lambda number: -sizes[number])
        while (size := sum(map(len, packed))) > limit:
            raw = sum(sizes[number] for number in range(len(sizes)) if number not in left_out)
            target = raw * room / size
            for number in by_size:
                if raw <= target:
                    break
                if number not in left_out:
                    left_out.add(number)
                    raw -= sizes[number]
            packed = _compressed([text for number, text in enumerate(self._texts) if number not in left_out])
            room *= _ROOM
        places: list[tuple[int, int] | None] = []
        at = 0
        for number, text_size in enumerate(sizes):
            if number in left_out:
                places.append(None)
            else:
                places.append((at, text_size))
                at += text_size + len(_BETWEEN)
        return places, [base64.b64encode(piece).decode("ascii") for piece in packed]


def unpacked(chunks: Sequence[str]) -> bytes:
    """All texts in a row, of the pieces that `packed` gave."""
    return b"".join(zlib.decompress(base64.b64decode(piece)) for piece in chunks)


def _compressed(texts: Sequence[bytes]) -> list[bytes]:
    data = memoryview(b"".join(text + _BETWEEN for text in texts))
    return [zlib.compress(data[at : at + PIECE], 9) for at in range(0, len(data), PIECE)]
