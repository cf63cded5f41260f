"""`archive`, `restore`, `delete`, `pin`, `unpin`, `undo`: what stands in the prompt, changed by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column, Output, Size, Table, safe
from ctxvc.core.ledger.block import Verb
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Rehearsal
from ctxvc.core.view.view import measure
from ctxvc.session.session import Session
from ctxvc.store import format as fmt

Actor = Literal["user", "agent"]

#: Reasons that are told of what was left out, and blocks or ranges that each names, at most.
_MOST_REASONS = 8
_MOST_NAMED = 12
_ID = re.compile(r"[BG][1-9][0-9]*")

#: What a changing verb prints of each block.
_COLUMNS = (
    Column("ID"),
    Column("state"),
    Column("level", right=True),
    Column("~tokens", right=True),
    Column("bytes", right=True),
    Column("sha256"),
    Column("path", least=12),
)


def acting_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that every changing verb has."""
    function = click.option(
        "--actor", type=click.Choice(["user", "agent"]), default="user", help="Who decides: an agent may less (user)."
    )(function)
    return json_option(function)


def blocks_argument(function: Callable[..., None]) -> Callable[..., None]:
    return click.argument("blocks", metavar="BLOCKS...", nargs=-1, required=True)(function)


allow_user = click.option("--allow-user", is_flag=True, help="Also what a human wrote; never for an agent.")


@command("archive", "ctxvc archive B6-B9 -m 'the four failing runs'")
@blocks_argument
@click.option("-m", "index", metavar="TEXT", default="", help="Index text: what the stub says of it.")
@allow_user
@acting_options
@click.pass_context
def archive(ctx: click.Context, blocks: Sequence[str], index: str, allow_user: bool, actor: Actor) -> None:
    """Take blocks out of the prompt; a stub with their address stays.

    BLOCKS are `B3`, `B3,B5-B9`, `G2`: two or more become one group. The bytes stay in the store: `ctxvc recover` reads
    them, `ctxvc restore` puts them back. What cannot be archived is left out, and said.
    """
    _act(ctx, "archive", blocks, index, actor, allow_user)


@command("restore", "ctxvc restore B7")
@blocks_argument
@acting_options
@click.pass_context
def restore(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    """Put blocks back into the prompt, each at its place.

    A call comes with its result, and a result with its call. What would pass the budget stays out, and is said.
    """
    _act(ctx, "restore", blocks, "", actor)


@command("delete", "ctxvc delete B12 -m 'a password was in it'")
@blocks_argument
@click.option("-m", "reason", metavar="TEXT", required=True, help="Why nobody will need it again.")
@allow_user
@acting_options
@click.pass_context
def delete(ctx: click.Context, blocks: Sequence[str], reason: str, allow_user: bool, actor: Actor) -> None:
    """Take blocks out of the prompt for good; a tombstone says why.

    An agent cannot get them back; a person can, with `ctxvc restore`. The bytes stay in history: only a purge erases.
    """
    _act(ctx, "delete", blocks, reason, actor, allow_user)


@command("pin", "ctxvc pin B2")
@blocks_argument
@acting_options
@click.pass_context
def pin(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    """Keep blocks in the prompt, whatever a policy or an agent proposes."""
    _act(ctx, "pin", blocks, "", actor)


@command("unpin", "ctxvc unpin B2")
@blocks_argument
@acting_options
@click.pass_context
def unpin(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    """Let pinned blocks leave again."""
    _act(ctx, "unpin", blocks, "", actor)


@command("undo", "ctxvc undo")
@acting_options
@click.pass_context
def undo(ctx: click.Context, actor: Actor) -> None:
    """Take back the last change of the prompt in this scope.

    Once more takes back the one before. A new commit sets what it touched as it was; what was said since stays: an
    append is never undone.
    """
    app = ctx.ensure_object(App)
    with app.acting(actor) as session:
        done, undone = session.undo()
        _answer(ctx, app, session, "undo", done, undone)


def _act(
    ctx: click.Context, verb: Verb, blocks: Sequence[str], index: str, actor: Actor, allow_user: bool = False
) -> None:
    app = ctx.ensure_object(App)
    if allow_user and actor != "user":
        raise click.UsageError("--allow-user is for a person: an agent never removes what a human wrote", ctx)
    with app.acting(actor) as session:
        done = session.verb(verb, list(blocks), index, allow_user=allow_user)
        _answer(ctx, app, session, verb, done)


def _answer(ctx: click.Context, app: App, session: Session, verb: str, done: Rehearsal, undone: str = "") -> None:
    answer = acted(session, verb, done, undone)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_lines(app.output, answer))
        for line in left_out(verb, answer.problems):
            app.output.note(safe(line))
    if not done:
        ctx.exit(1)


def left_out(verb: str, problems: Sequence[schemas.LeftOut]) -> Iterator[str]:
    """Why what was left out was: one line a reason, however many blocks it holds for."""
    targets: dict[str, list[str]] = {}
    for problem in problems:
        reason = problem.text.removeprefix(f"cannot {verb} {problem.target}: ")
        targets.setdefault(reason, []).append(problem.target)
    for reason, names in islice(targets.items(), _MOST_REASONS):
        shown = selection.ranges(names) if all(map(_ID.fullmatch, names)) else names
        more = f" and {len(shown) - _MOST_NAMED:,} more" if len(shown) > _MOST_NAMED else ""
        yield f"left out {', '.join(shown[:_MOST_NAMED])}{more}: {reason}"
    if len(targets) > _MOST_REASONS:
        yield f"left out more, for {len(targets) - _MOST_REASONS:,} other reasons; --json lists them"


def acted(session: Session, verb: str, done: Rehearsal, undone: str = "") -> schemas.Acted:
    """What a changing verb answers. What stands now is measured: with the change, what a cut took away left too."""
    view = session.view()
    price = view.price
    tokens = {row.id: price.body(row) for row in done.rows}
    return schemas.Acted(
        session=session.name,
        scope=session.scope,
        verb=verb,
        undone=undone,
        tokens_before=done.tokens_before,
        tokens_after=view.overhead + measure(view.ledger, price),
        items=[
            schemas.ActedBlock(
                id=row.id,
                handle=row.handle,
                state=row.state,
                level=row.level,
                group=row.group,
                path=fmt.body_path(row),
                bytes=row.bytes,
                tokens=tokens[row.id],
                sha256=row.sha256,
                stub=row.stub,
            )
            for row in done.rows
        ],
        groups=[
            schemas.ActedGroup(id=group.id, level=group.level, members=list(group.members), stub=group.stub)
            for group in done.groups
        ],
        problems=[
            schemas.LeftOut(target=problem.target, why=problem.why, text=problem.text) for problem in done.problems
        ],
    )


def _lines(output: Output, answer: schemas.Acted) -> Iterator[str]:
    if answer.undone:
        yield output.style(safe(f"undone: {answer.undone}"), bold=True)
    for group in answer.groups:
        if group.members and group.stub:
            yield safe(group.stub)
    if answer.items:
        rows: list[list[Any]] = [
            [item.id, item.state, item.level, item.tokens, Size(item.bytes), item.sha256[:12], item.path]
            for item in answer.items
        ]
        yield from output.table_lines(Table(_COLUMNS, rows))
    if answer.items or answer.groups:
        freed = answer.tokens_before - answer.tokens_after
        word = "freed" if freed >= 0 else "added"
        yield f"{abs(freed):,} tokens {word}; the prompt is {answer.tokens_after:,} tokens now"
