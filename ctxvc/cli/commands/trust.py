"""`trust`: settings of a store or project that need a person's consent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli import settings
from ctxvc.cli.answers.shared import Answer, Item, described, struct_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import safe
from ctxvc.errors import NotFound
from ctxvc.store.trust import project_trust
from ctxvc.store.trust import trust as decisions
from ctxvc.store.trust.known_stores import Setting


@command("trust", "ctxvc trust")
@click.option("--list", "listed", is_flag=True, help="List the stores and projects whose settings you accepted.")
@click.option("--revoke", is_flag=True, help="Revoke everything accepted for this store and project.")
@click.option("--yes", is_flag=True, help="Accept without being asked.")
@json_option
@click.pass_context
def trust(ctx: click.Context, listed: bool, revoke: bool, yes: bool) -> None:
    """A store whose settings could run a program or redirect git is refused. This command shows those settings and
    accepts them if you agree, on this machine, until one of the files changes. If anything remains to be accepted, the
    exit code is 1.

    It does the same for a project's own `ctxvc.toml`, which may set a built-in policy, a budget and protected files.
    """
    app = ctx.ensure_object(App)
    app.surveying = True
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
    projects = project_trust.accepted()
    if app.output.json:
        items = [
            TrustedStore(store=store.path, time=store.time, made=store.made, items=_items(store.settings))
            for store in stores
        ]
        files = [TrustedFile(file=record.path, time=record.time) for record in projects]
        app.output.value(Trusted(items=items, projects=files))
        return
    for store in stores:
        app.output.lines([f"{safe(store.path)}  {store.time}", *(f"  {line}" for line in _lines(store.settings))])
    app.output.lines(f"{safe(record.path)}  {record.time}" for record in projects)
    if not (stores or projects):
        app.output.note("nothing is accepted; `ctxvc trust` shows what a store or project asks for")


def _revoke(app: App) -> None:
    path, file = _store(app), app.project_file
    changed = [place for place, revoked in _revoked(path, file) if revoked]
    event = "everything is revoked" if changed else "nothing was accepted"
    app.output.answer(
        Trust(store=str(path or ""), accepted=False, changed=bool(changed), items=[]),
        f"{event}: {safe(', '.join(map(str, changed)) or str(path or file))}",
    )


def _revoked(path: Path | None, file: Path) -> Iterator[tuple[Path, bool]]:
    if path is not None:
        yield path, decisions.revoke(path)
    yield file, project_trust.revoke(file)


def _store(app: App) -> Path | None:
    """The store; None if there is none and the project has settings of its own. Raises: NotFound."""
    try:
        return app.store_path()
    except NotFound:
        if not app.project_file.is_file():
            raise
        return None


def _accept(app: App, *, yes: bool) -> bool:
    """Accepts what the store and the project set if the person agrees. True if nothing is left to accept."""
    path = _store(app)
    survey = decisions.look(path) if path else decisions.Survey((), "")
    data = settings.project_content(app.project_file.parent)
    projects = _project_settings(app.project_file, data)
    store_accepted = path is None or not survey.settings or decisions.is_accepted(path, survey)
    project_accepted = data is None or project_trust.is_accepted(app.project_file, data)
    if not app.output.json:
        if path is not None:
            summary = "accepted" if store_accepted else "has settings that could run a program or redirect git"
            summary = summary if survey.settings else "has only settings that every store may have"
            app.output.say(f"{safe(str(path))} {summary}")
            app.output.lines(_lines(survey.settings))
        if data is not None:
            summary = "accepted" if project_accepted else "is not in effect yet"
            app.output.say(f"{safe(str(app.project_file))} {summary}")
            app.output.lines(_lines(projects))
    accepted = store_accepted and project_accepted
    now = False
    if not accepted and (yes or app.agrees("accept these settings?")):
        if path is not None and not store_accepted:
            decisions.accept(path, survey)
        if data is not None and not project_accepted:
            project_trust.accept(app.project_file, data)
        now = True
    if app.output.json:
        items = _items([*survey.settings, *projects])
        store = str(path or "")
        app.output.value(Trust(store=store, accepted=accepted or now, changed=now, items=items))
    elif now:
        app.output.say("accepted, until one of these files changes")
    return accepted or now


def _project_settings(file: Path, data: bytes | None) -> list[Setting]:
    """What a project's file sets, as a store's settings are shown. Raises: BadSettings."""
    if data is None:
        return []
    values = settings.project(file, data)
    return [Setting(settings.PROJECT_FILE, name, settings.written(value)) for name, value in values.items()]


def _items(settings: Iterable[Setting]) -> list[TrustSetting]:
    return [struct_of(TrustSetting, setting) for setting in settings]


def _lines(settings: Iterable[Setting]) -> Iterator[str]:
    """Each setting on a line, uncut: a person must see everything that they accept."""
    for setting in settings:
        barred = "" if setting.acceptable else "  (cannot be accepted)"
        yield "\\n".join(safe(f"{setting.file}: {setting.key} = {setting.value}{barred}").split("\n"))


class TrustSetting(Item, frozen=True, kw_only=True):
    """A setting beyond those that every store may have."""

    file: Annotated[str, described("the file that contains it, as a path in the store; or the project's `ctxvc.toml`")]
    key: str
    value: str
    acceptable: Annotated[bool, described("whether a person may accept it")]


class Trust(Answer, frozen=True, kw_only=True, tag="ctxvc.trust/1"):
    """`trust`, `trust --revoke`"""

    store: Annotated[str, described("path of the store; empty if there is none")]
    accepted: Annotated[
        bool, described("whether all its settings and those of the project's `ctxvc.toml` are in effect")
    ]
    changed: Annotated[bool, described("whether this command changed that")]
    items: list[TrustSetting]


class TrustedStore(Item, frozen=True, kw_only=True):
    """A store with accepted settings."""

    store: Annotated[str, described("its last known path")]
    time: Annotated[str, described("when it was accepted")]
    made: Annotated[bool, described("whether this machine created the store")]
    items: list[TrustSetting]


class TrustedFile(Item, frozen=True, kw_only=True):
    """A project's own settings that are accepted."""

    file: Annotated[str, described("the `ctxvc.toml`")]
    time: Annotated[str, described("when it was accepted")]


class Trusted(Answer, frozen=True, kw_only=True, tag="ctxvc.trusted/1"):
    """`trust --list`"""

    items: list[TrustedStore]
    projects: list[TrustedFile]
