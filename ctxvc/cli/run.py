"""`run`: a small agent on a session of the store, whose context is managed by a policy."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ctxvc.cli import schemas
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Output, safe
from ctxvc.core.text import one_line
from ctxvc.errors import BadInput, NotFound

if TYPE_CHECKING:
    from ctxvc.agent.adapter import Adapter
    from ctxvc.agent.loop import Ended
    from ctxvc.agent.model import Model
    from ctxvc.agent.workspace import Outcome, Workspace
    from ctxvc.session import Session

MODEL = "claude-sonnet-5-5"
#: What a command is not given: it could use it, or tell it to the model.
_SECRET = ("ANTHROPIC_", "CTXVC_")
#: Tokens of a reply, at most.
_REPLY = 16_000


@command("run", 'ctxvc run "the tests fail since yesterday: find out why" --budget 60000')
@click.argument("task", metavar="[TASK]", default="")
@click.option("--resume", metavar="SESSION", default="", help="Go on with a run, exactly where it was.")
@click.option("--name", metavar="SESSION", default="", help="Name of the new session (run-1, run-2, …).")
@click.option("--model", metavar="MODEL", default="", help=f"Model to ask ({MODEL}).")
@click.option(
    "--policy", "spec", metavar="POLICY", default="", help="What leaves the context, and who decides (default)."
)
@click.option(
    "--budget",
    metavar="TOKENS",
    type=click.IntRange(min=1_000),
    help="Tokens that a call may have (the model's window).",
)
@click.option(
    "--max-steps",
    metavar="N",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Replies of the model, at most.",
)
@click.option(
    "--max-cost",
    metavar="DOLLARS",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Stop once the calls cost more (0: never).",
)
@click.option("--yes", is_flag=True, help="Run commands without asking.")
@click.option(
    "--script",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Play the replies in a JSON file; no model is asked.",
)
@json_option
@click.pass_obj
def run(
    app: App, task: str, resume: str, name: str, model: str, spec: str, budget: int | None, max_steps: int,
    max_cost: float, yes: bool, script: Path | None,
) -> None:  # fmt: skip
    """Work on a task in this folder: a small agent under a budget.

    It has a shell, files and helpers, and all is recorded in the store as it happens. ^C ends the run at the next
    step's end, a second one at once; --resume goes on from there, and no command is run twice. Commands are asked for,
    unless --yes.
    """
    from ctxvc.agent import running
    from ctxvc.agent.loop import Limits

    if not task.strip() and not resume:
        raise click.UsageError("give a task, or --resume SESSION")
    chosen = model_of(app, script)
    with _opened(app, resume, name, model, spec, budget, chosen) as session, stopping() as event:
        watcher = Screen(app.output, event, scripted=chosen.scripted)
        if task.strip():
            session.append({"role": "user", "content": task})
        setup = running.Setup(
            model=chosen,
            hands=_workspace(app, yes=yes),
            watcher=watcher,
            limits=Limits(steps=max_steps, dollars=max_cost),
            options={"max_tokens": min(_REPLY, session.budget.effective // 4)},
        )
        ended = running.go(session, setup)
        watcher.end()
        _tell(app.output, session, ended, scripted=chosen.scripted)


def model_of(app: App, script: Path | None) -> Model:
    """Who replies: the provider's model, or the script in a file. Raises: ModelFailed, BadInput."""
    from ctxvc.agent.model import Anthropic, Scripted

    if script is None:
        url = app.env.get("ANTHROPIC_BASE_URL")
        return Anthropic(base_url=url) if url else Anthropic()
    try:
        return Scripted.read(app.path(script).read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {script}: {error.strerror or error}") from error


@contextmanager
def _opened(
    app: App, resume: str, name: str, model: str, spec: str, budget: int | None, asked: Model
) -> Iterator[Session]:
    """The session of the run: the one to go on with, or a new one in the project's store."""
    from ctxvc.agent import running
    from ctxvc.agent.model import Anthropic
    from ctxvc.cli.planning import parsed
    from ctxvc.session import Session
    from ctxvc.store.store import FOLDER, Store, create

    try:
        path = app.store_path()
    except NotFound:
        path = app.folder / FOLDER
        create(path).close()
    with Store(path) as store:
        known = store.sessions()
    if resume:
        if resume not in known:
            raise NotFound(f"no session {resume[:60]!r}", hint="`ctxvc sessions` lists them")
        policy = parsed(spec, app.folder) if spec else ""
        session = Session.open(path, resume, model=model, budget=budget or 0, policy=policy)
    else:
        name = name or next(free for number in range(1, len(known) + 2) if (free := f"run-{number}") not in known)
        model = model or MODEL
        window = budget or (asked.window(model) if isinstance(asked, Anthropic) else 0) or 0
        session = running.begin(
            path, name, model=model, policy=parsed(spec or "default", app.folder), window=window, folder=app.folder
        )
    with session:
        yield session


def _workspace(app: App, *, yes: bool) -> Workspace:
    from ctxvc.agent.workspace import Workspace

    env = {name: value for name, value in app.env.items() if not name.startswith(_SECRET)}
    return Workspace(app.folder, approve=(lambda _: True) if yes else _Ask(), env=env)


class _Ask:
    """Asks the person before a command runs. Without a terminal nobody can say yes."""

    def __init__(self) -> None:
        self._always = False
        self._told = False
        self._lock = threading.Lock()

    def __call__(self, command: str) -> bool:
        with self._lock:
            if self._always:
                return True
            if not sys.stdin.isatty():
                if not self._told:
                    click.echo("no terminal to ask on: commands are not run; --yes allows them", err=True)
                    self._told = True
                return False
            click.echo(f"\n  {safe(command)}", err=True)
            answer = click.prompt("run it? [y]es, [n]o, [a]lways", default="n", err=True, show_default=False)
            self._always = answer.strip().lower() in ("a", "always")
            return self._always or answer.strip().lower() in ("y", "yes")


class Screen:
    """What the person sees: the model's words as they come, each call, and a line on the budget after each step."""

    def __init__(self, output: Output, event: threading.Event, *, scripted: bool, words: bool = True) -> None:
        self._output = output
        self._stopping = event
        self._lock = threading.Lock()
        self._line = False  # whether a line of words has begun
        self._words = words and not output.json
        if scripted:
            output.note("scripted: these replies were written or recorded before; no model is asked")

    def said(self, words: str) -> None:
        if self._words:
            with self._lock:
                shown = safe(words)
                sys.stdout.write(shown)
                sys.stdout.flush()
                self._line = not shown.endswith("\n") if shown else self._line

    def called(self, name: str, given: Mapping[str, Any]) -> None:
        what = next((value for value in given.values() if isinstance(value, str)), "")
        self._note(f"▸ {name} {one_line(what, 120)}".rstrip())

    def answered(self, name: str, outcome: Outcome) -> None:
        lines = outcome.output.count(b"\n")
        self._note(f"  {name}: {'failed, ' if outcome.error else ''}{lines:,} lines, {len(outcome.output):,} bytes")

    def stepped(self, adapter: Adapter) -> None:
        session = adapter.session
        used, most = session.used(), session.budget.effective
        step = session.ledger().meta.counters.step
        self._note(f"[{session.scope}, step {step}: {used:,} of {most:,} tokens, {used * 100 // most} %]")

    def stops(self) -> bool:
        return self._stopping.is_set()

    def end(self) -> None:
        """Ends a line that has begun."""
        with self._lock:
            if self._line:
                sys.stdout.write("\n")
                sys.stdout.flush()
                self._line = False

    def _note(self, words: str) -> None:
        self.end()
        with self._lock:
            self._output.note(safe(words))


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Inside, the first ^C sets the event; the second interrupts."""
    event = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        click.echo("\nstopping at the end of this step; ^C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(output: Output, session: Session, ended: Ended, *, scripted: bool) -> None:
    answer = schemas.Ran(
        session=session.name,
        scope=session.scope,
        why=ended.why,
        scripted=scripted,
        steps=ended.steps,
        fresh=ended.usage.fresh,
        written=ended.usage.written,
        read=ended.usage.read,
        reply=ended.usage.reply,
        dollars=ended.dollars,
        text=ended.text,
    )
    if output.json:
        output.value(answer)
        return
    cost = "" if ended.dollars is None or scripted else f", ${ended.dollars:,.4f}"
    ways = {
        "said": "done",
        "steps": "the limit of steps is reached",
        "cost": "the limit of cost is reached",
        "refused": "the provider would not go on",
        "stopped": "stopped",
    }
    more = "" if ended.why == "said" else f"; `ctxvc run --resume {session.name}` goes on"
    output.note(f"{ways[ended.why]} after {ended.steps} replies{cost}: session {session.name}{more}")
