"""The tokens of images and documents: by their pixels and pages, read from their headers."""

from __future__ import annotations

import re
from typing import NamedTuple

from ctxvc.tokens.models import is_older_claude


class ImageCap(NamedTuple):
    """A model's limits for an image: pixels along the longer edge, and tokens."""

    edge: int
    tokens: int


CURRENT_CAP = ImageCap(2576, 4784)
OLDER_CAP = ImageCap(1568, 1600)

_PATCH = 28  # pixels along the edge of the square that costs a token

# What a page of a PDF costs (its text and its picture; 1,500 to 3,000), and how many bytes of one hold a page at least
# where the pages themselves are compressed and cannot be counted.
_PDF_PAGE_TOKENS = 3_000
_PDF_PAGE_BYTES = 50_000
_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SEGMENTS = 2_000  # more than any camera writes before the frame; a hostile file has millions


def media_tokens(data: bytes, cap: ImageCap = CURRENT_CAP) -> int:
    """The tokens of an image by its size, or of a PDF by its pages; anything else counts as the largest image."""
    if size := image_size(data):
        return image_tokens(*size, cap)
    if data.startswith(b"%PDF-"):
        return pdf_tokens(data)
    return cap.tokens


def image_tokens(width: int, height: int, cap: ImageCap = CURRENT_CAP) -> int:
    """One token per square of 28 pixels, after the image is scaled to the cap: never less than is billed."""
    longer = max(width, height)
    if longer > cap.edge:
        width, height = (-(-side * cap.edge // longer) for side in (width, height))
    return min(cap.tokens, -(-width // _PATCH) * -(-height // _PATCH))


def image_cap(model: str) -> ImageCap:
    """The cap of the model's generation; the current one for an unknown model."""
    return OLDER_CAP if is_older_claude(model) else CURRENT_CAP


def pdf_tokens(data: bytes) -> int:
    """An estimate: 3,000 tokens for each page object, or for each 50 kB of a file that hides them."""
    return _PDF_PAGE_TOKENS * (len(_PDF_PAGE.findall(data)) or -(-len(data) // _PDF_PAGE_BYTES))


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels from the header of a PNG, JPEG, GIF or WebP; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR" and len(data) >= 24:
        size = _big(data, 16, 4), _big(data, 20, 4)
    elif data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        size = _little(data, 6, 2), _little(data, 8, 2)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        size = _webp_size(data)
    elif data.startswith(b"\xff\xd8"):
        size = _jpeg_size(data)
    else:
        return None
    return size if min(size) > 0 else None


def _webp_size(data: bytes) -> tuple[int, int]:
    form = data[12:16]
    if form == b"VP8X":
        return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
    if form == b"VP8L" and data[20] == 0x2F:
        bits = _little(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_JPEG_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        if marker == 0xFF:  # filling
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD9:  # these have no length
            at += 2
        else:
            at += 2 + _big(data, at + 2, 2)
    return 0, 0


def _big(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")


def _little(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")
