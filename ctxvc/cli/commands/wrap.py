"""`wrap`: an agent whose requests pass through a proxy of its own and are recorded."""

from __future__ import annotations

import json
import os
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
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
_PAUSED = "paused: requests are sent unchanged until `ctxvc wrap --go`"


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
              help="Send requests unchanged until --go, even those of running agents.")  # fmt: skip
@click.option("--go", "managed_now", flag_value="on", help="End --pause: keep prompts inside the budget again.")
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
    """Records every request that the agent sends to its model, with the answer. The agent's terminal, files and exit
    status stay the same; only its base URL changes, for this process alone. `ctxvc wrap -- COMMAND` sets the variables
    that most clients read. Agents: claude, codex, gemini, copilot, opencode, pi, qwen, crush, aider, mini, openhands,
    goose.

    With --budget, prompts stay below that many tokens. What leaves them is in the store, where the model can read it.

    If ANTHROPIC_BASE_URL or a similar variable is set, or --upstream is given, requests are forwarded there.
    """
    from ctxvc import loopback
    from ctxvc.cli.remotes.auto_push import AutoPush
    from ctxvc.core import variables
    from ctxvc.wire import agents, forward, trouble
    from ctxvc.wire.proxy import bound

    if managed_now:
        trouble.pause(app.store_place(), paused=managed_now == "off")
        if not arguments:
            app.output.say(_PAUSED if managed_now == "off" else "on: prompts stay inside the budget again")
            return
    agent, command = _chosen(arguments)
    routes = forward.upstreams({**agents.upstreams(agent, app.env), **parsed_urls(upstreams)}, app.env)
    if only_print:
        _show(app, agents.settings(agent, _urls("PORT", "KEY", {}), app.env), command)
        return
    if not shutil.which(command[0], path=app.env.get("PATH")):
        raise NotFound(
            f"{command[0][:80]} is not installed, or not in PATH", hint="install it, or add its folder to PATH"
        )
    managed = managing(app, **management)
    key = loopback.new_token()
    sockets = [(bound(), ""), *((bound(), name) for name in agent.keyless)]
    ports = {name: item.getsockname()[1] for item, name in sockets}
    settings = agents.settings(agent, _urls(ports[""], key, ports), app.env)
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
        status = run_agent([command[0], *settings.arguments, *command[1:]], env, proxy)
    finally:
        proxy.close()
        if not variables.is_recording_off(app.env) and app.store_place().exists():
            AutoPush(app.env)(app.store_place())
    if reported := proxy.errors():
        app.output.note(f"ctxvc: {reported}")
    if managed:
        _report(app, start)
    if not (reported or variables.is_recording_off(app.env) or _has_recorded(app.store_place(), start)):
        app.output.note("ctxvc: no model call was recorded")
    click.get_current_context().exit(end_as(status))


def _chosen(arguments: Sequence[str]) -> tuple[Agent, list[str]]:
    """The row of the table, and the command with its arguments. Raises: BadInput, click.UsageError."""
    from ctxvc.wire.agents import AGENTS, ANY

    arguments = ["--" if text == _ANY and place else text for place, text in enumerate(arguments)]
    if not arguments or arguments == [_ANY] or arguments[:2] == [_ANY, ""]:
        raise click.UsageError(f"name an agent: {', '.join(AGENTS)}; or -- COMMAND")
    if arguments[0] == _ANY:
        return ANY, arguments[1:]
    if arguments[0] not in AGENTS:
        raise BadInput(
            f"{arguments[0][:60]!r} is not a known agent: {', '.join(AGENTS)}",
            hint=f"if it reads {', '.join(ANY.env)}: `ctxvc wrap -- {arguments[0][:60]} …`; "
            "else start `ctxvc proxy` and set its address as the base URL (with /v1 for OpenAI's)",
        )
    agent = AGENTS[arguments[0]]
    return agent, [agent.program, *arguments[1:]]


def _urls(port: int | str, key: str, ports: Mapping[str, int]) -> dict[str, str]:
    """What stands for a name in braces: the base URL at the proxy of each upstream, and the folder of our files."""
    from ctxvc.cli import hosts
    from ctxvc.wire.forward import HOSTS

    address = f"http://127.0.0.1:{port}/{key}"
    urls = {name: f"http://127.0.0.1:{ports[name]}" if name in ports else f"{address}/{name}" for name in HOSTS}
    return {**urls, "any": address, "hooks": str(hosts.hooks_folder())}


def _has_recorded(store: Path, since: float) -> bool:
    """Whether a journal of the store was written since then."""
    with suppress(OSError):
        return any(journal.stat().st_mtime >= since for journal in (store / "ctxvc" / "journal").iterdir())
    return False


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


#: Signals that a terminal sends to all of its foreground: the agent has them already.
_OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
#: Seconds that a proxy has lived when it is started again at once; the wait before, where it has not; and how long it
#: may take to record what is in its queue.
_LIVED, _WAIT, _LAST = 1.0, 0.2, 10.0


class OwnProxy:
    """A proxy in a process of its own, over sockets that stay open while it is started again: a client that asks
    meanwhile waits. It ends with this process.
    """

    def __init__(self, sockets: Sequence[tuple[socket.socket, str]], settings: Mapping[str, Any]) -> None:
        self._sockets = [item for item, _ in sockets]
        for item in self._sockets:
            item.listen(128)
        listening = [(item.fileno(), upstream) for item, upstream in sockets]
        self._turn = tempfile.NamedTemporaryFile(prefix="ctxvc-")  # noqa: SIM115 - as long as the proxy
        own = {"sockets": listening, "turn": self._turn.name, "run": uuid.uuid4().hex}
        self._settings = json.dumps({**settings, **own}).encode() + b"\n"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the proxy
        self._process = self._start()

    def wait(self) -> None:
        """Waits until the proxy is ready. Raises: CtxvcError with its own message if it cannot start."""
        assert self._process.stdout
        if not self._process.stdout.readline():
            self._process.wait()
            raise CtxvcError(self.errors() or "the proxy did not start", hint="`ctxvc doctor` checks the installation")

    def ended(self, pid: int) -> None:
        """Starts the proxy again if `pid`, which has ended, was its process."""
        if pid != self._process.pid:
            return
        self._process.returncode = 0  # somebody else has waited for it
        self._let_go()
        if time.monotonic() - self._began < _LIVED:
            time.sleep(_WAIT)
        self._process = self._start()

    def close(self) -> None:
        """Ends the proxy, once it has recorded what is in its queue."""
        self._let_go()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST)
        self._turn.close()
        for item in self._sockets:
            item.close()

    def errors(self) -> str:
        """The text of what the proxy reported; empty if nothing."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip().removeprefix("ctxvc: ")

    def _start(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "ctxvc", "proxy", "--wrapped"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd="/",  # modules of ours alone are found by their name
            pass_fds=[item.fileno() for item in self._sockets],
            start_new_session=True,  # no signal of the terminal reaches it
        )
        assert process.stdin
        with suppress(BrokenPipeError):
            process.stdin.write(self._settings)
            process.stdin.flush()
        return process

    def _let_go(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(OSError):
                    stream.close()


def run_agent(command: list[str], env: Mapping[str, str], proxy: OwnProxy) -> int:
    """The exit status of an agent, which runs until it ends, as `os.waitpid` gives it. Raises: OSError."""
    agent = 0
    early: list[int] = []  # signals that came while the agent was being started

    def pass_on(number: int, _frame: object) -> None:
        if not agent:
            early.append(number)
        elif not (number in _OF_TERMINALS and _in_foreground()):
            with suppress(ProcessLookupError):
                os.kill(agent, number)

    # A signal that comes just before one waits must end the waiting, too: so it is waited for a pipe.
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (*_OF_TERMINALS, *_PASSED_ON):
        if signal.getsignal(number) is not signal.SIG_IGN:  # which the agent inherits
            signal.signal(number, pass_on)
    agent = os.posix_spawnp(command[0], command, env, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    for signal_number in early:
        pass_on(signal_number, None)
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
        if not pid:
            select.select([woken], [], [])
            os.read(woken, 4096)
        elif pid != agent:
            proxy.ended(pid)
        elif os.WIFSTOPPED(status):
            _stop(os.WSTOPSIG(status))
        else:
            return status


def end_as(status: int) -> int:
    """The exit code of a process that has ended; does not return where a signal ended it, which ends this one, too."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the agent has left its own
    with suppress(OSError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def _stop(number: int) -> None:
    """Stops as the agent has, so that the shell takes the terminal; returns when both are continued."""
    handler = signal.SIG_DFL
    with suppress(OSError):  # SIGSTOP has none
        handler = signal.signal(number, signal.SIG_DFL)  # type: ignore[assignment]
    os.kill(os.getpid(), number)
    with suppress(OSError):
        signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether this process is in the foreground of its terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
