"""The recordings of a store as an offer, of which the slow part is loaded with the first call.

A client waits for the list of the tools when it starts; few of its sessions call one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.mcp import offer
from ctxvc.mcp.protocol import Resource, Tool


class Recordings:
    """The store that `find` returns, which may be created later, as tools and resources.

    `default` is the session of calls that name none. Where it is empty, `of_call` gives it for what the client says of
    a call; by default it is the store's current session. `explain` is asked why code is as it is.
    """

    instructions = offer.INSTRUCTIONS
    tools: Sequence[Tool] = offer.TOOLS
    resources: Sequence[Resource] = offer.RESOURCES

    def __init__(
        self,
        find: Callable[[], Path],
        default: str = "",
        *,
        version: str = "",
        of_call: Callable[[Any, Mapping[str, Any]], str] = lambda _store, _meta: "",
        explain: Callable[[Any, str], tuple[Sequence[str], Sequence[str]]] | None = None,
    ) -> None:
        self.version = version
        self._given = (find, default, of_call, explain)
        self._recorded: Any = None

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct:
        """Raises: Wrong."""
        result: msgspec.Struct = self._loaded().call(name, arguments, meta)
        return result

    def text(self, uri: str, meta: Mapping[str, Any]) -> str:
        """Raises: Wrong."""
        text: str = self._loaded().text(uri, meta)
        return text

    def _loaded(self) -> Any:
        if self._recorded is None:
            from ctxvc.mcp.recorded import Recorded

            self._recorded = Recorded(*self._given)
        return self._recorded
