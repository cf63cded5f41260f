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
    """The writes of a call with these arguments (the body of a `tool_use`); none if it only reads or runs."""
    return list(_writes(wire.arguments(body, ext)))


def same_file(path: str, file: str) -> bool:
    """Whether a call's path, absolute or not and perhaps of another machine, can be the project's file."""
    path = path.replace("\\", "/").removeprefix("./")
    return bool(path) and (path == file or path.endswith(f"/{file}") or file.endswith(f"/{path}"))


def needle(line: str) -> bytes:
    """Bytes that any JSON has with the line in a string: its longest part that can be written in one way only."""
    return max(_PLAIN.findall(line), key=len, default="").encode()


def _writes(arguments: Mapping[str, Any]) -> Iterator[Write]:
    path = next((value for name in _PATHS if isinstance(value := arguments.get(name), str) and value), "")
    for fields in (arguments, *_edits(arguments)):
        own = next((value for name in _PATHS if isinstance(value := fields.get(name), str) and value), path)
        if own:
            yield from (Write(own, value) for name in _TEXTS if isinstance(value := fields.get(name), str))
    for text in _strings(arguments):
        if "*** Begin Patch" in text or "\n+++ " in text:
            yield from _patched(text)
        elif "<<" in text:
            yield from _here_documents(text)


def _edits(arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in _EDITS:
        match arguments.get(name):
            case list() as items:
                yield from (item for item in items if isinstance(item, dict))


def _strings(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The arguments that a patch or a shell's command can stand in."""
    for name in (*_SHELL, "patch", "diff", "input", "arguments"):
        match arguments.get(name):
            case str() as value:
                yield value
            case list() as value:
                yield from (word for word in value if isinstance(word, str))


def _here_documents(command: str) -> Iterator[Write]:
    lines = command.split("\n")
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(number)
    at = 0
    while at < len(lines):
        line = lines[at][:_WIDE]
        at += 1
        opening = _HERE.search(line)
        ends = places.get(opening[1], []) if opening else []
        first = bisect_left(ends, at)
        if first < len(ends):
            target = _TARGET.search(line)
            yield Write(target[1] if target else "", "".join(f"{text_line}\n" for text_line in lines[at : ends[first]]))
            at = ends[first] + 1


def _patched(patch: str) -> Iterator[Write]:
    """The added lines of each file in a patch."""
    headers = list(_PATCH.finditer(patch))
    for here, after in zip(headers, [*headers[1:], None], strict=True):
        part = patch[here.end() : after.start() if after else len(patch)]
        added = [line[1:] for line in part.splitlines() if line.startswith("+") and not line.startswith("+++ ")]
        yield Write(here[1].strip(), "\n".join(added))
