"""`diff`: what entered and left the prompt between two revisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import click

from ctxvc.cli.answers.commits import Change, changes
from ctxvc.cli.answers.shared import SHORT, Answer, CommitId, Item, ScopeName, SessionName, described, table_of
from ctxvc.cli.app import App, command, complete_revisions, json_option, not_empty, revision_argument
from ctxvc.cli.output import Guess, Output, Tokens, safe
from ctxvc.cli.terminal.prompt_text import sections, unified
from ctxvc.core.prompt.request import parameters
from ctxvc.errors import NotFound, Refused
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read.revision import Snapshot, sent_body
from ctxvc.tokens.meter import Meter

_COLORS = {"-": "red", "+": "green", "@": "cyan"}


@command("diff", "ctxvc diff step:5 HEAD")
@click.argument("before", metavar="A", shell_complete=complete_revisions, callback=not_empty)
@revision_argument("after", "[B]")
@click.option("--prompt", "texts", is_flag=True, help="Show the texts themselves, as a unified diff.")
@json_option
@click.pass_obj
def diff(app: App, before: str, after: str, texts: bool) -> None:
    """`+` entered, `-` left, `~` changed: everything that differs in what would be sent, including stubs, tags, and
    thinking and boards that a cut took out. B defaults to now.
    """
    with app.reading() as stored:
        old = app.revision(stored, before)
        new = app.revision(stored, after)
        if old.session != new.session:
            raise Refused(
                f"{before} is of session {old.session}, {after} of {new.session}: they have no blocks in common",
                hint="compare revisions of one session",
            )
        answer = Diff(
            before=_side(app.meter(stored.store, old.ledger), old),
            after=_side(app.meter(stored.store, new.ledger), new),
            request=[
                *(name for name in ("system", "tools") if getattr(old, name) != getattr(new, name)),
                *_parameters(stored, old, new),
            ],
            items=changes(stored.store, old, new),
            prompt=[*unified([*sections(old)], [*sections(new)])] if texts else [],
        )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines((_prompt_lines if texts else _diff_lines)(app.output, answer))


def _parameters(stored: StoredSession, old: Snapshot, new: Snapshot) -> list[str]:
    """The names of parameters, as in `max_tokens`, that differ in two recorded requests; none if one is not."""
    try:
        before, after = (parameters(sent_body(stored, snapshot)) for snapshot in (old, new))
    except NotFound:
        return []
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _side(meter: Meter, snapshot: Snapshot) -> Side:
    tokens = sum(cost.shown for cost in meter.costs(snapshot).values())
    return Side(
        commit=snapshot.commit,
        session=snapshot.session,
        scope=snapshot.scope,
        step=snapshot.ledger.meta.counters.step,
        tokens=tokens + meter.overhead(snapshot),
    )


def _diff_lines(output: Output, answer: Diff) -> Iterator[str]:
    sides = (("before", answer.before), ("after", answer.after))
    growth = answer.after.tokens - answer.before.tokens
    yield from output.facts(
        [
            *((name, f"{_title(side)}  {output.cell(Guess(side.tokens))} tokens") for name, side in sides),
            ("change", f"{output.cell(Tokens(growth, signed=True))} tokens"),
            *([("differs too", " and ".join(answer.request))] if answer.request else []),
        ]
    )
    yield ""
    yield from output.table_lines(table_of(Change, answer.items))


def _prompt_lines(output: Output, answer: Diff) -> Iterator[str]:
    """Names of the two sides as of files, so that programs that read diffs take it for one."""
    if not answer.prompt:
        return
    yield output.style(safe(f"--- {_title(answer.before)}"), bold=True)
    yield output.style(safe(f"+++ {_title(answer.after)}"), bold=True)
    for line in answer.prompt:
        color = _COLORS.get(line[:1])
        yield output.style(line, fg=color) if color else line


def _title(side: Side) -> str:
    return f"{side.session}/{side.scope} step {side.step}, {side.commit[:SHORT]}"


class Side(Item, frozen=True, kw_only=True):
    """One side of a comparison."""

    commit: CommitId
    session: SessionName
    scope: ScopeName
    step: int
    tokens: Annotated[int, described("of the prompt")]


class Diff(Answer, frozen=True, kw_only=True, tag="ctxvc.diff/1"):
    """`diff`"""

    before: Side
    after: Side
    request: Annotated[list[str], described("which of `system`, `tools` and the recorded requests' parameters differ")]
    items: list[Change]
    prompt: Annotated[list[str], described("with `--prompt`, the lines of a unified diff")]
