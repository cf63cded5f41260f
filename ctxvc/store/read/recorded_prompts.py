"""Compares prompts that a host recorded as sent with those that an import's ledger renders."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import Body
from ctxvc.core.prompt import formats
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.prompt.request import canonical, frame, request, up_to
from ctxvc.core.recording.events import Sent
from ctxvc.errors import CtxvcError


@dataclass(frozen=True, slots=True)
class _Compared:
    """A scope's newest comparison: ledger and prompt, and the hash of the messages so far, None if any differed."""

    ledger: Ledger
    last: int
    prompt: tuple[str, ...]
    hashed: Any


class RecordedPrompts:
    """The comparisons of one import. `stored` reads the bodies of earlier imports, by row and scope."""

    def __init__(self, stored: Callable[[Row, str], bytes]) -> None:
        self._stored = stored
        self._imported: dict[tuple[str, str], bytes] = {}
        self._compared: dict[str, _Compared] = {}

    def add(self, bodies: Iterable[Body]) -> None:
        """Adds bodies of this import, which git does not have before the import ends."""
        self._imported |= {(block, suffix): data for block, suffix, data in bodies}

    def trailer(self, ledger: Ledger, sent: Sent, scope: str, system: Any, tools: Any) -> str:
        """The trailer's text if the ledger, which lacks the reply, renders what was sent; else empty.

        If everything before it is unchanged, only what follows the newest comparison is rendered.
        """
        last = ledger.last()
        if last is None:
            return ""
        earlier = self._compared.get(scope)
        goes_on = earlier is not None and _goes_on(earlier, ledger, sent)
        hashed = self._hashed(ledger, sent, scope, earlier if goes_on else None)
        self._compared[scope] = _Compared(ledger, last.number, sent.prompt, hashed)
        if hashed is None or frame(system, tools) != sent.frame:
            return ""
        fields = formats.anthropic(formats.Prompt(pieces=(), system=system, tools=tools))
        frame_fields = (
            b',"%b":%b' % (name.encode(), canonical(fields[name])) for name in ("system", "tools") if name in fields
        )
        prompt_hash = hashed.copy()
        prompt_hash.update(b"]" + b"".join(frame_fields) + b"}")
        return f"{prompt_hash.hexdigest()} {last.id}"

    def _hashed(self, ledger: Ledger, sent: Sent, scope: str, earlier: _Compared | None) -> Any:
        """The hash of the messages, as the beginning of the canonical prompt; None if they differ from those sent."""
        if earlier and earlier.hashed is None:
            return None  # the difference is still there
        rows = [row for row in ledger.since(earlier.ledger) if row.number > earlier.last] if earlier else []
        part = Ledger(meta=ledger.meta).with_rows(rows) if earlier else ledger
        try:
            messages = request(part, self._reader(scope), None, None).written
        except (KeyError, CtxvcError):  # a body from before the host recorded its requests
            return None
        if rows and rows[0].role == "assistant":
            messages = messages[1:]  # skips a text of ours, added because no prompt begins with a reply
        count = len(earlier.prompt) if earlier else 0
        if tuple(hashlib.sha256(message).hexdigest() for message in messages) != sent.prompt[count:]:
            return None
        hashed = earlier.hashed.copy() if earlier else hashlib.sha256(b'{"messages":[')
        hashed.update(b"".join(b"%b%b" % (b"," if count + at else b"", one) for at, one in enumerate(messages)))
        return hashed

    def _reader(self, scope: str) -> Bodies:
        return Bodies(lambda row: self._body(row, scope), lambda row, suffix: self._imported[row.id, suffix])

    def body(self, row: Row, scope: str) -> bytes:
        """The body of a block; empty if it cannot be read before the import ends."""
        try:
            return self._body(row, scope)
        except CtxvcError:
            return b""

    def _body(self, row: Row, scope: str) -> bytes:
        imported = self._imported.get((row.id, ""))
        return self._stored(row, scope) if imported is None else imported


def _goes_on(earlier: _Compared, ledger: Ledger, sent: Sent) -> bool:
    """Whether everything compared so far is unchanged in the ledger and was sent again."""
    was = earlier.ledger
    return (
        ledger.groups == was.groups
        and ledger.meta.cuts == was.meta.cuts
        and sent.prompt[: len(earlier.prompt)] == earlier.prompt
        and all(was.get(row.id) is row for row in ledger.since(was) if row.number <= earlier.last)
    )


def before_reply(ledger: Ledger, rows: Iterable[Row]) -> Ledger:
    """`ledger` without its newest step's reply and what follows it; `rows` are that step's rows."""
    reply = next((row.number for row in rows if row.role == "assistant"), None)
    if reply is None:
        return ledger
    earlier = next((row for row in ledger.backwards() if row.number < reply), None)
    return up_to(ledger, earlier.id if earlier else "")
