"""`export`: the prompt as a request of a provider, or as a session of a host."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple

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
from ctxvc.exporters.native import AGENTS, native_format
from ctxvc.exporters.native.install import installed
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting
from ctxvc.forms.losses import Loss
from ctxvc.importers.claude_code import FORMAT as CLAUDE_CODE
from ctxvc.importers.claude_code import read
from ctxvc.recording import written
from ctxvc.store import exports
from ctxvc.store.project.locate import project_root
from ctxvc.store.read.revision import Snapshot
from ctxvc.store.upkeep import bundle

AGENT_TRACE = "agent-trace"


class GoingOn(NamedTuple):
    """How an agent goes on with a session: these commands, in this folder; none where it does so by itself."""

    folder: Path
    commands: Sequence[Sequence[str]]

    def __str__(self) -> str:
        commands = [shlex.join(command) for command in (("cd", str(self.folder)), *self.commands)]
        return safe(" && ".join(commands))


def export_session(app: App, revision: str, target: Path | None, *, install: bool, recorded: Path | None) -> GoingOn:
    """Writes the session file of a revision, checked."""
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
    losses = [Loss(block) for block in exported.left_out]
    losses += [Loss(f"{block}.input", "a call of Claude Code's own tool") for block in exported.taken_over]
    _print(app, snapshot, CLAUDE_CODE, Exported(exported.data, tuple(losses)), place, written=install)
    if not app.output.json:
        _print_remarks(app, exported, transcript)
    return GoingOn(folder, [("claude", "--resume", exported.session)] if install else [])


def export_native(app: App, revision: str, agent: str, target: Path | None, *, install: bool) -> GoingOn:
    """Writes the session of a revision as an agent keeps its own."""
    native = native_format(agent)
    if install and target:
        raise click.UsageError("--install writes the session to the agent's own folder: leave out -o")
    if install and native.folder is None:
        raise click.UsageError(f"{agent} takes sessions in itself: write it with -o FILE, and run what is printed")
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        folder = _worked_in(snapshot, project_root(app.folder).resolve())
        place = native.folder(folder, Path.home(), app.env) if install and native.folder else None
        session = _native_session(native, Conversation(stored.store, snapshot), folder, place)
    first, data = next((Path(name), data) for name, data in session.files.items())
    exported = Exported(data, session.losses)
    if place:
        target = place / first
        app.output.note(f"wrote {display.human_bytes(sum(map(len, session.files.values())))} to {safe(str(target))}")
    elif len(session.files) > 1:
        raise click.UsageError(f"a session of {agent} is a folder: use --install")
    _print(app, snapshot, agent, exported, target, written=install)
    if not app.output.json:
        _note_losses(app, exported, snapshot)
    return GoingOn(folder, _commands(native, session, app.path(target) if target else None, install=install))


def say(app: App, going_on: GoingOn) -> None:
    """Prints how the agent goes on, if there is a command for it."""
    if going_on.commands and not app.output.json:
        app.output.say(str(going_on))


def _native_session(
    native: NativeFormat, conversation: Conversation, folder: Path, place: Path | None
) -> NativeSession:
    """The session, installed in a place if there is one, under an id that is free there."""
    recovery, now = RECOVERY.format(session=conversation.snapshot.session), datetime.now(timezone.utc)
    for copy in count():
        session = native.write(conversation, Setting(folder=folder, time=now, copy=copy, recovery=recovery))
        is_new = written.remember(conversation.store, conversation.snapshot, native.format, session.id, session.files)
        if place is None or (is_new and installed(session, place)):
            break
    return session


def _commands(native: NativeFormat, session: NativeSession, file: Path | None, *, install: bool) -> list[Sequence[str]]:
    """The commands with which an agent goes on with a session in its working folder; none if it cannot find it."""
    if not native.resume or not file or not (install or native.install):
        return []
    return [*([native.install(file)] if native.install else []), native.resume(session.id)]


def _note_losses(app: App, exported: Exported, snapshot: Snapshot) -> None:
    for kind in by_kind(exported, snapshot.ledger):
        app.output.note(_loss_text(kind))


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
    if exported.taken_over:
        app.output.note(f"changed: {len(exported.taken_over)} calls, into those of Claude Code's own tools")


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


#: What a session for another agent says of stubs in it.
RECOVERY = (
    "(What a text like `archived B17@1a2b3c` in brackets stands for is printed by "
    "`ctxvc recover B17 --session {session}`.)"
)
#: The names that formats had before.
_FORMER = {"anthropic": "anthropic-messages", "openai": "openai-chat"}
_DEFAULT = "anthropic-messages"
_NAMES = (*FORMATS, AGENT_TRACE, CLAUDE_CODE, *AGENTS, bundle.FORMAT)
#: Places of a loss that are printed.
_SHOWN = 4


@command("export", "ctxvc export --format markdown -o session.md")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--format", "form", type=click.Choice([*_NAMES, *_FORMER]), default=_DEFAULT, metavar="FORMAT",
              help=f"Output format: {', '.join(_NAMES)} ({_DEFAULT}).")  # fmt: skip
@click.option("-o", "--output", "target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to FILE.")  # fmt: skip
@click.option("--install", is_flag=True, help="An agent's session: write it where the agent finds it for this project.")
@click.option("--recorded", metavar="FILE", type=click.Path(path_type=Path),
              help="claude-code: the transcript that was imported (found in its usual place).")  # fmt: skip
@click.option("--file", "files", metavar="FILE", multiple=True, help="agent-trace: only this file; may be repeated.")
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
) -> None:
    """What the format has no place for is counted on stderr, and listed by --json.

    anthropic-messages, openai-chat and openai-responses are requests with the prompt at REV: model, system prompt,
    tools and messages. ctxvc-trajectory, hf-trace (the trace viewer of Hugging Face), otel-genai (spans in OTLP JSON)
    and markdown (for a pull request) have everything recorded up to REV, whether in the prompt or not, except deleted
    blocks. agent-trace has the lines of the files that REV changed, as of the project's newest commit, by the
    conversations that wrote them (like `ctxvc why`).

    claude-code is a session file for `claude --resume`, of any revision. `ctxvc import` brings what you continue there
    back into its session.

    codex, opencode, pi, gemini, copilot, qwen, openhands and mini-swe-agent are sessions as these agents keep their
    own, with the prompt at REV. Calls become those of the agent's own tools where these do the same.

    bundle is the whole session of REV with its history, as a git bundle: `ctxvc import FILE` brings it back.
    """
    form = _FORMER.get(form, form)
    if files and form != AGENT_TRACE:
        raise click.UsageError(f"--file requires --format {AGENT_TRACE}")
    if form == CLAUDE_CODE:
        say(app, export_session(app, revision, target, install=install, recorded=recorded))
        return
    if recorded:
        raise click.UsageError(f"--recorded requires --format {CLAUDE_CODE}")
    if form in AGENTS:
        say(app, export_native(app, revision, form, target, install=install))
        return
    if install:
        raise click.UsageError("--install requires the format of an agent's sessions")
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
        _note_losses(app, exported, snapshot)


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
