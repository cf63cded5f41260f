"""`watch`: records the sessions of hosts without hooks, and transcripts before their host deletes them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import click

from ctxvc import importers
from ctxvc.claude_code import recorder
from ctxvc.cli import hosts
from ctxvc.cli.answers.shared import Answer, Item, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import GivenPath
from ctxvc.cli.output import Output, counted, hint_of, message_of, safe
from ctxvc.cli.remotes.auto_push import AutoPush
from ctxvc.errors import BadInput, CtxvcError, NotFound
from ctxvc.importers.claude_code import FORMAT
from ctxvc.importers.file import Recording
from ctxvc.phrases import COMMAND_LINE
from ctxvc.recording.files import Outcome, files_below
from ctxvc.recording.watch import Found, Watch
from ctxvc.store.upkeep import retention


@command("watch", "ctxvc watch")
@click.argument("paths", metavar="[PATHS]...", nargs=-1, type=GivenPath(path_type=Path))
@click.option("--interval", metavar="SECONDS", type=click.FloatRange(min=0.05), default=5.0, show_default=True,
              help="Time between polls.")  # fmt: skip
@click.option("--once", is_flag=True, help="Poll once and exit.")
@json_option
@click.pass_context
def watch(ctx: click.Context, paths: tuple[Path, ...], interval: float, once: bool) -> None:
    """For programs without hooks, and for transcripts that their program deletes after some time. PATHS are existing
    transcripts or folders of them; without PATHS, this project's sessions as for `ctxvc import`, including ones that
    start later, and everything that hooks could not record. Stop it with ctrl-C.
    """
    app = ctx.ensure_object(App)
    chosen = [app.path(path) for path in paths]
    if missing := [path for path in chosen if not path.exists()]:
        raise NotFound(f"no such file or folder: {missing[0]}", hint="name its folder to wait for the file")
    formats: dict[Path, str] = {}
    failed = False
    pushes = AutoPush(app.env)
    with app.store() as store:
        if not chosen and (leftovers := list(_left_by_hooks(store.path))):
            _print(app.output, leftovers)
            failed = True
        if chosen:
            watched = Watch(store, lambda: _growing(chosen, formats))
        else:
            removed = retention.removed_recordings(store)
            watched = Watch(store, lambda: _of_project(app), app.projects(), removed)
        while True:
            outcomes = watched.look(hosts.settle(store))
            failed = failed or any(outcome.error for outcome in outcomes)
            if any(outcome.units for outcome in outcomes):
                pushes(store.path)
            if outcomes or (once and app.output.json):
                _print(app.output, outcomes)
            if once:
                break
            time.sleep(interval)
    if failed:
        ctx.exit(1)


def _left_by_hooks(store: Path) -> Iterator[Outcome]:
    """Carries out the requests of hooks that were not, or could not be, and returns those that still cannot."""
    for request in recorder.again(store, COMMAND_LINE):
        error = CtxvcError("neither hooks nor this command could record it", hint="`ctxvc doctor` shows why")
        yield Outcome(path=Path(request.transcript), format=FORMAT, error=error)


def _of_project(app: App) -> Iterator[Found]:
    """The transcripts of this project's sessions."""
    for project in app.projects():
        yield from importers.find(project, Path.home(), app.env)[0]


def _growing(paths: Sequence[Path], formats: dict[Path, str]) -> Iterator[Found]:
    """The growing transcripts among the files of `paths`; `formats` caches the format of each that has one."""
    for path in paths:
        for file in files_below(path) if path.is_dir() else [path]:
            if file not in formats:
                try:
                    formats[file] = importers.detect(Recording(file))
                except BadInput:
                    continue  # it is empty so far, or no transcript
            if importers.importer(formats[file]).grows:
                yield formats[file], file


def _print(output: Output, outcomes: Sequence[Outcome]) -> None:
    if output.json:
        output.value(Watched(items=list(map(_item, outcomes))))
        return
    for outcome in outcomes:
        if outcome.error:
            hint = f" (hint: {safe(advice)})" if (advice := hint_of(outcome.error)) else ""
            output.note(f"failed: {safe(str(outcome.path))}: {safe(message_of(outcome.error))}{hint}")
        else:
            output.say(f"{outcome.session}: {counted(outcome.units, 'commit')}, {counted(outcome.blocks, 'block')}")


def _item(outcome: Outcome) -> WatchedFile:
    return struct_of(
        WatchedFile,
        outcome,
        path=str(outcome.path),
        error=message_of(outcome.error),
        hint=hint_of(outcome.error),
    )


class WatchedFile(Item, frozen=True, kw_only=True):
    """The new messages of a transcript."""

    path: str
    format: str
    session: SessionName
    created: Annotated[bool, described("whether the session is new")]
    units: Annotated[int, described("new commits")]
    blocks: Annotated[int, described("new blocks")]
    waiting: Annotated[int, described("messages of a step that may still grow")]
    error: Annotated[str, described("why it was not recorded; empty if it was")]
    hint: str


class Watched(Answer, frozen=True, kw_only=True, tag="ctxvc.watch/1"):
    """`watch`: one poll. Without --once, polls without news print nothing."""

    items: list[WatchedFile]
