"""`checkout`: a scope's blocks as files in a folder, with the dashboard beside them."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, complete_revisions, json_option
from ctxvc.cli.budget import COLUMNS, columns_of
from ctxvc.cli.measure import Meter, window_of
from ctxvc.cli.output import counted, plain, safe
from ctxvc.core.view import Dashboard, dashboard
from ctxvc.store import checkout as checkouts
from ctxvc.store import revisions
from ctxvc.store.store import Store

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#])")


@command("checkout", "ctxvc checkout demo/main")
@click.argument("name", metavar="[SESSION[/SCOPE]]", default="", shell_complete=complete_revisions)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--take", is_flag=True, help="First make true what you moved between blocks/ and archive/ there.")
@json_option
@click.pass_obj
def checkout(app: App, name: str, folder: Path | None, take: bool) -> None:
    """Put a scope's blocks into a folder as files.

    The bodies in the prompt, the ledger, and DASHBOARD.md, as of the scope's newest commit; by default in a folder
    inside the store. Once more moves the folder forward. What you edit there moves no scope: only whole blocks moved
    between blocks/ and archive/ can be taken, as your archive and restore.
    """
    with app.store() as store:
        session, _, scope = name.partition("/")
        session = session or app.session or store.current_session()
        scope = scope or store.current_scope(session)
        where = app.path(folder) if folder else checkouts.place(store, session, scope)
        taken = [f"{move.verb} {move.block}" for move in checkouts.take(store, where).moves] if take else []
        done = _check_out(store, session, scope, where)
    answer = schemas.CheckedOut(
        folder=done.path, session=done.session, scope=done.scope, commit=done.commit, files=done.files, taken=taken
    )
    if app.output.json:
        app.output.value(answer)
        return
    if taken:
        app.output.say(f"taken: {', '.join(taken)}")
    app.output.say(f"{session}/{scope} at {done.commit[:12]}: {counted(done.files, 'file')} in {safe(done.path)}")


def _check_out(store: Store, session: str, scope: str, folder: Path) -> checkouts.CheckedOut:
    moment = revisions.at(store, revisions.now(store.writer(session, scope)).commit)
    meter = Meter(store, moment.ledger.meta.tokenizer)
    board = dashboard(moment.ledger, meter.costs(moment), window_of(moment.ledger), meter.overhead(moment))
    return checkouts.checkout(store, session, scope, folder, dashboard=markdown(board))


def markdown(board: Dashboard) -> str:
    """The dashboard as a page. What was recorded in it is only words: no markup, no link."""
    lines = [
        f"# {board.session}/{board.scope}",
        "",
        f"[{board.bar}] {board.percent} %, {board.used:,} of {board.window:,} tokens: "
        f"{board.overhead:,} system prompt and tools, {board.conversation:,} conversation",
        "",
        "".join(f"| {column.name} " for column in COLUMNS) + "|",
        "".join("| ---: " if column.right else "| --- " for column in COLUMNS) + "|",
        *("".join(f"| {_escaped(plain(cell))} " for cell in columns_of(line)) + "|" for line in board.lines),
    ]
    return "\n".join(lines) + "\n"


def _escaped(words: str) -> str:
    return _MARKUP.sub(r"\\\1", words)
