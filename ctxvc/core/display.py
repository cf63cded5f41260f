"""Text as people and terminals may safely see it. All recorded content is untrusted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# C0 and C1 controls, line and paragraph separators, and the bidirectional marks that can reorder a line.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_UNSAFE_IN_PAGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")

#: All characters but Latin letters, punctuation, arrows and mathematical signs, each of which has one column.
_MAYBE_WIDE = re.compile("[^\x00-\u02ff\u2010-\u2027\u2190-\u22ff]")
_SLASH = re.compile(r"[/\\]")
#: The beginning of a path that may be followed by a gap: a folder, or the name of a server.
_FIRST = re.compile(r"(?:\w{1,10}://)?[/\\]?[^/\\]+[/\\]")
#: A longer word (in characters) may be shown in part; the fewest columns for part of a path.
_LONG = 16
_LEAST = 8
#: A path in a text, possibly quoted; a word with other characters is a pattern or a script.
_PATH = re.compile(r"""['"`(]?(?:[\w….~@+,:%=-]*(?:/[\w.~@+,:%=\[\]*{}-]*)+|[A-Za-z]:(?:\\[\w.~@+,%=-]*)+)['"`);]*""")


def one_line(text: str, width: int) -> str:
    """`text` on one line of at most `width` characters, without characters that move a cursor."""
    # The only printable space is the plain one.
    if len(text) <= width and text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]:
        return text
    # Only the head can be shown, so only the head is cleaned: a 100 MB result costs no more than a short one.
    longest = width * 8 + 64
    head = _on_one_line(text[: width * 2])
    if len(head) <= width and len(text) > width * 2:  # mostly white space
        head = _on_one_line(text[:longest])
    if len(head) <= width and len(text) <= longest:
        return head
    return head[: width - 1].rstrip() + "…" if len(head) >= width else head + "…"


def _on_one_line(text: str) -> str:
    # Nothing unsafe is printable, and most short texts are printable.
    return " ".join((text if text.isprintable() else _UNSAFE.sub(" ", text)).split())


def columns(text: str) -> int:
    """The most columns that `text` takes on a terminal: two for a wide character."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in _MAYBE_WIDE.findall(text))


def fitted(text: str, width: int) -> str:
    """`text`, already on one line, in at most `width` columns. A path always keeps its file name.

    Paths are shortened in the middle first, the longest first; if that is not enough, the last words are dropped.
    """
    over = columns(text) - width
    if over <= 0:
        return text
    if width <= 0:
        return ""
    parts = text.split(" ")
    long = [at for at, part in enumerate(parts) if len(part) > _LONG]
    for at in sorted(long, key=lambda at: -len(parts[at])):
        if over > 0 and is_path(parts[at]):
            before = columns(parts[at])
            parts[at] = path_fitted(parts[at], before - over, columns(_end(parts[at])) + 2)
            over -= before - columns(parts[at])
    return " ".join(parts) if over <= 0 else _first_words(parts, width)


def path_fitted(path: str, width: int, minimum: int = 2) -> str:
    """A path in at most `width` columns, or `minimum` if that is more: `internal/…/bootstrap.go`.

    The middle is dropped: the file name stays, with as much before it as there is room for, and the path's beginning.
    """
    width = max(width, minimum)
    if columns(path) <= width:
        return path
    name = columns(_end(path))
    head = _FIRST.match(path)
    if head and columns(head[0]) + 2 + name > width:
        head = None
    return f"{head[0] if head else ''}…{_tail_fitted(path, head.end() if head else 0, width)}"


def _tail_fitted(path: str, begin: int, width: int) -> str:
    """The end of a path after `begin` that fits, with what precedes it, into `width` columns."""
    room = width - columns(path[:begin])
    slashes = (match.start() for match in _SLASH.finditer(path, begin, len(path) - 1))  # except one at its end
    start = next((at for at in slashes if columns(path[at:]) < room), None)
    tail = path[start:] if start is not None else _end(path)
    while tail and columns(tail) >= room:
        tail = tail[1:]
    return tail


def _first_words(parts: Sequence[str], width: int) -> str:
    """The first of `parts` followed by an ellipsis, in `width` columns; no path is cut at its end."""
    text, used = "", 0
    for word in parts:
        size = columns(word)
        if used + size >= width:
            room = width - used
            if is_path(word) and (room >= _LEAST or not text):
                return text + path_fitted(word, room)
            if not is_path(word) and (len(word) > _LONG or not text):
                text += _first_columns(word, room - 1)
            break
        text += f"{word} "
        used += size + 1
    return f"{text.rstrip()}…"


def _first_columns(word: str, width: int) -> str:
    word = word[: max(width, 0)]
    while word and columns(word) > width:
        word = word[:-1]
    return word


def is_path(word: str) -> bool:
    """Whether a word is a path, possibly quoted."""
    return _PATH.fullmatch(word) is not None


def _end(path: str) -> str:
    """The last part of a path."""
    return path[max(path.rfind("/", 0, -1), path.rfind("\\", 0, -1)) + 1 :]


def visible_controls(text: str) -> str:
    """`text` with every control character but tab and newline written as `\\x1b`; safe on a terminal."""
    return _UNSAFE_IN_PAGE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    point = ord(match.group())
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def decode(body: bytes) -> str:
    """The text of a body. Encoded lone surrogates are preserved; any other invalid byte becomes U+FFFD."""
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
