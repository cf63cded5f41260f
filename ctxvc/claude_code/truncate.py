"""Truncates tool outputs that are too long for the prompt: the model sees both ends, and how to read the rest.

The host replaces an output only by one of the same shape, so unknown shapes are left alone.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ctxvc.core.prompt import truncation
from ctxvc.core.prompt.truncation import Truncation
from ctxvc.errors import Damaged
from ctxvc.recording import places
from ctxvc.store.hook_outputs import folder
from ctxvc.store.trust import contained

#: The share of the allowed characters for the beginning; the others are for the end.
_HEAD = 0.7
#: Shorter outputs are never truncated: the notice would be as long.
_LEAST = 1000


def swapped(fields: dict[str, Any], longest: int, store: Path) -> bytes:
    """The answer to a PostToolUse whose output has more than `longest` characters; empty for any other.

    The whole output is then in a file in the store. Raises: OSError.
    """
    call = fields.get("tool_use_id")
    if not isinstance(call, str) or not truncation.is_addressable(call):
        return b""
    truncator = _Truncator(max(longest, _LEAST), store, call)
    response = fields.get("tool_response")
    replacement = _shaped(response, truncator)
    if replacement == response:
        return b""
    answer = {"hookEventName": "PostToolUse", "updatedToolOutput": replacement}
    return json.dumps({"hookSpecificOutput": answer}).encode()


def _shaped(response: Any, truncator: _Truncator) -> Any:
    match response:
        case str():
            return truncator.truncate(response)
        # An output that the host truncated itself stays: it names the file with the whole.
        case {"stdout": str(text)} if "persistedOutputPath" not in response:
            return {**response, "stdout": truncator.truncate(text)}
        case {"content": [*_] as items}:
            return {**response, "content": _shaped(items, truncator)}
        case [*items]:
            return [_item(item, truncator) for item in items]
    return response


def _item(item: Any, truncator: _Truncator) -> Any:
    match item:
        case {"type": "text", "text": str(text)}:
            return {**item, "text": truncator.truncate(text)}
    return item


def _scanner(store: Path) -> str:
    """The scanner in the store's settings, read by git's rules; empty for none. Raises: CtxvcError."""
    from ctxvc.store.git import config_parser
    from ctxvc.store.secrets import secret_scanner

    try:
        settings = dict(config_parser.settings(contained.read(store, "config", 1 << 20)))
    except ValueError as error:
        raise Damaged(f"{store / 'config'} cannot be read: {error}", hint="fix that line, or remove it") from error
    return settings.get(secret_scanner.SETTING) or ""


class _Truncator:
    """Truncates texts, and stores each in full."""

    def __init__(self, longest: int, store: Path, call: str) -> None:
        self._longest = longest
        self._store = store
        self._call = call
        self._count = 0

    def truncate(self, text: str) -> str:
        """`text`, or its two ends around a line on how to read all of it, which is stored. Raises: OSError."""
        if len(text) <= self._longest:
            return text
        data = self._redacted(text)
        self._count += 1
        gap = Truncation(self._call, self._count, len(data), hashlib.sha256(data).hexdigest())
        path = folder(self._store) / gap.file
        places.put(self._store, path, data)
        head = int(self._longest * _HEAD)
        tail = self._longest - head
        between = truncation.notice(gap, len(text) - self._longest, len(text), str(path))
        return f"{text[:head]}\n{between}\n{text[-tail:]}"

    def _redacted(self, text: str) -> bytes:
        """`text` with marks for secrets, as every recording has them. Raises: CtxvcError."""
        from ctxvc.store.secrets.redaction import Redaction

        redactor = Redaction(self._store, scanner=_scanner(self._store)).of("")
        return (redactor.text(text) if redactor else text).encode("utf-8", "surrogatepass")
