"""The window of a Claude Code session, inferred: its transcript does not state it.

Claude Code gives a model 200,000 tokens, or a million if the model's name ends with `[1m]`; replies name the model
without that ending. It compacts by itself 33,000 tokens below the window, of which 20,000 are for the summary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ctxvc.core.ledger.ledger import Window, WindowSource
from ctxvc.importers.documents import mapping
from ctxvc.importers.file import object_in

USUAL = 200_000
LARGE = 1_000_000
_BELOW = 33_000
_SUFFIX = "[1m]"
#: What `/model` prints, with the model's id or its name for people.
_SET_MODEL = re.compile(rb"\s*<local-command-stdout>Set model to ([^<]{0,200})")
_LARGE_MODEL = re.compile(rb"\[1m\]|\b1M context", re.IGNORECASE)


class Windows:
    """The window by the lines so far, else by the host's `settings`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._model = ""
        self._commanded = False  # whether a command set a model with the large window
        self._window = Window()

    def printed(self, text: bytes) -> None:
        """Reads what a command printed; `/model` sets the model of the next replies."""
        if match := _SET_MODEL.match(text):
            self._commanded = _LARGE_MODEL.search(match[1]) is not None
            self._model = ""

    def replied(self, model: str, tokens: int) -> Window | None:
        """The window after a reply whose call had this many tokens in all; None if nothing is new."""
        window = self._window if model == self._model else self._begun(model)
        self._model = model
        if USUAL < tokens <= LARGE and window.tokens < tokens:
            window = _window(LARGE, "count")
        return self._news(window)

    def compacted(self, metadata: Mapping[str, Any]) -> Window | None:
        """The window after a compaction; None if nothing is new. An automatic one comes near the window's end."""
        tokens = metadata.get("preTokens")
        if metadata.get("trigger") != "auto" or not isinstance(tokens, int) or tokens <= 0:
            return None
        window = self._window
        if not window.tokens and tokens <= USUAL:
            window = _window(USUAL, "compaction")
        elif window.tokens and tokens < window.compacts:
            window = msgspec.structs.replace(window, compacts=tokens)
        return self._news(window)

    def _news(self, window: Window) -> Window | None:
        if window == self._window:
            return None
        self._window = window
        return window

    def _begun(self, model: str) -> Window:
        """The window of a model at its first reply."""
        if model.endswith(_SUFFIX):
            return _window(LARGE, "name")
        if self._commanded:
            return _window(LARGE, "command")
        return _by_settings(self._settings, model)


def settings_beside(path: Path) -> dict[str, Any]:
    """The person's host settings for the transcript at `path`; empty if it is in none of the host's folders."""
    if len(path.parents) < 3 or path.parents[1].name != "projects":
        return {}
    return object_in(path.parents[2] / "settings.json")


def _by_settings(settings: Mapping[str, Any], model: str) -> Window:
    env = mapping(settings, "env")
    own = mapping(settings, "modelSettings", model)
    chosen = str(env.get("ANTHROPIC_MODEL") or settings.get("model") or "").lower()
    name = chosen.removesuffix(_SUFFIX)
    is_large = (
        chosen.endswith(_SUFFIX) and name != "" and name in model and not env.get("CLAUDE_CODE_DISABLE_1M_CONTEXT")
    )
    limits = (
        env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW"),
        own.get("autoCompactWindow"),
        settings.get("autoCompactWindow"),
    )
    limit = next((tokens for value in limits if (tokens := _tokens(value))), 0)
    tokens = min(filter(None, (LARGE if is_large else 0, limit)), default=0)
    return _window(tokens, "settings") if tokens else Window()


def _window(tokens: int, by: WindowSource) -> Window:
    return Window(tokens=tokens, by=by, compacts=max(0, tokens - _BELOW))


def _tokens(value: object) -> int:
    """A setting, a number or a text, in tokens; 0 if the host would not accept it."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 9:
        value = int(value)
    return value if isinstance(value, int) and 0 < value <= LARGE else 0
