"""`undo`: the last changes of the prompt, taken back."""

from __future__ import annotations

import click

from ctxvc.cli.app import App, command, complete_revisions
from ctxvc.cli.verb import Actor, acting_options, answer_of


@command("undo", "ctxvc undo")
@click.argument("count", metavar="[N]", type=click.IntRange(min=1), default=None, required=False)
@click.option(
    "--to", metavar="OP", default="", shell_complete=complete_revisions,
    help="Take back everything since OP: a commit of `ctxvc ops`, +2 for one that waits, step:5.",
)  # fmt: skip
@acting_options
@click.pass_context
def undo(ctx: click.Context, count: int | None, to: str, actor: Actor) -> None:
    """With N, the last N changes; again, the one before. What was said since stays: an append is never undone, nor is a
    switch, an import, a purge or the choice of a policy. A note, and what `recover --add` added, leave the prompt.
    Where nothing was sent since, the prompt is the one before the change, byte for byte; else thinking and boards that
    left with it do not come back, and it says so. `ctxvc redo` takes the undo back.
    """
    if count is not None and to:
        raise click.UsageError("give N or --to, not both", ctx)
    app = ctx.ensure_object(App)
    with app.acting(actor) as session:
        rehearsal, undone = session.undo(count or 1, to=to)
        answer_of(ctx, app, session, "undo", rehearsal, undone)
        if count and len(undone) < count:
            app.output.note(f"{len(undone)} of {count} undone: there were no more")
