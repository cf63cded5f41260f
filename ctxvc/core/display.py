"""Text as people and terminals may safely see it. All recorded content is untrusted."""

from __future__ import annotations

import re

# C0 and C1 controls, line and paragraph separators, and the bidirectional marks that can reorder a line.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_UNSAFE_IN_PAGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def one_line(text: str, width: int) -> str:
    """`text` on one line of at most `width` characters, without a character that moves a cursor."""
    # Only the head can be shown, so only the head is cleaned: a 100 MB result costs no more than a short one.
    head = " ".join(_UNSAFE.sub(" ", text[: width * 8 + 64]).split())
    if len(head) <= width and len(text) <= width * 8 + 64:
        return head
    return head[: width - 1].rstrip() + "…" if len(head) >= width else head + "…"


def visible_controls(text: str) -> str:
    """`text` with every control character but tab and newline written as `\\x1b`; safe on a terminal."""
    return _UNSAFE_IN_PAGE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    point = ord(match.group())
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def decode(body: bytes) -> str:
    """The text of a body. A lone surrogate comes back as it went in; any other invalid byte as U+FFFD."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return body.decode("utf-8", "replace")


def encode(text: str) -> bytes:
    """The bytes that `decode` turns back into `text`, lone surrogates included."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def human_bytes(count: int) -> str:
    """`6.1 kB`: decimal units, as in `ls --si`."""
    if count < 1000:
        return f"{count} B"
    size = float(count)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95 or unit == "GB":
            break
    return f"{size:.1f} {unit}"


def human_tokens(count: int) -> str:
    """`640`, `2.3k`, `41k`, `1.2M`: tokens in at most four characters, in texts for a model and for people."""
    if count < 1_000:
        return str(count)
    unit, name = (1_000, "k") if count < 999_500 else (1_000_000, "M")
    amount = count / unit
    return f"{amount:.1f}{name}" if amount < 9.95 else f"{amount:.0f}{name}"
