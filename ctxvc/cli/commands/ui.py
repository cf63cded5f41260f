"""`ui`: the report's page for all sessions of the project, live, in the browser."""

from __future__ import annotations

import shlex
import signal
import sys
import traceback
from typing import TYPE_CHECKING

import click

from ctxvc.cli.app import App, command
from ctxvc.cli.output import safe

if TYPE_CHECKING:
    from ctxvc.cli.page.live import Shared
    from ctxvc.store.store import Store


@command("ui", "ctxvc ui")
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=0, help="Listen on this port (a free one).")
@click.option(
    "--edit", is_flag=True, help="Allow archive, restore, pin, unpin and undo, each with its plan shown first."
)
@click.option("--remote", metavar="NAME", is_flag=False, flag_value="", default=None,
              help="Show what a remote has, as far as it was pulled; nothing can be changed.")  # fmt: skip
@click.option("--no-open", is_flag=True, help="Only print the address.")
@click.pass_obj
def ui(app: App, port: int, edit: bool, remote: str | None, no_open: bool) -> None:
    """Follows sessions while they run. Only this machine can reach it (127.0.0.1), and the printed address works once,
    in one browser. Ctrl-C ends it.

    With --remote, run `ctxvc pull --watch` beside it to keep the page up to date.
    """
    if remote is not None and edit:
        raise click.UsageError("--edit and --remote cannot be combined: what a remote has is only shown")
    from ctxvc import loopback
    from ctxvc.cli.page.live import Access, Live
    from ctxvc.store.store import Store

    project, command, shared = app.folder.name, "ctxvc ui", None
    with app.store() as store:
        path = store.path
        if remote is not None:
            project, command, shared = _shared(app, store, remote)
    access = Access()
    live = Live(lambda: Store(path), access, project=project, edit=edit, shared=shared, command=command)
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


def _shared(app: App, store: Store, name: str) -> tuple[str, str, Shared]:
    """The title of a remote's page, the command for it, and what gives its sessions; its indexes are fetched once.

    Raises: NotFound; as `indexes.fetch`.
    """
    from ctxvc.cli.remotes import remote_sessions
    from ctxvc.sharing import remotes

    remote = remotes.find(store, name)
    remote_sessions.fetched(app, remote)
    command = f"ctxvc ui --remote {shlex.quote(remote.name)}"
    return f"{app.folder.name} on {remote.name}", command, lambda: remote_sessions.tips(remote)
