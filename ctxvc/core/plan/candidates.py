"""The results that would best leave the prompt next, by name, for a model that makes room itself."""

from __future__ import annotations

from heapq import nlargest

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import caption
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.plan.protected import protected
from ctxvc.core.prompt import stub
from ctxvc.core.prompt.cut import latest_step
from ctxvc.core.prompt.tag import LEAST
from ctxvc.core.view.view import View

#: Characters of a candidate's name.
NAME = 48


class Candidate(msgspec.Struct, frozen=True):
    """A result that may leave: the tool and the end of its argument, tokens as the provider counts, age in steps."""

    block: str
    name: str
    tokens: int
    age: int

    def __str__(self) -> str:
        """`B33 Read paths.go, 974, 24 steps old`."""
        age = f"{self.age} step{'' if self.age == 1 else 's'} old"
        return f"{self.block} {self.name}, {self.tokens:,}, {age}"


def candidates(view: View, limit: int) -> tuple[Candidate, ...]:
    """At most `limit` results that an agent may remove from the prompt, by tokens × age in steps, largest first.

    Results of the newest step, pinned and protected ones, and those of fewer than `LEAST` tokens stay.
    """
    ledger = view.ledger
    latest, stays, step = latest_step(ledger), protected(ledger), ledger.meta.counters.step
    free = (
        row
        for rows in ledger.by_segment(_results)
        for row in rows
        if row.step < latest and row.id not in stays and view.price.body(row) >= LEAST
    )
    best = nlargest(limit, free, key=lambda row: (view.price.body(row) * (step - row.step), -row.number))
    return tuple(
        Candidate(
            block=row.id,
            name=_name(view, row),
            tokens=view.part(view.price.body(row)),
            age=step - row.step,
        )
        for row in best
    )


def _results(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.kind == "tool_result" and row.state == "visible"]


def _name(view: View, row: Row) -> str:
    """`Read …/paths.go`: the tool and its argument; a path is shortened to its end."""
    call = view.ledger.get(row.parent) if row.parent else None
    if call is not None and call.kind == "tool_use" and view.readable:
        body = view.words(call).encode("utf-8", "replace")
        arguments = caption.of_call(call.tool, body, call.ext, caption.folder_of(view.ledger)).object
    else:
        arguments = stub.arguments(call)
    name = display.fitted(stub.escaped(arguments, 400), NAME + 1)
    return " ".join(filter(None, (stub.escaped(row.tool or "result", 24), name)))
