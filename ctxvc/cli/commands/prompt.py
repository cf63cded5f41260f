"""`prompt`: the model's prompt, formatted for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import click

from ctxvc.cli.answers.shared import Answer, CommitId, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.output import Output, counted, safe
from ctxvc.cli.terminal.prompt_text import sections
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Piece, outline, pieces, sendable
from ctxvc.core.secrets.redact import MARK
from ctxvc.session import proof
from ctxvc.store.read.revision import Snapshot, exactness, sent_body


@command("prompt", "ctxvc prompt step:5")
@revision_argument()
@click.option("--sent", is_flag=True, help="The prompt that the reply at REV saw, instead of the next one after it.")
@click.option("--exact", is_flag=True, help="With --sent, the request's body as it was sent, byte for byte.")
@json_option
@click.pass_obj
def prompt(app: App, revision: str, sent: bool, exact: bool) -> None:
    """Formatted for people, with a header for each block. With --json, as a request of the Messages API. With --sent
    --exact, the bytes that the client sent, in its provider's own form, where `ctxvc wrap` recorded them; a secret in
    them is a mark.
    """
    if exact and (not sent or app.json):
        raise click.UsageError("--exact needs --sent, and cannot be combined with --json")
    with app.reading() as stored:
        snapshot = app.revision(stored, revision)
        if exact:
            body = sent_body(stored, snapshot)
            app.output.raw(body)
            if marks := len(MARK.findall(body)):
                app.output.note(f"{counted(marks, 'secret')} replaced by a mark; everything else is as it was sent")
            return
        label = exactness(stored.store, snapshot, sent=sent)
        if sent:
            snapshot = proof.as_sent(stored.store, snapshot)
        if app.output.json:
            app.output.value(_answer(snapshot, label))
        else:
            app.output.lines(_prompt_lines(app.output, snapshot, label))


def _answer(snapshot: Snapshot, label: str) -> Prompt:
    render = snapshot.ledger.meta.render
    content = sendable(pieces(outline(snapshot.ledger), snapshot.bodies, render), render)
    request: dict[str, Any] = formats.anthropic(request_of(snapshot, content))
    return struct_of(
        Prompt,
        snapshot,
        label=label,
        missing=list(_missing(snapshot, label)),
        model=snapshot.ledger.meta.model,
        system=request.get("system"),
        tools=request.get("tools", []),
        messages=request["messages"],
    )


def _missing(snapshot: Snapshot, label: str) -> tuple[str, ...]:
    source = snapshot.ledger.meta.source
    return source.missing if source and label != "exact" else ()


def _prompt_lines(output: Output, snapshot: Snapshot, label: str) -> Iterator[str]:
    lacks = ", ".join(_missing(snapshot, label))
    yield from output.facts([("prompt", f"{label}; missing: {lacks}" if lacks else label)])
    for section in sections(snapshot):
        yield ""
        yield output.style(safe(section.heading), bold=True)
        yield from section.lines


class Prompt(Answer, frozen=True, kw_only=True, tag="ctxvc.prompt/1"):
    """`prompt`. The contents of a Messages API request."""

    session: SessionName
    scope: ScopeName
    commit: CommitId
    label: Annotated[str, described("`exact` as it was sent, or `reconstructed` from a recording")]
    missing: Annotated[list[str], described("parts the model saw that the recording lacks")]
    model: str
    system: Any
    tools: Any
    messages: list[Any]


def request_of(snapshot: Snapshot, content: list[Piece]) -> formats.Prompt:
    """The complete request of a snapshot, with `content` for its messages."""
    return formats.Prompt(
        pieces=content, system=snapshot.system, tools=snapshot.tools, model=snapshot.ledger.meta.model
    )
