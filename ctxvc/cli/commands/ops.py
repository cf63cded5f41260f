"""`ops`: the operation log of a scope."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers.shared import (
    Answer,
    Item,
    ScopeName,
    SessionName,
    TimeText,
    TokenCount,
    described,
    struct_of,
    table_of,
)
from ctxvc.cli.app import App, command, complete_scopes, json_option, not_empty
from ctxvc.cli.output import Cell, Column, Styled, Timestamp, Tokens, iso
from ctxvc.inspection import operation_log

#: Operations that are listed where nobody says how many.
_MOST = 20


@command("ops", "ctxvc ops -n 5")
@click.argument("scope", metavar="[SCOPE]", default="", shell_complete=complete_scopes, callback=not_empty)
@click.option("-n", "number", metavar="N", type=click.IntRange(min=1), default=_MOST, help=f"At most N ({_MOST}).")
@json_option
@click.pass_obj
def ops(app: App, scope: str, number: int) -> None:
    """Newest first, without steps, which are in `log`. `undo` takes back the newest one, `undo --to OP` all since OP.
    An operation inside an open step has no commit yet: +2 is the second of these.
    """
    with app.reading() as stored:
        scope = scope or stored.scope
        stored.ledger(scope)
        meter = app.meter(stored.store, stored.ledger(scope))
        items = [
            struct_of(OperationItem, logged, logged.operation, time=iso(logged.operation.time))
            for logged in operation_log.log(stored, scope, meter, number)
        ]
    answer = Operations(session=stored.name, scope=scope, items=items)
    table = table_of(OperationItem, answer.items, dim=lambda item: item.state == "undone")
    app.output.answer(answer, table)


def _operation(name: str) -> Cell:
    return Styled(name, "yellow")


def _change(tokens: int | None) -> Cell:
    """What a change did to the prompt's size; what made room is green."""
    if tokens is None:
        return None
    return Styled(Tokens(tokens, signed=True), "green") if tokens < 0 else Tokens(tokens, signed=True)


class OperationItem(Item, frozen=True, kw_only=True):
    """A change to a scope other than a step."""

    TABLE = "name time actor change tokens state subject"

    name: Annotated[
        str,
        described("the value for `undo --to`: the beginning of the commit's id, or `+2`"),
        Column("OP", cell=_operation),
    ]
    commit: Annotated[str, described("full id; empty if not committed yet")]
    time: Annotated[TimeText, Column("time", cell=Timestamp)]
    actor: Annotated[
        str, described("who did it: agent, planner, policy:NAME, guard, user, host"), Column("actor", least=8)
    ]
    op: Annotated[str, described("`archive`, `note`, `undo`, …, as in `Ctxvc-Op`")]
    subject: Annotated[str, Column("subject", least=24)]
    state: Annotated[
        str,
        described("`stands` if `undo` can take it back, `undone` if it was; otherwise empty"),
        Column("state", rank=1),
    ]
    change: Annotated[
        int | None,
        described("tokens it added to the prompt; null for the scope's first"),
        Column("change", right=True, cell=_change),
    ]
    tokens: Annotated[
        TokenCount,
        described("tokens of the prompt after it, without system prompt and tools"),
        Column("~tokens", right=True, cell=Tokens),
    ]


class Operations(Answer, frozen=True, kw_only=True, tag="ctxvc.ops/1"):
    """`ops`"""

    session: SessionName
    scope: ScopeName
    items: Annotated[list[OperationItem], described("newest first")]
