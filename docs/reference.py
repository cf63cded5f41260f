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
from ctxvc.cli.main import cli
from ctxvc.cli.registry import COMMANDS, SECTIONS

_MADE = "<!-- Made by `python docs/reference.py`; a test fails where this page is stale. -->"

_CLI = f"""\
{_MADE}
# The command line

`ctxvc COMMAND --help` says what stands here. Answers go to stdout, everything else to stderr. In a pipe an answer is
tab-separated, whole, and the same on any day; on a terminal it is aligned, coloured, paged, and says how long ago
something was. `--json` answers with one JSON object: [json.md](json.md).

## Names

| what | means |
| --- | --- |
| `HEAD`, `@` | the scope as it is now, with what is acknowledged and not committed yet |
| `main` | another scope of the session, as it is now |
| `SESSION/SCOPE` | a scope of another session |
| `SESSION` | its name, a beginning that no other has, or `-1` for the one recorded before the last, `-2`, … |
| `step:12` | the end of that step |
| `3fa9c1d2` | a commit: at least four digits of its id |
| `REV~3` | three commits before |
| `B17`, `G3` | a block, a group: in this scope, else the session's only one of that number |
| `B17@3fa9c1` | a handle: the block with that checksum |
| `SCOPE:B17`, `SESSION/SCOPE:B17` | a block elsewhere |
| `B18-1.png` | an image or document in a result; `B18-1.txt` the whole of one that the model saw cut |
| `toolu_01AbC` | the id of a call: its result, whole where the model saw it cut; also `SCOPE:ID`, `SESSION/SCOPE:ID` |

## Exit codes

| code | means |
| --- | --- |
| 0 | done |
| 1 | refused or failed, with a reason and mostly a hint on stderr |
| 2 | wrong usage, or a name that cannot be used |
| 3 | the store is damaged |
| 4 | another writer was there first |
| 130 | interrupted |
| 141 | what read the answer closed the pipe, as in `ctxvc log \\| head -1` |

With `--json` an error is `{{"error":{{"code":…,"message":…,"hint":…}}}}` on stderr. The codes are `usage`, `refused`,
`not_found`, `bad_name`, `bad_input`, `damaged`, `conflict`, `failed` and `bug`.

## Environment

| variable | means |
| --- | --- |
| `CTXVC_STORE` | path of the store; `-C` comes first |
| `CTXVC_SESSION` | the session; `--session` comes first |
| `NO_COLOR`, `FORCE_COLOR`, `CLICOLOR_FORCE`, `TERM=dumb` | as everywhere; `--color` comes first |
| `CTXVC_PAGER`, `GIT_PAGER`, `PAGER` | the pager, the first that is set; `cat` or nothing for none |
| `LESS` | what `less` is told, `FRX` unless set |
| `COLUMNS` | width of the terminal |

Without `-C` and `CTXVC_STORE` the store is the nearest `.ctxvc` upwards from the working folder, and that of the main
worktree in a linked one.

## Global options

They stand before or after the command's name.
"""

_JSON = f"""\
{_MADE}
# The answers of `--json`

One object on one line of stdout. `schema` says what it is; its number changes when a field goes or means something
else. New fields may come at any time: ignore those that you do not know. Times are ISO 8601 in UTC, sizes bytes, ids
whole.
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
