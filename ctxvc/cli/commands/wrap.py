"""`wrap`: an agent whose requests pass through a proxy of its own and are recorded."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ctxvc.cli.app import App, Command
from ctxvc.cli.options.management_options import management_options, managing, parsed_urls, upstream_option
from ctxvc.cli.output import counted, safe
from ctxvc.core.display import human_tokens
from ctxvc.errors import BadInput, CtxvcError, NotFound

if TYPE_CHECKING:
    from ctxvc.inspection.client_prompts import Comparison
    from ctxvc.wire.agents import Agent, Settings

#: What stands for `--` once click has had its turn.
_ANY = "\0--"


class _Wrap(Command):
    """A command whose arguments are its own only up to the agent's name, or to `--`."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*args[:place], *([_ANY] if place < len(args) else []), *args[place + 1 :]])


@click.command("wrap", cls=_Wrap, example="ctxvc wrap claude")
@click.argument("arguments", metavar="AGENT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--print", "only_print", is_flag=True, help="Show what would be set, and run nothing.")
@click.option("--pause", "managed_now", flag_value="off", default=None,
              help="Send agents' own requests from now on, also for those that run.")  # fmt: skip
@click.option("--go", "managed_now", flag_value="on", help="Keep prompts inside the budget again.")
@management_options
@upstream_option
@click.pass_obj
def wrap(
    app: App,
    /,
    arguments: tuple[str, ...],
    only_print: bool,
    managed_now: str | None,
    upstreams: tuple[str, ...],
    **management: Any,
) -> None:
    """Every request that the agent sends to its model is recorded, with its answer. Its terminal, its files and its
    exit status are as without ctxvc: only its base URL is another, for this one process. `ctxvc wrap -- COMMAND` sets
    the variables that most clients read. Agents: claude, codex, gemini, copilot, opencode, pi, qwen, crush, aider,
    mini, openhands, goose.

    With --budget, prompts are kept below so many tokens: what leaves is in the store, and the model can read it back.

    Where ANTHROPIC_BASE_URL or a like variable is set, or --upstream given, requests go on to there.
    """
    from ctxvc import loopback
    from ctxvc.cli.remotes.auto_push import AutoPush
    from ctxvc.cli.wrapped_agent import OwnProxy, end_as, run
    from ctxvc.core import variables
    from ctxvc.wire import agents, forward, trouble
    from ctxvc.wire.proxy import bound

    if managed_now:
        trouble.pause(app.store_place(), paused=managed_now == "off")
        if not arguments:
            app.output.say("paused: agents' own requests go out" if managed_now == "off" else "on: budgets hold again")
            return
    agent, command = _chosen(arguments)
    routes = forward.upstreams({**agents.upstreams(agent, app.env), **parsed_urls(upstreams)}, app.env)
    if only_print:
        _show(app, agents.settings(agent, _urls("PORT", "KEY", {}), app.env), command)
        return
    managed = managing(app, **management)
    key = loopback.new_token()
    sockets = [(bound(), ""), *((bound(), name) for name in agent.keyless)]
    ports = {name: item.getsockname()[1] for item, name in sockets}
    settings = agents.settings(agent, _urls(ports[""], key, ports), app.env)
    program = shutil.which(command[0], path=app.env.get("PATH"))
    if not program:
        raise NotFound(f"{command[0][:80]} is not installed, or not in PATH", hint="install it first")
    if variables.is_recording_off(app.env):
        app.output.note(f"ctxvc: {variables.RECORDING} is off: nothing is recorded")
    folder = app.folder
    proxy = OwnProxy(
        sockets,
        {
            "key": key,
            "agent": Path(command[0]).name,
            "session": app.session,
            "store": str(app.store_place()),
            "folder": str(folder),
            "upstreams": {name: upstream.url for name, upstream in routes.items()},
            "management": msgspec.to_builtins(managed),
        },
    )
    proxy.wait()
    start = time.time()
    os.chdir(folder)
    try:
        env = {**app.env, **settings.env, **_files(settings)}
        status = run([command[0], *settings.arguments, *command[1:]], env, proxy)
    finally:
        proxy.close()
        if not variables.is_recording_off(app.env) and app.store_place().exists():
            AutoPush(app.env)(app.store_place())
    if reported := proxy.errors():
        app.output.note(f"ctxvc: {reported}")
    if managed:
        _report(app, start)
    click.get_current_context().exit(end_as(status))


def _chosen(arguments: Sequence[str]) -> tuple[Agent, list[str]]:
    """The row of the table, and the command with its arguments. Raises: BadInput, click.UsageError."""
    from ctxvc.wire.agents import AGENTS, ANY

    arguments = ["--" if text == _ANY and place else text for place, text in enumerate(arguments)]
    if not arguments or arguments == [_ANY]:
        raise click.UsageError(f"name an agent: {', '.join(AGENTS)}; or -- COMMAND")
    if arguments[0] == _ANY:
        return ANY, arguments[1:]
    if arguments[0] not in AGENTS:
        raise BadInput(
            f"{arguments[0][:60]!r} is not in the list of agents: {', '.join(AGENTS)}",
            hint=f"if it reads {', '.join(ANY.env)}: `ctxvc wrap -- {arguments[0][:60]} …`; "
            "else start `ctxvc proxy` and set its address as the base URL (with /v1 for OpenAI's)",
        )
    agent = AGENTS[arguments[0]]
    return agent, [agent.program, *arguments[1:]]


def _urls(port: int | str, key: str, ports: Mapping[str, int]) -> dict[str, str]:
    """What stands for a name in braces: the base URL at the proxy of each upstream, and the folder of our files."""
    from ctxvc.cli.hosts import hooks
    from ctxvc.wire.forward import HOSTS

    address = f"http://127.0.0.1:{port}/{key}"
    urls = {name: f"http://127.0.0.1:{ports[name]}" if name in ports else f"{address}/{name}" for name in HOSTS}
    return {**urls, "any": address, "hooks": str(hooks.folder())}


def _report(app: App, since: float) -> None:
    """One line on what the budget came to. A store that cannot be read has been reported before."""
    from ctxvc.inspection.client_prompts import comparison
    from ctxvc.store.store import Store

    with suppress(CtxvcError), Store(app.store_place()) as store:
        figures = comparison(store, int(since))
        if figures.calls:
            app.output.note(f"ctxvc: {summary(figures)}")


def summary(figures: Comparison) -> str:
    """`31 calls; largest prompt 79k tokens, 412k without ctxvc; 1.9M tokens sent, 6.3M without; …`."""
    parts = [
        counted(figures.calls, "call"),
        f"largest prompt {human_tokens(figures.largest)} tokens, {human_tokens(figures.largest_of_client)} without",
        f"{human_tokens(figures.tokens)} tokens sent, {human_tokens(figures.tokens_of_client)} without",
    ]
    if figures.dollars is not None and figures.dollars_of_client is not None:
        parts.append(f"${figures.dollars:.2f}, ${figures.dollars_of_client:.2f} without")
    parts.append(f"{counted(figures.removed, 'block')} left, {figures.recovered} read back")
    return "; ".join(parts)


def _files(settings: Settings) -> dict[str, str]:
    """The files that the agent is to read, in the person's data folder: variable → path. Raises: CtxvcError."""
    from ctxvc.store import files
    from ctxvc.store.trust import identity

    paths = {}
    for name, content in settings.files.items():
        path = identity.data_folder(make=True) / f"{settings.program}-defaults.json"
        files.replace(path, content.encode())
        paths[name] = str(path)
    return paths


def _show(app: App, settings: Settings, command: Sequence[str]) -> None:
    app.output.lines(safe(f"{name}={shlex.quote(value)}") for name, value in settings.env.items())
    app.output.lines(safe(f"{name}=FILE, with {content}") for name, content in settings.files.items())
    app.output.lines([safe(shlex.join([command[0], *settings.arguments, *command[1:]]))])
