"""`remote`: the git remotes that sessions are shared through."""

from __future__ import annotations

from typing import Annotated

import click
import msgspec
from click.core import ParameterSource

from ctxvc.cli.answers.shared import Answer, Item, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import time_option
from ctxvc.cli.output import Column, Table, counted, safe
from ctxvc.errors import Refused
from ctxvc.sharing import audience, remotes
from ctxvc.sharing.remotes import Remote
from ctxvc.store.git import transport

_ACTIONS = ("list", "add", "remove")


@command("remote", "ctxvc remote add git@host:me/sessions.git")
@click.argument("action", metavar="[ACTION]", type=click.Choice(_ACTIONS), default="list")
@click.argument("target", metavar="[ADDRESS|NAME]", default="")
@click.argument("address", metavar="[ADDRESS]", default="")
@click.option(
    "--name", default=remotes.DEFAULT, show_default=True, metavar="NAME", help="Name of the remote in this store."
)
@click.option("--as", "clone", metavar="CLONE", default="", help="Name of this store there (a random name).")
@click.option("--only", "sessions", metavar="SESSION", multiple=True, help="Push only this session; repeatable.")
@time_option("--since", "Push only sessions with a commit since then, as in 2026-02-10, 30d.")
@click.option("--i-know", is_flag=True, help="Add it even if it is public, or has the project's code.")
@click.option("--yes", is_flag=True, help="Agree that sessions are pushed there, without being asked.")
@json_option
@click.pass_context
def remote(
    ctx: click.Context,
    action: str,
    target: str,
    address: str,
    name: str,
    clone: str,
    sessions: tuple[str, ...],
    since: str,
    i_know: bool,
    yes: bool,
) -> None:
    """ACTION is `add`, with the ADDRESS of an empty private git repository, behind a NAME if you like; `remove`, with
    the remote's NAME; or `list`. Nothing is sent before `ctxvc push`. Sessions contain everything that the
    model saw: a remote that anybody can read, or that has the project's code, is refused. Forks are not always
    recognised.

    Each store writes one ref of its own there, `refs/ctxvc/w/CLONE`, and no branch.
    """
    app = ctx.ensure_object(App)
    if action == "add" and address:  # as git has it
        if ctx.get_parameter_source("name") is not ParameterSource.DEFAULT:
            raise click.UsageError("give the name once", ctx)
        name, target = target, address
    elif address:
        raise click.UsageError(f"unexpected argument {address!r}", ctx)
    if action == "list":
        if target:
            raise click.UsageError(f"unknown action {target!r}", ctx)
        _list(app)
        return
    if not target:
        raise click.UsageError("give an address" if action == "add" else "give the remote's name", ctx)
    if action == "remove":
        with app.store() as store:
            removed = remotes.remove(store, target)
        _answer(
            app,
            [removed],
            f"{removed.name} is forgotten; what was pushed to {transport.printable(removed.address)} stays there",
        )
        return
    remotes.check(name, target, clone)
    target = remotes.absolute(target, app.folder)
    reasons = list(audience.concerns(target, app.folder, ask=app.may_ask))
    if reasons and not i_know:
        raise Refused(f"{transport.printable(target)}: {'; '.join(reasons)}",
                      hint="use a private repository for sessions alone; --i-know adds it nevertheless")  # fmt: skip
    for reason in reasons:
        app.output.note(f"{transport.printable(target)}: {reason}")
    if not yes and not _agreed(app, target):
        app.output.note("nothing was added; add --yes to agree")
        ctx.exit(1)
    with app.store() as store:
        chosen = tuple(app.resolved(store, session) for session in sessions)
        former = next((item for item in remotes.every(store) if item.name == name and item.address == target), None)
        entry = remotes.recognised(
            store, former or Remote(name=name, address=target), clone, ask=app.may_ask
        )  # fmt: skip
        added = remotes.add(
            store, msgspec.structs.replace(entry, sends=True, sessions=chosen, since=since), clone
        )  # fmt: skip
        own = remotes.clone_name(store)
    _answer(app, [added], f"added {name}; this store is called {own} there. `ctxvc push` sends its sessions")


def _list(app: App) -> None:
    with app.store() as store:
        items = remotes.every(store)
        if app.output.json or not items:
            _answer(app, items, "no remotes yet: `ctxvc remote add ADDRESS` adds one")
            return
        rows = [
            [
                item.name,
                transport.printable(item.address),
                _extent(item) if remotes.is_ours(store, item) else "not yours",
            ]
            for item in items
        ]
    app.output.table(Table(columns=[Column("remote"), Column("address"), Column("pushes")], rows=rows))


def _extent(item: Remote) -> str:
    if not item.sends:
        return "nothing"
    parts = [counted(len(item.sessions), "session") if item.sessions else "all sessions"]
    parts += [f"since {item.since}"] if item.since else []
    parts += [f"without {counted(len(item.withheld), 'session')}"] if item.withheld else []
    return ", ".join(parts)


def _agreed(app: App, address: str) -> bool:
    app.output.note("Sessions contain everything that the model saw: files, the output of commands, what you wrote.")
    return app.agrees(f"push sessions to {safe(transport.printable(address))} when asked to?")


def _answer(app: App, items: list[Remote], text: str) -> None:
    answers = [struct_of(RemoteItem, item, address=transport.printable(item.address)) for item in items]
    app.output.answer(Remotes(items=answers), safe(text))


class RemoteItem(Item, frozen=True, kw_only=True):
    """A remote."""

    name: str
    address: Annotated[str, described("its address, without a password")]
    sends: Annotated[bool, described("whether sessions may be pushed there")]
    sessions: Annotated[list[SessionName], described("the sessions that are pushed; all if empty")]
    since: Annotated[str, described("sessions without a commit since then are not pushed; empty for no limit")]
    withheld: Annotated[list[SessionName], described("sessions taken back with `unshare`")]


class Remotes(Answer, frozen=True, kw_only=True, tag="ctxvc.remotes/1"):
    """`remote`: the remotes, or the one that was added or removed"""

    items: list[RemoteItem]
