"""`push`: this store's sessions, onto a git remote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option, raise_unreadable
from ctxvc.cli.output import counted, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.errors import Damaged
from ctxvc.sharing import push as sharing

#: The most large bodies that are named.
_MOST = 5


@command("push", "ctxvc push")
@click.argument("remote", metavar="[REMOTE]", default="")
@click.option("--after-purge", is_flag=True, help="Replace what the remote has from before a purge.")
@json_option
@click.pass_obj
def push(app: App, remote: str, after_purge: bool) -> None:
    """
    Pushes the sessions that `ctxvc remote add` chose, by default all. They are searched for secrets first; if there is
    one, nothing is sent. If it is interrupted, run it again.

    After a purge the remote still has the old history: --after-purge replaces it, and lets other clones erase the same.
    The host may keep unreachable objects, forks and caches.
    """
    with app.store() as store, Progress("pushing"):
        report = sharing.push(store, remote, after_purge=after_purge, ask=app.may_ask)
    answer = struct_of(PushedSessions, report, sessions=len(report.sessions))
    app.output.answer(answer, _lines(answer))
    for body in report.large[:_MOST]:
        app.output.note(f"sent in pieces, since many hosts refuse large files: {safe(str(body))}")
    raise_unreadable([error for error in report.unreadable if isinstance(error, Damaged)])


def _lines(answer: PushedSessions) -> Iterator[str]:
    place = f"{answer.remote} ({answer.address})"
    if not (answer.changed or answer.withdrawn or answer.purged):
        yield safe(f"{place} has everything: {counted(answer.sessions, 'session')}, as {answer.clone}")
        return
    yield safe(f"pushed {counted(len(answer.changed), 'session')} to {place} as {answer.clone}; it has "
               f"{counted(answer.sessions, 'session')} of this store")  # fmt: skip
    if answer.withdrawn:
        yield safe(f"no longer listed there: {', '.join(answer.withdrawn[:12])}")
    if answer.purged:
        yield (
            "The purge went along: other clones take it with `ctxvc pull --accept-purge` and push with --after-purge. "
            "Until then, and until the host collects its garbage, it still has the content; forks, caches and pull "
            "requests of the host may have it for longer."
        )


class PushedSessions(Answer, frozen=True, kw_only=True, tag="ctxvc.push/1"):
    """`push`"""

    remote: str
    address: Annotated[str, described("its address, without a password")]
    clone: Annotated[str, described("what this store is called there")]
    sessions: Annotated[int, described("number of this store's sessions that it has now")]
    changed: Annotated[list[SessionName], described("sessions that were new or have grown")]
    withdrawn: Annotated[list[SessionName], described("sessions that it no longer lists")]
    purged: Annotated[bool, described("whether the record of a purge was pushed")]
