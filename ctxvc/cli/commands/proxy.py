"""`proxy`: a server that forwards requests to models unchanged, and records them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from ctxvc.cli.answers.shared import Answer, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.management_options import management_options, managing, parsed_urls, upstream_option
from ctxvc.cli.output import safe
from ctxvc.errors import reason_of

if TYPE_CHECKING:
    from ctxvc.wire.exchange import Management, Recorder
    from ctxvc.wire.proxy import Port, Proxy


@command("proxy", "ctxvc proxy --port 8790")
@click.option("--port", "ports", metavar="[NAME=]N", multiple=True,
              help="Listen on this port (a free one); with NAME=, for that upstream alone, without a key.")  # fmt: skip
@management_options
@upstream_option
@click.option("--wrapped", is_flag=True, hidden=True, help="Take the sockets and the key from `wrap`, on stdin.")
@json_option
@click.pass_obj
def proxy(app: App, /, ports: tuple[str, ...], upstreams: tuple[str, ...], wrapped: bool, **management: Any) -> None:
    """Prints its address once it is ready: point a client there. Requests and answers pass byte for byte; those to a
    model are recorded in the project's store. Only this machine can reach it, at an address whose path is random.
    Ctrl-C ends it.

    By default requests go to the providers' own hosts, or where ANTHROPIC_BASE_URL, OPENAI_BASE_URL and
    GOOGLE_GEMINI_BASE_URL point.
    """
    from ctxvc import loopback
    from ctxvc.wire import forward
    from ctxvc.wire.exchange import Management
    from ctxvc.wire.managed_proxy import ManagedProxy
    from ctxvc.wire.proxy import Port, bound

    inherited: dict[str, Any] = json.loads(sys.stdin.readline()) if wrapped else {}
    if wrapped:
        listening = [Port(bound(fd=number), upstream) for number, upstream in inherited["sockets"]]
    else:
        listening = [Port(bound(port=number), upstream) for upstream, number in _numbers(ports)]
    routes = forward.upstreams(inherited.get("upstreams") or parsed_urls(upstreams), app.env)
    key = inherited.get("key") or loopback.new_token()
    store = Path(inherited["store"]) if wrapped else app.store_place()
    report = _Trouble(app, store)
    asked = msgspec.convert(inherited["management"], Management | None) if wrapped else managing(app, **management)
    recorder = _recorder(app, store, inherited, asked, report)
    server = ManagedProxy(routes, key=key, recorder=recorder, env=app.env, report=report.error)
    urls = {name: upstream.url for name, upstream in routes.items()}
    answer = Listening(
        address=f"http://127.0.0.1:{listening[0].number}/{key}",
        ports={port.upstream: f"http://127.0.0.1:{port.number}" for port in listening[1:]},
        upstreams=urls,
    )

    def ready() -> None:
        if app.output.json or wrapped:
            app.output.value(answer)
        else:
            app.output.say(safe(answer.address))
            for name, url in answer.ports.items():
                app.output.say(f"{name}: {safe(url)}")
        sys.stdout.flush()

    try:
        interrupted = asyncio.run(_served(server, listening, ready, wrapped=wrapped))
    finally:
        recorder.close()
    if interrupted:
        raise KeyboardInterrupt


def _recorder(
    app: App, store: Path, inherited: Mapping[str, Any], management: Management | None, report: _Trouble
) -> Recorder:
    from ctxvc.core import variables
    from ctxvc.wire.exchange import NoRecorder
    from ctxvc.wire.recorder_process import RecorderProcess

    if variables.is_recording_off(app.env):
        if not inherited:
            app.output.note(f"ctxvc: {variables.RECORDING} is off: requests are forwarded but not recorded")
        return NoRecorder()
    return RecorderProcess(
        store,
        agent=inherited.get("agent", ""),
        session=inherited.get("session", app.session),
        folder=Path(inherited.get("folder") or app.folder),
        run=inherited.get("run", ""),
        turn=Path(inherited["turn"]) if inherited else None,
        management=management,
        on_trouble=report.text,
    )


async def _served(server: Proxy, ports: list[Port], ready: Callable[[], None], *, wrapped: bool) -> bool:
    """Serves until a signal, which is true, or until `wrap` ends."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    if wrapped:
        loop.add_reader(0, ended.set)  # `wrap` sends nothing more
    await server.serve(ports, ready, ended)
    return interrupted


def _numbers(ports: tuple[str, ...]) -> list[tuple[str, int]]:
    """Upstream and number of each port; first that of the address, whose upstream is empty."""
    parsed = [(name, number) for name, _, number in (port.rpartition("=") for port in ports)]
    if wrong := next((number for _, number in parsed if not (number.isdigit() and int(number) <= 65_535)), ""):
        raise click.UsageError(f"{wrong[:40]!r} is not a port")
    addresses = [("", int(number)) for name, number in parsed if not name]
    if len(addresses) > 1:
        raise click.UsageError("give one --port N; further ports are for upstreams: --port NAME=N")
    return [*(addresses or [("", 0)]), *((name, int(number)) for name, number in parsed if name)]


class _Trouble:
    """Tells the person once why something is not recorded, and keeps the reason for `doctor`."""

    def __init__(self, app: App, store: Path) -> None:
        from ctxvc.wire import trouble

        self._app, self._store, self._told = app, store, False
        trouble.forget(store)

    def error(self, error: Exception) -> None:
        self.text(reason_of(error))

    def text(self, reason: str) -> None:
        from ctxvc.wire import trouble

        if not self._told:
            self._told = True
            trouble.report(self._store, reason)
            self._app.output.note(f"ctxvc: {safe(trouble.sentence(reason))}")


class Listening(Answer, frozen=True, kw_only=True, tag="ctxvc.proxy/1"):
    """`proxy`, once it is ready."""

    address: Annotated[str, described("the base URL for clients; its path is the key")]
    ports: Annotated[dict[str, str], described("upstream to base URL, for those that have a port without a key")]
    upstreams: Annotated[dict[str, str], described("name to base URL: where requests go")]
