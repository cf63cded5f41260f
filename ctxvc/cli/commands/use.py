"""`use`: the session that commands take where none is named."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, SessionName, described
from ctxvc.cli.app import App, command, complete_sessions, json_option, not_empty
from ctxvc.cli.output import safe
from ctxvc.store.read.session_name import by_recency


@command("use", "ctxvc use codex-7")
@click.argument("name", metavar="[SESSION]", default="", shell_complete=complete_sessions, callback=not_empty)
@click.option("--auto", "is_auto", is_flag=True, help="Go back to the session recorded last.")
@json_option
@click.pass_obj
def use(app: App, name: str, is_auto: bool) -> None:
    """SESSION is a name, a unique prefix, or -1 for the one recorded before the last. It stays current until `ctxvc use
    --auto`. Without SESSION, shows which one is current and why. --session and CTXVC_SESSION take precedence.
    """
    if name and is_auto:
        raise click.UsageError("give either SESSION or --auto")
    with app.store() as store:
        if name:
            store.use(app.resolved(store, name))
        elif is_auto:
            store.use("")
            if names := by_recency(store):
                store.set_current_scope(names[0], store.current_scope(names[0]))
        current = app.current_session(store)
        answer = Used(session=current, chosen_by=app.chosen_by(store))
    app.output.answer(answer, f"{safe(answer.session)}: {WHY[answer.chosen_by]}")


#: Why a session is the current one.
WHY = {
    "option": "named by --session",
    "variable": "named by CTXVC_SESSION",
    "use": "chosen with `ctxvc use`; `ctxvc use --auto` ends that",
    "last": "the session recorded or imported last",
}


class Used(Answer, frozen=True, kw_only=True, tag="ctxvc.use/1"):
    """`use`"""

    session: SessionName
    chosen_by: Annotated[str, described("`option` (--session), `variable` (CTXVC_SESSION), `use`, or `last`")]
