"""`clone`: a new store with the sessions of a remote or a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, described
from ctxvc.cli.app import App, command, json_option, raise_unreadable
from ctxvc.cli.options.values import GivenPath, time_option
from ctxvc.cli.output import safe
from ctxvc.cli.remotes import remote_sessions
from ctxvc.cli.remotes.remote_sessions import PulledSession
from ctxvc.cli.terminal.progress import Progress
from ctxvc.errors import CtxvcError, Damaged, Refused
from ctxvc.sharing import pull, remotes
from ctxvc.sharing.pull import Arrival
from ctxvc.sharing.remotes import Remote
from ctxvc.store.git import transport
from ctxvc.store.project.locate import FOLDER, is_store
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep import bundle


@command("clone", "ctxvc clone git@host:me/sessions.git")
@click.argument("source", metavar="ADDRESS|FILE.bundle")
@click.argument("folder", metavar="[DIR]", required=False, type=GivenPath(file_okay=False, path_type=Path))
@click.option("--as", "name", metavar="CLONE", default="", help="Name of the new store there (a random name).")
@click.option("--only", "sessions", metavar="SESSION", multiple=True, help="Take only this session; repeatable.")
@time_option("--since", "Take only sessions with a commit since then, as in 2026-02-10, 30d.")
@json_option
@click.pass_obj
def clone(app: App, source: str, folder: Path | None, name: str, sessions: tuple[str, ...], since: str) -> None:
    """
    Creates `.ctxvc` in DIR, by default the working folder, and pulls what is on the remote. Nothing is pushed from it
    before `ctxvc remote add ADDRESS`. If it is interrupted, run it again, or `ctxvc pull`.

    A bundle (`ctxvc export --format bundle`, `git --git-dir=.ctxvc bundle create FILE --all`) fills a store without a
    network.
    """
    path = app.path(folder or Path()) / FOLDER
    file = app.path(Path(source))
    is_bundle = bundle.is_bundle(file)
    if not is_bundle:
        remotes.check(remotes.DEFAULT, source, name)
        source = remotes.absolute(source, app.folder)
    is_new = not is_store(path)
    with create(path) if is_new else Store(path) as store, Progress("cloning"):
        try:
            if is_bundle:
                arrivals, errors = pull.take_bundle(store, file)
                ignored: tuple[str, ...] = ()
            else:
                arrivals, errors, ignored = _cloned(app, store, source, name, pull.choice(sessions, since))
        except CtxvcError:
            if is_new and not store.sessions():
                shutil.rmtree(path, ignore_errors=True)
            raise
    answer = Cloned(store=str(path), items=remote_sessions.pulled_items(arrivals), ignored=list(ignored))
    app.output.answer(answer, _lines(answer, transport.printable(source)))
    for reason in ignored[: remote_sessions.MOST]:
        app.output.note(f"not taken: {safe(reason)}")
    raise_unreadable([error for error in errors if isinstance(error, Damaged)])


def _cloned(
    app: App, store: Store, address: str, name: str, chosen: pull.Choice
) -> tuple[list[Arrival], list[CtxvcError], tuple[str, ...]]:
    """What came in from a remote, what is damaged there, and what was not taken."""
    former = next((remote for remote in remotes.every(store) if remote.name == remotes.DEFAULT), None)
    if (former and former.address != address) or (not former and store.sessions()):
        raise Refused(f"there is a store at {store.path}", hint="`ctxvc remote add ADDRESS` and `ctxvc pull` add to it")
    if former is None:
        remotes.add(store, Remote(name=remotes.DEFAULT, address=address), name)
    report = pull.pull(store, remotes.DEFAULT, chosen=chosen, ask=app.may_ask)
    return list(report.arrivals), list(report.damaged), report.ignored


def _lines(answer: Cloned, place: str) -> Iterator[str]:
    yield safe(f"a store at {answer.store}")
    if answer.items:
        yield from remote_sessions.pulled_lines(place, answer.items)
    else:
        yield safe(f"{place} has nothing more to take")


class Cloned(Answer, frozen=True, kw_only=True, tag="ctxvc.clone/1"):
    """`clone`"""

    store: Annotated[str, described("path of the new store")]
    items: list[PulledSession]
    ignored: Annotated[list[str], described("why something was not taken")]
