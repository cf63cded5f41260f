"""The ids of calls: used once each, also where a provider gives none or one twice."""

from __future__ import annotations

from collections import deque
from typing import Any

from ctxvc.forms.values import text_of


class CallIds:
    """Ids for calls, each used once, and the call that a result answers: one of the latest reply's if possible."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._original_ids: set[str] = set()
        self._uses: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._open: dict[str, deque[str]] = {}

    def begin(self) -> None:
        """A new reply calls."""
        self._open = {}

    def call(self, original_id: Any, tool: str) -> str:
        """A unique id for a call of `tool` with the id `original_id`, which may be no string, or empty."""
        name = text_of(original_id)
        stem = name or f"call-{len(self._tools) + 1}"
        ours = stem
        while ours in self._tools or (ours != name and ours in self._original_ids):
            self._uses[stem] = self._uses.get(stem, 1) + 1
            ours = f"{stem}~{self._uses[stem]}"
        self._tools[ours] = tool
        self._original_ids.add(name)
        if name:
            self._latest[name] = ours
        # A result names its call by id; where calls have none, by the tool.
        self._open.setdefault(name or f"\0{tool}", deque()).append(ours)
        return ours

    def answered(self, original_id: Any, tool: str) -> tuple[str, str]:
        """Our id and the tool of the call that a result answers; the id is empty if it cannot be found."""
        name = text_of(original_id)
        self._original_ids.add(name)
        slot = name or f"\0{tool}"
        if slot == "\0":
            slot = next(iter(self._open), slot)
        if slot not in self._open:
            # An id that no call was given is kept, unless it is one that we made up.
            ours = self._latest.get(name, "" if name in self._tools else name)
        else:
            ours = self._open[slot].popleft()
            if not self._open[slot]:
                del self._open[slot]
        return ours, self._tools.get(ours, tool)
