"""`prompt` and `export`: what the model is given, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, complete_revisions, json_option, write
from ctxvc.cli.commands import export as resuming
from ctxvc.cli.commands.export import CLAUDE_CODE
from ctxvc.cli.output import Output, safe, spread, words_of
from ctxvc.core import display
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece, Show, outline, pieces, sendable
from ctxvc.session import proof
from ctxvc.store import revision as revisions
from ctxvc.store.revision import Snapshot

_FORMATS = {"anthropic": formats.anthropic, "openai": formats.openai_chat}


@command("prompt", "ctxvc prompt step:5")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--sent", is_flag=True, help="What the reply at REV saw, not what the next call would be sent.")
@json_option
@click.pass_obj
def prompt(app: App, revision: str, sent: bool) -> None:
    """Show the prompt as it would be sent after a revision.

    For people, with a line above each block that says whose it is. With --json, as the Messages API takes it.
    """
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        if sent:
            moment = proof.as_sent(session.store, moment)
        if app.output.json:
            app.output.value(_answer(moment))
        else:
            app.output.lines(_prompt_lines(app.output, moment))


@command("export", "ctxvc export --format openai -o request.json")
@click.argument("revision", metavar="[REV]", default="HEAD", shell_complete=complete_revisions)
@click.option("--format", "form", type=click.Choice([*_FORMATS, CLAUDE_CODE]), default="anthropic",
              help="Whose form (anthropic).")  # fmt: skip
@click.option("-o", "--output", "target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to FILE.")  # fmt: skip
@click.option("--install", is_flag=True, help="claude-code: put it where `claude --resume` finds it for this project.")
@click.option("--recorded", metavar="FILE", type=click.Path(path_type=Path),
              help="claude-code: the transcript that was imported (found in its usual place).")  # fmt: skip
@click.pass_obj
def export(app: App, revision: str, form: str, target: Path | None, install: bool, recorded: Path | None) -> None:
    """Write the prompt as a request of a provider's API.

    The Messages API of Anthropic, or OpenAI's chat completions: model, system prompt, tools and messages, as JSON.
    With --format claude-code it is a session that `claude --resume` goes on with, of any revision, also from before a
    compaction; the transcript that it was imported from gives its own lines as far as they come to the same prompt.
    """
    if form == CLAUDE_CODE:
        resuming.export(app, revision, target, install=install, recorded=recorded)
        return
    if install or recorded:
        raise click.UsageError(f"--install and --recorded belong to --format {CLAUDE_CODE}")
    with app.reading() as session:
        moment = revisions.resolve(session.store, session, revision)
        data = formats.dumps(_FORMATS[form](_request(moment, pieces(outline(moment.ledger), moment.bodies))))
    write(app, target, data)


def _request(moment: Snapshot, content: list[Piece]) -> formats.Prompt:
    """All that the model is given at that moment, with `content` for its messages."""
    return formats.Prompt(pieces=content, system=moment.system, tools=moment.tools, model=moment.ledger.meta.model)


def _answer(moment: Snapshot) -> schemas.Prompt:
    content = sendable(pieces(outline(moment.ledger), moment.bodies))
    request: dict[str, Any] = formats.anthropic(_request(moment, content))
    source = moment.ledger.meta.source
    return schemas.Prompt(
        session=moment.session,
        scope=moment.scope,
        commit=moment.commit,
        label=_label(moment),
        missing=list(source.missing) if source else [],
        model=moment.ledger.meta.model,
        system=request.get("system"),
        tools=request.get("tools", []),
        messages=request["messages"],
    )


def _label(moment: Snapshot) -> str:
    return "reconstructed" if moment.ledger.meta.source else "exact"


def _prompt_lines(output: Output, moment: Snapshot) -> Iterator[str]:
    source = moment.ledger.meta.source
    missing = f"; missing: {', '.join(source.missing)}" if source and source.missing else ""
    yield from output.facts([("prompt", _label(moment) + missing)])
    if moment.system:
        words = moment.system if isinstance(moment.system, str) else display.decode(spread(moment.system))
        yield from _section(output, "system", words)
    if moment.tools:
        yield from _section(output, "tools", "\n".join(str(tool.get("name", tool)) for tool in moment.tools))
    slots = outline(moment.ledger)
    shown = {(slot.group or slot.row.id, slot.role): slot.show for slot in slots}
    for piece in sendable(pieces(slots, moment.bodies)):
        yield from _section(output, _heading(piece, shown.get((piece.block, piece.role), "text")), _words(piece))


def _section(output: Output, heading: str, words: str) -> Iterator[str]:
    """A heading at the margin, and the text set in below it: no text can pass for a heading."""
    yield ""
    yield output.style(safe(" ".join(heading.split())), bold=True)
    yield from (f"  {line}" for line in safe(words).split("\n"))


def _heading(piece: Piece, show: Show) -> str:
    kind = "" if piece.kind == piece.role else piece.kind
    shown = {"body": "", "mask": "(masked)", "text": "(stub)" if piece.block else "(added)"}[show]
    tool = "" if piece.block.startswith("G") else piece.tool
    return f"{piece.role}  {piece.block}  {kind} {tool} {shown} {'(error)' if piece.error else ''}"


def _words(piece: Piece) -> str:
    words = words_of(piece.body, piece.ext)
    return f"[{piece.ext}, {display.human_bytes(len(piece.body))}]" if words is None else words
