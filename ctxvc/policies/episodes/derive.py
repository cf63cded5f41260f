"""Episodes for recordings in which the model marked none: derived from what its calls did, and labelled so.

Steps that read and search are one expl, steps that write and run one act; a text of a human begins a new one. An act
depends on the expl episodes in which the files were looked at that it names. A later look at a file supersedes those
before it: an expl is superseded once all its files were looked at again, and holds up nothing and nobody. It is a guess
by rule: the paper leaves the marks to the model (CWL, principle 2), so policies that use it say `derived` of every
episode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.facts import PATHS
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import speaks
from ctxvc.policies.episodes.course import Course, Span, grown
from ctxvc.policies.episodes.delimiter import Type
from ctxvc.policies.episodes.graph import IMPLICIT, TOOLS, Graph, Tools, Words, graph, plain

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

# What a command says is untrusted. None of these patterns looks twice at the same run of characters, so that a long one
# takes time in proportion to its length.
#: Where the commands of a line begin, and what separates what they write from what they only read.
_COMMANDS = re.compile(r"[|;\n]|&&")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_REDIRECTS = re.compile(r"(?<![0-9&])>(?!&|\s*/dev/null)")
_SED_OPTIONS = re.compile(r"\bsed((?:\s+-\w+)*)")
_FIND_REST = re.compile(r"\bfind\b(.*)")
_GIT = re.compile(r"git(?:\s+(?:-[Cc]\s+\S+|-\S+))*\s+([\w-]+)")
_SHELL = re.compile(r"^(?:\S*/)?(?:ba|z|da)?sh\s+-l?c\s+")
#: Words, and what in them is like a path: with a slash, or with an ending. What is neither is taken too, as no path, so
#: as not to begin again in the middle of it.
_WORD = re.compile(r"[\w.@~+/-]+")
_PATH = re.compile(r"((?<![\w.@~+-])[\w.@~+-]*(?:/[\w.@~+-]+)+|[\w-]+\.[A-Za-z]\w{0,9}\b)|[\w-]+")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)

#: Characters of a command that are looked at.
_HEAD = 4_000
#: Of a path, parts at its end by which it is found; of paths that end alike, those that are found, the newest.
_PARTS = 16
_ALIKE = 64

#: What a call is for, None if it tells nothing, and the files that it names.
_Purpose = tuple[Type | None, tuple[str, ...]]


@dataclass(slots=True)
class _Reading:
    """The last look at each file: path → episode; and the paths by their endings."""

    looked_at: dict[str, str] = field(default_factory=dict)
    ending: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, paths: Iterable[str], episode: str) -> None:
        for path in paths:
            if path not in self.looked_at:
                for end in _ends(path):
                    alike = self.ending[end] = {**self.ending.get(end, {}), path: None}  # forks share the others
                    if len(alike) > _ALIKE:
                        del alike[next(iter(alike))]
            self.looked_at[path] = episode

    def fork(self) -> _Reading:
        return replace(self, looked_at={**self.looked_at}, ending={**self.ending})

    def of(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The episodes that looked at one of these; a path that is relative to another folder is the same one."""
        spellings = (other for path in paths for other in (path, *_ends(path), *self.ending.get(path, ())))
        return tuple(dict.fromkeys(self.looked_at[path] for path in spellings if path in self.looked_at))


@dataclass(slots=True)
class _Making:
    """The episode in the making: its place, the step that it began in, and the files that it named."""

    place: int
    began: int
    files: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Derived:
    """The course that the calls suggest. `number` is that of the newest episode, `looking` are the ended ones that
    looked at files; `purposes` caches those of calls."""

    course: Course
    longest: int
    text_of: Words
    purposes: dict[tuple[str, ...], _Purpose]
    number: int = 0
    reading: _Reading = field(default_factory=_Reading)
    making: _Making | None = None
    last: int = 0
    looking: list[str] = field(default_factory=list)

    def fork(self) -> _Derived:
        making = self.making and replace(self.making, files={**self.making.files})
        forked = replace(self, course=self.course.fork(), reading=self.reading.fork(), making=making)
        forked.looking = [*self.looking]
        return forked

    def renew(self, fresh: _Derived, rows: list[Row]) -> bool:  # noqa: ARG002 - nothing that follows changes it
        self.text_of = fresh.text_of
        return True

    def take(self, step: list[Row]) -> None:
        number_of_step = step[0].step
        kind, files = _what(step, self.text_of, self.purposes)
        if self.making and (
            any(speaks(row.kind, row.role, row.origin) for row in step)
            or (kind and kind != self.course.spans[self.making.place].type)
            or number_of_step - self.making.began >= self.longest
        ):
            self.end(self.last)
        first = 0
        if self.making is None and kind:
            self.number += 1
            if self.number == 1:  # what came in before it is the prologue
                first = next((at for at, row in enumerate(step) if row.role == "assistant"), 0)
                self._put(step[:first])
            self.making = _Making(self.course.begin(Span(f"{kind} {self.number}", kind, "derived")), number_of_step)
        self._put(step[first:])
        if self.making:
            self.making.files.update(files)
        self.last = number_of_step

    def _put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.course.put(row, self.making.place if self.making else None)

    def end(self, step: int | None) -> None:
        """The episode in the making ends in this step; with None it does not, but its dependencies are known so far."""
        if self.making is None:
            return
        making, span = self.making, self.course.span(self.making.place)
        span.ended = step
        if span.type == "act":
            span.dependencies = self.reading.of(making.files)
        else:
            self.reading.add(making.files, span.name)
            if step is not None and making.files:
                self.looking.append(span.name)
        self.making = None

    def superseded(self) -> frozenset[str]:
        """The ended expl episodes of whose files a later one has the newest look."""
        return frozenset(self.looking) - set(self.reading.looked_at.values())


def derived(ledger: Ledger, text_of: Words, *, most: int = IMPLICIT, tools: Tools = TOOLS, since: int = 0) -> Graph:
    """The graph as the calls suggest it. An episode has at most `most` steps; the newest is active.

    What comes before the first reply that reads, searches, writes or runs is the prologue. With `since`, a step before
    which nothing may leave any more, the graph begins with the human text before it: the time that it takes does not
    grow with what left long ago. Its episodes then have other numbers.
    """
    human_steps = chain.from_iterable(ledger.by_segment(_human_steps))
    start = max((step for step in human_steps if step <= since), default=0)
    oldest = next(ledger.rows(), None)
    is_part = oldest is not None and oldest.step < start
    purposes: dict[tuple[str, ...], _Purpose] = ledger.cache_of(_purpose)
    course = Course(most, prologue=not is_part)
    fresh = _Derived(course, most, text_of, purposes, number=start if is_part else 0)
    state = grown(ledger, ("derived", most, start), fresh, since=start)
    state.end(None)
    if not state.course.spans:  # without an episode there is no prologue
        state.course = Course(most, prologue=False)
        for row in ledger.rows():
            state.course.put(row, None)
    return graph(ledger, state.course, tools=tools, superseded=state.superseded())


def _human_steps(rows: tuple[Row, ...]) -> list[int]:
    """The steps in which a human speaks."""
    return [row.step for row in rows if speaks(row.kind, row.role, row.origin)]


def _what(
    step: Iterable[Row], text_of: Words, purposes: dict[tuple[str, ...], _Purpose]
) -> tuple[Type | None, dict[str, None]]:
    """The purpose of a step's calls, and the files that they name; None if they have none.

    `purposes` caches earlier calls by tool and arguments, so that each is read once.
    """
    kinds: set[Type] = set()
    files: dict[str, None] = {}
    for row in step:
        if row.kind == "tool_use":
            key = row.tool, row.sha256, row.ext
            kind, paths = purposes.get(key) or purposes.setdefault(key, _purpose(row, text_of))
            if kind:
                kinds.add(kind)
                files.update(dict.fromkeys(paths))
    return ("act" if "act" in kinds else "expl" if kinds else None), files


def _purpose(call: Row, text_of: Words) -> _Purpose:
    """The purpose of a call, and the files that it names."""
    tool = plain(call.tool)
    if tool in _NEITHER:
        return None, ()
    arguments = wire.arguments(display.encode(text_of(call)), call.ext)
    kind = _kind(tool, arguments)
    files = (path.rstrip("/") for path in _files(arguments)) if kind else ()
    return kind, tuple(filter(None, files))


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
            case str(command):
                return command[:_HEAD]
            case [*parts]:
                return " ".join(part for part in parts if isinstance(part, str))[:_HEAD]
    return ""


def _looks(command: str) -> bool:
    """Whether every command of a line only looks."""
    command = _QUOTED.sub("_", _SHELL.sub("", command.strip()).strip("'\""))
    commands = [part.strip() for part in _COMMANDS.split(command) if part.strip()]
    return bool(commands) and all(map(_only_looks, commands)) and not _writes(command)


def _writes(command: str) -> bool:
    """Whether it sends its output to a file, edits one in place, or does something to what it finds."""
    return bool(
        _REDIRECTS.search(command)
        or any("i" in options for options in _SED_OPTIONS.findall(command))
        or any("-delete" in arguments or "-exec" in arguments for arguments in _FIND_REST.findall(command))
    )


def _only_looks(command: str) -> bool:
    if git := _GIT.match(command):
        return git[1] in _GIT_LOOKS
    return command.split(maxsplit=1)[0].rpartition("/")[2] in _LOOKS


def _files(arguments: Mapping[str, object]) -> Iterator[str]:
    """The files that a call names: in an argument for it, in a command, or in a patch."""
    for name in PATHS:
        match arguments.get(name):
            case str(path) if path.strip():
                yield path.strip()
    command = _command(arguments)
    if "*** " in command:
        yield from (path.strip() for path in _PATCHED.findall(command))
    elif "command" in arguments or "cmd" in arguments:
        yield from (path for path in _paths(command) if not path.startswith("/dev/"))


def _paths(command: str) -> Iterator[str]:
    """The words of a command that look like paths."""
    for word in _WORD.findall(command):
        if "/" in word or "." in word:
            yield from filter(None, _PATH.findall(word))


def _ends(path: str) -> list[str]:
    """The path relative to each folder above it, the longest first; not the path itself."""
    parts = path.rsplit("/", _PARTS)
    return ["/".join(parts[at:]) for at in range(1, len(parts))]
