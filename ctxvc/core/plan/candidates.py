"""The results that would best leave the prompt next, by name, for a model that makes room itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

#: What a result is worth in another's place: view, row → the larger, the sooner it may leave.
Value = Callable[[View, Row], float]


class Candidate(msgspec.Struct, frozen=True):
    """A result that may leave: the tool and the end of what it was called with, tokens as the provider counts, age.

    `age` and `used` are in steps: since the result came, and since a later call or text last named something that is
    in it; `used` is None if nobody knows.
    """

    block: str
    name: str
    tokens: int
    age: int
    used: int | None = None

    def __str__(self) -> str:
        """`B33 Read paths.go, 974, 24 steps old, used 3r`."""
        age = f"{self.age} step{'' if self.age == 1 else 's'} old"
        used = "" if self.used is None else f", used {self.used}r"
        return f"{self.block} {self.name}, {self.tokens:,}, {age}{used}"


def large_and_old(view: View, row: Row) -> float:
    """Tokens × age in steps."""
    return view.price.body(row) * (view.ledger.meta.counters.step - row.step)


def candidates(
    view: View, limit: int, *, value: Value = large_and_old, used: Mapping[str, int] = {}
) -> tuple[Candidate, ...]:
    """At most `limit` results in the prompt, best first, that an agent may take out of it.

    Those of the newest step, pinned and protected ones, and those of less than `LEAST` tokens stay. `used` has, by
    block, the step in which it was last used.
    """
    ledger = view.ledger
    latest, stays, step = latest_step(ledger), protected(ledger), ledger.meta.counters.step
    free = (
        row
        for rows in ledger.by_segment(_results)
        for row in rows
        if row.step < latest and row.id not in stays and view.price.body(row) >= LEAST
    )
    best = nlargest(limit, free, key=lambda row: (value(view, row), -row.number)) if limit > 0 else []
    return tuple(
        Candidate(
            block=row.id,
            name=_name(view, row),
            tokens=view.part(view.price.body(row)),
            age=step - row.step,
            used=step - used[row.id] if row.id in used else None,
        )
        for row in best
    )


def _results(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.kind == "tool_result" and row.state == "visible"]


def _name(view: View, row: Row) -> str:
    """`Read …/paths.go`: the tool, and what it was called with, of a path its end."""
    call = view.ledger.get(row.parent) if row.parent else None
    if call is not None and call.kind == "tool_use" and view.readable:
        body = view.words(call).encode("utf-8", "replace")
        arguments = caption.of_call(call.tool, body, call.ext, caption.folder_of(view.ledger)).object
    else:
        arguments = stub.arguments(call)
    name = display.fitted(stub.escaped(arguments, 400), NAME + 1)
    return " ".join(filter(None, (stub.escaped(row.tool or "result", 24), name)))
