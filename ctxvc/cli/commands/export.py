"""`export`: the prompt as a request of a provider, or as a session of a host."""

from __future__ import annotations

from pathlib import Path

import click

from ctxvc import importers
from ctxvc.cli.agents_session import AGENTS, CLAUDE_CODE, ExportedSession, note_losses, print_export, say, write_session
from ctxvc.cli.answers.shared import struct_of
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.options.values import time_option
from ctxvc.cli.output import safe
from ctxvc.core import display
from ctxvc.errors import BadInput
from ctxvc.exporters import FORMATS, exporter
from ctxvc.exporters.conversation import Conversation
from ctxvc.exporters.exported import Exported
from ctxvc.store import exports
from ctxvc.store.objects import is_address
from ctxvc.store.upkeep import bundle

AGENT_TRACE = "agent-trace"


#: The names that formats had before.
_FORMER = {"anthropic": "anthropic-messages", "openai": "openai-chat"}
_DEFAULT = "anthropic-messages"
PARQUET = "parquet"
_NAMES = (*FORMATS, AGENT_TRACE, *AGENTS, bundle.FORMAT, PARQUET)


@command("export", "ctxvc export --format markdown -o session.md")
@revision_argument()
@click.option("--format", "form", type=click.Choice([*_NAMES, *_FORMER]), default=_DEFAULT, metavar="FORMAT",
              help=f"Output format: {', '.join(_NAMES)} ({_DEFAULT}).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=click.Path(),
              help="Write to FILE; parquet: into the folder FILE, or to s3://…, gs://… or az://….")  # fmt: skip
@click.option("--install", is_flag=True, help="An agent's session: write it where the agent finds it for this project.")
@click.option("--recorded", metavar="FILE", type=click.Path(path_type=Path),
              help="claude-code: the transcript that was imported (found in its usual place).")  # fmt: skip
@click.option("--file", "files", metavar="FILE", multiple=True, help="agent-trace: only this file; may be repeated.")
@time_option("--since", "parquet: add only sessions with a commit since then.")
@click.option("--text", is_flag=True, help="parquet: with titles and the blocks' texts, without secrets.")
@click.option("--all-projects", is_flag=True, help="parquet: all your projects on this machine.")
@json_option
@click.pass_obj
def export(
    app: App,
    revision: str,
    form: str,
    output: str | None,
    install: bool,
    recorded: Path | None,
    files: tuple[str, ...],
    since: str,
    text: bool,
    all_projects: bool,
) -> None:
    """What the format cannot represent is counted on stderr, and listed by --json.

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

    parquet is the table that `ctxvc sql` asks, of all sessions, in a folder: only what is new is written.
    """
    form = _FORMER.get(form, form)
    if files and form != AGENT_TRACE:
        raise click.UsageError(f"--file requires --format {AGENT_TRACE}")
    if (since or text or all_projects) and form != PARQUET:
        raise click.UsageError(f"--since, --text and --all-projects require --format {PARQUET}")
    if form == PARQUET:
        _export_table(app, revision, output, since, text=text, all_projects=all_projects)
        return
    target = None if output is None else Path(output)
    if recorded and form != CLAUDE_CODE:
        raise click.UsageError(f"--recorded requires --format {CLAUDE_CODE}")
    if form in AGENTS:
        say(app, write_session(app, revision, form, target, install=install, recorded=recorded))
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
    print_export(app, snapshot, form, exported, target)
    if not app.output.json:
        note_losses(app, exported, snapshot)


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
        own = {"format": bundle.FORMAT, "bytes": size, "file": str(path), "content": "", "losses": []}
        app.output.value(struct_of(ExportedSession, snapshot, **own))
    else:
        app.output.note(f"wrote {display.human_bytes(size)} to {safe(str(path))}")
        if stored.waiting():
            app.output.note("the step that is still open is not in it")


def _export_table(app: App, revision: str, output: str | None, since: str, *, text: bool, all_projects: bool) -> None:
    """Brings the table at a place up to date."""
    if not output or output == "-" or revision != "HEAD":
        raise click.UsageError(f"--format {PARQUET} requires -o FOLDER, and takes all sessions: no REV")
    if "://" in output and not is_address(output):
        raise BadInput(f"{output}: not the address of an object store", hint="s3://…, gs://…, az://… or a folder")
    from ctxvc.cli.remotes import tables

    answer = tables.export(app, output, since, text=text, all_projects=all_projects)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.note(tables.sentence(answer))


def _exported(app: App, conversation: Conversation, form: str, files: tuple[str, ...]) -> Exported:
    if form != AGENT_TRACE:
        return exporter(form).export(conversation)
    from ctxvc.exporters import agent_trace

    return agent_trace.export(conversation, app.folder, files)
