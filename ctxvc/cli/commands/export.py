"""`export`: the prompt as a request of a provider, or as a session of a host."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated

import click

from ctxvc import importers
from ctxvc.claude_code.resume import Resumable, resumable
from ctxvc.cli.answers.shared import Answer, CommitId, Item, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, complete_revisions, json_option, write
from ctxvc.cli.output import safe
from ctxvc.core import display
from ctxvc.errors import CtxvcError, Refused
from ctxvc.exporters import FORMATS, exporter
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported, LossKind, by_kind
from ctxvc.forms.losses import Loss
from ctxvc.importers.claude_code import FORMAT as CLAUDE_CODE
from ctxvc.importers.claude_code import read
from ctxvc.store import exports
from ctxvc.store.project.locate import project_root
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.upkeep import bundle

AGENT_TRACE = "agent-trace"


def export_session(app: App, revision: str, target: Path | None, *, install: bool, recorded: Path | None) -> None:
    """Writes the session file of a revision, checked, and prints how to resume it."""
    if install and target:
        raise click.UsageError("--install writes the file to Claude Code's own folder: leave out -o")
    place = app.path(target) if target else None
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        project = project_root(app.folder).resolve()
        folder = _worked_in(snapshot, project)
        transcript = app.path(recorded) if recorded else next(_recorded(app, snapshot, folder, project), None)
        for copy in count():
            exported = resumable(stored.store, snapshot, folder, recorded=transcript, copy=copy)
            if not install:
                break
            place = _sessions(app, folder) / f"{exported.session}.jsonl"
            if _installed(place, exported.data):
                app.output.note(f"wrote {display.human_bytes(len(exported.data))} to {safe(str(place))}")
                break
    losses = tuple(Loss(block) for block in exported.left_out)
    _print(app, snapshot, CLAUDE_CODE, Exported(exported.data, losses), place, written=install)
    if not app.output.json:
        _print_remarks(app, exported, transcript)
        if install:
            app.output.say(f"cd {safe(shlex.quote(str(folder)))} && claude --resume {exported.session}")


def _print(
    app: App, snapshot: Snapshot, form: str, exported: Exported, place: Path | None, *, written: bool = False
) -> None:
    """Writes an export to its place or the output, unless that is done, or the answer of `--json` is to have it."""
    file = str(app.path(place)) if place and place != Path("-") else ""
    if not written and (file or not app.output.json):
        write(app, place, exported.data)
    if app.output.json:
        app.output.value(
            ExportedSession(
                format=form,
                session=snapshot.session,
                scope=snapshot.scope,
                commit=snapshot.commit,
                bytes=len(exported.data),
                file=file,
                content="" if file else display.decode(exported.data),
                losses=[ExportLoss(path=loss.path, change=loss.change) for loss in exported.losses],
            )
        )


def _print_remarks(app: App, exported: Resumable, transcript: Path | None) -> None:
    if exported.kept:
        app.output.note(f"{exported.kept} lines are taken unchanged from {safe(str(transcript))}")
    elif transcript:
        app.output.note(f"written from scratch: this revision is not an unedited part of {safe(str(transcript))}")
    else:
        app.output.note("written from scratch: the transcript it was recorded from was not found (--recorded FILE)")
    if exported.thinking:
        app.output.note(
            f"left out: {exported.thinking} thinking blocks, whose signatures are valid only after their original "
            "context"
        )


def _worked_in(snapshot: Snapshot, project: Path) -> Path:
    """The folder to resume the session in: the recorded one if it is in this project, else the project."""
    source = snapshot.ledger.meta.source
    try:
        folder = Path(source.cwd).resolve() if source and source.cwd else project
    except ValueError:
        return project  # a recording may name anything
    return folder if folder.is_relative_to(project) and folder.is_dir() else project


def _recorded(app: App, snapshot: Snapshot, *places: Path) -> Iterator[Path]:
    """The transcripts of the host that the snapshot may have been imported from."""
    source = snapshot.ledger.meta.source
    if source is None or source.format != CLAUDE_CODE or "/" in source.id:
        return
    for place in dict.fromkeys((Path(source.cwd), *places)):
        for folder in read.folders(place, Path.home(), app.env):
            if (path := folder / f"{source.id}.jsonl").is_file():
                yield path


def _sessions(app: App, folder: Path) -> Path:
    """The folder where Claude Code, started in `folder`, looks for sessions. Raises: Refused."""
    if folders := read.folders(folder, Path.home(), app.env):
        return folders[0]
    raise Refused(
        f"Claude Code has not stored a session of {folder} yet, and how it shortens so long a name is unknown",
        hint="start `claude` there once",
    )


def _installed(place: Path, data: bytes) -> bool:
    """Writes the file unless there is one, and returns whether it is there unchanged; a resumed session's is not."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.new")
    try:
        if place.exists():
            return place.read_bytes() == data
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.touch(mode=0o600)
        temporary.write_bytes(data)
        os.link(temporary, place)
    except FileExistsError:
        return False  # another process was faster
    except OSError as error:
        raise CtxvcError(f"cannot write {place}: {error.strerror}", hint="check the folder's permissions") from error
    finally:
        temporary.unlink(missing_ok=True)
    return True


#: The names that formats had before.
_FORMER = {"anthropic": "anthropic-messages", "openai": "openai-chat"}
_DEFAULT = "anthropic-messages"
PARQUET = "parquet"
_NAMES = (*FORMATS, AGENT_TRACE, CLAUDE_CODE, bundle.FORMAT, PARQUET)
#: Places of a loss that are printed.
_SHOWN = 4


@command("export", "ctxvc export --format markdown -o session.md")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--format", "form", type=click.Choice([*_NAMES, *_FORMER]), default=_DEFAULT, metavar="FORMAT",
              help=f"Output format: {', '.join(_NAMES)} ({_DEFAULT}).")  # fmt: skip
@click.option("-o", "--output", "target", metavar="FILE", type=click.Path(path_type=Path),
              help="Write to FILE; parquet: into the folder FILE.")  # fmt: skip
@click.option(
    "--install", is_flag=True, help="claude-code: write it where `claude --resume` finds it for this project."
)
@click.option("--recorded", metavar="FILE", type=click.Path(path_type=Path),
              help="claude-code: the transcript that was imported (found in its usual place).")  # fmt: skip
@click.option("--file", "files", metavar="FILE", multiple=True, help="agent-trace: only this file; may be repeated.")
@click.option(
    "--since", metavar="TIME", help="parquet: no sessions without a commit since then that are not there yet."
)
@click.option("--text", is_flag=True, help="parquet: with titles and the blocks' texts, without secrets.")
@click.option("--all-projects", is_flag=True, help="parquet: all your projects on this machine.")
@json_option
@click.pass_obj
def export(
    app: App,
    revision: str,
    form: str,
    target: Path | None,
    install: bool,
    recorded: Path | None,
    files: tuple[str, ...],
    since: str | None,
    text: bool,
    all_projects: bool,
) -> None:
    """What the format has no place for is counted on stderr, and listed by --json.

    anthropic-messages, openai-chat and openai-responses are requests with the prompt at REV: model, system prompt,
    tools and messages. ctxvc-trajectory, hf-trace (the trace viewer of Hugging Face), otel-genai (spans in OTLP JSON)
    and markdown (for a pull request) have everything recorded up to REV, whether in the prompt or not, except deleted
    blocks. agent-trace has the lines of the files that REV changed, as of the project's newest commit, by the
    conversations that wrote them (like `ctxvc why`).

    claude-code is a session file for `claude --resume`, of any revision. `ctxvc import` brings what you continue there
    back into its session.

    bundle is the whole session of REV with its history, as a git bundle: `ctxvc import FILE` brings it back.

    parquet is the table that `ctxvc sql` asks, of all sessions, in a folder: only what is new is written.
    """
    form = _FORMER.get(form, form)
    if files and form != AGENT_TRACE:
        raise click.UsageError(f"--file requires --format {AGENT_TRACE}")
    if (since or text or all_projects) and form != PARQUET:
        raise click.UsageError(f"--since, --text and --all-projects require --format {PARQUET}")
    if form == PARQUET:
        _export_table(app, revision, target, since or "", text=text, all_projects=all_projects)
        return
    if form == CLAUDE_CODE:
        export_session(app, revision, target, install=install, recorded=recorded)
        return
    if install or recorded:
        raise click.UsageError(f"--install and --recorded require --format {CLAUDE_CODE}")
    if form == bundle.FORMAT:
        _export_bundle(app, revision, target)
        return
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        exported = _exported(app, Conversation(stored.store, snapshot), form, files)
        if form in importers.FORMATS:
            exports.remember(stored.store, exported.data, snapshot.ledger.meta.session)
    _print(app, snapshot, form, exported, target)
    if not app.output.json:
        for kind in by_kind(exported, snapshot.ledger):
            app.output.note(_loss_text(kind))


def _export_bundle(app: App, revision: str, target: Path | None) -> None:
    """Writes the session of a revision with all its scopes into a file that must not exist."""
    if target is None or target == Path("-"):
        raise click.UsageError(f"--format {bundle.FORMAT} requires -o FILE")
    path = app.path(target)
    with app.reading() as stored:
        stored.flush()
        snapshot = app.revision(stored, revision)
        size = bundle.write(stored.store, path, {snapshot.session: stored.store.tips(snapshot.session)})
    if app.output.json:
        app.output.value(
            ExportedSession(
                format=bundle.FORMAT,
                session=snapshot.session,
                scope=snapshot.scope,
                commit=snapshot.commit,
                bytes=size,
                file=str(path),
                content="",
                losses=[],
            )
        )
    else:
        app.output.note(f"wrote {display.human_bytes(size)} to {safe(str(path))}")
        if stored.waiting():
            app.output.note("the step under way is not in it")


def _export_table(app: App, revision: str, target: Path | None, since: str, *, text: bool, all_projects: bool) -> None:
    """Brings the table in a folder up to date."""
    if target is None or target == Path("-") or revision != "HEAD":
        raise click.UsageError(f"--format {PARQUET} requires -o FOLDER, and takes all sessions: no REV")
    from ctxvc.cli.remotes import tables

    answer = tables.export(app, app.path(target), since, text=text, all_projects=all_projects)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.note(tables.sentence(answer))


def _exported(app: App, conversation: Conversation, form: str, files: tuple[str, ...]) -> Exported:
    if form != AGENT_TRACE:
        return exporter(form).export(conversation)
    from ctxvc.exporters import agent_trace

    return agent_trace.export(conversation, app.folder, files)


def _loss_text(kind: LossKind) -> str:
    """A line about losses of one kind."""
    places = f"{', '.join(kind.paths[:_SHOWN])}{', …' if len(kind.paths) > _SHOWN else ''}"
    verb = "changed" if kind.change else "left out"
    became = f": {safe(kind.change)}" if kind.change else ""
    return f"{verb}: {len(kind.paths)} × {safe(kind.subject)} ({safe(places)}){became}"


class ExportLoss(Item, frozen=True, kw_only=True):
    """Something that the format has no place for."""

    path: Annotated[str, described("where it is: a block and its field, as `B17.is_error`, or a part of the request")]
    change: Annotated[str, described("what replaced it; empty if nothing did")]


class ExportedSession(Answer, frozen=True, kw_only=True, tag="ctxvc.export/1"):
    """`export`"""

    format: str
    session: SessionName
    scope: ScopeName
    commit: CommitId
    bytes: Annotated[int, described("size of the export")]
    file: Annotated[str, described("where it was written; empty if it is in `content`")]
    content: Annotated[str, described("the export; empty if it was written to a file")]
    losses: list[ExportLoss]
