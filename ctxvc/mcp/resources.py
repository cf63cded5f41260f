"""Blocks as resources: pages of the newest that left the prompt, and the text of any block in parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ctxvc.core.display import one_line
from ctxvc.core.ledger import caption
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.recover import readable
from ctxvc.errors import BadInput
from ctxvc.mcp import offer
from ctxvc.mcp.contract import Content, Page, Resource, Wrong
from ctxvc.session.session import Session

#: The blocks of a page, and the most of a list: older ones are found by search.
PAGE, LISTED = 50, 500
#: Characters of a part of a text.
PART = 100_000
_LABEL = 120
_ESCAPES = re.compile(rb"%([0-9A-Fa-f]{2})")


def page(session: Session, cursor: str) -> Page:
    """The dashboard, then the notes and the blocks that left the prompt, newest first.

    A cursor has the number of the list's last block and that of the last one sent, so that changes in between shift
    nothing. Raises: Wrong for a bad cursor.
    """
    rows = [
        row for row in session.ledger().rows() if row.state != "deleted" and (row.kind == "note" or not row.present)
    ]
    rows.sort(key=lambda row: row.number, reverse=True)
    if cursor:
        numbers = re.fullmatch(r"([0-9]{1,12})-([0-9]{1,12})", cursor)
        if not numbers:
            raise Wrong("this cursor was never given")
        last, below = int(numbers[1]), int(numbers[2])
        rows = [row for row in rows if last <= row.number < below]
    else:
        rows = rows[:LISTED]
        last = rows[-1].number if rows else 0
    blocks = [_block(session, row) for row in rows[:PAGE]]
    following = f"{last}-{rows[PAGE - 1].number}" if len(rows) > PAGE else ""
    return Page(blocks if cursor else [offer.BOARD, *blocks], following)


def _block(session: Session, row: Row) -> Resource:
    label = caption.of_row(row, session.ledger(), session.stored.body)
    fate = f", {row.state} by {row.removed_by}" if row.removed_by else f", {row.state}"
    kind = row.kind.replace("_", " ")
    return Resource(
        f"{offer.BLOCK}{session.name}/{session.scope}/{row.id}",
        row.id,
        one_line(f"{row.id} {label}", _LABEL),
        one_line(f"{kind} of step {row.step}{fate}", _LABEL),
        row.bytes,
    )


def texts(session: Session, uri: str) -> Iterator[Content]:
    """The part of a block's text at an address, and a pointer to the next part. Raises: CtxvcError."""
    address, _, written = uri.partition(offer.PART_OF)
    part = int(written) if re.fullmatch("[1-9][0-9]{0,5}", written) else 0 if written else 1
    path = _decoded(address.removeprefix(offer.BLOCK)).split("/")
    place = f"{path[0]}/{'/'.join(path[1:-1])}:" if len(path) > 2 else f"{path[0]}:" if len(path) > 1 else ""
    text = "\n".join(readable(row, body) for row, body in session.recover_bytes(place + path[-1]))
    parts = max(1, -(-len(text) // PART))
    if not 1 <= part <= parts:
        raise BadInput(f"{path[-1][:40]} has no part {written[:10]!r}", hint=f"it has {parts}")
    yield Content(uri, text[(part - 1) * PART : part * PART])
    if part < parts:
        following = f"{address}{offer.PART_OF}{part + 1}"
        yield Content(following, f"[part {part} of {parts}; the next one is at {following}]")


def _decoded(part: str) -> str:
    """Part of an address with its percent-escapes decoded."""
    data = _ESCAPES.sub(lambda escape: bytes([int(escape[1], 16)]), part.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "replace")
