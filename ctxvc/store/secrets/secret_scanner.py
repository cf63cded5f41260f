"""A third-party scanner for secrets, used in addition to our rules in the stores that request it.

No other module uses the package. It could also ask providers whether a secret is valid, or revoke it: ctxvc does
neither. Scanning needs no network.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from ctxvc.core.secrets.redact import Finding
from ctxvc.errors import CtxvcError, Refused

#: In the store's `config`: the scanner to use in addition to our rules.
SETTING = "ctxvc.scanner"
#: The only supported scanner.
KINGFISHER = "kingfisher"
_PACKAGE = "kingfisher-secret-scanner"

# Bytes that make the scanner take a text for UTF-16 or UTF-32 and count offsets accordingly; no secret contains them.
_AS_BYTES = bytes.maketrans(b"\0\xfe\xff", b"   ")
# The name of the rule set, before the rule's own name.
_WHOSE = re.compile(r"^(?:.*/|[^.]*\.)")
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class _Match(Protocol):
    rule_id: str
    secret: str
    visible: bool
    is_base64_encoded: bool
    location: Mapping[str, int]


class _Kingfisher(Protocol):
    def scan(self, data: bytes, /) -> Sequence[_Match]: ...


# Loading takes half a second, and several seconds the first time. The rules are the same for every store.
_loaded: list[_Kingfisher] = []
_loading = threading.Lock()


class Scanner:
    """Scans texts with the named scanner, which is loaded with the first text. Thread-safe."""

    def __init__(self, name: str, store: Path) -> None:
        self._name = name
        self._store = store

    def __call__(self, data: bytes) -> list[Finding]:
        """The secrets in a text.

        Raises: Refused if the scanner is missing or not supported; CtxvcError if it fails: no text counts as scanned.
        """
        seen = data.translate(_AS_BYTES)
        try:
            matches = [match for match in self._kingfisher().scan(seen) if match.visible]
        except (OSError, RuntimeError, ValueError) as error:
            raise self._failed(str(error)) from error
        return [self._finding(match, seen) for match in matches]

    def _finding(self, match: _Match, seen: bytes) -> Finding:
        start, end = match.location["start_offset"], match.location["end_offset"]
        stands = seen[start:end].decode("utf-8", "replace")
        if not 0 <= start < end <= len(seen) or not (match.is_base64_encoded or stands == match.secret):
            raise self._failed("its findings are not at the positions it reports")
        kind = _NO_LETTERS.sub("-", _WHOSE.sub("", match.rule_id.lower()))
        return Finding(_between(seen, start, -1), _between(seen, end, 1), kind[:40].strip("-") or KINGFISHER)

    def _kingfisher(self) -> _Kingfisher:
        if self._name != KINGFISHER:
            raise Refused(
                f"{SETTING} is {self._name!r}, an unknown scanner",
                hint=f"`{self._setting(KINGFISHER)}`, the only one, or `{self._setting()}`",
            )
        with _loading:
            if not _loaded:
                try:
                    package = import_module("kingfisher_sdk")
                except ImportError as error:
                    raise Refused(
                        f"this store uses {KINGFISHER} to search for secrets, but it is not installed; nothing was "
                        "stored",
                        hint=f"`pip install 'ctxvc[secrets]'`, or turn it off: `{self._setting()}`",
                    ) from error
                # Without its cache of compiled rules in the person's own folders: a foreign store could bring one.
                _loaded.append(package.Scanner(package.Rules()))
            return _loaded[0]

    def _failed(self, why: str) -> CtxvcError:
        return CtxvcError(
            f"{self._name} could not search for secrets: {why}; nothing was stored",
            hint=f"to turn it off: `{self._setting()}`",
        )

    def _setting(self, value: str = "") -> str:
        return f"git --git-dir={self._store} config {f'{SETTING} {value}' if value else f'--unset {SETTING}'}"


def _between(data: bytes, at: int, step: int) -> int:
    """The nearest offset in direction `step` that splits no UTF-8 character; `at` itself if `data` is not UTF-8."""
    near = range(at, at + 4 * step, step)
    return next((here for here in near if here in (0, len(data)) or data[here] & 0xC0 != 0x80), at)


def installed() -> str:
    """The version of the installed scanner; empty if there is none. Does not load it."""
    from importlib import metadata

    try:
        return metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:
        return ""
