"""`archive`, `restore`, `delete`, `pin` and `unpin`, which act on blocks; `undo` and `redo` of such changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ctxvc.cli.app import App, command, complete_revisions, not_empty
from ctxvc.cli.options.values import or_text
from ctxvc.cli.verb import Actor, act, acting_options, allow_user, answer_of, blocks_argument


@command("archive", "ctxvc archive B6-B9 -m 'the four failing runs'")
@blocks_argument
@click.option("-m", "index", metavar="TEXT", default="", callback=or_text,
              help="Index text: a description for the stub; - reads stdin.")  # fmt: skip
@allow_user
@acting_options
@click.pass_context
def archive(ctx: click.Context, blocks: Sequence[str], index: str, allow_user: bool, actor: Actor) -> None:
    """
    BLOCKS are `B3`, `B3,B5-B9` or `G2`; two or more become one group. The bytes stay in the store: `ctxvc recover`
    reads them, `ctxvc restore` puts them back. Blocks that cannot be archived are skipped and listed.
    """
    act(ctx, "archive", blocks, index, actor, allow_user)


@command("restore", "ctxvc restore B7")
@blocks_argument
@acting_options
@click.pass_context
def restore(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    """A call comes with its result, and a result with its call. Blocks that would exceed the budget stay out and are
    listed."""
    act(ctx, "restore", blocks, "", actor)


@command("delete", "ctxvc delete B12 -m 'a password was in it'")
@blocks_argument
@click.option("-m", "reason", metavar="TEXT", required=True, callback=or_text,
              help="Why it is no longer needed; - reads stdin.")  # fmt: skip
@allow_user
@acting_options
@click.pass_context
def delete(ctx: click.Context, blocks: Sequence[str], reason: str, allow_user: bool, actor: Actor) -> None:
    """
    An agent cannot get them back; a person can, with `ctxvc restore`. The bytes stay in history: only `ctxvc purge`
    erases.
    """
    act(ctx, "delete", blocks, reason, actor, allow_user)


@command("pin", "ctxvc pin B2")
@blocks_argument
@acting_options
@click.pass_context
def pin(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    act(ctx, "pin", blocks, "", actor)


@command("unpin", "ctxvc unpin B2")
@blocks_argument
@acting_options
@click.pass_context
def unpin(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    act(ctx, "unpin", blocks, "", actor)


@command("undo", "ctxvc undo")
@click.argument("count", metavar="[N]", type=click.IntRange(1, sys.maxsize), default=None, required=False)
@click.option(
    "--to", metavar="OP", default="", shell_complete=complete_revisions, callback=not_empty,
    help="Undo everything since OP: a commit in `ctxvc ops`, +2 for an uncommitted one, or step:5.",
)  # fmt: skip
@acting_options
@click.pass_context
def undo(ctx: click.Context, count: int | None, to: str, actor: Actor) -> None:
    """With N, the last N changes; repeat to go back further. Messages stay, and a switch, an import, a purge or the
    choice of a policy is not undone. Notes, and blocks added by `recover --add`, leave the prompt. If something was
    sent since, thinking and boards that left with the change do not come back. `ctxvc redo` reverses the undo.
    """
    if count is not None and to:
        raise click.UsageError("give either N or --to", ctx)
    app = ctx.ensure_object(App)
    with app.acting(actor) as session:
        rehearsal, undone = session.undo(count or 1, to=to)
        answer_of(ctx, app, session, "undo", rehearsal, undone)
        if count and len(undone) < count:
            app.output.note(f"{len(undone)} of {count} undone: there were no more")


@command("redo", "ctxvc redo")
@click.argument("count", metavar="[N]", type=click.IntRange(1, sys.maxsize), default=1)
@acting_options
@click.pass_context
def redo(ctx: click.Context, count: int, actor: Actor) -> None:
    """With N, the last N undos. After any other change, except new messages, there is nothing to redo."""
    app = ctx.ensure_object(App)
    with app.acting(actor) as session:
        rehearsal, redone = session.redo(count)
        answer_of(ctx, app, session, "redo", rehearsal, redone)
        if len(redone) < count:
            app.output.note(f"{len(redone)} of {count} redone: there were no more")
