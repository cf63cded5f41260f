"""Admission: large results and pastes are stored whole, and shown as far as there is room.

VISTA (section 3) blocks what exceeds a threshold and drops what does not fit; here both are stored whole and shown by
their beginning and end, as far as these fit. Nothing is refused, nothing is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ctxvc.core import display as text
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.prompt import stub as stubs
from ctxvc.core.view.budget import HUMAN_PASTE
from ctxvc.core.view.view import Price, View

#: Lines of an offloaded result that are shown at its head and at its tail, and the most characters of each.
LINES = 5
LINE = 1_000
#: Characters that are shown of a blocked result.
BLOCKED = 2_000


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as they are to be recorded.

    `total` is the uncalibrated tokens of the prompt with them, `lacking` how many more it would have if there were
    room. `overflow` is true if one of them did not fit even as a preview.
    """

    rows: tuple[Row, ...]
    total: int = 0
    lacking: int = 0
    overflow: bool = False


def admit(
    view: View,
    rows: Sequence[Row],
    texts: Mapping[str, str],
    used: int,
    *,
    replacements: Mapping[str, str] = {},
    batch: int = 0,
    spare: int = 0,
) -> Admitted:
    """New `rows` with the states and stubs in which they join a prompt of `used` uncalibrated tokens.

    `texts` has the text of each result and of each human text, by block. A result over the offload threshold is
    blocked, and shown by its head and tail. If all together do not fit below the guard with `spare` tokens beside them,
    the largest are blocked: shown in the same way, else by size and beginning, else by size only. `replacements` has
    texts, by block, that are shown instead of a preview. The results together cost at most `batch` tokens, as far as
    offloading the largest achieves that (0: no such bound).
    """
    price = view.price
    incoming = {row.id: _paste(row, price) for row in rows}
    results = [
        _Result(row, price.body(row), texts[row.id], view)
        for row in rows
        if row.kind == "tool_result" and row.id in texts
    ]
    results.sort(key=lambda result: (-result.tokens, result.row.number))
    for result in results:
        if result.row.id in replacements:
            incoming[result.row.id] = result.with_text(replacements[result.row.id])
        elif is_large(view, result.tokens):
            incoming[result.row.id] = result.previewed()
    together = sum(_cost(incoming[result.row.id], price) for result in results) if batch else 0
    for result in results:
        if view.part(together) <= batch:
            break
        smaller = result.offloaded()
        if (saved := _cost(incoming[result.row.id], price) - _cost(smaller, price)) > 0:
            incoming[result.row.id] = smaller
            together -= saved
    together = total = used + sum(_cost(row, price) for row in incoming.values())
    overflow = False
    for shrink in (_Result.previewed, _Result.opening, _Result.unseen):
        for result in results:
            if view.calibrated(total) <= view.budget.guard - spare:
                break
            saved = _cost(incoming[result.row.id], price) - _cost(smaller := shrink(result), price)
            if saved > 0:
                incoming[result.row.id] = smaller
                total -= saved
                overflow |= shrink is not _Result.previewed
    rows = tuple(incoming[row.id] for row in rows)
    return Admitted(rows=rows, total=total, lacking=together - total, overflow=overflow)


def is_large(view: View, tokens: int) -> bool:
    """Whether a result of `tokens` uncalibrated tokens exceeds the offload threshold and never comes in whole."""
    return view.part(tokens) > view.budget.offload


def may_be_huge(row: Row) -> bool:
    """Whether a row is a human's text that may be reduced to its two ends; every token has at least one byte."""
    return row.kind == "user" and is_human(row.role, row.origin) and row.bytes > HUMAN_PASTE


def texts(rows: Iterable[Row], bodies: Mapping[str, bytes]) -> dict[str, str]:
    """The text of each result and human text among `rows`; a result of several parts is the JSON that lists them."""
    return {
        row.id: text.decode(bodies[row.id])
        for row in rows
        if row.id in bodies and (row.kind == "tool_result" or (row.kind == "user" and row.role == "user"))
    }


def preview(value: str, width: int = LINE) -> str:
    """The first and the last lines of a text, each of about `width` characters at most; of a giant line, both ends."""
    lines = value.splitlines()
    if len(lines) <= 2 * LINES:
        return "\n".join(_clipped(line, width) for line in lines)
    left_out = f"[{len(lines) - 2 * LINES:,} lines left out]"
    head, tail = lines[:LINES], lines[-LINES:]
    return "\n".join([*(_clipped(line, width) for line in head), left_out, *(_clipped(line, width) for line in tail)])


def previewed(stub: str, value: str, view: View, tokens: int) -> str:
    """The stub of a result of `tokens` tokens with a preview of its text, or alone if no preview fits.

    Stub and preview together cost less than the result and than the offload threshold.
    """
    for width in (LINE, LINE // 4):
        with_preview = f"{stub}\n{preview(value, width)}"
        if view.price.text(with_preview) < min(tokens, view.budget.offload):
            return with_preview
    return stub


@dataclass(frozen=True, slots=True)
class _Result:
    """A new result, and the forms besides its own in which the prompt may show it."""

    row: Row
    tokens: int
    text: str
    view: View

    def offloaded(self) -> Row:
        """Archived, with as much of a preview as costs less than the block and than the offload threshold."""
        return self._as("archived", previewed(self._stub(), self.text, self.view, self.tokens))

    def with_text(self, text: str) -> Row:
        """Archived, with a text of the caller's below the stub, provided that this costs less than the block."""
        return self._as("archived", f"{self._stub()}\n{stubs.guarded(text)}")

    def previewed(self) -> Row:
        """Blocked, with as much of a preview as costs less than the block and than the offload threshold."""
        return self._as("blocked", previewed(self._blocked(), self.text, self.view, self.tokens))

    def opening(self) -> Row:
        """Blocked, with its beginning."""
        head = self.text[:BLOCKED]
        beginning = stubs.guarded(head.rpartition("\n")[0] or head)
        return self._as("blocked", f"{self._blocked()}\n{beginning}")

    def unseen(self) -> Row:
        """Blocked, without any of its text."""
        return self._as("blocked", self._blocked())

    def _stub(self) -> str:
        truncated = stubs.is_truncated(self.row)
        return stubs.stub(self.row, tokens=self.tokens, called=True, truncated=truncated, way_back=self.view.handles)

    def _blocked(self) -> str:
        return stubs.blocked(self.row, tokens=self.tokens, way_back=self.view.handles)

    def _as(self, state: str, stub: str) -> Row:
        if self.view.price.text(stub) >= self.tokens:
            return self.row  # no saving
        return msgspec.structs.replace(self.row, state=state, level=1, stub=stub, removed_by="guard")


def _paste(row: Row, price: Price) -> Row:
    """The row, reduced to its two ends if it is a human's huge text."""
    if may_be_huge(row) and price.body(row) > HUMAN_PASTE:
        return msgspec.structs.replace(row, state="masked", removed_by="guard")
    return row


def _clipped(line: str, width: int) -> str:
    if len(line) <= width:
        return stubs.guarded(line)
    half = width // 2
    head, tail = stubs.guarded(line[:half]), stubs.guarded(line[-half:])
    return f"{head} [{len(line) - 2 * half:,} characters left out] {tail}"


def _cost(row: Row, price: Price) -> int:
    if row.state in ("archived", "blocked"):
        return price.text(row.stub)
    return price.mask(row) if row.state == "masked" else price.body(row)
