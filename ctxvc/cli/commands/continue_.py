"""`continue`: a session, continued in another agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ctxvc.cli.agents_session import (
    AGENTS,
    GoingOn,
    is_taken_in,
    note_losses,
    print_export,
    say,
    worked_in,
    write_session,
)
from ctxvc.cli.app import App, command, json_option, revision_argument
from ctxvc.cli.options.policy_and_model import parsed, unasked, usual
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import safe
from ctxvc.core.prompt.cut import is_cut
from ctxvc.core.prompt.equal_call import tool_of
from ctxvc.errors import CtxvcError, NotFound
from ctxvc.exporters.exported import Exported
from ctxvc.forms.losses import Loss
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import project_root
from ctxvc.store.read import revision as revisions

if TYPE_CHECKING:
    from ctxvc.core.ledger.ledger import Ledger
    from ctxvc.store.read.revision import Snapshot
    from ctxvc.store.store import Store

#: `ctxvc run` among the agents: it works in a scope of the session, and reads no file.
RUN = "run"


@command("continue", "ctxvc continue --in codex")
@revision_argument()
@click.option("--in", "agent", metavar="AGENT", type=click.Choice([*AGENTS, RUN]), required=True,
              help=f"Where to go on: {', '.join(AGENTS)}; or {RUN}, the agent of `ctxvc run`.")  # fmt: skip
@click.option("--budget", metavar="TOKENS", type=TokenAmount(4_000),
              help="First let a policy bring the prompt below this many tokens, as in 80k.")  # fmt: skip
@click.option("--policy", "spec", metavar="POLICY", default="",
              help="With --budget: the policy (the session's own, else default).")  # fmt: skip
@click.option("--run", "runs", is_flag=True, help="Run the agent at once.")
@click.option("--wrap", "wraps", is_flag=True, help="Run it by `ctxvc wrap`, inside the budget if there is one.")
@json_option
@click.pass_obj
def continue_(
    app: App, revision: str, agent: str, budget: int | None, spec: str, runs: bool, wraps: bool
) -> None:  # fmt: skip
    """
    Writes the prompt at REV as a session of AGENT, in the place where AGENT keeps its own, and prints the command that
    continues it; no existing session is overwritten. `ctxvc import`, `watch` or `wrap` bring what AGENT does back into
    this session, as a scope of its own. `ctxvc run` works in such a scope directly.
    """
    if spec and not budget:
        raise click.UsageError("--policy requires --budget")
    if app.output.json and (runs or wraps):
        raise click.UsageError("--json cannot be combined with --run or --wrap")
    if agent == RUN:
        if wraps:
            raise click.UsageError("--wrap is not needed: `ctxvc run` records itself")
        _continue_run(app, revision, budget or 0, spec, runs=runs)
        return
    if budget:
        revision = _within(app, revision, agent, budget, spec)
    if is_taken_in(agent):
        document = _document(app, agent)
        going_on = _without_taking_in(app, write_session(app, revision, agent, document, install=False))
    else:
        going_on = write_session(app, revision, agent, None, install=True)
    say(app, going_on)
    if runs or wraps:
        _run(app, going_on, [*(["--budget", str(budget)] if budget else []), *(["--policy", spec] if spec else [])]
             if wraps else None)  # fmt: skip


# --- inside a budget


def _within(app: App, revision: str, agent: str, budget: int, spec: str) -> str:
    """The revision after the policy has made room, in a scope of its own."""
    from dataclasses import replace

    from ctxvc.core.view.budget import Budget, check
    from ctxvc.policies.run import ask_plan
    from ctxvc.session.session import Session

    with app.store() as store:
        snapshot = _snapshot(app, store, revision)
        policy = parsed(spec, app.folder) if spec else usual(app, snapshot.ledger.meta.policy)
        name = _scope(store, snapshot, agent)
        with StoredSession.open(store, snapshot.session, snapshot.scope) as stored:
            stored.fork(name, f"inside {budget:,} tokens, for {agent}", commit=snapshot.commit, source="")
        stored = StoredSession.open(store, snapshot.session, name)
        with Session(stored, actor="user", policy=policy, meter=app.meter(store, stored.ledger())) as session:
            view = unasked(session.view())
            view = replace(view, budget=check(Budget(budget, view.budget.reserve, view.budget.ladder)))
            before = session.used()
            session.commit(ask_plan(policy, view), roll_up=True)
            tokens = session.used()
        place = f"{snapshot.session}/{name}"
        freed, after = map(app.output.estimate, (before - tokens, tokens))
        app.output.note(
            f"{freed} tokens freed; the prompt is {after} tokens now: `ctxvc status {place}` shows what left"
        )
        if tokens > budget:
            app.output.note("nothing else may leave it")
        return place


def _snapshot(app: App, store: Store, revision: str) -> Snapshot:
    """The snapshot at a revision, all complete steps committed."""
    with StoredSession.open(store, app.session_name(store)) as stored:
        stored.flush()
        return app.revision(stored, revision)


def _scope(store: Store, snapshot: Snapshot, agent: str) -> str:
    tips = store.tips(snapshot.session)
    names = (f"for-{agent}" if number == 1 else f"for-{agent}-{number}" for number in count(1))
    return next(name for name in names if name not in tips)


# --- in `ctxvc run`


def _continue_run(app: App, revision: str, budget: int, spec: str, *, runs: bool) -> None:
    """Opens the scope in which `ctxvc run` goes on, and prints or becomes the command."""
    from ctxvc.agent import start

    with app.store() as store:
        snapshot = _snapshot(app, store, revision)
        policy = parsed(spec, app.folder) if spec else usual(app, snapshot.ledger.meta.policy)
        folder = worked_in(snapshot, project_root(app.folder).resolve())
        scope = start.go_on(
            store, snapshot, policy=policy, folder=folder, window=budget, note=lambda text: app.output.note(safe(text))
        )
        with StoredSession.open(store, snapshot.session, scope) as stored:
            now = revisions.now(stored)
        exported = Exported(b"", tuple(_unsaid(snapshot, now.ledger)))
        print_export(app, now, RUN, exported, None, written=True)
        last = next((row for row in snapshot.ledger.backwards() if row.kind != "dashboard"), None)
        has_ended = last is not None and last.role == "assistant" and last.kind not in ("tool_use", "other")
    if app.output.json:
        return
    note_losses(app, exported, snapshot)
    command = ["run", "--resume", f"{snapshot.session}/{scope}"]
    say(app, GoingOn(folder, [["ctxvc", *command, *(["TASK"] if has_ended else [])]]))
    if runs:
        if has_ended and sys.stdin.isatty():
            app.output.note("what should it do next? End with ^D on a line of its own")
        os.chdir(folder)
        _become(app, [sys.executable, "-m", "ctxvc", *command, *(["-"] if has_ended else [])])


def _unsaid(snapshot: Snapshot, ledger: Ledger) -> Iterator[Loss]:
    """What the run's prompt lacks of a snapshot, or has changed."""
    yield from (Loss(name, "the agent's own") for name in ("system", "tools") if getattr(snapshot, name))
    for row in snapshot.ledger.rows():
        if row.kind == "thinking" and row.present and is_cut(row, ledger.meta):
            yield Loss(row.id)
        elif row.kind == "tool_use" and (tool := tool_of(ledger[row.id])) != row.tool:
            yield Loss(f"{row.id}.name", tool)


# --- the agent's own command


def _document(app: App, agent: str) -> Path:
    """A file for an agent that takes sessions in by a command of its own."""
    folder = app.store_path() / "ctxvc" / "cache" / "continued"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return next(path for number in count(1) if not (path := folder / f"{agent}-{number}.json").exists())


def _without_taking_in(app: App, going_on: GoingOn) -> GoingOn:
    """What is left to do after the agent has taken the session in, if it is installed."""
    *firsts, last = going_on.commands
    for first in firsts:
        program = shutil.which(first[0], path=app.env.get("PATH"))
        if not program:
            return going_on
        result = subprocess.run(
            [program, *first[1:]], cwd=going_on.folder, env=app.env, capture_output=True, check=False
        )
        if result.returncode:
            reason = result.stderr.decode("utf-8", "replace").strip()[-300:]
            raise CtxvcError(f"{first[0]} could not import the session: {reason}", hint="run the printed commands")
    return GoingOn(going_on.folder, [last])


def _run(app: App, going_on: GoingOn, wrapped: Sequence[str] | None) -> None:
    """Becomes the agent, or a `wrap` of it with these options."""
    (command,) = going_on.commands or [()]
    if not command:
        raise NotFound(
            "this agent has no command that continues a session",
            hint="its file is written; `ctxvc continue --in run` continues with ctxvc's own agent",
        )
    program = shutil.which(command[0], path=app.env.get("PATH"))
    if not program:
        raise NotFound(
            f"{command[0]} is not installed, or not in PATH",
            hint="the session is written; install it, then run the printed command",
        )
    os.chdir(going_on.folder)
    argv = [program, *command[1:]]
    if wrapped is not None:
        argv = [sys.executable, "-m", "ctxvc", "wrap", *wrapped, *command]
    _become(app, argv)


def _become(app: App, argv: list[str]) -> None:
    sys.stdout.flush()
    os.execve(argv[0], argv, dict(app.env))  # noqa: S606 - the agent is the program from here on
