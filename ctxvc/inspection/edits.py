"""What a tool call changes in files, for the editing tools of the hosts that we know: read from its arguments alone.

By their form and not by the tool's name: a path beside a new text, several edits in a list, a patch, a here-document.
What a call was meant to change is not what came of it: a call can fail, and a person can edit afterwards. Nothing that
was recorded is run: of a script only what it says is read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ctxvc.core.ledger import wire

_PATHS = (
    "file_path", "path", "notebook_path", "filename", "file", "filePath", "relative_path", "file_name", "target_file",
)  # fmt: skip
_OLD = ("old_string", "old_str", "oldText", "oldString", "old_text", "oldStr", "old", "search")
_NEW = ("new_string", "new_str", "newText", "newString", "new_text", "newStr", "new", "replace")
_WHOLE = ("content", "contents", "file_text")
_PART = ("insert_text", "new_source", "code_edit")
_EVERY = ("replace_all", "replaceAll", "all")
_EDITS = ("edits", "changes", "operations")
_SHELL = ("command", "cmd", "script")
_PATCH = re.compile(r"^(?:\*\*\* (?P<act>Add|Update) File: |\+\+\+ (?:b/)?)(?P<path>.+)$", re.MULTILINE)
_NOTHING = "--- /dev/null\n"
_MOVED = "*** Move to: "
#: `cat > FILE <<'END'` and `tee FILE <<END`, either way round.
_HERE = re.compile(r"<<-?\s*['\"\\]?(\w+)")
_TARGET = re.compile(r"(>{1,2}|\btee(?:\s+-a)?)\s*([^\s<>|;&'\"]+)")
#: What a script has that changes a file; which of its files, nobody can say without running it.
_WRITING = re.compile(
    r"\bsed\b[^\n|;&]{0,40}?\s(?:-[a-zA-Z]*i|--in-place)|\bperl\b[^\n|;&]{0,20}?\s-[a-zA-Z]*i|>|\btee\b|<<"
    r"|\b(?:mv|cp|patch|awk|ed|python3?|node|ruby|gofmt|goimports|prettier|black|ruff|rustfmt|eslint)\b|git apply"
)
#: Characters of a line of a command, and of a whole script, that are looked into.
_WIDE = 4_000
_SCRIPT = 100_000
#: What no form of JSON writes otherwise.
_PLAIN = re.compile(r"[A-Za-z0-9_ .,()=:;*-]+")


class Change(NamedTuple):
    """A change of a file, by the path that the call gives; empty if the call gives none.

    `replace`: `old` becomes `new`, everywhere with `every`, in whole lines with `whole_lines`. `write`: the file
    becomes `new`. `insert`: `new` comes in at a place that the call says or at the end. `scripted` is set for what a
    here-document of a script writes.
    """

    path: str
    new: str
    kind: Literal["replace", "write", "insert"] = "write"
    old: str = ""
    every: bool = False
    whole_lines: bool = False
    scripted: bool = False


def changes(body: bytes, ext: str) -> list[Change]:
    """The changes of a call with these arguments (the body of a `tool_use`); none if it only reads or runs."""
    return list(_changes(wire.arguments(body, ext)))


def script(body: bytes, ext: str) -> str:
    """The script of a shell's call, if it has what can change files; else empty."""
    arguments = wire.arguments(body, ext)
    parts: list[str] = []
    for name in _SHELL:
        match arguments.get(name):
            case str() as value:
                parts.append(value)
            case list() as value:
                parts += [word for word in value if isinstance(word, str)]
    text = "\n".join(parts)[:_SCRIPT]
    return text if _WRITING.search(text) else ""


def same_file(path: str, file: str) -> bool:
    """Whether a call's path, absolute or not and perhaps of another machine, can be the project's file."""
    path = path.replace("\\", "/").removeprefix("./")
    return bool(path) and (path == file or path.endswith(f"/{file}") or file.endswith(f"/{path}"))


def needle(line: str) -> bytes:
    """Bytes that any JSON has with the line in a string: its longest part that can be written in one way only."""
    return max(_PLAIN.findall(line), key=len, default="").encode()


def _changes(arguments: Mapping[str, Any]) -> Iterator[Change]:
    path = _text(arguments, _PATHS) or ""
    for fields in (arguments, *_edits(arguments)):
        own = _text(fields, _PATHS) or path
        if own:
            yield from _fields(own, fields)
    for text in _strings(arguments):
        if "*** Begin Patch" in text or "\n+++ " in text:
            yield from _patched(text)
        elif "<<" in text:
            yield from _here_documents(text)


def _fields(path: str, fields: Mapping[str, Any]) -> Iterator[Change]:
    old, new = _text(fields, _OLD), _text(fields, _NEW)
    if new is not None:
        every = any(fields.get(name) is True for name in _EVERY)
        # An editor's edit of nothing makes the file.
        yield Change(path, new, "replace", old, every) if old else Change(path, new, "write" if old == "" else "insert")
    elif (content := _text(fields, _WHOLE)) is not None:
        yield Change(path, content)
    elif (part := _text(fields, _PART)) is not None:
        yield Change(path, part, "insert")


def _text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these fields that is a text: of the paths, one that is not empty."""
    texts = (value for name in names if isinstance(value := fields.get(name), str) and (value or names is not _PATHS))
    return next(texts, None)


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


def _here_documents(command: str) -> Iterator[Change]:
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
            text = "".join(f"{text_line}\n" for text_line in lines[at : ends[first]])
            if target:
                appends = target[1] == ">>" or target[1].endswith("-a")
                yield Change(target[2], text, "insert" if appends else "write", scripted=True)
            at = ends[first] + 1


def _patched(patch: str) -> Iterator[Change]:
    """Each hunk of a patch as a replacement of whole lines; a file that it adds as a whole."""
    headers = list(_PATCH.finditer(patch))
    for here, after in zip(headers, [*headers[1:], None], strict=True):
        path = here["path"].strip()
        lines = patch[here.end() : after.start() if after else len(patch)].split("\n")[1:]
        before = patch[max(0, here.start() - len(_NOTHING)) : here.start()]
        if here["act"] == "Add" or (here["act"] is None and before == _NOTHING):
            yield Change(path, "".join(f"{line[1:]}\n" for line in lines if line.startswith("+")))
            continue
        if lines and lines[0].startswith(_MOVED):
            path = lines[0].removeprefix(_MOVED).strip()
        for old, new in _hunks(lines, unified=here["act"] is None):
            text = "\n".join(new)
            yield (
                Change(path, text, "replace", "\n".join(old), whole_lines=True) if old else Change(path, text, "insert")
            )


def _hunks(lines: list[str], *, unified: bool) -> Iterator[tuple[list[str], list[str]]]:
    """The lines before and after, of each hunk that changes any."""
    old: list[str] = []
    new: list[str] = []
    for line in [*lines, "@@"]:
        sign, text = line[:1], line[1:]
        # In a patch of the other form, `--- x` takes the line `-- x` away.
        if line.startswith(("@@", "*** ")) or (unified and line.startswith(("diff --git ", "--- "))):
            if old != new:
                yield old, new
            old, new = [], []
            continue
        if sign in ("-", " "):
            old.append(text)
        if sign in ("+", " "):
            new.append(text)
