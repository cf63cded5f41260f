"""The tools of `ctxvc run`: a shell and files, confined to a folder as far as each tool can be.

Files are read and written below the folder only, whatever a path says; commands run in it and may do what the person
may, so each is asked for. What a tool gives is recorded whole: the model is shown an output's settled tail.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any, ClassVar

import msgspec

from ctxvc.agent import footholds, shell
from ctxvc.agent.files import Place, Tree, below
from ctxvc.agent.footholds import Footholds
from ctxvc.agent.sandbox import Sandbox
from ctxvc.agent.shell import Job, Shell
from ctxvc.agent.tools import phrases
from ctxvc.agent.tools.definitions import Arguments, definition, describe, parsed
from ctxvc.agent.tools.tools import failed
from ctxvc.core import patterns
from ctxvc.core.display import decode, encode, one_line
from ctxvc.errors import BadInput, CtxvcError

#: Lines and characters that the model is shown of an output at most; the rest can be recovered.
LINES = 120
CHARS = 8_000
#: Bytes of a file that are read at once.
KEPT = 16 << 20
#: Seconds that a command may run, by default and at most.
TIMEOUT = 120
LONGEST = 1_800
#: Files and hits that are listed at most.
LISTED = 1_000
HITS = 200
#: The most files that are named where a pattern was too slow for them.
SKIPPED = 5
#: Characters of a line that a hit shows at most.
WIDTH = 400
#: What is named of many changes, or of many commands in the background.
NAMED = 8
#: Lines of a file that are read by default.
READ = 2_000
_ENDS = re.compile(r"\r?\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Outcome(msgspec.Struct, frozen=True):
    """A tool's outcome: its output, the part shown to the model if that is less, and whether it failed.

    `alarm` is what the person should know of it besides.
    """

    output: bytes
    shown: str | None = None
    error: bool = False
    alarm: str = ""


class Bash(Arguments, frozen=True, kw_only=True):
    """Run a shell command in the working folder. Its output comes back when it ends."""

    command: Annotated[str, describe("the command")]
    timeout: Annotated[int, describe(f"seconds it may take ({TIMEOUT})")] = TIMEOUT


class ReadFile(Arguments, frozen=True, kw_only=True):
    """Read a text file, with line numbers."""

    path: Annotated[str, describe("path in the working folder")]
    first: Annotated[int, describe("first line (1)")] = 1
    lines: Annotated[int, describe(f"how many lines ({READ})")] = READ


class WriteFile(Arguments, frozen=True, kw_only=True):
    """Write a whole file, creating folders. An existing file is replaced."""

    path: Annotated[str, describe("path in the working folder")]
    content: Annotated[str, describe("its whole content")]


class EditFile(Arguments, frozen=True, kw_only=True):
    """Replace text in a file. It must occur exactly once, unless all is set."""

    path: Annotated[str, describe("path in the working folder")]
    old: Annotated[str, describe("the exact text")]
    new: Annotated[str, describe("its replacement")]
    all: Annotated[bool, describe("replace every occurrence (false)")] = False


class ListFiles(Arguments, frozen=True, kw_only=True):
    """List files, except those in .gitignore."""

    path: Annotated[str, describe("folder (the working folder)")] = "."
    pattern: Annotated[str, describe("a glob, as in *.py or src/**/*.ts")] = ""


class SearchFiles(Arguments, frozen=True, kw_only=True):
    """Search files for a regular expression, except those in .gitignore."""

    pattern: Annotated[str, describe("regular expression")]
    path: Annotated[str, describe("folder or file (the working folder)")] = "."
    glob: Annotated[str, describe("only matching files, as in *.py")] = ""


class Denied(CtxvcError):
    """A person did not allow it."""


class Toolbox:
    """Tools by their names: their arguments, and the method that gives the outcome for these."""

    tools: ClassVar[Mapping[str, tuple[type[Arguments], Callable[..., Outcome]]]]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.tools)

    def run(self, name: str, arguments: Mapping[str, Any], call: str = "") -> Outcome:  # noqa: ARG002 - as `Hands` has it
        """The outcome of the tool. A failure is one too: nothing is raised for a model's request."""
        try:
            if name not in self.tools:
                raise BadInput(f"no tool {name[:60]!r}")
            kind, outcome = self.tools[name]
            values = msgspec.structs.asdict(parsed(arguments, kind))
            if not all(map(_is_text, values.values())):
                raise BadInput("an argument has an unpaired surrogate, which is not text")
            return outcome(self, **values)
        except CtxvcError as error:
            return Outcome(failed(error).text.encode("utf-8", "replace"), error=True)
        except OSError as error:
            reason = f"{error.strerror or error}: {arguments.get('path', '')}"
            return Outcome(reason.encode("utf-8", "replace"), error=True)


@dataclass
class Workspace(Toolbox):
    """A folder, and what approves a command before it runs.

    `approve` is given the command, and says whether it may run. `env` is the environment of commands. Without a
    `sandbox` commands may do what the person's account may. What they leave in the background ends with `close`, or
    when the workspace goes.
    """

    root: Path
    approve: Callable[[str], bool] = lambda _: True
    env: Mapping[str, str] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    _shell: Shell = field(init=False, repr=False)
    _tree: Tree = field(init=False, repr=False)
    _footholds: Footholds = field(init=False, repr=False)
    _partial: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        self._tree = Tree(self.root)
        self._footholds = Footholds(self.root)
        self._shell = Shell(self.sandbox.supervised if self.sandbox else None)

    def run(self, name: str, arguments: Mapping[str, Any], call: str = "") -> Outcome:
        """As `Toolbox.run`. Raises: KeyboardInterrupt once `stop` was called."""
        self._shell.check()
        return super().run(name, arguments, call)

    def stop(self) -> None:
        """Kills the commands that run, in whatever thread; from now on no tool does anything."""
        self._shell.stop()

    def begin(self) -> None:
        """Check that commands can be run. Raises: CtxvcError."""
        self._shell.begin(self.env).check()

    def close(self) -> list[Job]:
        """Ends what commands left in the background, and gives what that was."""
        return self._shell.close()

    def alarm(self) -> str:
        """Changes since the last look in places from which code would run later; empty if there are none."""
        changes = self._footholds.changes() if self._footholds.watched else []
        notes = [f"this may run code later: {_few(changes)}"] if changes else []
        if self._footholds.partial and not self._partial:
            self._partial = True
            notes.append(
                f"beyond {footholds.FOLDERS:,} folders the deepest are not watched for files that run code later"
            )
        return "; ".join(notes)

    # --- the tools

    def _bash(self, command: str, timeout: int) -> Outcome:
        if "\0" in command:
            raise BadInput("a command cannot contain NUL")
        if not self.approve(command):
            raise Denied("the person did not allow this command; try something else, or ask why")
        self._footholds.hooks()  # how they are now
        data, left_out, why = self._shell.run(command, self.root, self.env, min(max(1, timeout), LONGEST))
        failed = bool(why)
        if left_out:
            why += f"[{left_out:,} bytes in the middle of the output were not kept]"
        if alarm := self.alarm():
            why += f"{chr(10) if why else ''}[{alarm}; the person is informed]"
        if jobs := self._shell.jobs():
            why += f"{chr(10) if why else ''}[running: {_few(map(str, jobs))}]"
        if why:
            data += f"{chr(10) if data and not data.endswith(b'%c' % 10) else ''}{why}\n".encode("utf-8", "replace")
        return Outcome(data or b"[no output]", _shown_output(data), error=failed, alarm=alarm)

    def _read(self, path: str, first: int, lines: int) -> Outcome:
        with self._tree.place(path) as place, _opened(place, path) as file:
            data = file.read(KEPT)
            unread = file.seek(0, os.SEEK_END) - len(data)
        if b"\0" in data[:8192]:
            raise BadInput(f"{path} is not a text file")
        all_lines = _lines(decode(data))
        first = max(1, first)
        listed = all_lines[first - 1 : first - 1 + max(1, lines)]
        if not listed and all_lines:
            raise BadInput(f"{path} has {len(all_lines):,} lines")
        more = len(all_lines) - (first - 1 + len(listed))
        numbered = [f"{number:6}\t{line}" for number, line in enumerate(listed, first)] or ["[the file is empty]"]
        numbered += [f"[{more:,} more lines]"] if more else []
        numbered += [f"[{unread:,} more bytes are not read]"] if unread else []
        return _text("\n".join(numbered))

    def _write(self, path: str, content: str) -> Outcome:
        data = content.encode()
        with self._tree.place(path) as place:
            self._check_writable(place, path)
            place.replace(data)
        return _text(f"wrote {len(data):,} bytes to {path}")

    def _edit(self, path: str, old: str, new: str, all: bool) -> Outcome:
        with self._tree.place(path) as place:
            self._check_writable(place, path)
            with _opened(place, path) as file:
                text = file.read().decode("utf-8", "surrogateescape")
            text, count = _edited(text, path, old, new, all=all)
            place.replace(text.encode("utf-8", "surrogateescape"))
        return _text(f"replaced {count} place{'' if count == 1 else 's'} in {path}")

    def _list(self, path: str, pattern: str) -> Outcome:
        names = list(islice(self._files(path, pattern), LISTED + 1))
        if len(names) > LISTED:
            names[LISTED] = f"[more than {LISTED:,} files: name a folder or a pattern]"
        return _text("\n".join(names))

    def _search(self, pattern: str, path: str, glob: str) -> Outcome:
        compiled = patterns.compiled(pattern).until(patterns.TOOL_SECONDS, time.monotonic)
        hits: list[str] = []
        files, skipped = 0, []
        try:
            for name in self._files(path, glob):
                try:
                    hits += islice(self._hits(name, compiled), HITS - len(hits))
                except patterns.SlowLine:
                    skipped.append(name)
                if len(hits) == HITS:
                    return _text("\n".join([*hits, f"[the first {HITS} hits; narrow the search]"]))
                files += 1
        except patterns.Slow as error:
            hits.append(f"[{error}: {files:,} files were searched; {phrases.hint(error)}]")
        if skipped:
            names = ", ".join(skipped[:SKIPPED]) + (", …" if len(skipped) > SKIPPED else "")
            hits.append(f"[this pattern takes too long on a line, so these were not searched further: {names}]")
        return _text("\n".join(hits) or "[no hits]")

    def _hits(self, name: str, compiled: patterns.Pattern) -> Iterator[str]:
        """The lines of a file that match; none of one that cannot be read, or is no text. Raises: Slow."""
        compiled.patience()
        try:
            with self._tree.place(name) as place, _opened(place, name) as file:
                data = file.read(KEPT)
        except (OSError, BadInput):
            return
        if b"\0" in data[:8192]:
            return
        text = decode(data).replace("\r\n", "\n")
        for hit in compiled.lines(text):
            yield f"{name}:{hit.line}: {text[hit.begin : hit.end][:WIDTH]}"

    # --- paths

    def _check_writable(self, place: Place, path: str) -> None:
        """Raises: BadInput if there is not a file but something else, or what is written would run code later."""
        if why := footholds.reason(place.parts, place.has, self._footholds.hooks()):
            raise BadInput(f"{path} must not be written: {why}; ask the person to do it")
        status = place.status()
        if status and not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is not a file")

    def _files(self, path: str, pattern: str) -> Iterator[str]:
        """Names of files below a folder that no `.gitignore` names, in order; without git no hidden ones either.

        Raises: BadInput if there is no such folder.
        """
        with self._tree.place(path) as place:
            status, start = place.status(), self.root.joinpath(*place.parts)
        if status and stat.S_ISREG(status.st_mode):
            yield str(start.relative_to(self.root))
            return
        if not (status and stat.S_ISDIR(status.st_mode)):
            raise BadInput(f"no {path} in the working folder")
        for name in sorted(below(start, self.root)):
            if not pattern or _fits(name, pattern):
                yield str((start / name).relative_to(self.root))

    tools: ClassVar = {
        "bash": (Bash, _bash),
        "read_file": (ReadFile, _read),
        "write_file": (WriteFile, _write),
        "edit_file": (EditFile, _edit),
        "list_files": (ListFiles, _list),
        "search_files": (SearchFiles, _search),
    }


#: The definitions of the tools, as the provider gets them.
DEFINITIONS = tuple(definition(name, kind) for name, (kind, _) in Workspace.tools.items())


def _lines(text: str) -> list[str]:
    """The lines of a text as an editor counts them: they end with a newline, and with nothing else."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _opened(place: Place, path: str) -> IO[bytes]:
    """The file, for reading. Raises: BadInput for what is there and no file: to read a pipe may take for ever."""
    try:
        return open(place.open(), "rb")
    except BadInput:
        raise BadInput(f"{path} is not a file") from None


def _edited(text: str, path: str, old: str, new: str, *, all: bool) -> tuple[str, int]:
    """The text with `new` for `old`, and in how many places. Raises: BadInput."""
    # What was read has no line ends: any of the file's is meant, and what comes in gets the file's own.
    places = list(re.finditer(r"\r?\n".join(map(re.escape, _ENDS.split(old))), text)) if old else []
    count = len(places)
    if count == 0:
        raise BadInput(f"the text is not in {path}; read the file and give the exact text")
    if count > 1 and not all:
        raise BadInput(f"the text occurs {count} times in {path}; include more of its surroundings, or set all")
    if 2 * text.count("\r\n") > text.count("\n"):
        new = _ENDS.sub("\r\n", new)
    between = [text[a.end() : b.start()] for a, b in pairwise(places)]
    pieces = [text[: places[0].start()], *between, text[places[-1].end() :]]
    return new.join(pieces), count


def _fits(path: str, pattern: str) -> bool:
    """Whether a glob is of this path, as in `.gitignore`: `**` is any folders or none; a name alone is in any."""
    parts = PurePosixPath(pattern).parts
    if len(parts) == 1:
        parts = ("**", *parts)
    # Whether the path so far fits the beginnings of the pattern, by their length.
    fits = [all(part == "**" for part in parts[:length]) for length in range(len(parts) + 1)]
    for name in PurePosixPath(path).parts:
        longer = [False]
        for at, part in enumerate(parts):
            longer.append(longer[at] or fits[at + 1] if part == "**" else fits[at] and fnmatchcase(name, part))
        fits = longer
    return fits[-1]


def _is_text(value: object) -> bool:
    """Whether no surrogate is in it."""
    return not (isinstance(value, str) and _SURROGATE.search(value))


def _text(value: str) -> Outcome:
    return Outcome(encode(value))


def _shown_output(data: bytes) -> str | None:
    """The part of an output shown to the model; None if that is all of it."""
    text = decode(data)
    tail_text = shell.tail(shell.settled(text).rstrip("\n"), lines=LINES, chars=CHARS)
    return None if tail_text == text.rstrip("\n") else tail_text


def _few(names: Iterable[str]) -> str:
    """The first of them, and how many more there are; each on one line."""
    lines = [one_line(name, WIDTH) for name in names]
    return ", ".join([*lines[:NAMED], *([f"and {len(lines) - NAMED:,} more"] if len(lines) > NAMED else [])])
