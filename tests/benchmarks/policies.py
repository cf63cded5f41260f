"""Policies: what it takes to propose and rehearse a plan, at 500, 2,000 and 8,000 rows.

As in a session: the policy has been asked every few steps, so that most of what is old has left already, and each time
that it acts it takes a batch. And once with the whole session still in the prompt, which must leave at once: the worst
that an import with a small budget can ask for. It is processor time that is told, so that other work on the machine
counts less.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.policy import Policy
from ctxvc.core.prompt.outline import Bodies
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import measure
from ctxvc.policies import POLICIES, parse
from ctxvc.tokens import count
from tests.benchmarks.making import step
from tests.benchmarks.measuring import Figure, median_ms
from tests.policies.laws import keep
from tests.policies.recorded import Cheap, Run

ROWS = (500, 2_000, 8_000)
BUDGET = 128_000
CACHE = "tokens.sqlite"
#: Linear is that four times the rows take four times as long; the rest is tolerance, for what the caches do not hold.
LINEAR = 5
#: What is measured: each policy that ships, with episodes also as they are derived from the calls, and two as one.
WORDS = (*(kind.name for kind in POLICIES), "episodes:derive=on", "layered+episodes")
#: Steps between two times that it is asked.
EVERY = 6
#: Times that a policy acted, of which the median is taken; and times that all of a session leaves at once.
ACTS = 15
AT_ONCE = 3


class Counted(Cheap):
    """Prices in which texts of ours are counted, and the counts kept, as in a session."""

    def __init__(self, bodies: Bodies, cache: Path) -> None:
        super().__init__(bodies)
        self._tokens = count.Tokens(count.tokenizer(), cache)

    def text(self, words: str) -> int:
        return self._tokens.of_text(words)


@dataclass
class _Taken:
    """Seconds of the processor that a policy took: where it acted, and where it only looked."""

    acted: list[float] = field(default_factory=list)
    looked: list[float] = field(default_factory=list)


def figures(folder: Path) -> Iterator[Figure]:
    for words in WORDS:
        policy = parse(words)
        before, took = 0, 0.0
        for rows, taken in _driven(policy, folder / CACHE):
            last, took = took, median_ms(taken.acted[-ACTS:] or taken.looked[-ACTS:])
            what = f"{words}, {rows:,} rows, {'acting' if taken.acted else 'looking'}"
            ratio = took / last if before else None
            yield Figure(what, took, "ms", ratio, _target(rows), f"at {before:,}" if before else "")
            before = rows
    for words in WORDS:
        first = 0.0
        for rows in ROWS[:2]:
            took, changed = _at_once(parse(words), rows, folder / CACHE)
            first = first or took
            what = f"{words}, all of {rows:,} rows at once: {changed:,} change"
            yield Figure(what, took, "ms", took / first, _target(rows), f"at {ROWS[0]}")


def _target(rows: int) -> str:
    return {2_000: "<= 20", 8_000: f"<= {LINEAR} x"}.get(rows, "")


def _driven(policy: Policy, cache: Path) -> Iterator[tuple[int, _Taken]]:
    """What the policy took in a session that grew, up to each of the sizes."""
    run, taken = Run(), _Taken()
    price = Counted(run.held(), cache)
    number = 0
    for rows in ROWS:
        while len(run.ledger) < rows:
            run.append(*step(number))
            number += 1
            if number % EVERY:
                continue
            began = time.process_time()
            view = run.view(BUDGET, price=price)
            rehearsal = rehearse(view, policy.propose(view))
            (taken.acted if rehearsal else taken.looked).append(time.process_time() - began)
            keep(run, rehearsal)
        yield rows, taken


def _at_once(policy: Policy, rows: int, cache: Path) -> tuple[float, int]:
    """Milliseconds that it takes where all of a session still stands, which fills its budget, and the rows that change.

    Each time is the first in which anybody looks at the session; only our own texts were counted before.
    """
    taken: list[float] = []
    changed = 0
    for _ in range(AT_ONCE):
        run = _run(rows)
        price = Counted(run.held(), cache)
        budget = Budget(max(2_000, measure(run.ledger, price)))
        run.ledger = replace(run.ledger, _caches={})  # what measuring has worked out is forgotten
        began = time.process_time()
        view = run.view(budget, price=price)
        rehearsal = rehearse(view, policy.propose(view))
        taken.append(time.process_time() - began)
        changed = len(rehearsal.rows)
    return median_ms(taken), changed


def _run(rows: int) -> Run:
    run = Run()
    for number in range(rows // 3):
        run.append(*step(number))
    return run
