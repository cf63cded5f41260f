"""The shared part of `scope` and `goto`."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, SessionName, described
from ctxvc.cli.app import App
from ctxvc.cli.output import counted
from ctxvc.errors import Refused
from ctxvc.session.session import Session

interrupt_option = click.option(
    "--interrupt", is_flag=True, help="End an open step: its missing results count as interrupted."
)


def end_step(session: Session, *, interrupt: bool) -> None:
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


def print_move(app: App, session: Session, origin: str) -> None:
    answer = Moved(session=session.name, scope=session.scope, origin=origin)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.say(f"in {answer.session}/{answer.scope}, from {origin}")


class Moved(Answer, frozen=True, kw_only=True, tag="ctxvc.moved/1"):
    """`scope`, `goto`"""

    session: SessionName
    scope: Annotated[str, described("the new current scope")]
    origin: Annotated[str, described("the former scope")]
