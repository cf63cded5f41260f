"""`checkout`: a scope's blocks as files in a folder, with the dashboard beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers import Answer, CommitId, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, complete_revisions, json_option
from ctxvc.cli.dashboard import COLUMNS, Page, columns_of, page_of
from ctxvc.cli.output import counted, plain, safe
from ctxvc.core.display import one_line
from ctxvc.core.view.dashboard import folded
from ctxvc.store import checkout as checkouts
from ctxvc.store import contained, revision, worktrees
from ctxvc.store.git import program
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from ctxvc.tokens.meter import Meter

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#])")

#: Characters of a note on the page.
_NOTE = 200


@command("checkout", "ctxvc checkout demo/main")
@click.argument("name", metavar="[SESSION[/SCOPE]]", default="", shell_complete=complete_revisions)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--take", is_flag=True, help="First make true what you moved between blocks/ and archive/ there.")
@click.option(
    "--redraw",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Only write DASHBOARD.md of the checkout DIR anew, for the commit that it stands on.",
)
@json_option
@click.pass_obj
def checkout(app: App, name: str, folder: Path | None, take: bool, redraw: Path | None) -> None:
    """Put a scope's blocks into a folder as files.

    The bodies in the prompt, the ledger, and DASHBOARD.md, as of the scope's newest commit; by default in a folder
    inside the store. Once more moves the folder forward. What you edit there moves no scope: only whole blocks moved
    between blocks/ and archive/ can be taken, as your archive and restore.
    """
    if redraw and (name or folder or take):
        raise click.UsageError("--redraw names its folder: it goes with nothing else")
    taken: list[str] = []
    with app.store() as store:
        if chosen := redraw or folder:
            worktrees.remember(store.path, app.path(chosen))  # whoever names a checkout vouches for it
        if redraw:
            done = _redraw(store, app.path(redraw))
        else:
            session, _, scope = name.partition("/")
            session = session or app.session or store.current_session()
            scope = scope or store.current_scope(session)
            where = app.path(folder) if folder else checkouts.place(store, session, scope)
            taken = [f"{move.verb} {move.block}" for move in checkouts.take(store, where).moves] if take else []
            done = check_out(store, session, scope, where)
    answer = CheckedOut(
        folder=done.path, session=done.session, scope=done.scope, commit=done.commit, files=done.files, taken=taken
    )
    if app.output.json:
        app.output.value(answer)
        return
    if taken:
        app.output.say(f"taken: {', '.join(taken)}")
    where_it_is = f"{counted(done.files, 'file')} in {safe(done.path)}"
    app.output.say(f"{done.session}/{done.scope} at {done.commit[:12]}: {where_it_is}")


def check_out(store: Store, session: str, scope: str, folder: Path) -> checkouts.CheckedOut:
    commit = revision.now(StoredSession.open(store, session, scope)).commit
    return checkouts.checkout(store, session, scope, folder, dashboard=_drawn(store, commit))


def _redraw(store: Store, folder: Path) -> checkouts.CheckedOut:
    """The dashboard of the newest commit of ours under the folder's HEAD, written into it. Raises: NotFound."""
    commit = checkouts.person_changes(store, folder).base
    contained.replace(folder, checkouts.DASHBOARD, _drawn(store, commit).encode("utf-8", "replace"))
    meta = store.reader.meta(commit)
    listed = program.in_checkout(folder, "ls-files", "-t", "-z").split(b"\0")
    return checkouts.CheckedOut(
        path=str(folder),
        session=meta.session,
        scope=meta.scope,
        commit=commit,
        files=sum(line.startswith(b"H ") for line in listed),
    )


def _drawn(store: Store, commit: str) -> str:
    snapshot = revision.at(store, commit)
    meter = Meter(store, snapshot.ledger.meta.tokenizer)
    return markdown(page_of(snapshot, meter, meter.costs(snapshot)))


def markdown(page: Page) -> str:
    """The dashboard as a page. What was recorded in it is only words: no markup, no link."""
    dashboard = page.dashboard
    sent = f", {dashboard.dashboards:,} dashboard" if dashboard.dashboards else ""
    older = [f"- {page.older:,} older"] if page.older else []
    notes = [*older, *(f"- {_escaped(one_line(note, _NOTE))}" for note in page.notes)]
    lines = [
        f"# {dashboard.session}/{dashboard.scope}",
        "",
        f"[{dashboard.bar}] {dashboard.percent} %, {dashboard.used:,} of {dashboard.limit:,} tokens: "
        f"{dashboard.overhead:,} system prompt and tools, {dashboard.conversation:,} conversation{sent}",
        "",
        *(["Notes:", "", *notes, ""] if notes else []),
        "".join(f"| {column.name} " for column in COLUMNS) + "|",
        "".join("| ---: " if column.right else "| --- " for column in COLUMNS) + "|",
        *(
            "".join(f"| {_escaped(plain(cell))} " for cell in columns_of(line)) + "|"
            for line in folded(dashboard.lines)
        ),
    ]
    return "\n".join(lines) + "\n"


def _escaped(words: str) -> str:
    return _MARKUP.sub(r"\\\1", words)


class CheckedOut(Answer, frozen=True, kw_only=True, tag="ctxvc.checkout/1"):
    """`checkout`"""

    folder: str
    session: SessionName
    scope: ScopeName
    commit: CommitId
    files: Annotated[int, described("in the folder, the dashboard not counted")]
    taken: Annotated[list[str], described("with --take, what was made true, as in `archive B6`")]
