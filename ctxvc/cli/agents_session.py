"""Sessions written in an agent's own format: where the agent keeps them, and the command that continues one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple

import click

from ctxvc.claude_code.resume import Resumable, resumable
from ctxvc.cli.answers.shared import Answer, CommitId, Item, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, write
from ctxvc.cli.output import counted, safe
from ctxvc.core import display
from ctxvc.errors import Refused
from ctxvc.exporters import native
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported, losses_in_words
from ctxvc.exporters.native.install import installed, whole_file
from ctxvc.exporters.native.session import NativeFormat, NativeSession, Setting
from ctxvc.forms.losses import Loss
from ctxvc.importers import claude_code
from ctxvc.importers.claude_code import FORMAT as CLAUDE_CODE
from ctxvc.recording.files import remember_written
from ctxvc.store.project.locate import project_root
from ctxvc.store.read.revision import Snapshot

__all__ = ["AGENTS", "CLAUDE_CODE", "ExportedSession", "GoingOn", "is_taken_in", "note_losses", "print_export", "say",
           "worked_in", "write_session"]  # fmt: skip

#: The agents that a session can be written for.
AGENTS = (CLAUDE_CODE, *native.AGENTS)


class GoingOn(NamedTuple):
    """The commands that continue a session, and their folder; no commands if the agent needs none."""

    folder: Path
    commands: Sequence[Sequence[str]]

    def __str__(self) -> str:
        commands = [shlex.join(command) for command in (("cd", str(self.folder)), *self.commands)]
        return safe(" && ".join(commands))


def write_session(
    app: App, revision: str, agent: str, target: Path | None, *, install: bool, recorded: Path | None = None
) -> GoingOn:
    """Writes the session of a revision for an agent: to where it looks for its own with `install`, else to a file or
    the output. `recorded` is the transcript of Claude Code's that it was imported from.
    """
    if agent == CLAUDE_CODE:
        return _claude_code(app, revision, target, install=install, recorded=recorded)
    return _native(app, revision, agent, target, install=install)


def is_taken_in(agent: str) -> bool:
    """Whether the agent imports a session only by a command of its own, rather than finding it in a folder."""
    return agent != CLAUDE_CODE and native.native_format(agent).folder is None


def _claude_code(app: App, revision: str, target: Path | None, *, install: bool, recorded: Path | None) -> GoingOn:
    """Writes the session file of a revision, checked."""
    if install and target:
        raise click.UsageError("--install writes the file to Claude Code's own folder: leave out -o")
    place = app.path(target) if target else None
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        project = project_root(app.folder).resolve()
        folder = worked_in(snapshot, project)
        transcript = app.path(recorded) if recorded else next(_recorded(app, snapshot, folder, project), None)
        for copy in count():
            exported = resumable(stored.store, snapshot, folder, recorded=transcript, copy=copy)
            if not install:
                break
            place = _sessions(app, folder) / f"{exported.session}.jsonl"
            if whole_file(place, exported.data):
                app.output.note(f"wrote {display.human_bytes(len(exported.data))} to {safe(str(place))}")
                break
    losses = [Loss(block) for block in exported.left_out]
    losses += [Loss(f"{block}.input", "a call of Claude Code's own tool") for block in exported.taken_over]
    print_export(app, snapshot, CLAUDE_CODE, Exported(exported.data, tuple(losses)), place, written=install)
    if not app.output.json:
        _print_remarks(app, exported, transcript)
    return GoingOn(folder, [("claude", "--resume", exported.session)] if install else [])


def _native(app: App, revision: str, agent: str, target: Path | None, *, install: bool) -> GoingOn:
    """Writes the session of a revision as an agent keeps its own."""
    form = native.native_format(agent)
    if install and target:
        raise click.UsageError("--install writes the session to the agent's own folder: leave out -o")
    if install and form.folder is None:
        raise click.UsageError(f"{agent} imports sessions itself: write it with -o FILE, then run the printed command")
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        folder = worked_in(snapshot, project_root(app.folder).resolve())
        place = form.folder(folder, Path.home(), app.env) if install and form.folder else None
        session = _native_session(form, Conversation(stored.store, snapshot), folder, place)
    first, data = next((Path(name), data) for name, data in session.files.items())
    exported = Exported(data, session.losses)
    if place:
        target = place / first
        app.output.note(f"wrote {display.human_bytes(sum(map(len, session.files.values())))} to {safe(str(target))}")
    elif len(session.files) > 1:
        raise click.UsageError(f"a session of {agent} is a folder: use --install")
    print_export(app, snapshot, agent, exported, target, written=install)
    if not app.output.json:
        note_losses(app, exported, snapshot)
    can_find = form.resume and target and (install or form.install)
    return GoingOn(folder, form.commands(app.path(target), session.id) if can_find and target else [])


def say(app: App, going_on: GoingOn) -> None:
    """Prints the command that continues the session, if there is one."""
    if going_on.commands and not app.output.json:
        app.output.say(str(going_on))


def _native_session(form: NativeFormat, conversation: Conversation, folder: Path, place: Path | None) -> NativeSession:
    """The session, installed in a place if there is one, under an id that is free there."""
    recovery, now = _RECOVERY.format(session=conversation.snapshot.session), datetime.now(timezone.utc)
    for copy in count():
        session = form.write(conversation, Setting(folder=folder, time=now, copy=copy, recovery=recovery))
        is_new = remember_written(conversation.store, conversation.snapshot, form.format, session.id, session.files)
        if place is None or (is_new and installed(session, place)):
            break
    return session


def note_losses(app: App, exported: Exported, snapshot: Snapshot) -> None:
    """Prints what the session has lost in its new form."""
    for line in losses_in_words(exported, snapshot.ledger):
        app.output.note(safe(line))


def print_export(
    app: App, snapshot: Snapshot, form: str, exported: Exported, place: Path | None, *, written: bool = False
) -> None:
    """Writes an export to its file or to the output, unless it is `written`. With `--json` it prints the answer, which
    has the export itself if no file does.
    """
    file = str(app.path(place)) if place and place != Path("-") else ""
    if not written and (file or not app.output.json):
        write(app, place, exported.data)
    if app.output.json:
        app.output.value(
            struct_of(
                ExportedSession,
                snapshot,
                format=form,
                bytes=len(exported.data),
                file=file,
                content="" if file else display.decode(exported.data),
                losses=[struct_of(ExportLoss, loss) for loss in exported.losses],
            )
        )


def _print_remarks(app: App, exported: Resumable, transcript: Path | None) -> None:
    if exported.kept:
        app.output.note(f"{counted(exported.kept, 'line')} copied unchanged from {safe(str(transcript))}")
    elif transcript:
        app.output.note(f"written from scratch: this revision is not an unedited part of {safe(str(transcript))}")
    else:
        app.output.note(
            "written from scratch: the transcript it was recorded from is not among Claude Code's own; to keep its "
            "lines: `ctxvc export --format claude-code --install --recorded FILE`"
        )
    if exported.thinking:
        blocks = counted(exported.thinking, "thinking block")
        app.output.note(f"left out: {blocks}: a provider accepts thinking only in the context it was signed in")
    if exported.taken_over:
        app.output.note(f"changed: {counted(len(exported.taken_over), 'call')}, to Claude Code's own tools")


def worked_in(snapshot: Snapshot, project: Path) -> Path:
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
        for folder in claude_code.folders(place, Path.home(), app.env):
            if (path := folder / f"{source.id}.jsonl").is_file():
                yield path


def _sessions(app: App, folder: Path) -> Path:
    """The folder where Claude Code, started in `folder`, looks for sessions. Raises: Refused."""
    if folders := claude_code.folders(folder, Path.home(), app.env):
        return folders[0]
    raise Refused(
        f"Claude Code has not stored a session of {folder} yet, and how it shortens so long a name is unknown",
        hint="start `claude` there once, then try again",
    )


#: What a session for another agent says of stubs in it.
_RECOVERY = (
    "(What a text like `archived B17@1a2b3c` in brackets stands for is printed by "
    "`ctxvc recover B17 --session {session}`.)"
)


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
