"""Parses git's configuration files without obeying them: no include is followed, nothing is looked up.

The grammar is narrower than git's, so that everything accepted here means the same to git and to libgit2: a value is on
one line, without a NUL or invalid UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")
_PIECE = re.compile(r'"((?:[^"\\]|\\[tbn"\\])*)"|([^"\\#;]+)|(\\[tbn"\\])')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n"}
_SPACE = " \t"


class Setting(NamedTuple):
    """A setting. `key` is as git prints it: section and name in lower case, the part between unchanged.

    `value` is None if the file gives none, which means true.
    """

    key: str
    value: str | None


def settings(data: bytes) -> Iterator[Setting]:
    """The settings in a configuration file, in file order.

    Raises: ValueError, with the line number, if a line does not match the grammar.
    """
    if b"\0" in data:
        raise ValueError("it contains a NUL")
    section = ""
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        # Invalid UTF-8 becomes U+FFFD: no harmless key contains one, but a name or an address may.
        line = raw.removesuffix(b"\r").decode("utf-8", "replace").strip(_SPACE)
        if "\r" in line:
            raise ValueError(f"line {number} has a carriage return")
        if header := _HEADER.match(line):
            section = header[1].lower()
            if header[2] is not None:
                section += f".{_ESCAPE.sub(lambda escape: escape[1], header[2])}"
            line = line[header.end() :].lstrip(_SPACE)
        if not line or line[0] in "#;":
            continue
        name = _KEY.match(line)
        if not (name and section) or (not name[2] and name.end() != len(line)):
            raise ValueError(f"line {number} is not a setting")
        value = _value(line[name.end() :], number) if name[2] else None
        yield Setting(f"{section}.{name[1].lower()}", value)


def _value(text: str, number: int) -> str:
    at, plain, value = 0, "", ""
    while at < len(text) and text[at] not in "#;":
        piece = _PIECE.match(text, at)
        if not piece:
            raise ValueError(f"the value in line {number} continues on the next line or is malformed")
        at = piece.end()
        if piece[2] is not None:
            plain += piece[2] if value or plain else piece[2].lstrip(_SPACE)
        else:
            quoted = piece[1] if piece[1] is not None else piece[3]
            value, plain = value + plain + _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), quoted), ""
    return value + plain.rstrip(_SPACE)
