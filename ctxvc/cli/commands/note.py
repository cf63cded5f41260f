"""`note`: a finding, recorded."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli import hosts
from ctxvc.cli.answers import project_notes
from ctxvc.cli.answers.shared import (
    Answer,
    BlockId,
    EffectField,
    LeftOut,
    ScopeName,
    SessionName,
    TokenCount,
    described,
    struct_of,
)
from ctxvc.cli.app import App, command
from ctxvc.cli.options.values import or_text
from ctxvc.cli.output import counted
from ctxvc.cli.verb import Actor, acting_options, allow_user, check_allow_user, print_left_out


@command("note", "ctxvc note -m 'the cache key lacks the tenant' -l decision")
@click.option("-m", "text", metavar="TEXT", required=True, callback=or_text,
              help="What was learned; - reads stdin.")  # fmt: skip
@click.option("-l", "--label", "labels", metavar="LABEL", multiple=True, help="To find it by: `notes -l decision`.")
@click.option(
    "--fold", is_flag=True, help="Archive the work that led to it: everything since the last note or human message."
)
@click.option("--supersedes", metavar="BLOCKS", default="", help="Archive the blocks it replaces: `B12,B40`, `G2`.")
@click.option("--project", is_flag=True, help="Keep it for all sessions of the project: `notes --project` lists it.")
@click.option("--name", "name", metavar="NAME", default="",
              help="With --project: it replaces the project's note of this name.")  # fmt: skip
@click.option("--file", "files", metavar="PATH", multiple=True,
              help="With --project: a file that it is about; once the file changes, the note says so.")  # fmt: skip
@allow_user
@acting_options
@click.pass_context
def note(
    ctx: click.Context,
    text: str,
    labels: tuple[str, ...],
    fold: bool,
    supersedes: str,
    project: bool,
    name: str,
    files: tuple[str, ...],
    allow_user: bool,
    actor: Actor,
) -> None:
    """
    With --supersedes, the stub of the archived blocks names this note. A block smaller than its stub would be stays in
    the prompt, and is no longer listed among the newest notes.

    With --project it goes into a session of its own, which is pushed and pulled like others. Files that the text names
    count as given by --file.
    """
    app = ctx.ensure_object(App)
    check_allow_user(ctx, actor, allow_user)
    if project:
        if fold or supersedes or allow_user:
            raise click.UsageError(
                "a note of the project is in no session: leave out --fold, --supersedes and --allow-user"
            )
        project_notes.add(app, text, actor, name, labels, files)
        return
    if name or files:
        raise click.UsageError("--name and --file require --project")
    with app.acting(actor) as session:
        result = session.note(text, fold=fold, labels=labels, supersedes=supersedes, allow_user=allow_user)
        answer = struct_of(
            Noted,
            result,
            session=session.name,
            scope=session.scope,
            problems=[struct_of(LeftOut, problem) for problem in result.problems],
            effect=hosts.effect(app, session),
        )
    if app.output.json:
        app.output.value(answer)
    else:
        folded = (
            f"; archived {counted(len(result.archived), 'block')}, {app.output.estimate(result.freed)} tokens freed"
            if result.archived
            else ""
        )
        app.output.say(f"{result.block} in {answer.session}/{answer.scope}{folded}")
        print_left_out(app.output, "archive", answer.problems, actor)
        if advice := hosts.advice(answer.effect):
            app.output.note(advice)


class Noted(Answer, frozen=True, kw_only=True, tag="ctxvc.note/1"):
    """`note`"""

    session: SessionName
    scope: ScopeName
    block: BlockId
    archived: Annotated[list[str], described("with --fold and --supersedes, the blocks that left")]
    freed: TokenCount
    problems: Annotated[list[LeftOut], described("what was to leave and stayed")]
    effect: EffectField = "next-request"
