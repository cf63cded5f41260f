"""`why`: the conversation that a code commit, a file or a line of it came from."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ctxvc.cli.answers.shared import table_of
from ctxvc.cli.answers.why import (
    WRITERS,
    Why,
    WhyBlock,
    WhyCall,
    WhyCommitted,
    WhyConversation,
    WhyFile,
    WhyOther,
    answer_of,
    blame_of,
    code_of,
)
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Cell, Output, counted, safe
from ctxvc.cli.remotes.remote_sessions import note_missing
from ctxvc.errors import NotFound
from ctxvc.store.project import links

#: The most lines of a message that are printed, and characters of a line; `--json` has all.
_SHOWN = 30
_WIDE = 2_000


@command("why", "ctxvc why src/app.py:42")
@click.argument("target", metavar="COMMIT|FILE:LINE|FILE")
@json_option
@click.pass_obj
def why(app: App, target: str) -> None:
    """Shows the session and step that wrote it, the request, the model's text, the calls and the notes; of a whole
    file, its lines by conversation.

    A line belongs to the recorded edit that made it, no matter who committed it; lines that no edit explains are a
    person's or unknown. `ctxvc install post-commit` also records which session made each commit.
    """
    code = code_of(app.folder, target)
    with app.store() as store:
        links.take(store)
        if code.file and not code.number:
            blame = blame_of(app.folder, store, code)
            app.output.answer(blame, _blame_lines(app.output, blame))
            return
        try:
            answer = answer_of(app.folder, store, code, target)
        except NotFound:
            note_missing(app, store)
            raise
        if not answer.session:
            note_missing(app, store)
    app.output.answer(answer, _lines(app.output, answer))


# --- a file


def _blame_lines(output: Output, answer: WhyFile) -> Iterator[str]:
    yield f"{safe(answer.file)}, {counted(answer.count, 'non-blank line')}"
    yield ""
    yield from output.table_lines(table_of(WhyConversation, answer.conversations))


# --- a commit, or a line


def _lines(output: Output, answer: Why) -> Iterator[str]:
    share = f", {100 * answer.count // answer.total} %" if answer.count < answer.total else ""
    place = f"{answer.session}/{answer.scope}, step {answer.step}, turn {answer.turn}" if answer.session else ""
    facts: list[tuple[str, Cell]] = [
        ("commit", " ".join(filter(None, [answer.commit[:12], answer.subject]))),
        ("line", f"{answer.file}: {answer.line.strip()}" if answer.file else ""),
        ("written by", (place or WRITERS[answer.origin]) + share),
        ("evidence", answer.basis),
        ("committed in", _committed_in(answer.committed)),
    ]
    yield from output.facts([(name, value) for name, value in facts if value])
    for title, blocks in (("asked", answer.asked), ("replied", answer.replied), ("noted", answer.notes)):
        for block in blocks:
            yield ""
            yield output.style(f"{title}  {block.address}  step {block.step}", dim=True)
            yield from (f"  {safe(line)}" for line in _bounded(block))
    if answer.calls:
        yield ""
        yield from output.table_lines(table_of(WhyCall, answer.calls))
    if answer.alternatives:
        yield ""
        yield from output.table_lines(table_of(WhyOther, answer.alternatives, heading="others"))
    if answer.session:
        yield ""
        revision = (answer.revision or "HEAD")[:12]
        yield f"the whole conversation: ctxvc log {answer.session}/{answer.scope}; ctxvc show {revision}"


def _committed_in(committed: WhyCommitted) -> str:
    place = f"{committed.session}/{committed.scope}, step {committed.step}" if committed.session else ""
    if committed.recording:
        ran = f"{committed.host} ran the commit"
        return f"{place}: {ran}" if place else f"{ran} in {committed.recording}, which is not in the store"
    return f"{place}: this was the current session" if place else ""


def _bounded(block: WhyBlock) -> Iterator[str]:
    lines = block.text[: _SHOWN * _WIDE].split("\n")
    yield from (line if len(line) <= _WIDE else line[:_WIDE] + "…" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN or len(block.text) > _SHOWN * _WIDE:
        yield f"… ctxvc show {block.address}"
