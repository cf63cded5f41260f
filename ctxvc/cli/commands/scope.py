"""`scope` and `goto`: a new scope, and another."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, SessionName, described
from ctxvc.cli.app import App, command, complete_revisions, complete_scopes, not_empty
from ctxvc.cli.options.values import or_text
from ctxvc.cli.output import counted
from ctxvc.cli.verb import Actor, acting_options
from ctxvc.errors import Refused
from ctxvc.session.session import Session

interrupt_option = click.option(
    "--interrupt", is_flag=True, help="End an open step: its missing results count as interrupted."
)


@command("scope", "ctxvc scope fix-auth -m 'the login fails; looking into the tokens'")
@click.argument("name", metavar="NAME")
@click.option("-m", "text", metavar="TEXT", required=True, callback=or_text,
              help="Why: the departure note; - reads stdin.")  # fmt: skip
@click.option("--from", "revision", metavar="REV", default="", help="Start from REV: rewind and branch.",
              shell_complete=complete_revisions, callback=not_empty)  # fmt: skip
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
        _end_step(session, interrupt=interrupt)
        session.open_scope(name, text, revision=revision, with_messages=with_messages)
        _print_move(app, session, origin)


@command("goto", "ctxvc goto main -m 'it was the clock'")
@click.argument("name", metavar="NAME", shell_complete=complete_scopes, callback=not_empty)
@click.option("-m", "text", metavar="TEXT", required=True, callback=or_text,
              help="Arrival note: what you bring from the scope that you leave; - reads stdin.")  # fmt: skip
@interrupt_option
@acting_options
@click.pass_obj
def goto(app: App, name: str, text: str, interrupt: bool, actor: Actor) -> None:
    """The scope is as you left it; nothing is cleared."""
    with app.acting(actor) as session:
        origin = session.scope
        _end_step(session, interrupt=interrupt)
        session.goto(name, text)
        _print_move(app, session, origin)


def _end_step(session: Session, *, interrupt: bool) -> None:
    """Ends an open step with `interrupt`: else the switch would wait for its results, and these may never come.

    Raises: Refused if a step is open without that.
    """
    waiting = session.stored.open_calls
    if waiting and not interrupt:
        raise Refused(
            f"the step is open: {counted(len(waiting), 'call')} in {session.scope} without a result",
            hint="wait for the step to end, or end it now with --interrupt",
        )
    if waiting:
        session.stored.finish()


def _print_move(app: App, session: Session, origin: str) -> None:
    answer = Moved(session=session.name, scope=session.scope, origin=origin)
    app.output.answer(answer, f"in {answer.session}/{answer.scope}, from {origin}")


class Moved(Answer, frozen=True, kw_only=True, tag="ctxvc.moved/1"):
    """`scope`, `goto`"""

    session: SessionName
    scope: Annotated[str, described("the new current scope")]
    origin: Annotated[str, described("the former scope")]
