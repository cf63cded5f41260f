"""What a call did, as a fact of its tool: which file, which lines, which pattern, which command.

The shape of the arguments decides, not the host: a call with `old_string` and `new_string` is an edit under any tool's
name. A fact does not mean that the call succeeded; only the recording knows that (`Row.error`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire

Act = Literal["edited", "wrote", "deleted", "read", "searched", "listed", "fetched", "ran", "committed", "todo"]
#: `called` for what has no act of its own; `tool` is then the tool's name.
Deed = Act | Literal["planned", "delegated", "called"]

#: JSON and scripts with more characters than this are not analysed.
_PARSED = 1024 * 1024
_SCRIPT = 8_000
#: Simple commands of a script that are analysed.
_COMMANDS = 24

#: The arguments, in the tools of all agents, for a file's path, for the replaced text, and for its replacement.
PATHS = (
    "file_path", "path", "filePath", "absolute_path", "notebook_path", "relative_path", "target_file", "filename",
    "file_name", "file", "filepath",
)  # fmt: skip
OLD = ("old_string", "old_str", "oldText", "oldString", "old_text", "oldStr", "old", "search")
NEW = ("new_string", "new_str", "newText", "newString", "new_text", "newStr", "new", "replace")
_CONTENT = ("content", "file_text", "contents", "new_source", "text")
_QUERIES = ("pattern", "query", "regex", "search_term", "search_query", "q")
_LISTING = re.compile(r"(?:^|_)(?:ls|list|list_dir|list_files|list_directory|dir|tree)(?:_|$)", re.IGNORECASE)

_PATCH = "*** Begin Patch"
_PATCHED = re.compile(r"\*\*\* (Update|Add|Delete) File: ([^\n]+)")

#: The shell programs that show a file, that search, and that list.
_SHOWING = frozenset({"cat", "head", "tail", "nl", "less", "more", "bat", "sed"})
_LOOKING = frozenset({"grep", "rg", "egrep", "fgrep", "ag", "ack", "zgrep"})
_LISTERS = frozenset({"ls", "find", "tree", "fd"})
#: Those that only reshape another program's output, and those that run a script of their own.
_SHAPING = frozenset({"wc", "sort", "uniq", "cut", "tr", "awk", "tee", "jq"})
_SHELLS = frozenset({"bash", "sh", "zsh"})
#: All programs of which more is known than that they ran.
_KNOWN = _SHOWING | _LOOKING | _LISTERS | _SHAPING | _SHELLS | {"git"}
#: Those that say nothing about what was done.
_SILENT = frozenset(
    {"cd", "export", "set", "source", ".", "echo", "true", "pushd", "popd", "sleep", "unset", "printf", "test", "wait"}
    | {"if", "then", "else", "elif", "fi", "for", "do", "done", "while", "case", "esac", "function", "return", "exit"}
    | {"[", "[[", "\\"}
)
#: Those that run another program, named after their options.
_PREFIXES = frozenset({"sudo", "time", "env", "nohup", "command", "exec", "timeout", "nice", "xargs"})
#: Beginnings of scripts whose first line says more than their commands.
_LOOPS = ("for ", "while ", "until ")
#: A program's name in a correctly parsed script: no quote, variable or bracket.
_PROGRAM = re.compile(r"[^\s'\"`$(){}<>|&;,]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_RANGE = re.compile(r"([0-9]{1,9}),([0-9]{1,9})p")
_SEPARATORS = re.compile(r"&&|\|\||;|\n")
_QUOTE = re.compile(r"'[^']{0,1000}'|\"(?:[^\"\\]|\\.){0,1000}\"")
_WORD = re.compile(r"(?:'[^']{0,1000}'|\"(?:[^\"\\]|\\.){0,1000}\"|[^\s'\"]|['\"])+?(?=\s|$)")
#: What rules out splitting at blanks alone: quotes, redirections, hidden separators.
_BY_RULES = re.compile(r"['\"<>\ue000-\ue003]")
_REDIRECTION = re.compile(r"[0-9&]?[<>]")
_MESSAGE = re.compile(r"\bcommit\b[^\n|;&]{0,80}?(?:-[a-z]{0,3}m|--message)[ =]?(\"|')")
_HEREDOC = re.compile(r"\$\(cat <<-?\s*['\"]?(\w{1,20})['\"]?[^\n]*\n\s*([^\n]{1,200})")
_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w{1,40})['\"]?")
_WRITTEN = re.compile(
    r"(?:cat|tee)\s[^\n|;&]{0,80}?(?:>{1,2}\s*)?([\w./~-]{2,300})\s*<<"
    r"|cat\s*<<-?\s*\S{1,30}\s*>{1,2}\s*(\S{2,300})"
)


class Fact(msgspec.Struct, frozen=True):
    """One thing that a call did. `object` is what it was done to: a path, a pattern, a command, a message.

    `detail` is `1–100`, `+3 −0`, `8/10` or empty; `tool` is the tool's name if no act says more.
    """

    act: Deed
    object: str = ""
    detail: str = ""
    tool: str = ""


def facts(tool: str, body: bytes | str, ext: str = "json") -> tuple[Fact, ...]:
    """What a call did, in the order of its arguments; at least one fact. Never raises: arguments may be anything.

    `body` is the arguments as recorded; `ext` is `json` if they are JSON.
    """
    value: Any = None
    if ext == "json" and len(body) <= _PARSED:
        value = wire.parsed(display.encode(body) if isinstance(body, str) else body, dict)
    if value is None:
        text = body if isinstance(body, str) else display.decode(body[:_PARSED])
        return tuple(_patched(text)) or (Fact("called", text[:400], tool=tool),)
    return tuple(_facts(tool, value)) or (Fact("called", _scalars(value), tool=tool),)


def script_or_facts(tool: str, body: bytes, ext: str = "json") -> str | tuple[Fact, ...]:
    """The script that a call ran in a shell, verbatim; for any other call its facts."""
    value = wire.parsed(body, dict) if ext == "json" and len(body) <= _PARSED else None
    if value is None:
        return facts(tool, body, "")
    script = _script(value)
    # A call that is no shell command has fields of its own, or a file.
    is_other = bool(value.keys() & {"todos", "plan", "subagent_type", "prompt", "url"} or _text(value, PATHS))
    if script is not None and _PATCH not in script and not is_other:
        return script
    return tuple(_facts(tool, value)) or (Fact("called", _scalars(value), tool=tool),)


def argument_text(body: str, ext: str = "json") -> str:
    """The texts in a call's arguments, a line each, without JSON escapes; the body itself if it is not JSON."""
    value = wire.parsed(display.encode(body), dict) if ext == "json" and len(body) <= _PARSED else None
    if value is None:
        return body
    texts: list[str] = []
    stack: list[Any] = [value]
    while stack:
        match stack.pop():
            case str(text):
                texts.append(text)
            case dict() as fields:
                stack.extend(reversed(fields.values()))
            case list() as items:
                stack.extend(reversed(items))
    return "\n".join(texts)


def _facts(tool: str, value: Mapping[str, Any]) -> Iterator[Fact]:
    path = _text(value, PATHS)
    for text in value.values():
        if isinstance(text, str) and _PATCH in text:
            yield from _patched(text)
            return
    match value:
        case {"todos": list(items)} | {"plan": list(items)}:
            yield _todo(items)
            return
        case {"plan": str(plan)} if plan.strip():
            yield Fact("planned", _first_line(plan))
            return
        case {"edits": list(edits)} if path:
            changes = [_change(edit) for edit in edits if isinstance(edit, dict)]
            yield Fact("edited", path, _counts(sum(plus for plus, _ in changes), sum(minus for _, minus in changes)))
            return
        case {"subagent_type": _, "description": str(task)} | {"prompt": str(), "description": str(task)}:
            yield Fact("delegated", _first_line(task))
            return
        case {"url": str(url)} if url.strip():
            yield Fact("fetched", url.strip())
            return
    if path:
        yield from _on_file(tool, path, value)
    elif (script := _script(value)) is not None:
        yield from _on_script(script)
    elif query := _text(value, _QUERIES):
        yield Fact("searched", query)


def _on_file(tool: str, path: str, value: Mapping[str, Any]) -> Iterator[Fact]:
    """The fact of a call with the path of a file or folder."""
    editor = value.get("command")
    content = _text(value, _CONTENT)
    if _has(value, OLD) or _has(value, NEW):
        plus, minus = _change(value)
        yield Fact("edited", path, _counts(plus, minus))
    elif query := _text(value, _QUERIES):
        yield Fact("searched", query, _end(path))
    elif editor is not None and editor not in ("view", "create", "open") and _script(value) is not None:
        yield from _on_script(_script(value) or "")
    elif content or editor == "create":
        yield Fact("wrote", path, _counts(_lines(content), 0))
    elif _LISTING.search(tool):
        yield Fact("listed", path)
    elif any(word in tool.lower() for word in ("delete", "remove", "move", "rename")):
        yield Fact("called", path, tool=tool)
    else:
        yield Fact("read", path, _range(value))


def _todo(items: Sequence[Any]) -> Fact:
    entries = tasks(items)
    completed = sum(state == "done" for state, _ in entries)
    doing = next((text for state, text in entries if state == "doing"), "")
    return Fact("todo", doing, f"{completed}/{len(items)}")


def tasks(items: Sequence[Any]) -> list[tuple[Literal["done", "doing", "open"], str]]:
    """The tasks in a call's list, each with its state."""
    entries: list[tuple[Literal["done", "doing", "open"], str]] = []
    for item in items:
        if isinstance(item, dict):
            state = str(item.get("status", ""))
            is_done = state in ("completed", "done", "complete", "finished")
            is_doing = state in ("in_progress", "doing", "active")
            text = _text(item, ("content", "step", "title", "description"))
            entries.append(("done" if is_done else "doing" if is_doing else "open", text))
    return entries


def _patched(text: str) -> Iterator[Fact]:
    """The files of a patch that begins with `*** Begin Patch`, with the number of lines added and removed."""
    if _PATCH not in text:
        return
    headings = list(_PATCHED.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    # A patch without files has no heading.
    for heading, end in zip(headings, ends, strict=False):
        lines = text[heading.end() : end].split("\n")
        act: dict[str, Deed] = {"Update": "edited", "Add": "wrote", "Delete": "deleted"}
        counts = _counts(sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines))
        yield Fact(act[heading[1]], heading[2].strip(), "" if heading[1] == "Delete" else counts)


def _change(edit: Mapping[str, Any]) -> tuple[int, int]:
    """The number of lines that an edit adds and removes, ignoring the texts' common beginning and end."""
    old, new = _text(edit, OLD).split("\n"), _text(edit, NEW).split("\n")
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    plus, minus = new[start : len(new) - end], old[start : len(old) - end]
    return sum(map(bool, plus)), sum(map(bool, minus))


def _counts(plus: int, minus: int) -> str:
    return f"+{plus} −{minus}" if minus or plus else ""


def _range(value: Mapping[str, Any]) -> str:
    """The lines of a file that a call names: `1–100`, `from 40`; empty for all."""
    first = _number(value, ("offset", "start_line", "startLine", "line_start", "line_number"))
    count = _number(value, ("limit", "line_count"))
    last = _number(value, ("end_line", "endLine", "line_end"))
    match value.get("view_range"):
        case [int(first), int(last)]:
            pass
    if last and last > 0:
        return f"{first or 1}–{last}"
    if count:
        return f"{first or 1}–{(first or 1) + count - 1}"
    return f"from {first}" if first and first > 1 else ""


# --- scripts of a shell


def _script(value: Mapping[str, Any]) -> str | None:
    for name in ("command", "cmd", "script", "bash", "code"):
        match value.get(name):
            case str(script) if script.strip():
                return script
            case [*_, str(script)] as argv if script.strip():
                return script if len(argv) > 1 and str(argv[-2]).startswith("-") else " ".join(map(str, argv))
    return None


def _on_script(script: str) -> Iterator[Fact]:
    """What a script did: files shown or written, patterns searched, commits, and programs run."""
    script = script.strip()
    if _PATCH in script:
        yield from _patched(script)
        return
    head = script[:_SCRIPT]
    facts: list[Fact] = []
    if message := commit_message(head):
        facts.append(Fact("committed", message))
    written = _WRITTEN.search(head) if "<<" in head else None
    if written and (path := written[1] or written[2]):
        facts.append(Fact("wrote", path.strip("'\"")))
    elif not head.startswith(_LOOPS):
        for pipeline in _SEPARATORS.split(_QUOTE.sub(_hidden, without_documents(head)))[:_COMMANDS]:
            # Later programs in a pipe only reshape the first one's output.
            fact = next(filter(None, (_command(_words(command)) for command in pipeline.split("|"))), None)
            if fact and not (fact.act == "committed" and facts):
                facts.append(fact)
    yield from dict.fromkeys(facts[:6] or [Fact("ran", _first_line(script))])


def without_documents(script: str) -> str:
    """A script without the contents of its here-documents; the lines that begin them are kept."""
    if "<<" not in script:
        return script
    lines: list[str] = []
    end = ""
    for line in script.split("\n"):
        if end:
            end = "" if line.strip() == end else end
            continue
        lines.append(line)
        if document := _DOCUMENT.search(line):
            end = document[1]
    return "\n".join(lines)


def _hidden(quote: re.Match[str]) -> str:
    """A quoted word, its command separators replaced by characters that no script contains."""
    return quote[0].translate(_HIDDEN)


_HIDDEN = str.maketrans({"&": "\ue000", "|": "\ue001", ";": "\ue002", "\n": "\ue003"})
_SHOWN = str.maketrans({"\ue000": "&", "\ue001": "|", "\ue002": ";", "\ue003": "\n"})


def _words(command: str) -> list[str]:
    """The words of a simple command as written, without redirections, assignments and prefixes such as `sudo`."""
    command = command[:2_000]
    argv = _shell_words(command) if _BY_RULES.search(command) else command.split()
    while argv and (_ASSIGNMENT.match(argv[0]) or argv[0] in _PREFIXES):
        prefix = argv.pop(0)
        while prefix in _PREFIXES and argv and (argv[0].startswith("-") or argv[0].rstrip("smh").isdigit()):
            argv.pop(0)
    return argv


def _shell_words(command: str) -> list[str]:
    argv: list[str] = []
    is_target = False
    for word in _WORD.findall(command):
        if is_target:
            is_target = False
        elif _REDIRECTION.match(word):
            is_target = word[-1] in "<>"  # the file is the next word
        else:
            argv.append(word.translate(_SHOWN))
    return argv


def _command(argv: Sequence[str]) -> Fact | None:
    """What a simple command did; None for one that says nothing, such as `cd`."""
    if not argv or argv[0] in _SILENT or argv[0].startswith(("#", "-")) or not _PROGRAM.fullmatch(argv[0]):
        return None
    program = argv[0].rpartition("/")[2]
    if program not in _KNOWN:
        return Fact("ran", " ".join(argv))
    options = [word for word in argv[1:] if word.startswith("-") and len(word) > 1]
    plain = [word.strip("'\"") for word in argv[1:] if not word.startswith("-")]
    if program in _SHOWING:
        return _showing(program, options, plain)
    if program in _LOOKING:
        return Fact("searched", plain[0], _end(plain[1]) if len(plain) > 1 else "") if plain else None
    if program in _LISTERS:
        return Fact("listed", plain[0] if plain else "")
    if program in _SHAPING and not plain[1:]:
        return None
    if program == "git" and plain[:1] == ["commit"]:
        return Fact("committed", "")
    if program in _SHELLS and len(argv) > 2 and argv[1].startswith("-") and "c" in argv[1]:
        return Fact("ran", _first_line(argv[2].strip("'\"")))
    return Fact("ran", " ".join(argv))


def _showing(program: str, options: Sequence[str], plain: Sequence[str]) -> Fact | None:
    files = [word for word in plain if not _RANGE.fullmatch(word) and not word.isdigit()]
    span = next((match for word in (*plain, *options) if (match := _RANGE.search(word))), None)
    if program == "sed":
        if any(option.startswith(("-i", "--in-place")) for option in options):
            return Fact("edited", files[-1]) if len(files) > 1 else None
        if not span:
            return None
    if not files:
        return None
    return Fact("read", files[0], f"{span[1]}–{span[2]}" if span else "")


def commit_message(script: str) -> str:
    """The first line of a commit's message, as written in the command."""
    match = _MESSAGE.search(script) if "commit" in script else None
    if not match:
        return ""
    tail = script[match.end() : match.end() + 2_000]
    if heredoc := _HEREDOC.match(tail):
        return heredoc[2].strip()
    end = tail.find(match[1])
    return _first_line(tail[:end] if end >= 0 else tail)


# --- help


def _text(value: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        text = value.get(name)
        if isinstance(text, str) and text.strip():
            return text.strip() if name in PATHS else text
    return ""


def _has(value: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(isinstance(value.get(name), str) for name in names)


def _number(value: Mapping[str, Any], names: Sequence[str]) -> int:
    for name in names:
        match value.get(name):
            case bool():
                continue
            case int(number) | float(number) if 0 < number < 10**9:
                return int(number)
            case str(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10:
                return int(digits)
    return 0


def _lines(text: str) -> int:
    return text.count("\n") + bool(text and not text.endswith("\n"))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text[:4_000].split("\n") if line.strip("# \t\r")), text[:200]).strip("# ")


def _end(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rpartition("/")[2] or path


def _scalars(value: Mapping[str, Any]) -> str:
    """The short texts among unrecognised arguments; without any, the first number, which is usually an id."""
    items = [inner for item in value.values() for inner in (item[:4] if isinstance(item, list) else [item])]
    short = [item for item in items if isinstance(item, str) and 0 < len(item) <= 80]
    if short:
        return " ".join(short[:4])
    numbers = [str(item) for item in items if isinstance(item, (int, float)) and not isinstance(item, bool)]
    if numbers and len(numbers[0]) <= 80:
        return numbers[0]
    texts = [item for item in value.values() if isinstance(item, str) and item.strip()]
    return _first_line(texts[0]) if texts else ""
