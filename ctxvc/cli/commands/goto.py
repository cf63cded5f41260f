"""`goto`: another scope."""

from __future__ import annotations

import click

from ctxvc.cli.app import App, command, complete_scopes
from ctxvc.cli.options.standard_input import or_text
from ctxvc.cli.switch import end_step, interrupt_option, print_move
from ctxvc.cli.verb import Actor, acting_options


@command("goto", "ctxvc goto main -m 'it was the clock'")
@click.argument("name", metavar="NAME", shell_complete=complete_scopes)
@click.option("-m", "text", metavar="TEXT", required=True, callback=or_text,
              help="Arrival note: what you bring from the scope that you leave; - reads stdin.")  # fmt: skip
@interrupt_option
@acting_options
@click.pass_obj
def goto(app: App, name: str, text: str, interrupt: bool, actor: Actor) -> None:
    """The scope is as you left it; nothing is cleared."""
    with app.acting(actor) as session:
        origin = session.scope
        end_step(session, interrupt=interrupt)
        session.goto(name, text)
        print_move(app, session, origin)
