"""`ui`: the report's page for all sessions of the project, live, in the browser."""

from __future__ import annotations

import signal
import sys
import traceback

import click

from ctxvc.cli.app import App, command
from ctxvc.cli.output import safe


@command("ui", "ctxvc ui")
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="Listen on this port (a free one).")
@click.option(
    "--edit", is_flag=True, help="Allow archive, restore, pin, unpin and undo, each with its plan shown first."
)
@click.option("--no-open", is_flag=True, help="Only print the address.")
@click.pass_obj
def ui(app: App, port: int, edit: bool, no_open: bool) -> None:
    """Follows sessions while they run. Only this machine can reach it (127.0.0.1), and the printed address works once,
    in one browser. Ctrl-C ends it.
    """
    from ctxvc import loopback
    from ctxvc.cli.page.live import Access, Live
    from ctxvc.store.store import Store

    with app.store() as store:
        path = store.path
    access = Access()
    live = Live(lambda: Store(path), access, project=app.folder.name, edit=edit)
    server = loopback.Server(
        ("127.0.0.1", port),
        token=access.token,
        answer=live.answer,
        report=traceback.print_exception,
        credential=access.credential,
        largest=1_000_000,
    )
    access.port = server.port
    address = f"{server.url}/{access.query}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app.output.say(safe(address))
    sys.stdout.flush()
    if not no_open:
        import webbrowser

        webbrowser.open(address)
    server.serve()
