"""`trust`: settings of a store beyond those that every store may have, and whether the person accepts them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click

from ctxvc.cli import answers
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import safe
from ctxvc.store import trust as decisions
from ctxvc.store.trust import Setting


@command("trust", "ctxvc trust")
@click.option("--list", "listed", is_flag=True, help="List the stores whose settings you accepted.")
@click.option("--revoke", is_flag=True, help="Revoke everything accepted for this store.")
@click.option("--yes", is_flag=True, help="Accept without being asked.")
@json_option
@click.pass_context
def trust(ctx: click.Context, listed: bool, revoke: bool, yes: bool) -> None:
    """
    A store is only data: if its settings could run a program or redirect git, it is refused. This command shows those
    settings and accepts them if you agree. Your decision is remembered on this machine, for this store, until one of
    the files changes. If anything remains to be accepted, the exit code is 1.
    """
    app = ctx.ensure_object(App)
    if listed + revoke + yes > 1:
        raise click.UsageError("--list, --revoke and --yes cannot be combined", ctx)
    if listed:
        _list(app)
    elif revoke:
        _revoke(app)
    elif not _accept(app, yes=yes):
        app.output.note("nothing was accepted; add --yes to accept")
        ctx.exit(1)


def _list(app: App) -> None:
    stores = decisions.accepted()
    if app.output.json:
        items = [
            answers.TrustedStore(store=store.path, time=store.time, made=store.made, items=_items(store.settings))
            for store in stores
        ]
        app.output.value(answers.Trusted(items=items))
        return
    for store in stores:
        app.output.lines([f"{safe(store.path)}  {store.time}", *(f"  {line}" for line in _lines(store.settings))])


def _revoke(app: App) -> None:
    path = app.store_path()
    changed = decisions.revoke(path)
    if app.output.json:
        app.output.value(answers.Trust(store=str(path), accepted=False, changed=changed, items=[]))
    else:
        what = "everything is revoked" if changed else "nothing was accepted"
        app.output.say(f"{what}: {safe(str(path))}")


def _accept(app: App, *, yes: bool) -> bool:
    """Accepts the settings if the person agrees. True if nothing is left to accept."""
    path = app.store_path()
    survey = decisions.look(path)
    accepted = not survey.settings or decisions.is_accepted(path, survey)
    if not app.output.json:
        summary = (
            "accepted" if accepted and survey.settings else "has settings that could run a program or redirect git"
        )
        summary = summary if survey.settings else "has only settings that every store may have"
        app.output.say(f"{safe(str(path))} {summary}")
        app.output.lines(_lines(survey.settings))
    now = False
    if not accepted and (yes or _agreed(app)):
        decisions.accept(path, survey)
        now = True
    if app.output.json:
        items = _items(survey.settings)
        app.output.value(answers.Trust(store=str(path), accepted=accepted or now, changed=now, items=items))
    elif now:
        app.output.say("accepted, until one of these files changes")
    return accepted or now


def _agreed(app: App) -> bool:
    if app.output.json or not app.output.terminal or not sys.stdin.isatty():
        return False
    return click.confirm("accept these settings?", default=False, err=True)


def _items(settings: Iterable[Setting]) -> list[answers.TrustSetting]:
    return [
        answers.TrustSetting(file=setting.file, key=setting.key, value=setting.value, acceptable=setting.acceptable)
        for setting in settings
    ]


def _lines(settings: Iterable[Setting]) -> Iterator[str]:
    """Each setting on a line, uncut: a person must see everything that they accept."""
    for setting in settings:
        barred = "" if setting.acceptable else "  (cannot be accepted)"
        yield "\\n".join(safe(f"{setting.file}: {setting.key} = {setting.value}{barred}").split("\n"))
