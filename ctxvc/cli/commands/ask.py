"""`ask`: a question about a recorded session, answered with handles that are checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click

from ctxvc.cli.answers.shared import Answer, BlockId, Item, ScopeName, described, struct_of, table_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.policy_option import model_of
from ctxvc.cli.options.provider_option import default_model, provider_option
from ctxvc.cli.options.standard_input import or_text
from ctxvc.cli.options.token_amount import TokenAmount
from ctxvc.cli.output import Cell, Column, Output, Styled, safe
from ctxvc.cli.terminal.run_screen import DEFAULT_MODEL, Screen, after_failure, provider_window, stopping

#: Replies that a question may take.
STEPS = 30


@command("ask", "ctxvc ask claude-7744721d 'why was the retry removed?'")
@click.argument("name", metavar="SESSION")
@click.argument("question", metavar="QUESTION", callback=or_text)
@click.option("--model", metavar="MODEL", default="", help=f"Model to ask ({DEFAULT_MODEL}).")
@provider_option
@click.option(
    "--budget", metavar="TOKENS", type=TokenAmount(4_000), default="60k", show_default=True,
    help="Tokens that a call may use.",
)  # fmt: skip
@click.option("--max-steps", metavar="N", type=click.IntRange(min=1), default=STEPS, show_default=True,
              help="Maximum number of the model's replies.")  # fmt: skip
@click.option("--script", metavar="FILE", type=click.Path(path_type=Path),
              help="Replay the replies in a JSON file, or - for stdin; no model is asked.")  # fmt: skip
@json_option
@click.pass_context
def ask(
    ctx: click.Context,
    name: str,
    question: str,
    model: str,
    provider: str,
    budget: int,
    max_steps: int,
    script: Path | None,
) -> None:
    """A citation is valid if the block exists with that checksum and was read for this answer. If any is invalid, the
    exit code is 1. The session itself is not changed: the question, what was read and the answer go into a new one,
    ask-1, ask-2, …
    """
    app = ctx.ensure_object(App)
    if not question.strip():
        raise click.UsageError("ask something")
    from ctxvc.agent import ask as asking
    from ctxvc.agent.loop import Limits
    from ctxvc.session.session import Session
    from ctxvc.store.log.stored_session import StoredSession
    from ctxvc.store.store import Store
    from ctxvc.tokens import models

    chosen = model_of(app, script, model, provider)
    model = model or default_model(chosen)
    path = app.store_path()
    with Store(path) as store, stopping() as event:
        sessions = store.sessions()
        name = app.resolved(store, name)
        reported = provider_window(chosen, model)
        window = min(budget, (reported.tokens if reported else 0) or models.window(model) or budget)
        mine = next(free for number in range(1, len(sessions) + 2) if (free := f"ask-{number}") not in sessions)
        recorded = Session(StoredSession.open(store, name))
        current = store.current_session()
        try:
            with (
                asking.open_session(path, mine, model=model, window=window) as session,
                after_failure(f"ask again; what was read so far is in session {mine}"),
            ):
                screen = Screen(app.output, event, scripted=chosen.scripted, replies=False)
                result = asking.ask(session, recorded, question, chosen, screen, Limits(steps=max_steps))
        finally:
            recorded.stored.leave()
            store.set_current_scope(current, store.current_scope(current))
    answer = AnsweredQuestion(
        session=result.session,
        recording=name,
        answer=result.answer,
        scripted=chosen.scripted,
        why=result.ended.why,
        steps=result.ended.steps,
        dollars=result.ended.dollars,
        items=[
            struct_of(CitationItem, citation)
            for citation in result.citations
        ],
    )  # fmt: skip
    app.output.answer(answer, _lines(app.output, answer))
    if answer.why == "stopped":
        ctx.exit(130)
    if not answer.items or any(item.why for item in answer.items):
        ctx.exit(1)


def _lines(output: Output, answer: AnsweredQuestion) -> Iterator[str]:
    yield from safe(answer.answer or f"no answer ({answer.why})").splitlines()
    yield ""
    if not answer.items:
        yield "it cites nothing"
        return
    yield from output.table_lines(table_of(CitationItem, answer.items))


def _step(step: int) -> Cell:
    return step or ""


class CitationItem(Item, frozen=True, kw_only=True):
    """A citation in an answer. It is valid if the block exists and was read."""

    TABLE = "handle verdict scope step label"

    handle: Annotated[str, described("as written in the answer"), Column("cited")]
    block: BlockId
    scope: Annotated[ScopeName, Column("scope", rank=1)]
    step: Annotated[int, Column("step", right=True, cell=_step)]
    label: Annotated[str, Column("label", least=24)]
    exists: Annotated[bool, described("whether the recording has a block with that number and checksum")]
    was_read: Annotated[bool, described("whether it was read for this answer")]
    why: Annotated[str, described("why it is not valid; empty if it is")]

    @property
    def verdict(self) -> Annotated[Cell, Column("valid")]:
        if not self.why:
            return Styled("yes", "green")
        return Styled(f"no: it {self.why}", "yellow" if self.exists else "red")


class AnsweredQuestion(Answer, frozen=True, kw_only=True, tag="ctxvc.ask/1"):
    """`ask`"""

    session: Annotated[str, described("session with the question, what was read and the answer")]
    recording: Annotated[str, described("session that was asked")]
    answer: str
    scripted: Annotated[bool, described("whether a script replied instead of a model")]
    why: Annotated[str, described("why it ended, as in `run`")]
    steps: int
    dollars: float | None
    items: Annotated[list[CitationItem], described("the answer's citations")]
