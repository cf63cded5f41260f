"""`scope`: a new scope."""

from __future__ import annotations

import click

from ctxvc.cli.app import App, command, complete_revisions
from ctxvc.cli.options.standard_input import or_text
from ctxvc.cli.switch import end_step, interrupt_option, print_move
from ctxvc.cli.verb import Actor, acting_options


@command("scope", "ctxvc scope fix-auth -m 'the login fails; looking into the tokens'")
@click.argument("name", metavar="NAME")
@click.option("-m", "text", metavar="TEXT", required=True, callback=or_text,
              help="Why: the departure note; - reads stdin.")  # fmt: skip
@click.option("--from", "revision", metavar="REV", default="", help="Start from REV: rewind and branch.",
              shell_complete=complete_revisions)  # fmt: skip
@click.option("--with-messages", is_flag=True, help="Inherit everything, not only pinned blocks and notes.")
@interrupt_option
@acting_options
@click.pass_obj
def scope(app: App, name: str, text: str, revision: str, with_messages: bool, interrupt: bool, actor: Actor) -> None:
    """
    It starts with the pinned blocks, the notes, and the human message that opened the turn; a departure note stays in
    the scope that you leave. With --from it starts with everything present at an earlier commit.
    """
    with app.acting(actor) as session:
        origin = session.scope
        end_step(session, interrupt=interrupt)
        session.open_scope(name, text, revision=revision, with_messages=with_messages)
        print_move(app, session, origin)
