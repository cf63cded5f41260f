"""`import`: recorded sessions into the store."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import click

from ctxvc import importers
from ctxvc.cli import hosts
from ctxvc.cli.answers.shared import Answer, Item, SessionName, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.values import DASH, GivenPath, data
from ctxvc.cli.output import Cell, Column, Output, Styled, counted, hint_of, message_of, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core.ledger import name_rules
from ctxvc.errors import CtxvcError, NotFound
from ctxvc.recording.files import Outcome, files_below, import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep import bundle, retention

#: How many times larger a gzipped transcript is when unpacked; a guess, for the progress bar only.
_PACKED = 6
_MOST_WARNINGS = 5
_MOST_SKIPPED = 2
#: A recording on stdin is known again by so many of its first bytes.
_FIRST = 1_000


@command("import", "ctxvc import")
@click.argument("paths", metavar="[PATHS]...", nargs=-1, type=GivenPath(path_type=Path))
@click.option("--format", "form", type=click.Choice(["auto", *importers.FORMATS]), default="auto", metavar="FORMAT",
              help=f"Format of the files: {', '.join(importers.FORMATS)} (auto).")  # fmt: skip
@click.option("--name", metavar="NAME", default="", help="Name for the new session, like --session.")
@click.option("--final", is_flag=True, help="Import the last step too, which waits while the file may still grow.")
@click.option("--as-new", is_flag=True, help="Import a recording that is already in the store as another session.")
@click.option("--no-redact", is_flag=True, help="Keep every byte of new sessions, including secrets.")
@json_option
@click.pass_context
def import_(
    ctx: click.Context, paths: tuple[Path, ...], form: str, name: str, final: bool, as_new: bool, no_redact: bool
) -> None:
    """PATHS are transcripts or folders of them; - reads one from stdin. Without PATHS: this project's sessions,
    wherever Claude Code, Codex, Copilot CLI, Gemini CLI, opencode, OpenHands, pi and Qwen Code keep them. Sessions
    imported before are updated. If the project has no store yet, one is created. Secrets are replaced by marks such as
    [REDACTED:github-token:1a2b3c4d]; --no-redact keeps them.
    """
    app = ctx.ensure_object(App)
    name = name or app.session
    if name:
        name_rules.check(name, "session")
    folders: list[Path] = []
    chosen = [app.path(path) for path in paths]
    copy = None
    if DASH in paths:
        copy = ctx.with_resource(_stdin_file())
        chosen = [copy if path == DASH else app.path(path) for path in paths]
    if not paths:
        chosen, folders = _of_project(app)
    bundles = [path for path in chosen if bundle.is_bundle(path)]
    store, created = _store(app, chosen)
    with store:
        if name:
            name_rules.check(name, "session", set(store.sessions()))
        ends = hosts.settle(store)
        outcomes: list[Outcome] = []
        skipped: list[Path] = []
        removed = {} if paths else retention.removed_recordings(store)
        with Progress("importing", sum(map(_length, chosen))) as progress:
            for outcome in import_paths(
                store,
                [path for path in chosen if path not in bundles],
                format=form,
                name=name,
                final=final,
                as_new=as_new,
                redact=not no_redact,
                projects=() if paths else app.projects(),
                removed=removed,
                ends=ends,
                progress=progress.add,
                skipped=skipped.append,
            ):
                outcomes.append(outcome)
        for path in bundles:
            outcomes += _of_bundle(store, path)
        if store.merge_failure:
            app.output.note(f"{store.merge_failure} ({hint_of(store.merge_failure)})")
    if not outcomes and removed:
        app.output.note("every session found was removed from the store; `ctxvc import FILE` imports one again")
    elif not outcomes:
        raise NotFound(
            f"no transcript in a known format in {', '.join(map(str, chosen))}",
            hint="name the file itself and its --format",
        )
    _note_skipped(app.output, skipped)
    items = [_item(outcome, copy) for outcome in outcomes]
    answer = Imported(store=str(store.path), created=created, looked=list(map(str, folders)), items=items)
    if app.output.json:
        app.output.value(answer)
    else:
        _print(app.output, answer)
    if any(outcome.error for outcome in outcomes):
        ctx.exit(1)


def _store(app: App, files: Sequence[Path]) -> tuple[Store, bool]:
    """The store, created if the project has none, and whether it is new. Raises: NotFound if none of `files` exists."""
    path = app.store_place()
    if path.exists():
        return Store(path), False
    if not any(file.exists() for file in files):
        raise NotFound(f"no such file: {', '.join(map(str, files))}", hint="check the path; no store was created")
    store = create(path)
    app.output.note(f"created a store at {safe(str(path))}")
    return store, True


def _of_project(app: App) -> tuple[list[Path], list[Path]]:
    """The transcripts of this project's sessions, and the folders that were searched for them."""
    files: list[Path] = []
    searched: list[Path] = []
    for project in app.projects():
        transcripts, folders = importers.find(project, Path.home(), app.env)
        files += [path for _, path in transcripts if path not in files]
        searched += [folder for folder in folders if folder not in searched]
    if not files:
        where = ", ".join(map(str, searched)) or f"{', '.join(importers.HOSTS.values())} have no folder for it"
        raise NotFound(
            f"no recorded session of {app.folder} was found (looked in: {where})",
            hint="name the transcripts or their folder: ctxvc import FILE",
        )
    return files, searched


def _of_bundle(store: Store, path: Path) -> Iterator[Outcome]:
    """What became of the sessions of a bundle."""
    from ctxvc.sharing import pull

    try:
        arrivals, errors = pull.take_bundle(store, path)
    except CtxvcError as error:
        yield Outcome(path=path, format=bundle.FORMAT, error=error)
        return
    for arrival in arrivals:
        commits = {commit for tip in store.tips(arrival.session).values() for commit in store.first_parents(tip)}
        blocks = StoredSession.for_reading(store, arrival.session).ledger().meta.counters.block
        yield Outcome(
            path=path, format=bundle.FORMAT, session=arrival.session, created=True, units=len(commits), blocks=blocks
        )
    yield from (Outcome(path=path, format=bundle.FORMAT, error=error) for error in errors)
    if not (arrivals or errors):
        yield Outcome(path=path, format=bundle.FORMAT)


@contextmanager
def _stdin_file() -> Iterator[Path]:
    """A file with stdin's content, within the block. The same beginning gives the same name."""
    content = data()
    with tempfile.TemporaryDirectory(prefix="ctxvc-stdin-") as folder:
        path = Path(folder, f"stdin-{hashlib.sha256(content[:_FIRST]).hexdigest()[:8]}.jsonl")
        path.write_bytes(content)
        yield path


def _length(path: Path) -> int:
    """The approximate number of bytes to read."""
    if path.is_dir():
        return sum(map(_length, files_below(path)))
    try:
        return path.stat().st_size * (_PACKED if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _note_skipped(output: Output, files: Sequence[Path]) -> None:
    """Names files of a folder that were not imported; hidden ones are meant for other programs."""
    visible = [path for path in files if not path.name.startswith(".")]
    if visible:
        paths = ", ".join(safe(str(path)) for path in visible[:_MOST_SKIPPED])
        more = f" and {len(visible) - _MOST_SKIPPED:,} more" if len(visible) > _MOST_SKIPPED else ""
        output.note(f"skipped {counted(len(visible), 'file')} in no known format: {paths}{more}")


def _item(outcome: Outcome, copy: Path | None) -> ImportedFile:
    """What became of a file; `copy` is that of stdin."""
    return struct_of(
        ImportedFile,
        outcome,
        path="-" if outcome.path == copy else str(outcome.path),
        warnings=[struct_of(FileWarning, warning) for warning in outcome.warnings],
        error=message_of(outcome.error).replace(str(copy), "stdin"),
        hint=hint_of(outcome.error),
    )


def _print(output: Output, answer: Imported) -> None:
    for folder in answer.looked:
        output.note(f"looked in {safe(folder)}")
    output.table(table_of(ImportedFile, answer.items))
    for item in answer.items:
        for warning in item.warnings[:_MOST_WARNINGS]:
            line = f", line {warning.line}" if warning.line else ""
            output.note(f"{safe(item.path)}{line}: {safe(warning.text)}")
        if len(item.warnings) > _MOST_WARNINGS:
            output.note(f"{safe(item.path)}: {len(item.warnings) - _MOST_WARNINGS} more warnings (--json lists all)")
        if item.error:
            hint = f" (hint: {safe(item.hint)})" if item.hint else ""
            failure = item.error if item.path in item.error or item.path == "-" else f"{item.path}: {item.error}"
            output.note(f"failed: {safe(failure)}{hint}")
    if messages := sum(item.waiting for item in answer.items):
        output.note(
            f"{counted(messages, 'message')} of a last step not imported yet, since a file may still grow: a later "
            "import takes what is waiting, --final takes it now"
        )


class FileWarning(Item, frozen=True, kw_only=True):
    """Something in a file that was not imported as it is."""

    line: Annotated[int, described("line in the file, from 1; 0 if unknown")]
    text: str


class ImportedFile(Item, frozen=True, kw_only=True):
    """The outcome for one file."""

    TABLE = "session outcome units blocks waiting format path"

    path: Annotated[str, Column("file", least=12)]
    format: Annotated[str, described("format it was read as; empty if unknown"), Column("format", rank=2)]
    session: Annotated[SessionName, Column("session", least=12)]
    created: Annotated[bool, described("whether the session is new")]
    units: Annotated[int, described("new commits"), Column("commits", right=True)]
    blocks: Annotated[int, described("new blocks"), Column("blocks", right=True)]
    waiting: Annotated[
        int,
        described("messages of a step that may still grow, imported later or with --final"),
        Column("waiting", right=True, rank=1),
    ]
    warnings: list[FileWarning]
    error: Annotated[str, described("why it was not imported; empty if it was")]
    hint: str

    @property
    def outcome(self) -> Annotated[Cell, Column("done")]:
        if self.error:
            return Styled("failed", "red")
        if self.created:
            return Styled("new", "green")
        return Styled("updated", "green") if self.units else "nothing new"


class Imported(Answer, frozen=True, kw_only=True, tag="ctxvc.import/1"):
    """`import`"""

    store: str
    created: Annotated[bool, described("whether the store is new")]
    looked: Annotated[list[str], described("folders that were searched, if no path was given")]
    items: list[ImportedFile]
