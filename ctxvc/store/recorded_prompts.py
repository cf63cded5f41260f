"""Prompts that a host recorded as sent, compared with what the ledger of an import renders."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import Body
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.prompt.request import frame, request, up_to
from ctxvc.core.recording.events import Sent
from ctxvc.errors import CtxvcError

#: Of a step's commit: the hash of the prompt that its reply saw, and the last block in it.
TRAILER = "Ctxvc-Prompt"


class RecordedPrompts:
    """The comparison for one import. `stored` reads the bodies of earlier imports, by row and scope."""

    def __init__(self, stored: Callable[[Row, str], bytes]) -> None:
        self._stored = stored
        self._imported: dict[tuple[str, str], bytes] = {}
        self._bodies: dict[str, Bodies] = {}  # scope → its reader, with what the prompt before was made of
        self._digests: dict[bytes, str] = {}  # message as canonical JSON → SHA-256

    def add(self, bodies: Iterable[Body]) -> None:
        """Keeps bodies of this import, of which git has none before it ends."""
        self._imported |= {(block, suffix): data for block, suffix, data in bodies}

    def trailer(self, ledger: Ledger, sent: Sent, scope: str, system: Any, tools: Any) -> str:
        """The trailer's text if the ledger, from which the reply is missing, renders what was sent; else empty."""
        if frame(system, tools) != sent.frame:
            return ""
        last = ledger.last()
        try:
            rendered = request(ledger, self._reader(scope), system, tools)
        except (KeyError, CtxvcError):  # a body of before the host recorded its requests
            return ""
        if len(rendered.written) != len(sent.prompt):
            return ""
        if any(self._digest(message) != digest for message, digest in zip(rendered.written, sent.prompt, strict=True)):
            return ""
        return f"{rendered.digest} {last.id if last else '-'}"

    def _reader(self, scope: str) -> Bodies:
        if scope not in self._bodies:
            self._bodies[scope] = Bodies(
                lambda row: self._body(row, scope), lambda row, suffix: self._imported[row.id, suffix]
            )
        return self._bodies[scope]

    def body(self, row: Row, scope: str) -> bytes:
        """The body of a block; empty if it cannot be read before the import ends."""
        try:
            return self._body(row, scope)
        except CtxvcError:
            return b""

    def _body(self, row: Row, scope: str) -> bytes:
        imported = self._imported.get((row.id, ""))
        return self._stored(row, scope) if imported is None else imported

    def _digest(self, message: bytes) -> str:
        digest = self._digests.get(message)
        if digest is None:
            digest = self._digests[message] = hashlib.sha256(message).hexdigest()
        return digest


def before_reply(ledger: Ledger, rows: Iterable[Row]) -> Ledger:
    """`ledger` without the reply of its newest step, whose rows these are, and what came behind."""
    reply = next((row.number for row in rows if row.role == "assistant"), None)
    if reply is None:
        return ledger
    earlier = next((row for row in ledger.backwards() if row.number < reply), None)
    return up_to(ledger, earlier.id if earlier else "")
