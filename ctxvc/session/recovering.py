"""Reading out what left the prompt, in parts for a model or whole for a person; each reading is recorded."""

from __future__ import annotations

import msgspec

from ctxvc.core import recovery
from ctxvc.core.draft import blocks_of
from ctxvc.core.ledger import Row
from ctxvc.core.recovery import Recovered
from ctxvc.errors import BadInput, Refused
from ctxvc.measure import Prices
from ctxvc.session.context import Context
from ctxvc.store import addresses
from ctxvc.store.addresses import Found

#: Tokens that a person is shown at most of what is read out in parts.
_UNBOUNDED = 1 << 40


def part(
    context: Context,
    address: str,
    *,
    lines: str = "",
    chars: str = "",
    grep: str | None = None,
    most: int = 0,
    bounded: bool = True,
) -> Recovered:
    """A part of a block, or the list of a group's members; see `Session.recover`."""
    context.writer.refresh()
    found = _found(context, address)
    asked = recovery.span(lines) if lines else None
    room = max(0, _room(context, most) if bounded else most or _UNBOUNDED)
    if found.group:
        return recovery.members(
            found.group,
            found.moment.ledger,
            tokens=Prices(context.meter, found.moment.bodies).body,
            most=room,
            count=context.meter.count,
            lines=asked,
        )
    assert found.row is not None
    _readable(context, found.row)
    read = recovery.recovered(
        found.row,
        found.moment.bodies.body(found.row),
        lines=asked,
        chars=recovery.span(chars) if chars else None,
        grep=grep,
        most=room,
        count=context.meter.count,
        address=address,
    )
    _accessed(
        context, found, found.row, f", {read.unit} {read.first}-{read.last} of {read.total}" if read.total else ""
    )
    return read


def whole(context: Context, address: str) -> list[tuple[Row, bytes]]:
    """The exact bytes of a block, or of all the blocks of a group; see `Session.recover_bytes`."""
    context.writer.refresh()
    found = _found(context, address)
    ledger = found.moment.ledger
    rows = [ledger[name] for name in blocks_of(ledger.groups, found.group.id)] if found.group else [found.row]
    for each in rows:
        if each:
            _readable(context, each)
    held = [(row, found.moment.bodies.body(row)) for row in rows if row]
    for row, _ in held:
        _accessed(context, found, row)
    return held


def _room(context: Context, most: int) -> int:
    """The tokens, as we count, that a reading may cost: it must neither be offloaded nor make anything else leave."""
    view = context.view()
    free = view.budget.guard - view.calibrated(context.used(view))
    room = min(view.budget.offload, free) * 1000 // max(1, view.calibration[0])
    return min(room, most or room)


def _found(context: Context, address: str) -> Found:
    parsed = addresses.parse(address)
    if parsed is None:
        raise BadInput(f"{address[:80]!r} is no address", hint="as in B17, B17@3fa9c1, G3, SCOPE:B17")
    return addresses.find(context.writer, parsed)


def _readable(context: Context, row: Row) -> None:
    """Raises: Refused for a deleted block where a person does not ask."""
    if context.actor == "agent" and row.state == "deleted":
        raise Refused(f"{row.id} was deleted", hint="only a person can get it back")


def _accessed(context: Context, found: Found, row: Row, what: str = "") -> None:
    """Records that a block was read: in its row where it stands in this scope, else in this scope's history only."""
    own = found.moment.session == context.writer.name and found.moment.scope == context.scope
    held = context.ledger().get(row.id) if own else None
    where = "" if own else f"{found.moment.session}/{found.moment.scope}:"
    context.writer.change(
        subject=f"recover {where}{row.handle}{what}",
        op="recover",
        actor=context.actor,
        rows=[msgspec.structs.replace(held, reads=held.reads + 1)] if held else [],
        trailers={"Ctxvc-Blocks": f"{where}{row.id}"},
    )
