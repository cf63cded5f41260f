"""docs/cli.md and docs/json.md, made of the commands and answers themselves: `python docs/reference.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import click
import msgspec

from ctxvc.cli.answers import Answer, Item
from ctxvc.cli.app import Command, global_options
from ctxvc.cli.commands.help import PACKAGE
from ctxvc.cli.main import cli
from ctxvc.cli.registry import COMMANDS, SECTIONS

_MADE = "<!-- Made by `python docs/reference.py`; a test fails where this page is stale. -->"


def _topic(name: str) -> str:
    """The text of a topic of `ctxvc help`, without its title."""
    return (PACKAGE / "help" / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")[2].rstrip("\n")


def _section(name: str, title: str) -> str:
    return f"## {title}\n\n{_topic(name)}\n"


_CLI = f"""\
{_MADE}
# The command line

`ctxvc COMMAND --help` says what stands here. Answers go to stdout, everything else to stderr. In a pipe an answer is
tab-separated, whole, and the same on any day; on a terminal it is aligned, coloured, paged, and says how long ago
something was. `--json` answers with one JSON object: [json.md](json.md).

{_section("revisions", "Names")}
{_section("exit-codes", "Exit codes")}
{_section("environment", "Environment")}
{_section("config", "Configuration")}
## Global options

They stand before or after the command's name.
"""

_JSON = f"""\
{_MADE}
# The answers of `--json`

{_topic("json")}
"""


def cli_page() -> str:
    """docs/cli.md"""
    return "\n".join(_cli_lines()) + "\n"


def json_page() -> str:
    """docs/json.md"""
    return "\n".join(_json_lines()) + "\n"


def answers() -> list[type[Answer]]:
    """Every answer's type, in the order of the commands."""
    names = list(COMMANDS)
    for name in names:
        cli.get_command(click.Context(cli), name)
    direct = Answer.__subclasses__()
    types = [answer for base in direct for answer in (base.__subclasses__() or [base])]
    return sorted(types, key=lambda answer: names.index(re.findall("[a-z-]+", answer.__doc__ or "")[0]))


def main() -> None:
    """Writes both pages into the docs of the working folder."""
    for name, page in (("cli.md", cli_page()), ("json.md", json_page())):
        Path("docs", name).write_text(page, encoding="utf-8")


def _cli_lines() -> Iterator[str]:
    root = click.Context(cli, info_name="ctxvc")
    yield _CLI
    yield from _options(global_options(hidden=False))
    for title, commands in SECTIONS.items():
        yield f"\n## {title}"
        for name in commands:
            command = cli.get_command(root, name)
            assert isinstance(command, Command)
            yield from _command_lines(command)


def _command_lines(command: Command) -> Iterator[str]:
    yield f"\n### ctxvc {command.name}\n"
    yield f"    {command.example}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    yield f"`ctxvc {' '.join([command.name or '', '[OPTIONS]', *_arguments(command)])}`\n"
    yield from _options([param for param in command.params if not getattr(param, "hidden", False)])


def _arguments(command: Command) -> list[str]:
    return [param.metavar or "" for param in command.params if isinstance(param, click.Argument)]


def _options(params: list[click.Parameter]) -> Iterator[str]:
    options = [param for param in params if isinstance(param, click.Option)]
    if options:
        yield "| option | means |\n| --- | --- |"
    for option in options:
        names = " / ".join([", ".join(option.opts), *option.secondary_opts])
        yield f"| `{' '.join(filter(None, [names, _value(option)]))}` | {option.help} |"


def _value(option: click.Option) -> str:
    """What stands behind an option's name; empty for a flag."""
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return "\\|".join(map(str, option.type.choices))
    return option.metavar or option.type.name.upper()


def _json_lines() -> Iterator[str]:
    yield _JSON
    items: dict[str, type[msgspec.Struct]] = {}
    for answer in answers():
        tag = str(answer.__struct_config__.tag)
        command, _, more = (answer.__doc__ or "").partition(". ")
        yield f"## {command}: `{tag}`\n"
        if more:
            yield f"{more}\n"
        yield from _fields(answer, items)
    for name, item in items.items():
        yield f"## {name}\n\n{(item.__doc__ or '').strip()}\n"
        yield from _fields(item, {})


def _fields(struct: type[msgspec.Struct], items: dict[str, type[msgspec.Struct]]) -> Iterator[str]:
    """A table of a struct's fields; the structs in it are put into `items`."""
    yield "| field | type | means |\n| --- | --- | --- |"
    for name, hint in get_type_hints(struct, include_extras=True).items():
        kind, words = _described(hint)
        for item in _structs(kind):
            items[item.__name__] = item
        yield f"| `{name}` | {_type_name(kind)} | {words} |"
    yield ""


def _described(hint: object) -> tuple[object, str]:
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return kind, next((note.description or "" for note in notes if isinstance(note, msgspec.Meta)), "")
    return hint, ""


def _structs(kind: object) -> Iterator[type[Item]]:
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, Item):
            yield part


def _type_name(kind: object) -> str:
    """`list of LogItem`, `string or null`"""
    names: dict[object, str] = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
    if kind in names:
        return names[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is list:
        return f"list of {_type_name(args[0])}"
    if origin is dict:
        return "object"
    if args:
        return " or ".join(map(_type_name, args))
    return getattr(kind, "__name__", "any")


if __name__ == "__main__":
    main()
