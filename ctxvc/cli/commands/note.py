"""`note`: what was learned."""

from __future__ import annotations

from typing import Annotated

import click

from ctxvc.cli.answers import Answer, BlockId, ScopeName, SessionName, TokenCount, described
from ctxvc.cli.app import App, command
from ctxvc.cli.standard_input import or_text
from ctxvc.cli.verb import Actor, acting_options


@command("note", "ctxvc note -m 'the cache key lacks the tenant'")
@click.option("-m", "text", metavar="TEXT", required=True, callback=or_text,
              help="What was learned; - reads stdin.")  # fmt: skip
@click.option(
    "--fold", is_flag=True, help="Archive the work that led to it: everything since the last note or human message."
)
@acting_options
@click.pass_obj
def note(app: App, text: str, fold: bool, actor: Actor) -> None:
    with app.acting(actor) as session:
        result = session.note(text, fold=fold)
        answer = Noted(
            session=session.name,
            scope=session.scope,
            block=result.block,
            archived=list(result.archived),
            freed=result.freed,
        )
    if app.output.json:
        app.output.value(answer)
    else:
        folded = (
            f"; archived {len(result.archived)} blocks, {app.output.tokens(result.freed)} tokens freed"
            if result.archived
            else ""
        )
        app.output.say(f"{result.block} in {answer.session}/{answer.scope}{folded}")


class Noted(Answer, frozen=True, kw_only=True, tag="ctxvc.note/1"):
    """`note`"""

    session: SessionName
    scope: ScopeName
    block: BlockId
    archived: Annotated[list[str], described("with --fold, the blocks that left")]
    freed: TokenCount
