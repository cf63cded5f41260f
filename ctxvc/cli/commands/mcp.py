"""`mcp`: the store, served to MCP clients."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ctxvc.cli.app import SESSION, App, command
from ctxvc.errors import BadInput

if TYPE_CHECKING:
    from ctxvc.mcp.recordings import Recordings
    from ctxvc.store.store import Store


@command("mcp", "claude mcp add ctxvc -- ctxvc mcp")
@click.option("--http", "address", metavar="[HOST:]PORT", default="",
              help="Serve HTTP clients there, on 127.0.0.1 by default; port 0 takes a free one.")  # fmt: skip
@click.option("--token-file", metavar="FILE", type=click.Path(path_type=Path),
              help="With --http: keep the token in FILE, which is created if missing.")  # fmt: skip
@click.option("--beyond-this-machine", is_flag=True,
              help="With --http: allow an address that others can reach. Nothing is encrypted.")  # fmt: skip
@click.option("--project-notes", is_flag=True, help="Let clients read and write the project's notes.")
@click.option("--all-projects", is_flag=True, help="Let clients search all your projects on this machine.")
@click.pass_obj
def mcp(
    app: App, address: str, token_file: Path | None, beyond_this_machine: bool, project_notes: bool, all_projects: bool
) -> None:
    """Offers notes, search and reading of everything recorded; it does not change the host's own context. MCP clients
    start it themselves: `ctxvc help connect-over-mcp` has configurations.

    With --http you start it once, for any number of clients; it prints the address, and the token that they send.
    """
    from ctxvc import __version__
    from ctxvc.mcp.protocol import Connection
    from ctxvc.mcp.recordings import Recordings
    from ctxvc.mcp.stdio import serve

    if not address and (token_file or beyond_this_machine):
        raise click.UsageError("--token-file and --beyond-this-machine require --http")
    env = {} if address else app.env  # the environment of a server for many says nothing of who calls it
    recordings = Recordings(
        app.store_path,
        app.session or app.env.get(SESSION, ""),
        version=__version__,
        of_call=partial(_of_call, env),
        explain=partial(_explain, app.folder),
        is_coming=partial(_is_coming, env),
        project_notes=project_notes,
        all_projects=all_projects,
    )
    if address:
        _serve_http(app, recordings, address, token_file, beyond=beyond_this_machine)
    elif sys.stdin is not None:  # else there is no client
        serve(Connection(recordings, traceback.print_exception), sys.stdin.buffer, sys.stdout.buffer)


def _serve_http(app: App, recordings: Recordings, written: str, token_file: Path | None, *, beyond: bool) -> None:
    from ctxvc import loopback
    from ctxvc.mcp.streamable import PATH, Endpoint

    try:
        address = loopback.parsed_address(written)
    except BadInput as error:
        raise click.UsageError(f"{error}: {error.hint}") from error
    if not beyond and not loopback.is_loopback(address[0]):
        raise click.UsageError(
            f"{address[0]} can be reached from other machines, and what is sent is not encrypted: use 127.0.0.1 and "
            "a tunnel (ssh -L), or add --beyond-this-machine"
        )
    token = loopback.token_of_file(app.path(token_file)) if token_file else loopback.new_token()
    endpoint = Endpoint(recordings, traceback.print_exception)
    server = loopback.Server(address, token=token, answer=endpoint.answer, report=traceback.print_exception)
    app.output.say(f"serving {server.url}{PATH}")
    app.output.say(f"token: {token}")
    app.output.say(f"claude mcp add --transport http ctxvc {server.url}{PATH} \\")
    app.output.say(f'  --header "Authorization: Bearer {token}"')
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server.serve()


def _of_call(env: Mapping[str, str], store: Store, meta: Mapping[str, Any]) -> tuple[str, str]:
    from ctxvc.claude_code import conversation

    return conversation.of_call(store, meta, env)


def _explain(folder: Path, store: Store, target: str) -> tuple[list[str], list[str]]:
    from ctxvc.cli.answers.why import in_lines

    return in_lines(folder, store, target)


def _is_coming(env: Mapping[str, str]) -> bool:
    from ctxvc.claude_code import conversation

    return conversation.has_begun(env)
