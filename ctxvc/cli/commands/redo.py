"""`redo`: what `undo` took back, done again."""

from __future__ import annotations

import click

from ctxvc.cli.app import App, command
from ctxvc.cli.verb import Actor, acting_options, answer_of


@command("redo", "ctxvc redo")
@click.argument("count", metavar="[N]", type=click.IntRange(min=1), default=1)
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
