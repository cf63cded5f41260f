"""`help`: a topic, or a command, offline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ctxvc.cli.app import App, command
from ctxvc.cli.command_list import COMMANDS, PAGES, TOPICS
from ctxvc.cli.output import Output
from ctxvc.cli.terminal.table import breadth, wrapped
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput

PACKAGE = Path(__file__).parents[2]


@command("help", "ctxvc help budgets")
@click.argument("topic", metavar="[TOPIC | COMMAND]", default="")
@click.pass_context
def help(ctx: click.Context, topic: str) -> None:  # noqa: A001
    """Without an argument: the topics and the commands. Of a command it is what `--help` says."""
    app = ctx.ensure_object(App)
    root = ctx.find_root()
    if not topic:
        app.output.lines(root.get_help().splitlines())
        return
    if topic not in COMMANDS and topic not in TOPICS:
        near = meant(topic, [*TOPICS, *COMMANDS])
        raise BadInput(f"there is no help on {topic[:40]!r}{near}", hint=f"topics: {', '.join(TOPICS)}")
    lines: list[str] = []
    if topic in COMMANDS:
        assert isinstance(root.command, click.Group)
        own = root.command.get_command(root, topic)
        assert own is not None
        lines += own.get_help(click.Context(own, info_name=topic, parent=root)).splitlines()
    if topic in TOPICS:
        lines += [*([""] if lines else []), *page_lines(page(topic), app.output)]
    app.output.lines(lines)


def page(topic: str) -> str:
    """The text of a topic. A page of the documents is in the wheel; a checkout has it where it is written."""
    name = f"{topic}.md"
    shipped = PACKAGE / "help" / name
    path = shipped if topic not in PAGES or shipped.exists() else PACKAGE.parent / "docs" / PAGES[topic]
    return path.read_text(encoding="utf-8")


_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_ITEM = re.compile(r"(\s*)([-*]|[0-9]+\.) (.*)")
_STRONG = re.compile(r"\*\*(.+?)\*\*|(?<![\w*])\*(?!\s)([^*]+?)\*(?!\w)")
_CELLS = re.compile(r"(?<!\\)\|")
#: The widest line that reads well.
_WIDEST = 100


def page_lines(text: str, output: Output) -> Iterator[str]:
    """The lines of a page; of Markdown in a pipe, as it is."""
    if not output.terminal:
        yield from text.splitlines()
        return
    width = min(output.width, _WIDEST)
    for block in _blocks(_COMMENT.sub("", text)):
        yield from _drawn(block, output, width)
        yield ""


def _blocks(page: str) -> Iterator[list[str]]:
    """Paragraphs, headings, lists' items, tables and code, each with its lines."""
    block: list[str] = []
    fenced = False
    for line in page.splitlines():
        if line.startswith("```"):
            if not fenced and block:
                yield block
                block = []
            block.append(line)
            fenced = not fenced
            if not fenced:
                yield block
                block = []
        elif fenced:
            block.append(line)
        elif not line.strip():
            if block:
                yield block
            block = []
        else:
            block.append(line)
    if block:
        yield block


def _drawn(block: Sequence[str], output: Output, width: int) -> Iterator[str]:
    first = block[0]
    if first.startswith("```"):
        yield from (f"    {line}" for line in block[1:-1])
    elif first.startswith("    "):
        yield from block
    elif first.startswith("#"):
        yield output.style(_plain(first.lstrip("# ")), bold=True)
        if block[1:]:
            yield from _drawn(block[1:], output, width)
    elif first.startswith("|"):
        yield from _table([_cells(line) for line in block if not set(line) <= set("|-: ")], output, width)
    else:
        for text, indent in _paragraphs(block):
            yield from (_styled(line, output) for line in wrapped(text, width, indent))


def _paragraphs(block: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The texts of a paragraph or a list, each on one line, with the indentation of what follows its first line."""
    text, indent = "", ""
    for line in block:
        if item := _ITEM.fullmatch(line):
            if text:
                yield text, indent
            text, indent = f"{item[1]}{item[2]} {_unlinked(item[3])}", " " * (len(item[1]) + len(item[2]) + 1)
        else:
            text = f"{text} {_unlinked(line.strip())}" if text else _unlinked(line)
    if text:
        yield text, indent


def _table(rows: Sequence[Sequence[str]], output: Output, width: int) -> Iterator[str]:
    """The rows of a table, no cell cut: two columns beside each other, more below each other."""
    header, *body = rows
    if len(header) == 2:
        margin = min(max(breadth(row[0]) for row in body), width // 3) + 2
        for name, text in body:
            title = name
            if breadth(name) > margin - 2:
                yield from (output.style(line, bold=True) for line in wrapped(name, width))
                title = ""
            for line in wrapped(text, width - margin):
                yield output.style(title, bold=True) + " " * (margin - breadth(title)) + line
                title = ""
        return
    for number, (name, *cells) in enumerate(body):
        if number:
            yield ""
        yield output.style(name, bold=True)
        for title, cell in zip(header[1:], cells, strict=False):
            yield from wrapped(f"  {title}: {cell}" if title else f"  {cell}", width, "    ")


def _cells(line: str) -> list[str]:
    return [_plain(cell.strip()).replace("\\|", "|") for cell in _CELLS.split(line.strip().strip("|"))]


def _unlinked(text: str) -> str:
    return _LINK.sub(r"\1", text)


def _plain(text: str) -> str:
    """A text without its marks, but for those of code."""
    return _STRONG.sub(lambda match: match[1] or match[2], _unlinked(text))


def _styled(line: str, output: Output) -> str:
    text = _STRONG.sub(lambda match: output.style(match[1] or match[2], bold=True), line)
    return text.replace("**", "")  # of what goes on in the next line
