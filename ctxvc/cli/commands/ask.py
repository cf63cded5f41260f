"""`ask`: a question about a recorded session, answered with handles that are checked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from ctxvc.cli.answers.shared import Answer, BlockId, Item, ScopeName, described, struct_of, table_of, unless_zero
from ctxvc.cli.app import App, all_projects_option, command, json_option, raise_unreadable
from ctxvc.cli.options.policy_and_model import default_model, model_of, provider_option
from ctxvc.cli.options.values import TokenAmount, or_text, text
from ctxvc.cli.output import Cell, Column, Output, Styled, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.cli.terminal.run_screen import DEFAULT_MODEL, Screen, after_failure, provider_window, stopping
from ctxvc.errors import CtxvcError

if TYPE_CHECKING:
    from ctxvc.agent.ask import AskResult, Evidence
    from ctxvc.agent.ask_sessions import Recordings, Source
    from ctxvc.agent.model import Model
    from ctxvc.session.session import Session
    from ctxvc.store.store import Store

#: Replies that a question may take.
STEPS = 30


@command("ask", "ctxvc ask claude-7744721d 'why was the retry removed?'")
@click.argument("name", metavar="[SESSION]", default="")
@click.argument("question", metavar="QUESTION", default="", callback=or_text)
@click.option("--all", "--all-sessions", "everywhere", is_flag=True, help="Ask about all sessions of the project.")
@click.option("--remote", metavar="NAME", help="Ask about the sessions on this remote that the store has, too.")
@all_projects_option
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
    ctx: click.Context, name: str, question: str, everywhere: bool, remote: str | None, all_projects: bool, model: str,
    provider: str, budget: int, max_steps: int, script: Path | None,
) -> None:  # fmt: skip
    """A citation is valid if the block exists with that checksum and was read for this answer. If any is invalid, the
    exit code is 1. The session itself is not changed: the question, what was read and the answer go into a new one,
    ask-1, ask-2, …

    Without SESSION, --all, --remote or --all-projects says which sessions are asked; an index of their words, brought
    up to date first, finds the blocks. With --all-projects nothing is kept: it would be in a single project's store.
    """
    app = ctx.ensure_object(App)
    across = everywhere or all_projects or remote is not None
    if remote is not None and all_projects:
        raise click.UsageError("--remote and --all-projects cannot be combined")
    if across and question:
        raise click.UsageError("leave out SESSION, or --all, --remote and --all-projects")
    if across:
        name, question = "", text() if name == "-" else name
    elif name and not question:
        raise click.UsageError("give SESSION and QUESTION; or QUESTION with --all, for all sessions")
    if not question.strip():
        raise click.UsageError("ask something")
    chosen = model_of(app, script, model, provider)
    unreadable: list[CtxvcError] = []
    with stopping() as event:
        asking = _Question(app, question, chosen, model or default_model(chosen), budget, max_steps, event)
        if all_projects:
            result = asking.of_all_projects(unreadable)
        elif across:
            result = asking.of_sessions(remote, unreadable)
        else:
            name, result = asking.of_session(name)
    answer = AnsweredQuestion(
        session="" if all_projects else result.session,
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
    raise_unreadable(unreadable)
    if answer.why == "stopped":
        ctx.exit(130)
    if not answer.items or any(item.why for item in answer.items):
        ctx.exit(1)


class _Question:
    """A question, and who is asked it."""

    def __init__(
        self, app: App, text: str, chosen: Model, model: str, budget: int, steps: int, stop: threading.Event
    ) -> None:
        from ctxvc.agent.limits import Limits
        from ctxvc.tokens import models

        self._app = app
        self._text = text
        self._chosen = chosen
        self._limits = Limits(steps=steps)
        self._stop = stop
        reported = provider_window(chosen, model)
        self._model = model
        self._window = min(budget, (reported.tokens if reported else 0) or models.window(model) or budget)

    def of_session(self, name: str) -> tuple[str, AskResult]:
        """The full name of a session, and the answer from it. Raises: CtxvcError."""
        from ctxvc.agent import ask as of_one
        from ctxvc.session.session import Session
        from ctxvc.store.log.stored_session import StoredSession
        from ctxvc.store.store import Store

        with Store(self._app.store_path()) as store:
            name = self._app.resolved(store, name)
            recorded = Session(StoredSession.open(store, name))
            try:
                with self._asking(store, of_one.open_session) as session:
                    return name, self._result(session, of_one.Recording(session, recorded))
            finally:
                recorded.stored.leave()

    def of_sessions(self, remote: str | None, unreadable: list[CtxvcError]) -> AskResult:
        """The answer from all sessions of the project, or from those that a remote has. Raises: CtxvcError."""
        from ctxvc.agent import ask_sessions
        from ctxvc.cli.remotes import remote_sessions

        with self._app.store() as store:
            only = None if remote is None else remote_sessions.names(self._app, store, remote)
            source = ask_sessions.Source(path=store.path, sessions=only)
            with self._asking(store, ask_sessions.open_session) as session:
                return self._result(session, self._recordings(session, [source], unreadable))

    def of_all_projects(self, unreadable: list[CtxvcError]) -> AskResult:
        """The answer from the sessions of all projects. Raises: CtxvcError."""
        from ctxvc.agent import ask_sessions

        sources = ask_sessions.labelled([store.path for store in self._app.all_stores(unreadable)])
        with ask_sessions.in_memory(model=self._model, window=self._window) as session, after_failure("ask again"):
            return self._result(session, self._recordings(session, sources, unreadable))

    @contextmanager
    def _asking(self, store: Store, opened: Callable[..., Session]) -> Iterator[Session]:
        """A new session of the store for the question; what is current there stays so."""
        from ctxvc.agent.ask_sessions import NAME

        sessions = store.sessions()
        name = next(free for number in range(1, len(sessions) + 2) if (free := f"{NAME}{number}") not in sessions)
        current = store.current_session()
        try:
            with (
                opened(store.path, name, model=self._model, window=self._window) as session,
                after_failure(f"ask again; what was read so far is in session {name}"),
            ):
                yield session
        finally:
            store.set_current_scope(current, store.current_scope(current))

    def _recordings(self, session: Session, sources: Sequence[Source], unreadable: list[CtxvcError]) -> Recordings:
        from ctxvc.agent.ask_sessions import Recordings

        with Progress("indexing", format=lambda number: f"{number:,} sessions") as progress:
            return Recordings(session, self._text, sources, unreadable, progress.reach)

    def _result(self, session: Session, evidence: Evidence) -> AskResult:
        from ctxvc.agent.ask import ask

        screen = Screen(self._app.output, self._stop, scripted=self._chosen.scripted, replies=False)
        return ask(session, evidence, self._text, self._chosen, screen, self._limits)


def _lines(output: Output, answer: AnsweredQuestion) -> Iterator[str]:
    yield from safe(answer.answer or f"no answer ({answer.why})").splitlines()
    yield ""
    if not answer.items:
        yield "it cites nothing"
        return
    yield from output.table_lines(table_of(CitationItem, answer.items))


class CitationItem(Item, frozen=True, kw_only=True):
    """A citation in an answer. It is valid if the block exists and was read."""

    TABLE = "handle verdict scope step label"

    handle: Annotated[str, described("as written in the answer"), Column("cited")]
    block: BlockId
    project: Annotated[str, described("with --all-projects, the project's folder; empty if the citation is invalid")]
    session: Annotated[str, described("empty if the citation is invalid")]
    scope: Annotated[ScopeName, Column("scope", rank=1)]
    step: Annotated[int, Column("step", right=True, cell=unless_zero)]
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

    session: Annotated[
        str, described("session with the question, what was read and the answer; empty with --all-projects")
    ]
    recording: Annotated[str, described("session that was asked; empty if several were")]
    answer: str
    scripted: Annotated[bool, described("whether a script replied instead of a model")]
    why: Annotated[str, described("why it ended, as in `run`")]
    steps: int
    dollars: float | None
    items: Annotated[list[CitationItem], described("the answer's citations")]
