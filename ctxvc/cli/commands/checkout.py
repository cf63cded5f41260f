"""`checkout`: a scope's blocks as files in a folder, with the dashboard beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, CommitId, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, command, complete_revisions, json_option, not_empty
from ctxvc.cli.checkout_folder import check_out, redraw_dashboard
from ctxvc.cli.options.values import GivenPath
from ctxvc.cli.output import counted, safe
from ctxvc.store import checkout as checkouts
from ctxvc.store import worktrees


@command("checkout", "ctxvc checkout demo/main")
@click.argument("name", metavar="[SESSION[/SCOPE]]", default="", shell_complete=complete_revisions, callback=not_empty)
@click.argument("folder", metavar="[DIR]", required=False, type=GivenPath(file_okay=False, path_type=Path))
@click.option("--take", is_flag=True, help="First apply your moves between blocks/ and archive/ there.")
@click.option(
    "--redraw",
    metavar="DIR",
    type=GivenPath(file_okay=False, path_type=Path),
    help="Only rewrite DASHBOARD.md in the checkout DIR, for its current commit.",
)
@json_option
@click.pass_obj
def checkout(app: App, name: str, folder: Path | None, take: bool, redraw: Path | None) -> None:
    """Writes the bodies, the ledger and DASHBOARD.md as of the scope's newest commit, by default into a folder inside
    the store. Run it again to update the folder. Of your edits only whole blocks moved between blocks/ and archive/
    count: --take archives and restores them.
    """
    if redraw and (name or folder or take):
        raise click.UsageError("--redraw names its folder and takes no other argument or option")
    taken: list[str] = []
    with app.store() as store:
        if chosen := redraw or folder:
            worktrees.remember(store.path, app.path(chosen))  # naming a checkout vouches for it
        if redraw:
            checked_out = redraw_dashboard(store, app.path(redraw))
        else:
            session, _, scope = name.partition("/")
            session = app.resolved(store, session) if session else app.current_session(store)
            scope = scope or store.current_scope(session)
            where = app.path(folder) if folder else checkouts.place(store, session, scope)
            taken = [f"{move.verb} {move.block}" for move in checkouts.take(store, where).moves] if take else []
            checked_out = check_out(store, session, scope, where)
    answer = struct_of(CheckedOut, checked_out, folder=checked_out.path, taken=taken)
    if app.output.json:
        app.output.value(answer)
        return
    if taken:
        app.output.say(f"taken: {', '.join(taken)}")
    where_it_is = f"{counted(checked_out.files, 'file')} in {safe(checked_out.path)}"
    app.output.say(f"{checked_out.session}/{checked_out.scope} at {checked_out.commit[:12]}: {where_it_is}")


class CheckedOut(Answer, frozen=True, kw_only=True, tag="ctxvc.checkout/1"):
    """`checkout`"""

    folder: str
    session: SessionName
    scope: ScopeName
    commit: CommitId
    files: Annotated[int, described("in the folder, without the dashboard")]
    taken: Annotated[list[str], described("with --take, the moves that were applied, as in `archive B6`")]
