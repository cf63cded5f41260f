"""Speeds that no other part measures: a list of 10,000 sessions, and many blocks leaving at once."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ctxvc.core.plan.rehearse import rehearse
from ctxvc.core.view.budget import Budget
from ctxvc.core.view.view import measure
from ctxvc.policies import parse
from ctxvc.session.session import Session
from ctxvc.store.files import locked
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store, create
from tests.benchmarks.making import step, store_of
from tests.benchmarks.measuring import Figure, median_ms, processor_seconds, seconds
from tests.benchmarks.policies import CACHE, Counted
from tests.policies.laws import keep
from tests.policies.recorded import Run

SESSIONS = int(os.environ.get("CTXVC_BENCH_SESSIONS", "10000"))
#: Tokens of an imported session, and the budget that it is then put under.
IMPORTED, BUDGET = 200_000, 32_000
_ROUNDS = 5


def figures(folder: Path) -> Iterator[Figure]:
    yield from _steps(folder)
    yield from _batch(folder)
    yield from _cut_down(folder)
    yield from _listing(folder)


def _listing(folder: Path) -> Iterator[Figure]:
    """`sessions` of many, each a commit, as a whole process: nothing known, then with what it has kept."""
    with create(folder / "many" / ".ctxvc") as store:
        _fill(store)
        command = (sys.executable, "-m", "ctxvc", "-C", str(store.path.parent), "sessions")
        for what, target in (("cold", "<= 1.5"), ("again", "")):
            processor: list[float] = []
            wall = seconds(lambda: processor.append(processor_seconds(*command)))  # noqa: B023
            yield Figure(f"sessions, {SESSIONS:,}, {what}", wall, "s", target=target)
            yield Figure(f"sessions, {SESSIONS:,}, {what}: processor", processor[0], "s")


def _fill(store: Store) -> None:
    with locked(store.lock_path("all")) as lock, store.pack_writer(lock) as writer:
        for number in range(SESSIONS):
            writer.commit(store.first_commit(f"s{number}", model="a-model", system=f"Work on {number}.", tools=None))


def _batch(folder: Path) -> Iterator[Figure]:
    """A policy's batch at 2,000 rows, from 95 % of the budget; each time the first that anybody looks at them."""
    for text in ("default", "window:low_water=0.6"):
        taken, after = [], 0.0
        for _ in range(_ROUNDS):
            run = Run()
            for number in range(2_000 // 3):
                run.append(*step(number))
            price, policy = Counted(run.held(), folder / CACHE), parse(text)
            budget = Budget(int(measure(run.ledger, price) / 0.95))
            run.ledger = replace(run.ledger, _caches={})
            began = time.process_time()
            view = run.view(budget, price=price)
            rehearsal = rehearse(view, policy.propose(view))
            taken.append(time.process_time() - began)
            after = measure(rehearsal.after, price) / budget.effective
        what = f"a batch of `{text}` at 2,000 rows, to {after:.0%}: processor"
        yield Figure(what, median_ms(taken), "ms", target="<= 500")


def _cut_down(folder: Path) -> Iterator[Figure]:
    """The first request of an imported session under a budget that is a sixth of it, its blocks counted before."""
    taken = []
    with store_of(folder / "counted", 60) as store, Session(StoredSession.open(store), actor="user") as session:
        blocks = 60 * IMPORTED // measure(session.ledger(), session.view().price)
    for number in range(3):
        with store_of(folder / f"imported-{number}", blocks) as store:
            with Session(StoredSession.open(store), actor="user") as session:
                session.view()
            with Session.open(store.path, f"made-{blocks}", policy="default", budget=BUDGET) as session:
                session.append({"role": "user", "content": "go on"})
                taken.append(seconds(session.request))
    yield Figure(
        f"{IMPORTED // 1000}k imported, cut to {BUDGET // 1000}k at once", median_ms(taken), "ms", target="<= 2000"
    )


def _steps(folder: Path) -> Iterator[Figure]:
    """A step of a replay at 500 visible blocks: what came in, and the policy's plan for it."""
    run, policy = Run(), parse("default")
    price, number = Counted(run.held(), folder / CACHE), 0
    taken = []
    while len(taken) < 60:
        began = time.process_time()
        run.append(*step(number))
        view = run.view(Budget(400_000), price=price)
        keep(run, rehearse(view, policy.propose(view)))
        if len(run.ledger) > 500:
            taken.append(time.process_time() - began)
        number += 1
    yield Figure("a step of a replay, 500 visible: processor", statistics.median(taken) * 1e3, "ms", target="<= 6")
