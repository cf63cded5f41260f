"""docs/cli.md, json.md, table.md and docs/schema, made of commands, answers and rows: `python docs/reference.py`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ctxvc import errors
from ctxvc.cli.answers.commits import LogItem
from ctxvc.cli.answers.shared import Answer, Item
from ctxvc.cli.app import Command, global_options
from ctxvc.cli.command_list import COMMANDS, SECTIONS
from ctxvc.cli.commands.help import PACKAGE
from ctxvc.cli.main import cli
from ctxvc.tables.parquet import columns
from ctxvc.tables.rows import PARTS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_MADE = "<!-- Made by `python docs/reference.py`; a test fails if this page is stale. -->"


def _topic(name: str) -> str:
    """The text of a topic of `ctxvc help`, without its title."""
    return (PACKAGE / "help" / f"{name}.md").read_text(encoding="utf-8").partition("\n\n")[2].rstrip("\n")


_CLI = f"""\
{_MADE}
# The command line

This page has the same text as `ctxvc COMMAND --help`. Answers go to stdout, everything else to stderr. In a pipe, an
answer is tab-separated, complete, and independent of the date; on a terminal it is aligned, coloured and paged, with
relative times.

Said elsewhere: [names](../ctxvc/help/revisions.md) of revisions and blocks, [exit codes](../ctxvc/help/exit-codes.md),
[environment](../ctxvc/help/environment.md), [configuration](../ctxvc/help/config.md), [answers of `--json`](json.md).

## Common options

Every command takes these, before or after its name:
"""

#: What many commands take: explained once, and in the usage of those that have it.
_SHARED = ("--json", "--actor")

_JSON = f"""\
{_MADE}
# The answers of `--json`

{_topic("json")}

Each `schema` names a [JSON Schema](https://json-schema.org/draft/2020-12) in [`schema/`](schema). The schemas are
made from the code, and the tests validate an answer of every kind against its schema. An error has
[one](schema/error.json), too; the [exit codes](../ctxvc/help/exit-codes.md) stay the same. `log --jsonl` prints one
[log item](schema/log-item.json) a line, oldest first.

The schemas, with the command if the name is another:
"""

_TABLE = f"""\
{_MADE}
# The table

What [`ctxvc sql`](how-to/ask-across-sessions.md) asks and `ctxvc export --format parquet` writes: five parts, each a
view, of what is committed. `ctxvc stats` adds up the same rows. Recorded texts are on one line, at most 200 characters
long (paths 400), without signs that steer a terminal. A session is `writer` and `session`; a call is a `commit` of it.
A column `month` has the month in which the session began.
"""


def cli_page() -> str:
    """docs/cli.md"""
    return "\n".join(_cli_lines()) + "\n"


def json_page() -> str:
    """docs/json.md"""
    return "\n".join(_json_lines()) + "\n"


def table_page() -> str:
    """docs/table.md"""
    return "\n".join(_table_lines()) + "\n"


def answers() -> list[type[Answer]]:
    """Every answer's type, in the order of the commands."""
    names = list(COMMANDS)
    for name in names:
        cli.get_command(click.Context(cli), name)
    direct = Answer.__subclasses__()
    types = [answer for base in direct for answer in (base.__subclasses__() or [base])]
    place = {answer: names.index(re.findall("[a-z-]+", answer.__doc__ or "")[0]) for answer in types}
    return sorted(types, key=lambda answer: (place[answer], str(answer.__struct_config__.tag)))


def schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of an answer or item. Its fields are all required, since all are written."""
    parts = msgspec.json.schema(struct)
    whole = {kind.__name__ for base in (Answer, Item) for kind in _below(base)}
    definitions = {name: _stated(part, whole=name in whole) for name, part in parts["$defs"].items()}
    own = definitions.pop(struct.__name__)
    tag = struct.__struct_config__.tag
    if tag:
        own["properties"]["schema"] = {"const": tag}
    return {"$schema": _DRAFT, **own, "title": tag or own["title"], **({"$defs": definitions} if definitions else {})}


def schemas() -> dict[str, str]:
    """File name in docs/schema → its text."""
    files = {schema_file(str(kind.__struct_config__.tag)): schema(kind) for kind in answers()}
    files |= {"log-item.json": schema(LogItem), "error.json": error_schema()}
    return {name: json.dumps(value, indent=1, ensure_ascii=False) + "\n" for name, value in files.items()}


def error_schema() -> dict[str, Any]:
    """What a command with `--json` or `--jsonl` writes to stderr when it fails (`cli/main.py`)."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CtxvcError)]
    codes = {kind.code for kind in kinds} | {"usage", "bug"}
    fields = {
        "code": {"enum": sorted(codes)},
        "message": {"description": "what was wrong, with what", "type": "string"},
        "hint": {"description": "what to do; empty if there is nothing to suggest", "type": "string"},
    }
    error = {"type": "object", "properties": fields, "required": list(fields)}
    return {
        "$schema": _DRAFT,
        "title": "error",
        "type": "object",
        "properties": {"error": error},
        "required": ["error"],
    }


def schema_file(tag: str) -> str:
    """`ctxvc.status-1.json` of `ctxvc.status/1`"""
    return f"{tag.replace('/', '-')}.json"


def main() -> None:
    """Writes the pages and the schemas into the docs of the working folder; schemas of no answer go."""
    for name, page in (("cli.md", cli_page()), ("json.md", json_page()), ("table.md", table_page())):
        Path("docs", name).write_text(page, encoding="utf-8")
    folder = Path("docs", "schema")
    folder.mkdir(exist_ok=True)
    texts = schemas()
    for path in folder.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _cli_lines() -> Iterator[str]:
    root = click.Context(cli, info_name="ctxvc")
    yield _CLI
    yield from _options(global_options(hidden=False))
    yield "\nThese are in the usage of a command that takes them:\n"
    verb = cli.get_command(root, "archive")
    assert verb is not None
    yield from _options(_shared(verb))
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
    shared = _shared(command)
    own = [
        param
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden and param not in shared
    ]
    usage = [command.name or "", *(f"[{option.opts[0]}]" for option in shared), *["[OPTIONS]"] * bool(own)]
    yield f"`ctxvc {' '.join([*usage, *_arguments(command)])}`" + "\n" * bool(own)
    yield from _options(own)


def _shared(command: click.Command) -> list[click.Option]:
    """Of a command's options those that are explained once."""
    return [param for param in command.params if isinstance(param, click.Option) and param.opts[0] in _SHARED]


def _arguments(command: Command) -> list[str]:
    return [param.metavar or "" for param in command.params if isinstance(param, click.Argument)]


def _options(options: Sequence[click.Parameter]) -> Iterator[str]:
    for option in options:
        assert isinstance(option, click.Option)
        names = " / ".join([", ".join(option.opts), *option.secondary_opts])
        yield f"- `{' '.join(filter(None, [names, _value(option)]))}`: {_help(option)}"


def _help(option: click.Option) -> str:
    """What the option does, with the default that `--help` adds by itself."""
    text = option.help or ""
    return f"{text.removesuffix('.')} ({option.default})." if option.show_default else text


def _value(option: click.Option) -> str:
    """The value that follows an option's name; empty for a flag."""
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice) and not option.metavar:
        return "|".join(map(str, option.type.choices))
    return option.metavar or option.type.name.upper()


def _json_lines() -> Iterator[str]:
    yield _JSON
    for answer in answers():
        tag = str(answer.__struct_config__.tag)
        command = _sentence(answer.__doc__)
        told = "" if command == f"`{tag.partition('.')[2].partition('/')[0]}`" else f": {command}"
        yield f"- [`{tag}`](schema/{schema_file(tag)}){told}"


def _table_lines() -> Iterator[str]:
    yield _TABLE
    for name, row in PARTS.items():
        yield f"## {name}\n\n{_sentence(row.__doc__)}\n\n| column | type | |\n| --- | --- | --- |"
        for column, kind, description in columns(row):
            yield f"| `{column}` | {kind} | {description} |"
        yield ""


def _stated(part: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """A struct's part of a schema, its description without the docstring's later paragraphs.

    `whole`: all of its fields are written, so none has a default.
    """
    if "description" in part:
        part = {**part, "description": " ".join(part["description"].partition("\n\n")[0].split())}
    if whole:
        fields = {
            name: {key: item for key, item in field.items() if key != "default"}
            for name, field in part["properties"].items()
        }
        part = {**part, "properties": fields, "required": list(fields)}
    return part


def _sentence(text: str | None) -> str:
    """The first sentence of a docstring."""
    return (text or "").partition(". ")[0].strip()


def _below(kind: type) -> Iterator[type]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)


if __name__ == "__main__":
    main()
