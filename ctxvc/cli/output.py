"""Output: for people on a terminal, as plain text in a pipe, as JSON for programs.

- On a terminal: aligned columns, colour, a pager, ages. In a pipe: tab-separated, nothing cut, no ages, no colour.
- Recorded text never reaches a terminal unescaped: a cell becomes one safe line here, longer text goes through `safe`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ctxvc.core import display
from ctxvc.errors import CtxvcError, render
from ctxvc.phrases import COMMAND_LINE

if TYPE_CHECKING:
    import msgspec

# Characters that JSON need not escape and a terminal may obey: DEL, C1 controls, marks that reorder a line.
_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Size(NamedTuple):
    """Bytes: `6.1 kB` to people, a number in a pipe."""

    bytes: int


class Timestamp(NamedTuple):
    """An ISO 8601 time, empty if unknown: an age to people."""

    time: str


#: What is not known, in a table.
UNKNOWN = "–"


class Tokens(NamedTuple):
    """A number of tokens: `2.3k` to people, exact in a pipe; a change has its sign."""

    number: int
    signed: bool = False


class Guess(NamedTuple):
    """An estimated number of tokens, shown with a `~` before it."""

    number: int


class Share(NamedTuple):
    """A share, 0 to 1: `12 %` to people, `12.3 %` in a pipe."""

    fraction: float


class Styled(NamedTuple):
    """A cell with a colour, for output that has colours."""

    text: str | Tokens
    color: str


#: What a state of a block is coloured by: what leaves it alone, what shows it in part, what took it out for good.
STATE_COLORS = {"pinned": "cyan", "masked": "yellow", "blocked": "yellow", "deleted": "red"}


Cell = str | int | Size | Timestamp | Share | Tokens | Guess | Styled | None


class Column(NamedTuple):
    """A column. One with a `least` width is narrowed down to it if the terminal has no room.

    One with a `rank` is then left out, that of the highest rank first. In the annotation of an answer's field, `cell`
    makes the cell from the field's value, and a `rare` one is there only if an item has it.
    """

    name: str
    right: bool = False
    least: int = 0
    rank: int = 0
    cell: Callable[[Any], Cell] | None = None
    rare: bool = False


class Table(NamedTuple):
    """The rows of a table; those with a number in `dim` are dimmed."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    dim: frozenset[int] = frozenset()


class Output:
    """The streams of a command: data goes to stdout, everything else to stderr."""

    def __init__(
        self, *, json: bool, color: str, pager: bool, env: Mapping[str, str],
        preferred_color: str = "auto", preferred_pager: str = "",
    ) -> None:  # fmt: skip
        self.json = json
        self.terminal = sys.stdout.isatty()
        self.colors = _colors(color, env, preferred_color, terminal=self.terminal)
        self._env = env
        self._preferred_pager = preferred_pager
        self._pager = pager and self.terminal
        self._now = time.time()

    @property
    def width(self) -> int:
        """Characters a line of the terminal holds."""
        return terminal_width()

    def style(self, text: str, **style: bool | str) -> str:
        """`text`, styled if colours are on."""
        return click.style(text, **style) if self.colors else text  # type: ignore[arg-type]

    def value(self, value: msgspec.Struct) -> None:
        """Prints an answer as one line of JSON."""
        sys.stdout.write(encode(value) + "\n")

    def answer(self, value: msgspec.Struct, screen: str | Iterable[str] | Table, remark: str = "") -> None:
        """Prints an answer: as JSON if that is asked for, else as its sentence, table or lines, which may be lazy, and
        a remark for people, such as what to do where a list is empty.
        """
        if self.json:
            self.value(value)
            return
        if isinstance(screen, str):
            self.say(screen)
        elif isinstance(screen, Table):
            self.table(screen)
        else:
            self.prose(screen)
        if remark:
            self.note(remark)

    def say(self, text: str) -> None:
        """Prints a sentence at once, not through the pager."""
        click.echo("\n".join(self.wrapped(text)))

    def wrapped(self, text: str) -> Iterator[str]:
        """The lines of a sentence: wrapped on a terminal, one line in a pipe."""
        if not self.terminal or len(text) <= self.width:
            yield text
            return
        from ctxvc.cli.terminal.table import breadth, wrapped

        for line in text.split("\n"):
            bare = click.unstyle(line)
            yield from iter([line]) if breadth(bare) <= self.width else wrapped(bare, self.width)

    def lines(self, lines: Iterable[str]) -> None:
        """Prints lines, through the pager on a terminal."""
        command = _pager(self._env, self._preferred_pager) if self._pager else ""
        if command:
            _page(command, lines, self._env)
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines)

    def prose(self, lines: Iterable[str]) -> None:
        """Prints lines as `lines` does, wrapped at spaces on a terminal."""
        self.lines(piece for line in lines for piece in self.wrapped(line))

    def raw(self, data: bytes) -> None:
        """Writes exactly these bytes."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def note(self, text: str) -> None:
        """Prints a remark to stderr, after everything printed so far."""
        sys.stdout.flush()
        to_stderr(text)

    def table(self, table: Table) -> None:
        """Prints a table, through the pager on a terminal."""
        self.lines(self.table_lines(table))

    def table_lines(self, table: Table) -> Iterator[str]:
        """The lines of a table, aligned for a terminal or tab-separated for a pipe."""
        if self.terminal:
            yield from self._aligned(table)
            return
        yield "\t".join(column.name for column in table.columns)
        for row in table.rows:
            yield "\t".join(map(plain, row))

    def facts(self, facts: Sequence[tuple[str, Cell]]) -> Iterator[str]:
        """The lines of names and values, a pair each; those without a value are left out."""
        facts = [(name, value) for name, value in facts if value not in ("", None)]
        width = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            if not self.terminal:
                text = self.cell(value)
                yield f"{name}\t{self.style(text, fg=value.color) if isinstance(value, Styled) else text}"
                continue
            title = f"{name:<{width}}"
            for line in self.value_lines(self.cell(value), width + 2):
                text = self.style(line, fg=value.color) if isinstance(value, Styled) else line
                yield f"{self.style(title, dim=True)}  {text}".rstrip()
                title = " " * width

    def value_lines(self, text: str, margin: int) -> Iterator[str]:
        """The lines of a value that begins at the column `margin`."""
        room = max(self.width - margin, 20)
        if len(text) * 2 <= room:  # whatever its characters, it fits
            return iter([text])
        from ctxvc.cli.terminal.table import breadth, wrapped

        return iter([text]) if breadth(text) <= room else wrapped(text, room)

    def cell(self, cell: Cell) -> str:
        """The text of a cell, for a terminal or a pipe."""
        return _for_people(cell, self._now) if self.terminal else plain(cell)

    def tokens(self, number: int) -> str:
        """A number of tokens in a sentence: `2.3k` on a terminal, exact in a pipe."""
        return display.human_tokens(number) if self.terminal else f"{number:,}"

    def estimate(self, number: int) -> str:
        """An estimated number of tokens in a sentence."""
        return f"~{self.tokens(number)}" if number else "0"

    def _aligned(self, table: Table) -> Iterator[str]:
        from ctxvc.cli.terminal.table import HEADER, REMARK, aligned

        def style(row: int, column: int, text: str) -> str:
            if row == HEADER:
                return self.style(text, bold=True)
            if row == REMARK:
                return self.style(text, dim=True)
            cell = table.rows[row][column]
            if isinstance(cell, Styled):
                return self.style(text, fg=cell.color)
            return self.style(text, dim=True) if row in table.dim else text

        return aligned(
            [column.name for column in table.columns],
            [[_for_people(cell, self._now) for cell in row] for row in table.rows],
            width=self.width,
            right=[column.right for column in table.columns],
            least=[column.least for column in table.columns],
            rank=[column.rank for column in table.columns],
            style=style,
        )


def to_stderr(text: str) -> None:
    """Prints to stderr, in lines that fit where it is a terminal."""
    if sys.stderr.isatty():
        from ctxvc.cli.terminal.table import wrapped

        width = terminal_width()
        text = "\n".join(piece for line in text.split("\n") for piece in wrapped(line, width))
    click.echo(text, err=True)


def terminal_width() -> int:
    """Characters a line of the terminal holds."""
    return shutil.get_terminal_size((100, 24)).columns


def encode(value: msgspec.Struct) -> str:
    """A value as JSON that is safe on a terminal, by equivalent escapes."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can represent escaped
        import json

        encoded = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", encoded)


def safe(value: str) -> str:
    """Recorded text, safe to print: characters that would move a cursor are made visible."""
    return display.visible_controls(value)


def message_of(error: CtxvcError | None) -> str:
    """An error's message on the command line; empty for none."""
    return render(error.reason, COMMAND_LINE) if error else ""


def hint_of(error: CtxvcError | None) -> str:
    """An error's hint on the command line; empty for none."""
    return render(error.advice, COMMAND_LINE) if error else ""


def words_of(body: bytes, ext: str) -> str | None:
    """A body as readable text, JSON indented; None if it is not text. Not yet safe to print."""
    from ctxvc.core.ledger import wire

    if ext == "json":
        try:
            return display.decode(spread(wire.parse(body)))
        except ValueError:
            return display.decode(body)  # shown as it is
    if ext not in ("txt", "bin"):
        return None
    try:
        return body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def spread(value: object) -> bytes:
    """A JSON value, indented."""
    import msgspec

    from ctxvc.core.ledger import wire

    return msgspec.json.format(wire.compact(value), indent=2)


def counted(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plain(cell: Cell) -> str:
    """A cell in a pipe: on one line, uncut, and the same on any day."""
    match cell:
        case None:
            return ""
        case Timestamp():
            return cell.time
        case Size():
            return str(cell.bytes)
        case Share():
            return f"{cell.fraction * 100:.1f} %"
        case Tokens():
            return f"{cell.number:+}" if cell.signed and cell.number else str(cell.number)
        case Guess():
            return f"~{cell.number}"
        case Styled():
            return plain(cell.text)
        case int():
            return str(cell)
    return display.one_line(cell, len(cell) + 1)


def iso(seconds: int) -> str:
    """Seconds since 1970 as ISO 8601, in UTC."""
    from ctxvc.store import timestamp  # `--help` loads nothing of the store

    return timestamp.iso(seconds)


def _for_people(cell: Cell, now: float) -> str:
    match cell:
        case None:
            return ""
        case Timestamp():
            return ago(cell.time, now) if cell.time else ""
        case Size():
            return display.human_bytes(cell.bytes)
        case Share():
            return _percent(cell.fraction)
        case Tokens():
            return _change(cell.number) if cell.signed else display.human_tokens(cell.number)
        case Guess():
            return f"~{display.human_tokens(cell.number)}"
        case Styled():
            return _for_people(cell.text, now)
        case int():
            return f"{cell:,}"
    return plain(cell)


def _percent(fraction: float) -> str:
    """`65 %`; what is less than one, but something, as that."""
    return "<1 %" if 0 < fraction < 0.005 else f"{fraction * 100:.0f} %"


def _change(number: int) -> str:
    """`+2.3k`, `−98k`, `0`"""
    return f"{'−' if number < 0 else '+'}{display.human_tokens(abs(number))}" if number else "0"


def ago(moment: str, now: float) -> str:
    """`3 min ago`; a date if it was more than a month ago, or is in the future."""
    then = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    age = int(now - then.timestamp())
    if not 0 <= age < 30 * 86400:
        return then.astimezone().strftime("%Y-%m-%d")
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if age >= length:
            return f"{age // length} {unit} ago"
    return f"{age} s ago"


def _colors(choice: str, env: Mapping[str, str], preferred: str, *, terminal: bool) -> bool:
    """Whether to colour: the option decides, then the environment, then what the person set, then the terminal."""
    if choice in ("always", "never"):
        return choice == "always"
    if env.get("NO_COLOR"):
        return False
    if any(env.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if preferred != "auto" and not choice:
        return preferred == "always"
    return terminal and env.get("TERM") != "dumb"


def _pager(env: Mapping[str, str], preferred: str) -> str:
    """The pager's command; empty for none. What the person set comes before PAGER, which is for any program."""
    candidates = (env.get("CTXVC_PAGER"), env.get("GIT_PAGER"), preferred or None, env.get("PAGER"))
    for command in candidates:
        if command is not None:
            return "" if command.strip() == "cat" else command.strip()
    return "less" if shutil.which("less") else ""


def _page(command: str, lines: Iterable[str], env: Mapping[str, str]) -> None:
    """Feeds the lines to a pager as they come, until the person quits it."""
    pager = subprocess.Popen(  # noqa: S602 - the person's own setting, which may have arguments
        command,
        shell=True,
        stdin=subprocess.PIPE,
        env={"LESS": "FRX", **env},
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
    )
    assert pager.stdin is not None
    stream = pager.stdin
    try:
        stream.writelines(f"{line}\n" for line in lines)
    except BrokenPipeError:
        pass
    finally:
        try:
            stream.close()
        except BrokenPipeError:
            pass
        _wait(pager)


def _wait(pager: subprocess.Popen[str]) -> None:
    """Waits for the pager to end; an interrupt is the pager's to handle."""
    while True:
        try:
            pager.wait()
            return
        except KeyboardInterrupt:
            continue
