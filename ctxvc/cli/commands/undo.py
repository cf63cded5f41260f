"""`undo`: the last changes of the prompt, taken back."""

from __future__ import annotations

import click

from ctxvc.cli.app import App, command, complete_revisions
from ctxvc.cli.verb import Actor, acting_options, answer_of


@command("undo", "ctxvc undo")
@click.argument("count", metavar="[N]", type=click.IntRange(min=1), default=None, required=False)
@click.option(
    "--to", metavar="OP", default="", shell_complete=complete_revisions,
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
