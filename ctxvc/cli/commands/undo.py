"""`undo`: the last change of the prompt, taken back."""

from __future__ import annotations

import click

from ctxvc.cli.app import App, command
from ctxvc.cli.verb import Actor, acting_options, answer_of


@command("undo", "ctxvc undo")
@acting_options
@click.pass_context
def undo(ctx: click.Context, actor: Actor) -> None:
    """Once more takes back the one before. A new commit sets what it touched as it was; what was said since stays: an
    append is never undone.
    """
    app = ctx.ensure_object(App)
    with app.acting(actor) as session:
        rehearsal, undone = session.undo()
        answer_of(ctx, app, session, "undo", rehearsal, undone)
