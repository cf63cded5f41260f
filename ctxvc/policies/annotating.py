"""Episodes for recordings in which the model marked none: derived from what its calls did, and labelled so.

Steps that read and search are one expl, steps that write and run one act; a text of a human begins a new one. An act
depends on the expl episodes in which the files were looked at that it names. It is a guess by rule: the paper leaves
the marks to the model (CWL, principle 2), so policies that use it say `derived` of every episode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from ctxvc.core import text, wire
from ctxvc.core.delimiter import Type
from ctxvc.core.episodes import IMPLICIT, TOOLS, Graph, Span, Tools, Words, graph, plain
from ctxvc.core.ledger import Ledger, Row
from ctxvc.core.numbering import speaks

#: First words of the names of tools that find something out, and of those that change something.
_EXPLORES = frozenset(
    {"read", "view", "open", "grep", "glob", "ls", "find", "list", "search", "get", "fetch", "web", "webfetch"}
    | {"websearch", "websurfer", "filesurfer", "notebookread", "lsp", "codebase", "file", "show", "query", "browser"}
)
_ACTS = frozenset(
    {"edit", "multiedit", "write", "apply", "create", "insert", "str", "replace", "notebookedit", "delete", "update"}
    | {"book", "cancel", "send", "submit", "present", "append", "undo", "computerterminal"}
)
#: Tools that run a command, and editors of which a word tells what they do: these are judged by what they are given.
_RUNS = frozenset(
    {"bash", "shell", "local_shell", "shell_command", "exec_command", "execute_bash", "terminal", "command"}
    | {"powershell", "run", "execute"}
)
_EDITORS = frozenset({"str_replace_editor", "file_editor", "str_replace_based_edit_tool"})
#: Their plans and thoughts change nothing and tell nothing: they go with what stands around them.
_NEITHER = frozenset({"taskcreate", "taskupdate", "todowrite", "write_todos", "update_plan", "write_stdin", "think"})

#: Commands that only look.
_LOOKS = frozenset(
    {"cat", "head", "tail", "sed", "less", "grep", "rg", "ag", "find", "fd", "ls", "tree", "wc", "stat", "file", "pwd"}
    | {"which", "echo", "cd", "sort", "uniq", "cut", "awk", "jq", "nl", "diff", "strings", "true", "printf", "column"}
)
_GIT_LOOKS = frozenset({"log", "status", "diff", "show", "blame", "grep", "ls-files", "rev-parse"})

#: Where the commands of a line begin, and how what they write is told from what they only read.
_COMMANDS = re.compile(r"\|\||&&|[|;\n]")
_WRITES = re.compile(r"(?<![0-9&])>(?!&|\s*/dev/null)|\bsed\s+(?:-\w+\s+)*-\w*i|\bfind\b.*-(?:delete|exec)")
_GIT = re.compile(r"git(?:\s+(?:-[Cc]\s+\S+|-\S+))*\s+([\w-]+)")
_SHELL = re.compile(r"^(?:\S*/)?(?:ba|z|da)?sh\s+-l?c\s+")
#: Path-like words: with a slash, or with an ending.
_PATH = re.compile(r"[\w.@~+-]*(?:/[\w.@~+-]+)+|[\w-]+\.[A-Za-z]\w{0,9}\b")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
#: Arguments that name a file.
_FILES = ("file_path", "path", "notebook_path", "filename", "file", "filePath", "relative_path", "file_name")

#: Characters of a command that are looked at.
_HEAD = 4_000


@dataclass(slots=True)
class _Reading:
    """Where files were last looked at: the last part of a path → the whole path → the episode."""

    held: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, paths: Iterable[str], episode: str) -> None:
        for path in paths:
            self.held.setdefault(_last(path), {})[path] = episode

    def of(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The episodes that looked at one of these; a path that is told from another folder is the same one."""
        found = {
            name: None
            for path in paths
            for other, name in self.held.get(_last(path), {}).items()
            if path.endswith(other) or other.endswith(path)
        }
        return tuple(found)


@dataclass(slots=True)
class _Making:
    """The episode in the making, the step that it began in, and the files that it named."""

    span: Span
    began: int
    files: dict[str, None] = field(default_factory=dict)

    def end(self, step: int | None, reading: _Reading) -> None:
        """It ends in this step; or with None does not, but what it depends on is known so far."""
        self.span.ended = step
        if self.span.type == "act":
            self.span.dependencies = reading.of(self.files)
        else:
            reading.add(self.files, self.span.name)


def derived(ledger: Ledger, words: Words, *, most: int = IMPLICIT, tools: Tools = TOOLS) -> Graph:
    """The graph as the calls suggest it. An episode has at most `most` steps; the newest is active.

    What comes before the first reply that reads, searches, writes or runs is the prologue.
    """
    rows = list(ledger.rows())
    places: dict[str, Span | None] = {}
    reading, making, number, last = _Reading(), None, 0, 0
    for number_of_step, group in groupby(rows, key=lambda row: row.step):
        step = list(group)
        kind, files = _what(step, words)
        asked = any(speaks(row.kind, row.role, row.origin) for row in step)
        if making and (asked or (kind and kind != making.span.type) or number_of_step - making.began >= most):
            making.end(last, reading)
            making = None
        first = 0
        if making is None and kind:
            number += 1
            making = _Making(Span(f"{kind} {number}", kind, "derived"), number_of_step)
            if number == 1:  # what came in before it is the prologue
                first = next((at for at, row in enumerate(step) if row.role == "assistant"), 0)
        span = making.span if making else None
        places.update((row.id, span if at >= first else None) for at, row in enumerate(step))
        if making:
            making.files.update(files)
        last = number_of_step
    if making:
        making.end(None, reading)
    return graph(ledger, rows, places, implicit=most, tools=tools)


def _what(step: Iterable[Row], words: Words) -> tuple[Type | None, dict[str, None]]:
    """What the calls of a step are for, and the files that they name; None where they tell nothing."""
    kinds: set[Type] = set()
    files: dict[str, None] = {}
    for row in step:
        if row.kind == "tool_use" and plain(row.tool) not in _NEITHER:
            arguments = wire.arguments(text.encode(words(row)), row.ext)
            if kind := _kind(plain(row.tool), arguments):
                kinds.add(kind)
                files.update(dict.fromkeys(_files(arguments)))
    return ("act" if "act" in kinds else "expl" if kinds else None), files


def _kind(tool: str, arguments: Mapping[str, object]) -> Type | None:
    first = re.split(r"[\W_]", tool)[0]
    if tool in _RUNS or first in _RUNS:
        return "expl" if _looks(_command(arguments)) else "act"
    if tool in _EDITORS:
        return "expl" if arguments.get("command") == "view" else "act"
    if first in _EXPLORES:
        return "expl"
    return "act" if first in _ACTS else None


def _command(arguments: Mapping[str, object]) -> str:
    for name in ("command", "cmd", "code", "input"):
        match arguments.get(name):
            case str(found):
                return found[:_HEAD]
            case [*parts]:
                return " ".join(part for part in parts if isinstance(part, str))[:_HEAD]
    return ""


def _looks(command: str) -> bool:
    """Whether every command of a line only looks."""
    command = _SHELL.sub("", command.strip()).strip("'\"")
    commands = [part.strip() for part in _COMMANDS.split(command) if part.strip()]
    return bool(commands) and not _WRITES.search(command) and all(map(_only_looks, commands))


def _only_looks(command: str) -> bool:
    if git := _GIT.match(command):
        return git[1] in _GIT_LOOKS
    return command.split(maxsplit=1)[0].rpartition("/")[2] in _LOOKS


def _files(arguments: Mapping[str, object]) -> Iterator[str]:
    """The files that a call names: in an argument for it, in a command, or in a patch."""
    for name in _FILES:
        match arguments.get(name):
            case str(path) if path.strip():
                yield path.strip()
    command = _command(arguments)
    if "*** " in command:
        yield from (path.strip() for path in _PATCHED.findall(command))
    elif "command" in arguments or "cmd" in arguments:
        yield from (path for path in _PATH.findall(command) if not path.startswith("/dev/"))


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
