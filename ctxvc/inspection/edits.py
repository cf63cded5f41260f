"""What a tool call writes into files, for the editing tools of the hosts that we know: told by its arguments alone.

By their form and not by the tool's name: a path beside a new text, several edits in a list, a patch, a here-document.
What a call was meant to write is not what came of it: a call can fail, and a person can edit afterwards.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ctxvc.core.ledger import wire

_PATHS = (
    "file_path", "path", "notebook_path", "filename", "file", "filePath", "relative_path", "file_name", "target_file",
)  # fmt: skip
_TEXTS = (
    "content", "contents", "new_string", "new_str", "newText", "newString", "new_text", "file_text", "insert_text",
    "new_source", "code_edit", "new",
)  # fmt: skip
_EDITS = ("edits", "changes", "operations")
_SHELL = ("command", "cmd", "script")
_PATCH = re.compile(r"^(?:\*\*\* (?:Add|Update) File: |\+\+\+ (?:b/)?)(.+)$", re.MULTILINE)
#: `cat > FILE <<'END'` and `tee FILE <<END`, either way round.
_HERE = re.compile(r"<<-?\s*['\"\\]?(\w+)")
_TARGET = re.compile(r"(?:>{1,2}|\btee(?:\s+-a)?)\s*([^\s<>|;&'\"]+)")
#: Characters of a line of a command that are looked into.
_WIDE = 4_000
#: What no form of JSON writes otherwise.
_PLAIN = re.compile(r"[A-Za-z0-9_ .,()=:;*-]+")


class Write(NamedTuple):
    """A text for a file, by the path that the call gives."""

    path: str
    text: str

    @property
    def lines(self) -> frozenset[str]:
        """Its lines, without white space around them."""
        return frozenset(line.strip() for line in self.text.splitlines())


def writes(body: bytes, ext: str) -> list[Write]:
    """What a call with these arguments (the body of a `tool_use`) writes; nothing where it only reads or runs."""
    return list(_writes(wire.arguments(body, ext)))


def same_file(named: str, file: str) -> bool:
    """Whether a call's path, absolute or not and perhaps of another machine, can be the project's file."""
    named = named.replace("\\", "/").removeprefix("./")
    return bool(named) and (named == file or named.endswith(f"/{file}") or file.endswith(f"/{named}"))


def needle(line: str) -> bytes:
    """Bytes that any JSON has with the line in a string: its longest part that can be written in one way only."""
    return max(_PLAIN.findall(line), key=len, default="").encode()


def _writes(given: Mapping[str, Any]) -> Iterator[Write]:
    path = next((value for name in _PATHS if isinstance(value := given.get(name), str) and value), "")
    for fields in (given, *_edits(given)):
        own = next((value for name in _PATHS if isinstance(value := fields.get(name), str) and value), path)
        if own:
            yield from (Write(own, value) for name in _TEXTS if isinstance(value := fields.get(name), str))
    for words in _strings(given):
        if "*** Begin Patch" in words or "\n+++ " in words:
            yield from _patched(words)
        elif "<<" in words:
            yield from _here_documents(words)


def _edits(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in _EDITS:
        match given.get(name):
            case list() as items:
                yield from (item for item in items if isinstance(item, dict))


def _strings(given: Mapping[str, Any]) -> Iterator[str]:
    """The arguments that a patch or a shell's command can stand in."""
    for name in (*_SHELL, "patch", "diff", "input", "arguments"):
        match given.get(name):
            case str() as words:
                yield words
            case list() as words:
                yield from (word for word in words if isinstance(word, str))


def _here_documents(command: str) -> Iterator[Write]:
    lines = command.split("\n")
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(number)
    at = 0
    while at < len(lines):
        line = lines[at][:_WIDE]
        at += 1
        found = _HERE.search(line)
        ends = places.get(found[1], []) if found else []
        first = bisect_left(ends, at)
        if first < len(ends):
            target = _TARGET.search(line)
            yield Write(target[1] if target else "", "".join(f"{each}\n" for each in lines[at : ends[first]]))
            at = ends[first] + 1


def _patched(patch: str) -> Iterator[Write]:
    """The added lines of each file in a patch."""
    named = list(_PATCH.finditer(patch))
    for here, after in zip(named, [*named[1:], None], strict=True):
        part = patch[here.end() : after.start() if after else len(patch)]
        added = [line[1:] for line in part.splitlines() if line.startswith("+") and not line.startswith("+++ ")]
        yield Write(here[1].strip(), "\n".join(added))
