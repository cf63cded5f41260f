"""The size of a picture is read from its head, in the four formats that the API takes."""

from __future__ import annotations

import pytest

from tests.messages_api.pictures import decoded, image_size, size
from tests.messages_api.samples import png

APP0 = b"\xff\xe0\x00\x04ab"
TABLE = b"\xff\xc4\x00\x03t"


@pytest.mark.parametrize(
    "picture",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\x2c\0\0\0\xc8",
        b"GIF89a\x2c\x01\xc8\x00",
        b"\xff\xd8" + APP0 + TABLE + b"\xff\xc2\x00\x0b\x08\x00\xc8\x01\x2c",
        b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x2b\x01\0\xc7\0\0",
        b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + (299 | 199 << 14).to_bytes(4, "little"),
        b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x2c\x01\xc8\x00",
    ],
)
def test_width_and_height_are_found(picture: bytes) -> None:
    assert size(picture) == (300, 200)


@pytest.mark.parametrize(
    "picture", [b"", b"BM", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP9 "]
)
def test_a_file_that_is_cut_or_not_known_has_no_size(picture: bytes) -> None:
    assert size(picture) is None


def test_only_an_image_that_carries_its_file_has_a_size() -> None:
    assert image_size(png(3, 4)) == (3, 4)
    assert image_size({"type": "image", "source": {"type": "url", "url": "u"}}) is None
    assert decoded("no base64!") is None
