"""`mcp`: the store, served to an MCP client."""

from __future__ import annotations

import click

from ctxvc.cli.app import SESSION, App, command
from ctxvc.errors import Refused

#: The library that the extra installs.
_EXTRA = frozenset({"mcp", "pydantic"})


@command("mcp", "claude mcp add ctxvc -- ctxvc mcp")
@click.pass_obj
def mcp(app: App) -> None:
    """
    Offers notes, search and reading of everything recorded, including what left a host's prompt; it does not change the
    host's own context. MCP clients start it themselves: `ctxvc help connect-over-mcp` has configurations for several.
    Needs the extra `mcp`.
    """
    try:
        from ctxvc import mcp as serving
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise Refused("`ctxvc mcp` needs the extra `mcp`", hint="pip install 'ctxvc[mcp]'") from error
    serving.server(app.store_path, app.session or app.env.get(SESSION, "")).run()
