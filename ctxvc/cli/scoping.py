"""`scope`, `goto`, `note`, `scopes`, `notes`: lines of reasoning, and what was learned in them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ctxvc.cli import schemas
from ctxvc.cli.acting import Actor, acting_options
from ctxvc.cli.app import App, command, complete_revisions, complete_scopes, json_option
from ctxvc.cli.output import Column, Output, Table, counted, safe
from ctxvc.errors import Refused
from ctxvc.session.session import Note, Session
from ctxvc.store.log.stored_session import Writer

interrupt_option = click.option(
    "--interrupt", is_flag=True, help="End a step that is open: its missing results count as interrupted."
)


@command("scope", "ctxvc scope fix-auth -m 'the login fails; looking into the tokens'")
@click.argument("name", metavar="NAME")
@click.option("-m", "text", metavar="TEXT", required=True, help="Why: the departure note.")
@click.option("--from", "revision", metavar="REV", default="", help="Begin as it was then: rewind and branch.",
              shell_complete=complete_revisions)  # fmt: skip
@click.option("--with-messages", is_flag=True, help="Take everything along, not only what is pinned and the notes.")
@interrupt_option
@acting_options
@click.pass_obj
def scope(app: App, name: str, text: str, revision: str, with_messages: bool, interrupt: bool, actor: Actor) -> None:
    """Open a new scope and go there.

    It begins with what is pinned, the notes, and the human message that opened the turn; a departure note stays in the
    scope that is left. With --from it begins with everything that stood at an earlier commit.
    """
    with app.acting(actor) as session:
        origin = session.scope
        _end_step(session, interrupt=interrupt)
        session.open_scope(name, text, revision=revision, with_messages=with_messages)
        _tell_move(app, session, origin)


@command("goto", "ctxvc goto main -m 'it was the clock'")
@click.argument("name", metavar="NAME", shell_complete=complete_scopes)
@click.option("-m", "text", metavar="TEXT", required=True, help="What is brought along: the arrival note.")
@interrupt_option
@acting_options
@click.pass_obj
def goto(app: App, name: str, text: str, interrupt: bool, actor: Actor) -> None:
    """Go to another scope, with an arrival note there.

    It stands as it was left; nothing is cleared.
    """
    with app.acting(actor) as session:
        origin = session.scope
        _end_step(session, interrupt=interrupt)
        session.goto(name, text)
        _tell_move(app, session, origin)


@command("note", "ctxvc note -m 'the cache key lacks the tenant'")
@click.option("-m", "text", metavar="TEXT", required=True, help="What was learned.")
@click.option("--fold", is_flag=True, help="Archive what led to it: everything since the last note or human message.")
@acting_options
@click.pass_obj
def note(app: App, text: str, fold: bool, actor: Actor) -> None:
    """Write down what was learned: a commit, and a block that stays."""
    with app.acting(actor) as session:
        made = session.note(text, fold=fold)
        answer = schemas.Noted(
            session=session.name, scope=session.scope, block=made.block, archived=list(made.archived), freed=made.freed
        )
    if app.output.json:
        app.output.value(answer)
    else:
        folded = f"; archived {len(made.archived)} blocks, {made.freed:,} tokens freed" if made.archived else ""
        app.output.say(f"{made.block} in {answer.session}/{answer.scope}{folded}")


@command("scopes", "ctxvc scopes")
@json_option
@click.pass_obj
def scopes(app: App) -> None:
    """List the session's scopes; a star stands at the current one."""
    with app.reading() as writer:
        current = writer.store.current_scope(writer.name)
        answer = schemas.Scopes(session=writer.name, items=[_item(writer, name, current) for name in writer.scopes()])
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_scope_lines(app.output, answer))


@command("notes", "ctxvc notes main")
@click.argument("name", metavar="[SCOPE]", default="", shell_complete=complete_scopes)
@json_option
@click.pass_obj
def notes(app: App, name: str) -> None:
    """List the notes of a scope, oldest first, inherited ones included."""
    with app.reading() as writer:
        session = Session(writer)
        held = session.notes(name)
        answer = schemas.Notes(
            session=session.name,
            scope=name or session.scope,
            items=[schemas.NoteItem(block=each.block, step=each.step, text=each.text) for each in held],
        )
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_note_lines(app.output, held))


def _end_step(session: Session, *, interrupt: bool) -> None:
    """No call waits for its result any more: a switch that waits for one would be forgotten with this process.

    Raises: Refused.
    """
    waiting = session.writer.open_calls
    if waiting and not interrupt:
        raise Refused(
            f"the step is open: {counted(len(waiting), 'call')} in {session.scope} without a result",
            hint="wait for the end of the step, or end it as it is with --interrupt",
        )
    if waiting:
        session.writer.finish()


def _tell_move(app: App, session: Session, origin: str) -> None:
    answer = schemas.Moved(session=session.name, scope=session.scope, origin=origin)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.say(f"in {answer.session}/{answer.scope}, from {origin}")


def _item(writer: Writer, name: str, current: str) -> schemas.ScopeItem:
    meta, blocks, notes = writer.outline(name)
    return schemas.ScopeItem(
        name=name,
        current=name == current,
        parent=meta.parent,
        blocks=blocks,
        steps=meta.counters.step,
        notes=notes,
        commit=writer.tip(name),
    )


def _scope_lines(output: Output, answer: schemas.Scopes) -> Iterator[str]:
    columns = (
        Column(""),
        Column("scope"),
        Column("from"),
        Column("steps", right=True),
        Column("blocks", right=True),
        Column("notes", right=True),
        Column("commit"),
    )
    rows = [
        ["*" if item.current else "", item.name, item.parent, item.steps, item.blocks, item.notes, item.commit[:12]]
        for item in answer.items
    ]
    yield from output.table_lines(Table(columns, rows))


def _note_lines(output: Output, held: list[Note]) -> Iterator[str]:
    for each in held:
        yield output.style(safe(f"{each.block}  step {each.step}"), bold=True)
        yield from (f"  {line}" for line in safe(each.text).split("\n"))
