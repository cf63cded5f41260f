"""What a tool call changes in files, for the editing tools of known hosts: read from its arguments alone.

The arguments' form decides, not the tool's name: a path with a new text, a list of edits, a patch, a here-document.
This is what a call was meant to change, not the outcome: a call can fail, and a person can edit afterwards. Nothing
recorded is run: a script is only read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.facts import NEW, OLD, PATHS

_WHOLE = ("content", "contents", "file_text")
_PART = ("insert_text", "new_source", "code_edit")
_EVERY = ("replace_all", "replaceAll", "all")
_EDITS = ("edits", "changes", "operations")
_SHELL = ("command", "cmd", "script")
_PATCH = re.compile(r"^(?:\*\*\* (?P<act>Add|Update) File: |\+\+\+ (?:b/)?)(?P<path>.+)$", re.MULTILINE)
_NOTHING = "--- /dev/null\n"
_MOVED = "*** Move to: "
#: `cat > FILE <<'END'` and `tee FILE <<END`, in either order.
_HERE = re.compile(r"<<-?\s*['\"\\]?(\w+)")
_TARGET = re.compile(r"(>{1,2}|\btee(?:\s+-a)?)\s*([^\s<>|;&'\"]+)")
#: Programs that change files; which of those that a script names, only a run would show.
_PROGRAM = re.compile(
    r"\bsed\b[^\n|;&]{0,40}?\s(?:-[a-zA-Z]*i|--in-place)|\bperl\b[^\n|;&]{0,20}?\s-[a-zA-Z]*i|\btee\b"
    r"|git (?:apply|mv)\b|\b(?:mv|cp|patch|ed|node|ruby|goimports|prettier|black|rustfmt|eslint)\b"
    r"|\bgofmt\b(?! -[ld]\b)|\bawk\b[^\n]{0,400}?(?:>|inplace)"
    r"|\bpython3?\b(?! -[m] (?:pytest|unittest|mypy|py_compile|json\.tool)\b)"
    r"|\bruff\b(?! check\b(?![^\n|;&]{0,80}--fix))"
)
_WRITING = re.compile(rf">|<<|{_PROGRAM.pattern}")
#: Programs that run a here-document. Any other only takes it as input.
_RUNS = re.compile(
    r"(?:^|[\s|;&(/])(?:python[0-9.]*|bash|sh|zsh|node|perl|ruby|awk|sed|ed|patch|ex|vim?|git apply)(?!\S)"
)
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_BARE = re.compile(r"['\"]([\w./$@~+-]+)['\"]")
#: `2>&1`, `> /dev/null`; then the target of a redirection.
_NOWHERE = re.compile(r"[0-9]?>&[0-9-]|[0-9&]?>{1,2}\s*/dev/(?:null|stdout|stderr|tty)\b")
_OUTPUT = re.compile(r">{1,2}\|?\s*([^\s<>|;&()]*)")
_STATIC = re.compile(r"[\w./@~+-]+")
#: `text.replace(` of a Python program, and the parts of its arguments: texts, or names of texts.
_REPLACE = re.compile(r"\.replace\(\s*")
_NEXT = re.compile(r"\s*,\s*")
_NAME = re.compile(r"[A-Za-z_]\w{0,80}")
_NAMED = re.compile(r"([A-Za-z_]\w{0,80})\s*=\s*\(?\s*\Z")
_QUOTE = re.compile(r"#[^\n]*|([rRbBuUfF]{0,2})(\'\'\'|\"\"\"|[\'\"])")
_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "\n": "", "\\": "\\", "'": "'", '"': '"'}
_FILE_NAME = re.compile(r"[^\s*?<>|]{1,300}\.\w{1,10}|[^\s*?<>|]{0,300}/[^\s*?<>|/]{1,100}")
_COMMENT = re.compile(r"#[^\n]*")
_BOUND = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)|\b(?:as|for)\s+([A-Za-z_]\w*)")
#: Words of a program that reads files, replaces texts in them and writes them back.
_HARMLESS = frozenset(
    {"import", "from", "as", "with", "open", "read", "write", "read_text", "write_text", "close", "Path", "pathlib"}
    | {"sys", "os", "io", "replace", "count", "assert", "in", "not", "and", "or", "if", "else", "for", "print", "len"}
    | {"raise", "SystemExit", "exit", "encoding", "newline", "None", "True", "False"}
)
#: The fewest letters and digits of a program's text for it to be looked for in a file.
_TELLING = 8
#: The most files that a program may name, replacements that are read, and texts without an end.
_FILES, _REPLACEMENTS, _OPEN_ENDED = 8, 200, 100
#: The most characters that are read of a command's line, and of a whole script.
_WIDE = 4_000
_SCRIPT = 100_000
#: Text that every JSON encoder writes in the same way.
_PLAIN = re.compile(r"[A-Za-z0-9_ .,()=:;*-]+")


class Change(NamedTuple):
    """A change of a file. `path` is as the call names it, empty if it names none.

    `replace`: `old` becomes `new`, everywhere with `every`, in whole lines with `whole_lines`. `write`: the file
    becomes `new`. `insert`: `new` is added at a place that the call names or at the end. `scripted`: a script's
    here-document makes the change.
    """

    path: str
    new: str
    kind: Literal["replace", "write", "insert"] = "write"
    old: str = ""
    every: bool = False
    whole_lines: bool = False
    scripted: bool = False


def changes(body: bytes, ext: str) -> list[Change]:
    """The changes of a call with these arguments (the body of a `tool_use`); empty if it only reads or runs."""
    return list(_changes(wire.arguments(body, ext)))


def script(body: bytes, ext: str) -> str:
    """The script of a shell's call if it may change files, else empty."""
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


def unread(script: str) -> str:
    """A script without the texts that its programs only search for or write back unchanged."""
    parts: list[str] = []
    end = 0
    for start, stop, code in _programs(script):
        _, texts = _replacements(code)
        for first, last, fresh in sorted(texts):
            parts += script[end : start + first], "\n", fresh, "\n"
            end = start + last
        parts.append(script[end:stop])
        end = stop
    return "".join([*parts, script[end:]])


def may_change(script: str, file: str) -> bool:
    """Whether a script may change a file in other ways than the changes that are read from it.

    The script is not run: any program that can change files counts, a redirection to another file does not.
    """
    commands = _unread_commands(script)
    if _PROGRAM.search(commands):
        return True
    commands = _QUOTED.sub(lambda quoted: _BARE.sub(r"\1", quoted[0]) if _BARE.fullmatch(quoted[0]) else "_", commands)
    targets = (output[1] for output in _OUTPUT.finditer(_NOWHERE.sub("", commands)))
    name = file.rpartition("/")[2]
    return any(not _STATIC.fullmatch(target) or target.rpartition("/")[2] == name for target in targets)


@lru_cache(8)
def _unread_commands(script: str) -> str:
    """A script without the here-documents that are read as changes or that no program runs."""
    parts: list[str] = []
    end = 0
    for start, stop, opening in _documents(script):
        before = script[end : start - len(opening) - 1]
        if not _RUNS.search(opening):
            parts += before, _TARGET.sub("", opening), "\n"  # what it writes is read as a change
        elif _is_read(script[start:stop]):
            parts.append(before)
        else:
            parts += before, opening, "\n", script[start:stop]
        end = stop
    return "".join([*parts, script[end:]]).replace("<<", "")


def same_file(path: str, file: str) -> bool:
    """Whether a call's path, absolute or not and perhaps from another machine, may be the project's file."""
    path = path.replace("\\", "/").removeprefix("./")
    return bool(path) and (path == file or path.endswith(f"/{file}") or file.endswith(f"/{path}"))


def needle(line: str) -> bytes:
    """Bytes that any JSON with the line in a string contains: the line's longest part that has only one encoding."""
    return max(_PLAIN.findall(line), key=len, default="").encode()


def _changes(arguments: Mapping[str, Any]) -> Iterator[Change]:
    path = _text(arguments, PATHS) or ""
    for fields in (arguments, *_edits(arguments)):
        own = _text(fields, PATHS) or path
        if own:
            yield from _fields(own, fields)
    for text in _strings(arguments):
        if "*** Begin Patch" in text or "\n+++ " in text:
            yield from _patched(text)
        elif "<<" in text:
            yield from _here_documents(text)
            for _, _, code in _programs(text):
                yield from _replacements(code)[0]


def _fields(path: str, fields: Mapping[str, Any]) -> Iterator[Change]:
    old, new = _text(fields, OLD), _text(fields, NEW)
    if new is not None:
        every = any(fields.get(name) is True for name in _EVERY)
        # An edit that replaces the empty text creates the file.
        yield Change(path, new, "replace", old, every) if old else Change(path, new, "write" if old == "" else "insert")
    elif (content := _text(fields, _WHOLE)) is not None:
        yield Change(path, content)
    elif (part := _text(fields, _PART)) is not None:
        yield Change(path, part, "insert")


def _text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these fields that is a text; a path must not be empty."""
    texts = (value for name in names if isinstance(value := fields.get(name), str) and (value or names is not PATHS))
    return next(texts, None)


def _edits(arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in _EDITS:
        match arguments.get(name):
            case list() as items:
                yield from (item for item in items if isinstance(item, dict))


def _strings(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The arguments that may contain a patch or a shell's command."""
    for name in (*_SHELL, "patch", "diff", "input", "arguments"):
        match arguments.get(name):
            case str() as value:
                yield value
            case list() as value:
                yield from (word for word in value if isinstance(word, str))


def _here_documents(command: str) -> Iterator[Change]:
    for start, end, opening in _documents(command):
        target = _TARGET.search(opening)
        if target and not _RUNS.search(opening):
            appends = target[1] == ">>" or target[1].endswith("-a")
            yield Change(target[2], command[start:end], "insert" if appends else "write", scripted=True)


def _documents(command: str) -> Iterator[tuple[int, int, str]]:
    """The start and end of each here-document, and the line that opens it."""
    lines = command.split("\n")
    starts = [0]
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(number)
        starts.append(starts[-1] + len(line) + 1)
    at = 0
    while at < len(lines):
        line = lines[at][:_WIDE]
        at += 1
        opening = _HERE.search(line)
        ends = places.get(opening[1], []) if opening else []
        first = bisect_left(ends, at)
        if first < len(ends):
            yield starts[at], starts[ends[first]], line
            at = ends[first] + 1


def _programs(command: str) -> Iterator[tuple[int, int, str]]:
    """The start, end and code of each here-document whose program replaces texts."""
    for start, end, _ in _documents(command[:_SCRIPT]):
        code = command[start:end]
        if ".replace(" in code:
            yield start, end, code


def _replacements(code: str) -> tuple[list[Change], list[tuple[int, int, str]]]:
    """The replacements that a program spells out, for each file that it names, and the places of their texts.

    A place is (start, end, the lines that are new in it). The program is not run: whether a file contains the text
    decides whether it was replaced there.
    """
    literals = _literals(code)
    names: dict[str, tuple[int, int, str]] = {}
    files: dict[str, None] = {}
    changes: list[Change] = []
    texts: dict[tuple[int, int], str] = {}
    calls = [match.end() for match in islice(_REPLACE.finditer(code), _REPLACEMENTS)]
    for start in sorted({*literals, *calls}):
        if start in literals:
            end, text = literals[start]
            if name := _NAMED.search(code, max(0, start - 100), start):
                names[name[1]] = start, end, text
            if _FILE_NAME.fullmatch(text) and len(files) < _FILES:
                files[text] = None
        if start not in calls:
            continue
        old = _argument(code, start, literals, names)
        comma = _NEXT.match(code, old[0]) if old else None
        new = _argument(code, comma.end(), literals, names) if comma else None
        if old is None or new is None or sum(map(str.isalnum, old[3])) < _TELLING:
            continue
        once = re.match(r"\s*,\s*(?:count\s*=\s*)?1\b", code[new[0] : new[0] + 40]) is not None
        changes += (Change(file, new[3], "replace", old[3], every=not once, scripted=True) for file in files)
        before = set(old[3].split("\n"))
        fresh = "\n".join(line for line in new[3].split("\n") if line not in before)
        texts[old[1], old[2]] = ""
        texts[new[1], new[2]] = fresh
    return changes, [(start, end, fresh) for (start, end), fresh in texts.items()]


def _is_read(code: str) -> bool:
    """Whether the replacements that a program spells out are all that it does to files."""
    calls = len(_REPLACE.findall(code))
    changes, _ = _replacements(code)
    if not calls or len({(change.old, change.new) for change in changes}) < calls:
        return False
    parts: list[str] = []
    end = 0
    for start, (stop, _) in sorted(_literals(code).items()):
        parts.append(code[end:start])
        end = max(end, stop)
    statements = _COMMENT.sub("", "".join([*parts, code[end:]]))
    names = {name for match in _BOUND.finditer(statements) for name in match.groups() if name}
    return not set(re.findall(r"[A-Za-z_]\w*", statements)) - names - _HARMLESS


def _argument(
    code: str, at: int, literals: Mapping[int, tuple[int, str]], names: Mapping[str, tuple[int, int, str]]
) -> tuple[int, int, int, str] | None:
    """The text argument at a place of a program, given literally or by name: the argument's end, the text's start and
    end, and the text.
    """
    if at in literals:
        end, text = literals[at]
        return end, at, end, text
    name = _NAME.match(code, at)
    return (name.end(), *names[name[0]]) if name and name[0] in names else None


def _literals(code: str) -> dict[int, tuple[int, str]]:
    """Start → end and value of each text of a program. Adjacent texts are one."""
    literals: dict[int, tuple[int, str]] = {}
    first, last_end, open_ended = -1, -1, 0
    at = 0
    while (match := _QUOTE.search(code, at)) and open_ended < _OPEN_ENDED:
        at = match.end()
        if match[2] is None:
            continue  # a comment
        end = _closing(code, at, match[2])
        if end < 0:
            open_ended += 1
            continue
        text = code[at:end]
        at = end + len(match[2])
        if "f" in match[1].lower():
            continue
        if "r" not in match[1].lower():
            text = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[0]), text)
        if first >= 0 and code[last_end : match.start()].strip(" \t\r\n+\\") == "" and last_end < match.start():
            text = literals[first][1] + text
        else:
            first = match.start()
        literals[first] = at, text
        last_end = at
    return literals


def _closing(code: str, at: int, quote: str) -> int:
    """The place of the quote that closes a text which begins at `at`; -1 if there is none."""
    line_end = code.find("\n", at) if len(quote) == 1 else -1
    last = line_end if line_end >= 0 else len(code)
    while (at := code.find(quote, at, last)) >= 0:
        escapes = at
        while escapes and code[escapes - 1] == "\\":
            escapes -= 1
        if (at - escapes) % 2 == 0:
            return at
        at += 1
    return -1


def _patched(patch: str) -> Iterator[Change]:
    """Each hunk of a patch as a replacement of whole lines, and each added file as a whole."""
    headers = list(_PATCH.finditer(patch))
    for here, after in zip(headers, [*headers[1:], None], strict=False):
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
    """The lines before and after each hunk that changes any."""
    old: list[str] = []
    new: list[str] = []
    for line in [*lines, "@@"]:
        sign, text = line[:1], line[1:]
        # In a patch of the other form, `--- x` removes the line `-- x`.
        if line.startswith(("@@", "*** ")) or (unified and line.startswith(("diff --git ", "--- "))):
            if old != new:
                yield old, new
            old, new = [], []
            continue
        if sign in ("-", " "):
            old.append(text)
        if sign in ("+", " "):
            new.append(text)
