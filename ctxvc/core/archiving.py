"""Archiving a block: its body leaves the prompt, a stub stands in its place, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ctxvc.core.ledger import block
from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.numbering import is_human
from ctxvc.core.prompt import stub as stubs
from ctxvc.errors import Phrase, Refused


def archived(
    row: Row, *, tokens: int, count: Callable[[str], int], actor: str, call: str = "", cost_now: int | None = None
) -> Row:
    """`row` out of the prompt, with its stub. `tokens` is what its body costs, `call` the arguments it answers.

    `cost_now` is what stands for it now, where that is not the whole body: a masked one costs less.

    Raises: Refused where its state does not allow it, where a human wrote it, or where the stub would cost as much.
    """
    state = block.after(row.state, "archive")
    if state is None or row.state == "archived":
        raise Refused(f"cannot archive {row.id}: it is {row.state}", hint=Phrase("show-block", block=row.id))
    if is_human(row.role, row.origin) and actor != "user":
        raise Refused(f"cannot archive {row.id}: a human wrote it", hint="only a person may")
    stub = stubs.stub(row, tokens=tokens, call=call)
    if count(stub) >= (tokens if cost_now is None else cost_now):
        raise Refused(f"no saving: the stub of {row.id} would cost as much as the block", hint="archive it in a group")
    return msgspec.structs.replace(row, state=state, level=1, stub=stub, removed_by=actor)


def old_results(ledger: Ledger, keep_steps: int = 1) -> Iterator[Row]:
    """The tool results in the prompt, oldest first, but for those of the newest `keep_steps` steps."""
    newest = ledger.meta.counters.step
    for row in ledger.rows():
        if row.kind == "tool_result" and row.state == "visible" and row.step <= newest - keep_steps:
            yield row
