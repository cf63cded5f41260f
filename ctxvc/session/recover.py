"""Access to blocks that left the prompt, in parts for a model or whole for a person; every access is recorded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial

import msgspec

from ctxvc.core import patterns
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Kind
from ctxvc.core.ledger.ledger import Row, blocks_of
from ctxvc.core.plan import selection
from ctxvc.core.prompt import recover, truncation
from ctxvc.core.prompt.recover import Recovered
from ctxvc.core.secrets.redact import MARK, TEXTS
from ctxvc.errors import NotFound, Refused
from ctxvc.session.context import Context
from ctxvc.store import hook_outputs as files_of_hooks
from ctxvc.store.read import address as addresses
from ctxvc.store.read import operations
from ctxvc.store.read.address import Resolved
from ctxvc.tokens.meter import Prices

#: The most blocks that an error names.
_NAMED = 8
#: The token limit where a part has none, as for a person.
_UNBOUNDED = 1 << 40
#: The most tokens added by another surface's heading and by the result's frame in the request.
_HEADING = 32


def part(
    context: Context,
    address: str,
    *,
    lines: str = "",
    chars: str = "",
    grep: str | None = None,
    path: str = "",
    most: int = 0,
    bounded: bool = True,
    seconds: float = patterns.TOOL_SECONDS,
    spare: int = 0,
    reserved: int = 0,
    make_room: Callable[[int], object] | None = None,
    added: Callable[[Recovered], str] | None = None,
    elsewhere: Resolved | None = None,
) -> Recovered:
    """A part of a block, or the list of a group's members; see `Session.recover`.

    `make_room` is called with the part's counted tokens if it does not fit beside `reserved` counted and `spare`
    provider's tokens.
    """
    context.stored.refresh()
    reading = partial(
        _reading, context, address, elsewhere, lines=lines, chars=chars, grep=grep, path=path, seconds=seconds
    )
    if not bounded:
        tokens = most or _UNBOUNDED
    else:
        tokens = min(_most(context), most or _UNBOUNDED)
        if make_room:
            tokens -= _HEADING
            needed = reading(tokens)[0].tokens
            if needed > _free(context, spare) - reserved:
                make_room(needed + _HEADING)
            reserved += _HEADING
        tokens = min(tokens, _free(context, spare) - reserved)
    recovered, resolved = reading(max(0, tokens))
    text = added(recovered) if added else ""
    if elsewhere is None and (text or (resolved and resolved.row)):
        which = f", {recovered.unit} {recovered.first}-{recovered.last} of {recovered.total}" if recovered.total else ""
        _accessed(context, resolved, resolved.row if resolved else None, which, text, address)
    return recovered


def _reading(
    context: Context,
    address: str,
    elsewhere: Resolved | None,
    tokens: int,
    *,
    lines: str,
    chars: str,
    grep: str | None,
    path: str,
    seconds: float,
) -> tuple[Recovered, Resolved | None]:
    """At most `tokens` tokens of the addressed content, and what the address resolves to."""
    resolved = elsewhere or addresses.target(context.stored, address)
    line_span = recover.span(lines) if lines else None
    if resolved and resolved.group:
        listing = recover.members(
            resolved.group,
            resolved.snapshot.ledger,
            tokens=Prices(context.meter, resolved.snapshot.bodies).body,
            most=tokens,
            count=context.meter.count,
            lines=line_span,
        )
        return listing, resolved
    ((row, body),) = _pieces(context, resolved, address)
    recovered = recover.recovered(
        row,
        body,
        lines=line_span,
        chars=recover.span(chars) if chars else None,
        grep=grep,
        path=path,
        until=lambda pattern: pattern.until(seconds, time.monotonic),
        most=tokens,
        count=context.meter.count,
        # A file that is not text is named by its block: it is shown and written with the block.
        address=resolved.row.id
        if resolved and resolved.row and resolved.file and row.kind != resolved.row.kind
        else address,
    )
    return recovered, resolved


def whole(context: Context, address: str) -> list[tuple[Row, bytes]]:
    """The exact bytes of a block, or of all the blocks of a group; see `Session.recover_bytes`."""
    context.stored.refresh()
    resolved = addresses.target(context.stored, address)
    pieces = _pieces(context, resolved, address)
    if resolved:
        for row in _blocks(resolved):
            _accessed(context, resolved, row)
    return pieces


def single(context: Context, address: str) -> tuple[Row, bytes]:
    """The exact bytes of one block, to be written to a file.

    Raises: Refused for several blocks and for a block that contains a secret's mark; otherwise as `whole`.
    """
    context.stored.refresh()
    resolved = addresses.target(context.stored, address)
    if resolved and resolved.group:
        blocks = ", ".join(selection.ranges([row.id for row in _blocks(resolved)])[:_NAMED])
        raise Refused(f"{address[:80]} is several blocks, and a file has one", hint=f"name one of {blocks}")
    ((row, body),) = _pieces(context, resolved, address)
    if row.ext in TEXTS and MARK.search(body):
        raise Refused(f"{row.id} has secrets, which are marked and go into no file", hint="read it in parts instead")
    if resolved and resolved.row:
        _accessed(context, resolved, resolved.row, ", as a file")
    return row, body


def _pieces(context: Context, resolved: Resolved | None, address: str) -> list[tuple[Row, bytes]]:
    """The bytes to be read, each with a row that describes them. Raises: Refused, NotFound, Damaged."""
    if resolved is None:
        return [_unrecorded(context, address)]
    rows = _blocks(resolved)
    if context.actor == "agent" and (deleted := next((row for row in rows if row.state == "deleted"), None)):
        raise Refused(f"{deleted.id} was deleted", hint="only a person can get it back")
    bodies = resolved.snapshot.bodies
    files = [(row, resolved.file or truncation.whole(row)) for row in rows]
    return [_file_part(row, file, bodies.file(row, file)) if file else (row, bodies.body(row)) for row, file in files]


def _blocks(resolved: Resolved) -> list[Row]:
    """The block that an address resolves to, or those of its group."""
    if resolved.row:
        return [resolved.row]
    assert resolved.group is not None
    ledger = resolved.snapshot.ledger
    return [ledger[name] for name in blocks_of(ledger.groups, resolved.group.id) or resolved.group.members]


def _file_part(row: Row, file: str, data: bytes) -> tuple[Row, bytes]:
    """A file beside a body, with a row that describes that file."""
    ending = file.rpartition(".")[2]
    kind: Kind = row.kind if ending == "txt" else "document" if ending in ("pdf", "bin") else "image"
    file_row = msgspec.structs.replace(row, id=f"{row.id}-{file}", kind=kind, ext=ending, files=(), extra={})
    return _measured(file_row, data), data


def _unrecorded(context: Context, address: str) -> tuple[Row, bytes]:
    """The whole output of a call whose step is still open, where a hook truncated it. Raises: NotFound."""
    data = files_of_hooks.by_address(context.stored.store.path, address)
    if data is None:
        guess = addresses.guess(context.stored, address)
        raise NotFound(
            f"{address[:80]!r} is not an address or the id of a recorded call",
            hint=f"did you mean {guess}?" if guess else "write B17, B17@3fa9c1, G3, SCOPE:B17, or the id of a call",
        )
    row = Row(id=address, kind="tool_result", role="user", origin="tool", msg=0, step=0, turn=0, bytes=0, sha256="")
    return _measured(row, data), data


def _measured(row: Row, data: bytes) -> Row:
    return msgspec.structs.replace(row, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _most(context: Context) -> int:
    """The most counted tokens of a part, so that it is not offloaded itself."""
    view = context.view()
    return view.budget.offload * 1000 // max(1, view.calibration[0])


def _free(context: Context, spare: int) -> int:
    """The counted tokens that are free below the guard, beside `spare` provider's tokens."""
    view = context.view()
    return (view.budget.guard - spare - view.used) * 1000 // max(1, view.calibration[0])


def _accessed(
    context: Context, resolved: Resolved | None, row: Row | None, detail: str = "", added: str = "", address: str = ""
) -> None:
    """Records that a block was read: in its row if it is in this scope, else in this scope's history only.

    `added` becomes a block of the conversation in the same commit. Then `row` may be None: `address` names a group,
    or an output that is in no commit yet.
    """
    snapshot = resolved.snapshot if resolved else None
    own = snapshot is None or (snapshot.session, snapshot.scope) == (context.stored.name, context.scope)
    own_row = context.ledger().get(row.id) if own and row else None
    where = f"{snapshot.session}/{snapshot.scope}:" if snapshot and not own else ""
    name = row.id if row else resolved.group.id if resolved and resolved.group else address
    context.stored.change(
        subject=f"recover {where}{row.handle if row else name}{detail}",
        op="recover",
        actor=context.actor,
        rows=[msgspec.structs.replace(own_row, reads=own_row.reads + 1)] if own_row else [],
        parts=[wire.text_part(added, "user", "client")] if added else [],
        trailers={"Ctxvc-Blocks": f"{where}{name}", **({operations.ADDED: name} if added else {})},
    )
    if added:
        context.changed = True
