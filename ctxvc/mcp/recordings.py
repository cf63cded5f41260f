"""The offer of a store's recordings, which loads its slow part at the first call.

A client waits for the list of tools when it starts; few of its sessions call one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.mcp import offer
from ctxvc.mcp.contract import Content, Page, Prompt, Resource, Tool


class Recordings:
    """The tools, resources and prompts of the store that `find` returns, which may be created later.

    `default` is the session of calls that name none. If it is empty, `of_call` returns session and scope for the
    client's metadata of a call; by default they are the store's current ones. `explain` explains code, and `is_coming`
    says whether a first recording is on its way. A person may also allow `project_notes` and search in `all_projects`.
    """

    instructions = offer.INSTRUCTIONS
    tools: Sequence[Tool] = offer.TOOLS
    templates: Sequence[Resource] = offer.TEMPLATES
    prompts: Sequence[Prompt] = offer.PROMPTS

    def __init__(
        self,
        find: Callable[[], Path],
        default: str = "",
        *,
        version: str = "",
        of_call: Callable[[Any, Mapping[str, Any]], tuple[str, str]] = lambda _store, _meta: ("", ""),
        explain: Callable[[Any, str], tuple[Sequence[str], Sequence[str]]] | None = None,
        is_coming: Callable[[], bool] = lambda: False,
        project_notes: bool = False,
        all_projects: bool = False,
    ) -> None:
        self.find = find
        self.default = default
        self.version = version
        self.of_call = of_call
        self.explain = explain
        self.is_coming = is_coming
        self.project_notes = project_notes
        self.all_projects = all_projects
        self._recorded: Any = None

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct:
        """Raises: Wrong."""
        result: msgspec.Struct = self._loaded().call(name, arguments, meta)
        return result

    def resources(self, cursor: str, meta: Mapping[str, Any]) -> Page:
        """Raises: Wrong."""
        page: Page = self._loaded().resources(cursor, meta)
        return page

    def contents(self, uri: str, meta: Mapping[str, Any]) -> Sequence[Content]:
        """Raises: Wrong."""
        contents: Sequence[Content] = self._loaded().contents(uri, meta)
        return contents

    def prompt(self, name: str, arguments: Mapping[str, str], meta: Mapping[str, Any]) -> str:
        """Raises: Wrong."""
        text: str = self._loaded().prompt(name, arguments, meta)
        return text

    def completions(self, argument: str, beginning: str) -> Sequence[str]:
        """The values of an argument with this beginning; empty if unknown."""
        values: Sequence[str] = self._loaded().completions(argument, beginning)
        return values

    def _loaded(self) -> Any:
        if self._recorded is None:
            from ctxvc.mcp.recorded import Recorded

            self._recorded = Recorded(self)
        return self._recorded
