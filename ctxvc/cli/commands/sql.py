"""`sql`: questions to the table of all sessions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import click

from ctxvc.cli.answers.shared import Answer, described
from ctxvc.cli.app import App, all_projects_option, command, json_option, raise_unreadable
from ctxvc.cli.options.values import or_text
from ctxvc.cli.output import Cell, Column, Table, safe
from ctxvc.cli.remotes import tables
from ctxvc.errors import CtxvcError
from ctxvc.tables import sql as questions
from ctxvc.tables.sql import Result

_PROMPT, _MORE = "sql> ", "...> "


@command("sql", 'ctxvc sql "SELECT model, sum(cost) FROM calls GROUP BY model"')
@click.argument("statement", metavar="[STATEMENT]", default="", callback=or_text)
@click.option("--shell", is_flag=True, help="Read statements, each up to a `;`, until the end of the input.")
@click.option("--from", "places", metavar="DIR", multiple=True,
              help="Ask the tables there, as `ctxvc export` wrote them, or at s3://…; repeatable.")  # fmt: skip
@all_projects_option
@json_option
@click.pass_obj
def sql(app: App, statement: str, shell: bool, places: tuple[str, ...], all_projects: bool) -> None:
    """The table has the parts sessions, calls, blocks, files and events, each a view; `DESCRIBE calls` lists columns.
    It is kept in the store and brought up to date first: only what is new is read. SQL is DuckDB's (extra `sql`).
    """
    if bool(statement) == shell:
        raise click.UsageError("give a statement, or --shell")
    if places and all_projects:
        raise click.UsageError("--from and --all-projects cannot be combined")
    unreadable: list[CtxvcError] = []
    with questions.Table(_places(app, places, unreadable, all_projects=all_projects)) as table:
        if shell:
            _converse(app, table)
        else:
            _print(app, table.ask(statement))
    raise_unreadable(unreadable)


def _places(app: App, places: tuple[str, ...], unreadable: list[CtxvcError], *, all_projects: bool) -> dict[str, str]:
    if places:
        return {place if "://" in place else str(app.folder / place): questions.ANY for place in places}
    if all_projects:
        return dict(tables.refreshed(store, unreadable) for store in app.all_stores(unreadable))
    with app.store() as store:
        return dict([tables.refreshed(store, unreadable)])


def _converse(app: App, table: questions.Table) -> None:
    """Answers one statement after the other; what is wrong with one ends nothing."""
    for statement in _statements(interactive=app.may_ask):
        try:
            _print(app, table.ask(statement))
        except CtxvcError as error:
            app.output.note(safe(str(error)))


def _statements(*, interactive: bool) -> Iterator[str]:
    if interactive:
        import readline  # noqa: F401 - the line can be edited
    statement = ""
    while True:
        try:
            line = input(_MORE if statement else _PROMPT) if interactive else next(sys.stdin)
        except (EOFError, StopIteration):
            break
        statement += f"{line}\n"
        if line.rstrip().endswith(";"):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _print(app: App, result: Result) -> None:
    if app.output.json:
        rows = [[_value(value) for value in row] for row in result.rows]
        app.output.value(SqlResult(columns=result.columns, rows=rows))
        return
    numbers = [_are_numbers(row[at] for row in result.rows) for at in range(len(result.columns))]
    columns = [Column(safe(name), right=right, least=0 if right else 12)
               for name, right in zip(result.columns, numbers, strict=True)]  # fmt: skip
    app.output.table(Table(columns=columns, rows=[[_cell(value) for value in row] for row in result.rows]))


def _are_numbers(values: Iterable[Any]) -> bool:
    """Whether all values that are known, and there are some, are numbers."""
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(one, (int, float, Decimal)) and not isinstance(one, bool) for one in present
    )


def _cell(value: Any) -> Cell:
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case int():
            return value
        case float():
            return f"{value:.6g}" if abs(value) < 1 else f"{value:.2f}"
        case list():
            return ", ".join(str(_cell(one)) for one in value)
    return str(_value(value))


def _value(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case datetime():
            return value.isoformat() + "Z" * (value.tzinfo is None)
        case date():
            return value.isoformat()
        case Decimal():
            return float(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_value(one) for one in value]
        case dict():
            return {str(name): _value(one) for name, one in value.items()}
        case None | bool() | int() | float() | str():
            return value
    return str(value)


class SqlResult(Answer, frozen=True, kw_only=True, tag="ctxvc.sql/1"):
    """`sql`"""

    columns: list[str]
    rows: Annotated[list[list[Any]], described("a value for each column; times are ISO 8601")]
