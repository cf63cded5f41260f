"""`pull`: other clones' sessions, from a git remote."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, described, struct_of
from ctxvc.cli.app import App, command, json_option, raise_unreadable
from ctxvc.cli.options.values import time_option
from ctxvc.cli.output import counted, safe
from ctxvc.cli.remotes import remote_sessions
from ctxvc.cli.remotes.remote_sessions import PulledSession
from ctxvc.cli.terminal.progress import Progress
from ctxvc.errors import CtxvcError, Damaged, Unreachable
from ctxvc.sharing import pull as sharing
from ctxvc.sharing import purges


@command("pull", "ctxvc pull")
@click.argument("remote", metavar="[REMOTE]", default="")
@click.option("--only", "sessions", metavar="SESSION", multiple=True, help="Take only this session; repeatable.")
@time_option("--since", "Take only sessions with a commit since then, as in 2026-02-10, 30d.")
@click.option("--accept-purge", is_flag=True, help="Erase here what another clone has purged.")
@click.option("--watch", metavar="SECONDS", type=click.IntRange(min=5),
              help="Pull every SECONDS, and keep the table of `ctxvc sql` up to date; Ctrl-C ends it.")  # fmt: skip
@json_option
@click.pass_obj
def pull(app: App, remote: str, sessions: tuple[str, ...], since: str, accept_purge: bool, watch: int | None) -> None:
    """Every commit is checked before a session gets it. A scope that both continued is kept twice, as SCOPE and
    SCOPE@CLONE; `ctxvc goto` joins them. If it is interrupted, run it again.

    If another clone has purged content that this store has, nothing is pulled without --accept-purge, which erases it
    here too.
    """
    if accept_purge:
        _accept(app, remote)
    chosen = sharing.choice(sessions, since)
    if watch is None:
        with app.store() as store, Progress("pulling"):
            report = sharing.pull(store, remote, chosen=chosen, ask=app.may_ask)
        _print(app, report)
    else:
        _watch(app, remote, chosen, watch)


def _watch(app: App, remote: str, chosen: sharing.Choice, seconds: int) -> None:
    """Pulls every so many seconds, prints what came, and refreshes the table. A remote out of reach is tried again."""
    from ctxvc.cli.remotes import tables

    while True:
        with app.store() as store:
            try:
                report = sharing.pull(store, remote, chosen=chosen)
            except Unreachable as error:
                app.output.note(safe(str(error)))
            else:
                if report.arrivals or report.damaged:
                    _print(app, report)
                    sys.stdout.flush()
            if find_spec("duckdb"):
                unreadable: list[CtxvcError] = []
                tables.refreshed(store, unreadable)
                for problem in unreadable:
                    app.output.note(safe(str(problem)))
        time.sleep(seconds)


def _print(app: App, report: sharing.Pulled) -> None:
    answer = struct_of(PulledSessions, report, items=remote_sessions.pulled_items(report.arrivals))
    app.output.answer(answer, _lines(answer))
    for reason in answer.ignored[: remote_sessions.MOST]:
        app.output.note(f"not taken: {safe(reason)}")
    raise_unreadable([error for error in report.damaged if isinstance(error, Damaged)])


def _accept(app: App, remote: str) -> None:
    """Erases what another clone has purged; the store is opened anew for what follows."""
    with app.store() as store, Progress("erasing"):
        report = purges.accept(store, remote, ask=app.may_ask)
    if report is None:
        app.output.note("no purge to accept")
        return
    extent = f"{counted(report.bodies, 'blob')}, {counted(report.commits, 'commit')}"
    app.output.note(f"erased here, too: {extent}; every object and file was searched")
    for folder in report.remaining:
        app.output.note(f"{safe(folder)} may still have it, a checkout or a table of this store: delete it there")
    app.output.note("`ctxvc push --after-purge` replaces what the remote has from here")


def _lines(answer: PulledSessions) -> Iterator[str]:
    if answer.items:
        yield from remote_sessions.pulled_lines(answer.remote, answer.items)
    else:
        yield safe(f"nothing new on {answer.remote}: {counted(len(answer.clones), 'clone')}")


class PulledSessions(Answer, frozen=True, kw_only=True, tag="ctxvc.pull/1"):
    """`pull`"""

    remote: str
    clones: Annotated[list[str], described("the clones that have sessions there")]
    items: list[PulledSession]
    ignored: Annotated[list[str], described("why something was not taken")]
