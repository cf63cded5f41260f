"""How large a picture is, read from the first bytes of the file."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping


def decoded(data: object) -> bytes | None:
    """The bytes behind base64, or None where it is none."""
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def size(picture: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None for a file that is not known well enough."""
    try:
        if picture.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", picture, 16)
        elif picture.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack_from("<HH", picture, 6)
        elif picture.startswith(b"\xff\xd8"):
            return _jpeg(picture)
        elif picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
            return _webp(picture)
        else:
            return None
    except struct.error:
        return None
    return width, height


def _jpeg(picture: bytes) -> tuple[int, int] | None:
    at = 2
    while at < len(picture):
        marker, length = struct.unpack_from(">xBH", picture, at)
        # The frame headers C0..CF hold the size; C4, C8 and CC are tables.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", picture, at + 5)
            return width, height
        at += 2 + length
    return None


def _webp(picture: bytes) -> tuple[int, int] | None:
    kind = picture[12:16]
    if kind == b"VP8X":
        wide, high = (int.from_bytes(picture[at : at + 3], "little") for at in (24, 27))
        return wide + 1, high + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", picture, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", picture, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def image_size(block: Mapping[str, object]) -> tuple[int, int] | None:
    """Width and height of an image block that carries its file."""
    source = block.get("source")
    if not isinstance(source, dict) or (picture := decoded(source.get("data"))) is None:
        return None
    return size(picture)
