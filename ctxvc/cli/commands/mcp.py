"""`mcp`: the store, served to an MCP client."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ctxvc.cli.app import SESSION, App, command

if TYPE_CHECKING:
    from ctxvc.store.store import Store


@command("mcp", "claude mcp add ctxvc -- ctxvc mcp")
@click.pass_obj
def mcp(app: App) -> None:
    """
    Offers notes, search and reading of everything recorded, including what left a host's prompt; it does not change the
    host's own context. A call that names no session acts on the conversation that it is made in, where the host says
    which (Claude Code does), else on the current session. MCP clients start it themselves: `ctxvc help
    connect-over-mcp` has configurations for several.
    """
    from ctxvc import __version__
    from ctxvc.mcp.protocol import Connection
    from ctxvc.mcp.recordings import Recordings
    from ctxvc.mcp.stdio import serve

    recordings = Recordings(
        app.store_path,
        app.session or app.env.get(SESSION, ""),
        version=__version__,
        of_call=partial(_session_of_call, app),
        explain=partial(_explain, app),
    )
    # stdout is the wire.
    serve(Connection(recordings, traceback.print_exception), sys.stdin.buffer, sys.stdout.buffer)


def _session_of_call(app: App, store: Store, meta: Mapping[str, Any]) -> str:
    from ctxvc.claude_code import conversation

    return conversation.of_call(store, meta, app.env)


def _explain(app: App, store: Store, target: str) -> tuple[Sequence[str], Sequence[str]]:
    from ctxvc.cli.why_answer import in_lines

    return in_lines(app.folder, store, target)
