"""`run`: a small agent on a session of the store, whose context is managed by a policy."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click

from ctxvc.cli.answers.shared import Answer, Item, ScopeName, SessionName, described, struct_of
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.handover import Environment, is_separate
from ctxvc.cli.options.policy_and_model import default_model, model_of, provider_option
from ctxvc.cli.options.values import TokenAmount, or_text
from ctxvc.cli.output import Output, counted, safe
from ctxvc.cli.remotes.auto_push import AutoPush
from ctxvc.cli.terminal.run_screen import DEFAULT_MODEL, Screen, after_failure, provider_window, stopping
from ctxvc.core.display import one_line
from ctxvc.errors import BadInput, NotFound

if TYPE_CHECKING:
    from ctxvc.agent.limits import Limits
    from ctxvc.agent.loop import Ended
    from ctxvc.agent.model import Model
    from ctxvc.agent.sandbox import Sandbox
    from ctxvc.agent.windows import Window
    from ctxvc.agent.workspace import Workspace
    from ctxvc.core.policy import Policy
    from ctxvc.session.session import Session
    from ctxvc.store.log.stored_session import StoredSession


#: The most tokens of a reply.
_REPLY = 16_000

#: The ends of a run that is not done: the message for a person, and the exit code.
_UNDONE = {
    "full": ("the context was too full to continue", 1),
    "cut": ("too many replies were truncated", 1),
    "steps": ("the step limit is reached", 1),
    "tokens": ("the token limit is reached", 1),
    "cost": ("the cost limit is reached", 1),
    "refused": ("the provider refused to continue", 1),
    "stopped": ("stopped", 130),
}


def _dollars(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not an amount")
    return value


@command("run", 'ctxvc run "the tests fail since yesterday: find out why" --budget 60k')
@click.argument("task", metavar="[TASK]", default="", callback=or_text)
@click.option("--resume", metavar="SESSION[/SCOPE]", default="", help="Continue a run exactly where it stopped.")
@click.option("--name", metavar="SESSION", default="", help="Name for the new session (run-1, run-2, …).")
@click.option("--model", metavar="MODEL", default="", help=f"Model to ask ({DEFAULT_MODEL}).")
@provider_option
@click.option(
    "--planner", metavar="MODEL", default="", help="Model that the policy asks for plans and summaries (the run's)."
)
@click.option(
    "--policy", "spec", metavar="POLICY", default="", help="Policy that decides what leaves the context (default)."
)
@click.option(
    "--protect",
    "files",
    metavar="GLOB",
    multiple=True,
    help="Files whose newest text stays in the context, as in 'docs/*.md'; repeatable.",
)
@click.option(
    "--budget",
    metavar="TOKENS",
    type=TokenAmount(1_000),
    help="Tokens for prompt plus reply (the model's window).",
)
@click.option(
    "--window",
    metavar="TOKENS",
    type=TokenAmount(1_000),
    help="Context window of a model that neither its provider nor our table lists.",
)
@click.option(
    "--max-steps",
    metavar="N",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of the model's replies.",
)
@click.option(
    "--max-tokens-total",
    metavar="TOKENS",
    type=TokenAmount(0),
    default=0,
    help="Stop once all prompts and replies total N tokens, as the provider counts (0: never).",
)
@click.option(
    "--max-cost",
    metavar="DOLLARS",
    type=click.FloatRange(min=0),
    default=0.0,
    callback=_dollars,
    help="Stop once the calls cost more than this (0: never).",
)
@click.option(
    "--project-notes",
    "notes_cap",
    metavar="TOKENS",
    type=TokenAmount(0),
    default=0,
    help="Show the model the project's notes that fit the task, in at most N tokens (0: none).",
)
@click.option(
    "--write-project-notes",
    "writes_notes",
    is_flag=True,
    help="Let the model write notes that all later sessions of the project get.",
)
@click.option("--yes", is_flag=True, help="Run commands without asking.")
@click.option(
    "--env",
    "names",
    metavar="NAME",
    multiple=True,
    help="An extra environment variable for commands (ctxvc help run-safely); repeatable.",
)
@click.option("--sandbox", "boxed", is_flag=True, help="Run commands in a sandbox (bubblewrap, on Linux).")
@click.option(
    "--bind",
    "bound",
    metavar="PATH",
    type=click.Path(path_type=Path),
    multiple=True,
    help="With --sandbox: another place that commands may read and write; repeatable.",
)
@click.option("--network", is_flag=True, help="With --sandbox: allow commands to use the network.")
@click.option(
    "--script",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Replay the replies in a JSON file, or - for stdin; no model is asked.",
)
@json_option
@click.pass_obj
def run(
    app: App, task: str, resume: str, name: str, model: str, provider: str, planner: str, spec: str,
    files: tuple[str, ...], budget: int | None, window: int | None, max_steps: int, max_tokens_total: int,
    max_cost: float, yes: bool, script: Path | None, names: tuple[str, ...], boxed: bool, bound: tuple[Path, ...],
    network: bool, notes_cap: int, writes_notes: bool,
) -> None:  # fmt: skip
    """The agent has a shell, files and helpers; everything is recorded. ^C stops the run at the end of the step, a
    second ^C at once; --resume continues, and no command is run twice. You are asked before each command, unless --yes
    is given. Commands never see the provider's key (ctxvc help run-safely); with --sandbox, no other processes, no home
    folder and no network.
    """
    from ctxvc.agent import run as run_module
    from ctxvc.agent import start
    from ctxvc.agent.limits import Limits

    if not task.strip() and not resume:
        raise click.UsageError("give a task, or --resume SESSION")
    if files and resume and not spec:
        raise click.UsageError("--protect with --resume requires --policy, which replaces the run's own")
    if (bound or network) and not boxed:
        raise click.UsageError(f"{'--bind' if bound else '--network'} requires --sandbox")
    if planner and script:
        raise click.UsageError("--planner cannot be combined with --script, which asks no model")
    hands = _workspace(app, yes=yes, names=names, sandbox=_sandbox(app, bound, network=network) if boxed else None)
    previous = _previous(app, resume)
    chosen = model_of(app, script, model or previous[1].model, provider)
    limits = Limits(steps=max_steps, dollars=max_cost, tokens=max_tokens_total)
    with (
        _opened(
            app,
            previous,
            resume,
            name,
            model,
            spec,
            files,
            budget or 0,
            window or 0,
            chosen,
            limits,
            project_notes=writes_notes,
        ) as session,  # fmt: skip
        stopping() as event,
        _isolated(app.output, hands),
    ):
        watcher = Screen(app.output, event, scripted=chosen.scripted)
        address = previous[1].address or session.name
        again = f"`ctxvc run --resume {address}"
        if unanswered := len(session.stored.open_calls):
            app.output.note(
                f"the run was killed with {counted(unanswered, 'call')} under way; "
                "what was started may still be running"
            )
        if task.strip():
            _show_notes(session, task, notes_cap)
            session.append({"role": "user", "content": task})
        elif not start.has_task(session):
            raise BadInput(
                f"session {session.name} has no task yet",
                hint=f'{again} "TASK"`',
            )
        setup = run_module.Setup(
            model=chosen,
            hands=hands,
            watcher=watcher,
            limits=limits,
            options={"max_tokens": session.budget.reserve},
            planner=planner,
            writes_project_notes=writes_notes,
        )
        _check_planner(session, planner, chosen, limits)
        try:
            with after_failure(f"{again}` continues from there"):
                ended = run_module.go(session, setup)
        except KeyboardInterrupt:
            watcher.end()
            app.output.note(f"stopped at once: session {address}; {again}` continues it")
            raise
        finally:
            watcher.end()
        _print_end(app.output, session, ended, address, scripted=chosen.scripted)
    if ended.why in _UNDONE:
        click.get_current_context().exit(_UNDONE[ended.why][1])


def _check_planner(session: Session, planner: str, chosen: Model, limits: Limits) -> None:
    """Raises: BadInput if no policy asks the planner, its price is unknown, or the session's prompt can be too long
    for it."""
    from ctxvc.core.policy import Answer
    from ctxvc.policies import asking, spec
    from ctxvc.tokens import models

    if not planner:
        return
    policy = session.policy
    if policy is None or asking(policy, lambda _view, _words: Answer("")) == policy:
        name = spec(policy) if policy else "keep"
        raise BadInput(f"{name[:80]} asks no model", hint="planned, layered and summary can use one")
    limits.check(planner)
    reported = provider_window(chosen, planner)
    takes = (reported.tokens if reported else 0) or models.window(planner)
    if takes and takes < session.budget.window:
        raise BadInput(
            f"{planner[:80]} takes {takes:,} tokens, and prompts of this run may have {session.budget.window:,}",
            hint=f"give --budget {takes} or less, or another planner",
        )


def _assumed(model: str, tokens: int, reported: Window | None) -> str:
    """What a person is told where nobody knows a model's window."""
    why = f", which is what {reported.place} implies" if reported else ": its server does not say"
    return f"assuming that {one_line(model, 80)} takes {tokens:,} tokens{why}; --window TOKENS sets it"


def _usual_budget(app: App, limit: int) -> int:
    """The budget that is set, as far as the model takes so much; 0 for none."""
    setting = app.setting("budget")
    return min(filter(None, (setting.value, limit))) if setting else 0


@contextmanager
def _opened(
    app: App,
    origin: tuple[Path, _Previous],
    resume: str,
    name: str,
    model: str,
    spec: str,
    files: tuple[str, ...],
    budget: int,
    window: int,
    chosen: Model,
    limits: Limits,
    *,
    project_notes: bool,
) -> Iterator[Session]:
    """The session of the run, which no other run can use meanwhile: the one to resume, or a new one in the project. At
    its end it is pushed, if the person wants so.

    Its own budget is only set by a person: the model's window can change with the model.
    """
    from ctxvc.agent import start
    from ctxvc.agent.windows import LOCAL
    from ctxvc.cli.options.policy_and_model import parsed, protected, usual
    from ctxvc.core.view.budget import DEFAULT_WINDOW, Budget
    from ctxvc.policies import protecting
    from ctxvc.store.store import Store
    from ctxvc.tokens import models

    path, previous = origin
    model = model or previous.model or default_model(chosen)
    if not chosen.scripted:
        limits.check(model)
    reported = provider_window(chosen, model)
    provider_limit = reported.tokens if reported and reported.certain else 0
    limit = provider_limit or models.window(model)
    own_budget = budget or previous.budget or (0 if resume else _usual_budget(app, limit or 0))
    if limit and limit < own_budget:
        raise BadInput(f"{model} takes {limit:,} tokens, not {own_budget:,}", hint=f"set --budget {limit} or less")
    takes = provider_limit or (window if not models.window(model) else 0) or previous.window_of(model)
    if not limit and not takes:
        takes = reported.tokens if reported else 0
        if not chosen.scripted:
            app.output.note(safe(_assumed(model, takes or DEFAULT_WINDOW, reported)))
    elif reported and reported.certain and reported.source in LOCAL:
        app.output.note(safe(f"{one_line(model, 80)} takes {takes:,} tokens, as {reported.place} says"))
    window_size = min(filter(None, (own_budget, takes or models.window(model))), default=DEFAULT_WINDOW)
    reserve = min(_REPLY, window_size // 4)
    policy = parsed(spec, app.folder) if spec else parsed("default", app.folder) if resume else usual(app)
    if files:
        policy = protecting(policy, files)
    elif spec and not resume and (setting := app.setting("protect")):
        policy = protected(app, policy, setting)
    is_new = not (path / "HEAD").exists()
    name = previous.session or name
    with start.alone(path, name) if name else start.unnamed(path) as session_name:
        if resume:
            with Store(path) as store:
                store.set_current_scope(session_name, previous.scope)
            session = _resumed(path, session_name, model, policy if spec else "", project_notes=project_notes)
        else:
            session = start.begin(
                path, session_name, model=model, policy=policy, window=Budget(window_size, reserve), folder=app.folder,
                note=lambda text: app.output.note(safe(text)), project_notes=project_notes,
            )  # fmt: skip
        if is_new:
            app.output.note(f"created a store at {safe(str(path))}")
        try:
            with session:
                session.set(budget=own_budget, reserve=reserve, window=takes)
                yield session
        finally:
            AutoPush(app.env)(path)


def _resumed(path: Path, name: str, model: str, policy: str | Policy, *, project_notes: bool) -> Session:
    """The session of a run before. Raises: BadInput if its model is to write notes of the project, and has no tool."""
    from ctxvc.agent.tools.definitions import has_project_notes
    from ctxvc.session.session import Session
    from ctxvc.store.read import revision

    session = Session.open(path, name, model=model, policy=policy)
    if project_notes and not has_project_notes(revision.now(session.stored).tools):
        session.close()
        raise BadInput(
            f"session {name} was started without --write-project-notes", hint="leave it out; only a new run can have it"
        )
    return session


class _Previous(NamedTuple):
    """The settings of a session that is resumed, and the scope in which the run is; `address` is how both are named."""

    session: str = ""
    scope: str = ""
    address: str = ""
    model: str = ""
    budget: int = 0
    window: int = 0

    def window_of(self, model: str) -> int:
        """The window that was given for this model before; else 0."""
        return self.window if model == self.model else 0


def _previous(app: App, resume: str) -> tuple[Path, _Previous]:
    """The path of the store, and the settings of the session to resume. Raises: NotFound, Refused."""
    from ctxvc.agent import start
    from ctxvc.store.log.stored_session import StoredSession
    from ctxvc.store.store import Store

    path = app.store_place()
    if not resume:
        return path, _Previous()
    if (path / "HEAD").exists():
        with Store(path) as store:
            name, slash, scope = resume.partition("/")
            name = app.resolved(store, name)
            stored = StoredSession.open(store, name)
            if scope and scope not in _ancestry(stored):  # else the run went on to another from there
                stored = StoredSession.open(store, name, scope)
            app.report_damage(stored)
            start.check_begun(stored)
            meta = stored.ledger().meta
            return path, _Previous(name, stored.scope, f"{name}{slash}{scope}", meta.model, meta.budget, meta.window)
    raise NotFound(f"no session {resume[:60]!r}", hint="`ctxvc sessions` lists them")


def _ancestry(stored: StoredSession) -> set[str]:
    """The scope that a session is in, and those that it came from."""
    scopes: set[str] = set()
    scope = stored.scope
    while scope in stored.scopes() and scope not in scopes:
        scopes.add(scope)
        scope = stored.ledger(scope).meta.parent
    return scopes


def _workspace(app: App, *, yes: bool, names: tuple[str, ...], sandbox: Sandbox | None) -> Workspace:
    """Raises: BadInput, Refused for a variable that is withheld from commands."""
    from ctxvc.agent.sandbox import environment, left_out
    from ctxvc.agent.workspace import Workspace

    hidden = app.env.hidden() if isinstance(app.env, Environment) else {}
    every = {**hidden, **app.env}
    env = environment(every, names, every, sandboxed=sandbox is not None)
    if missing := left_out(every, env):
        app.output.note(f"commands may not get {', '.join(missing)}: the value is a key")
    return Workspace(app.folder, approve=(lambda _: True) if yes else _Ask(), env=env, sandbox=sandbox)


def _sandbox(app: App, bound: tuple[Path, ...], *, network: bool) -> Sandbox:
    """Raises: Refused if there can be no sandbox, BadInput."""
    from ctxvc.agent import sandbox

    path, _ = _previous(app, "")
    home = Path(app.env["HOME"]) if "HOME" in app.env else Path.home()
    return sandbox.sandbox(app.folder, home, bound=[app.path(folder) for folder in bound], store=path, network=network)


@contextmanager
def _isolated(output: Output, hands: Workspace) -> Iterator[None]:
    """Within the block, commands can run, with their limits printed; at its end, leftover processes are killed."""
    from ctxvc.agent.sandbox import OPEN
    from ctxvc.agent.shell import end_orphans

    try:
        if hands.sandbox:
            hands.begin()  # here, since it ends with the thread that started it
        output.note(safe(hands.sandbox.title if hands.sandbox else OPEN))
        yield
    finally:
        for job in [*hands.close(), *(end_orphans() if is_separate() else ())]:
            output.note(safe(f"killed at the end of the run: {one_line(str(job), 120)}"))
        if alarm := hands.alarm():
            output.note(safe(f"at the end {alarm}"))


class _Ask:
    """Asks the person before a command runs. Without a terminal, the answer is no."""

    def __init__(self) -> None:
        self._always = False
        self._warned = False
        self._lock = threading.Lock()

    def __call__(self, command: str) -> bool:
        with self._lock:
            if self._always:
                return True
            if not sys.stdin.isatty():
                if not self._warned:
                    click.echo("commands are not run without a terminal to ask on; --yes allows them", err=True)
                    self._warned = True
                return False
            click.echo(f"\n  {safe(command)}", err=True)
            try:
                answer = click.prompt("run it? [y]es, [n]o, [a]lways", default="n", err=True, show_default=False)
            except click.Abort as error:
                if isinstance(error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from error  # click makes one of ^C and ^D
                click.echo("\nno answer: not run", err=True)
                return False
            self._always = answer.strip().lower() in ("a", "always")
            return self._always or answer.strip().lower() in ("y", "yes")


def _show_notes(session: Session, task: str, cap: int) -> None:
    """Appends the project's notes that fit the task, for the model to see before it."""
    if cap:
        from ctxvc.session import project_notes

        store = session.store
        text = project_notes.for_task(store, task, store.path.parent, cap, session.view().price.text)
        if text:
            session.append({"role": "user", "content": text}, origin="client")


def _print_end(output: Output, session: Session, ended: Ended, address: str, *, scripted: bool) -> None:
    """`address` is the session's name, with the scope where that is needed to continue."""
    answer = struct_of(
        Ran,
        ended,
        ended.usage,
        session=session.name,
        scope=session.scope,
        scripted=scripted,
        planner=struct_of(PlannerUsage, ended.planner_usage, dollars=ended.planner_dollars),
    )
    if output.json:
        output.value(answer)
        return
    cost = "" if ended.dollars is None or scripted else f", ${ended.dollars:,.4f}"
    if cost and ended.planner_dollars:
        cost += f" (${ended.planner_dollars:,.4f} of it for the policy's model)"
    again = f"`ctxvc run --resume {address}"
    if ended.why == "said" and not ended.steps:
        output.note(f'already done: session {address}; {again} "TASK"` continues with another task')
        return
    how, _ = _UNDONE.get(ended.why, ("done", 0))
    waits = ended.why in ("steps", "tokens", "cost", "stopped")
    more = "" if ended.why == "said" else f"; {again}` continues it" if waits else f'; {again} "TASK"` continues it'
    replies = "reply" if ended.steps == 1 else "replies"
    output.note(f"{how} after {ended.steps:,} {replies}{cost}: session {address}{more}")


class PlannerUsage(Item, frozen=True, kw_only=True):
    """What the policy's questions to a model took."""

    prompt: Annotated[int, described("tokens of the prompts, cached ones included")]
    reply: int
    dollars: Annotated[float | None, described("null where that of the run is")]


class Ran(Answer, frozen=True, kw_only=True, tag="ctxvc.run/1"):
    """`run`. Tokens are what the provider counted."""

    session: SessionName
    scope: ScopeName
    why: Annotated[str, described("`said`, `steps`, `tokens`, `cost`, `refused`, `full`, `cut` or `stopped`")]
    scripted: Annotated[bool, described("whether a script replied instead of a model")]
    steps: Annotated[int, described("replies")]
    fresh: int
    written: int
    read: int
    reply: int
    dollars: Annotated[float | None, described("by the dated price table; null if a model is not in it")]
    planner: Annotated[PlannerUsage, described("the part of it spent on plans and summaries")]
    text: Annotated[str, described("the model's last text")]
