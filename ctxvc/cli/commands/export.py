"""`export`: the prompt as a request of a provider, or as a session of a host."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click

from ctxvc.claude_code.resume import Resumable, resumable
from ctxvc.cli.app import App, command, complete_revisions, write
from ctxvc.cli.output import safe
from ctxvc.cli.request import request_of
from ctxvc.core import display
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import outline, pieces
from ctxvc.errors import CtxvcError, Refused
from ctxvc.importers.claude_code import read
from ctxvc.store import exports
from ctxvc.store.locate import project_root
from ctxvc.store.revision import Snapshot

CLAUDE_CODE = read.FORMAT
_LONGEST_FOLDER = 200


def export_session(app: App, revision: str, target: Path | None, *, install: bool, recorded: Path | None) -> None:
    """Writes the session file of a revision, checked, and prints how to resume it."""
    if install and target:
        raise click.UsageError("--install writes the file to Claude Code's own folder: leave out -o")
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        project = project_root(app.folder).resolve()
        folder = _worked_in(snapshot, project)
        transcript = app.path(recorded) if recorded else next(_recorded(app, snapshot, folder, project), None)
        for copy in count():
            exported = resumable(stored.store, snapshot, folder, recorded=transcript, copy=copy)
            if not install:
                write(app, target, exported.data)
                break
            place = _sessions(app, folder) / f"{exported.session}.jsonl"
            if _installed(place, exported.data):
                app.output.note(f"wrote {display.human_bytes(len(exported.data))} to {safe(str(place))}")
                break
    _print_remarks(app, exported, transcript)
    if install:
        app.output.say(f"cd {safe(shlex.quote(str(folder)))} && claude --resume {exported.session}")


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
    root = Path(app.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    # The host counts in UTF-16: a character beyond the first plane becomes two dashes.
    dashed = re.sub(r"[^A-Za-z0-9]", lambda other: "--" if other[0] > "\uffff" else "-", str(folder))
    name = app.env.get("CLAUDE_CODE_PROJECT_DIR_NAME") or dashed
    if len(name) > _LONGEST_FOLDER:
        raise Refused(
            f"Claude Code has not stored a session of {folder} yet, and how it shortens so long a name is unknown",
            hint="start `claude` there once",
        )
    return root / name


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


_FORMATS = {"anthropic": formats.anthropic, "openai": formats.openai_chat}


@command("export", "ctxvc export --format openai -o request.json")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--format", "form", type=click.Choice([*_FORMATS, CLAUDE_CODE]), default="anthropic",
              help="Output format (anthropic).")  # fmt: skip
@click.option("-o", "--output", "target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to FILE.")  # fmt: skip
@click.option(
    "--install", is_flag=True, help="claude-code: write it where `claude --resume` finds it for this project."
)
@click.option("--recorded", metavar="FILE", type=click.Path(path_type=Path),
              help="claude-code: the transcript that was imported (found in its usual place).")  # fmt: skip
@click.pass_obj
def export(app: App, revision: str, form: str, target: Path | None, install: bool, recorded: Path | None) -> None:
    """A request of Anthropic's Messages API or OpenAI's chat completions: model, system prompt, tools and messages, as
    JSON. With --format claude-code it is a session file for `claude --resume`, of any revision, even from before a
    compaction; lines of the transcript it was imported from are reused wherever they produce the same prompt.
    `ctxvc import` brings what you continue there back into its session.
    """
    if form == CLAUDE_CODE:
        export_session(app, revision, target, install=install, recorded=recorded)
        return
    if install or recorded:
        raise click.UsageError(f"--install and --recorded require --format {CLAUDE_CODE}")
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        # What we sent is told as it was sent; another program gets no tags, which only our tools understand.
        render = snapshot.ledger.meta.render if form == "anthropic" else 1
        content = pieces(outline(snapshot.ledger), snapshot.bodies, render)
        data = formats.dumps(_FORMATS[form](request_of(snapshot, content)))
        exports.remember(stored.store, data, snapshot.ledger.meta.session)
    write(app, target, data)
