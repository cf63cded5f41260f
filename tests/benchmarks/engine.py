"""The engine: a plan rehearsed, a request assembled, a dashboard drawn; and what a session adds to each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ctxvc.core.plan import Action, Plan, Rehearsal, View
from ctxvc.core.plan.rehearse import fewest_actions, rehearse
from ctxvc.core.view import model_dashboard
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from tests.benchmarks.growth import SIZES, VISIBLE
from tests.benchmarks.making import step, store_of
from tests.benchmarks.measuring import Figure, interleaved, median_ms, seconds

ROWS = (500, 2_000, 8_000)
ROUNDS = 9


def figures(folder: Path) -> Iterator[Figure]:
    yield from _rehearsals(folder)
    yield from _proposals(folder)
    for blocks in SIZES:
        yield from _prompts(folder, blocks)


def _rehearsals(folder: Path) -> Iterator[Figure]:
    """The oldest tool results archived, one by one and as one group, as a policy that clears in batches does."""
    sessions = {rows: Session(StoredSession.open(store_of(folder / "plans", rows))) for rows in ROWS}
    for name, single in (("20 results singly", True), ("100 blocks as a group", False)):
        works = {}
        for rows, session in sessions.items():
            view = session.view()

            def work(_: int, view=view, single=single) -> None:  # type: ignore[no-untyped-def]
                rehearse(view, _plan(list(view.ledger.rows()), single=single))

            work(0)  # counts what is not counted yet
            works[str(rows)] = work
        times = interleaved(works, ROUNDS)
        first = median_ms(times[str(ROWS[0])])
        for rows in ROWS:
            took = median_ms(times[str(rows)])
            target = "<= 20" if rows == 2_000 else ""
            yield Figure(f"rehearse {name}, {rows:,} rows", took, "ms", took / first, target, f"at {ROWS[0]}")
    for session in sessions.values():
        session.close()
        session.store.close()


def _proposals(folder: Path) -> Iterator[Figure]:
    """What a policy does before a call: results are cleared, oldest first, until the prompt is smaller by as much.

    Each time on a ledger of which nothing is known yet but what stood in the one before.
    """
    sessions = {rows: Session(StoredSession.open(store_of(folder / "proposals", rows))) for rows in ROWS}
    for clears in (20, 100):
        works = {}
        for rows, session in sessions.items():
            view = session.view()

            def work(_: int, view=view, clears=clears) -> None:  # type: ignore[no-untyped-def]
                _cleared(replace(view, ledger=view.ledger.with_meta(view.ledger.meta)), clears)

            work(0)
            works[str(rows)] = work
        times = interleaved(works, ROUNDS)
        first = median_ms(times[str(ROWS[0])])
        for rows in ROWS:
            took = median_ms(times[str(rows)])
            target = "<= 20" if rows == 2_000 else ""
            what = f"propose and rehearse {clears} results, {rows:,} rows"
            yield Figure(what, took, "ms", took / first, target, f"at {ROWS[0]}")
    for session in sessions.values():
        session.close()
        session.store.close()


def _cleared(view: View, results: int) -> Rehearsal:
    """About so many results archived, as by a policy that clears until the prompt is as small as it wants."""
    held = [row for row in view.ledger.rows() if row.kind == "tool_result" and row.state == "visible"]
    plan = Plan(actions=tuple(Action(verb="archive", targets=(row.id,)) for row in held), actor="policy:clear")
    target = view.used
    target -= view.calibrated(sum(view.price.body(row) for row in held[:results])) * 9 // 10
    actions, _ = fewest_actions(view, plan, target)
    return rehearse(view, Plan(actions=actions, actor=plan.actor))


def _plan(rows: list, *, single: bool) -> Plan:  # type: ignore[type-arg]
    if single:
        results = [row.id for row in rows if row.kind == "tool_result" and row.state == "visible"][:20]
        return Plan(actions=tuple(Action(verb="archive", targets=(block,)) for block in results), actor="user")
    blocks = tuple(row.id for row in rows[1:101])
    return Plan(actions=(Action(verb="archive", targets=blocks),), actor="user")


def _prompts(folder: Path, blocks: int) -> Iterator[Figure]:
    with store_of(folder, blocks) as store, Session(StoredSession.open(store), actor="user") as session:
        session.set(budget=1_000_000)
        rows = [row.id for row in session.ledger().rows()]
        if len(rows) > VISIBLE:
            session.archive([f"{rows[1]}-{rows[-VISIBLE]}"], "what was done before")
        session.dashboard()  # counts what is not counted yet
        yield Figure(f"view, {blocks:,} blocks", _median(session.view), "ms")
        yield Figure(f"request, {VISIBLE} visible of {blocks:,}", _median(session.prompt), "ms", target="<= 50")
        board = session.dashboard()
        count = session.view().price.text
        cap = session.budget.dashboard_cap // 2
        yield Figure(f"dashboard, {blocks:,} blocks", _median(session.dashboard), "ms")
        yield Figure(
            f"dashboard as text, {blocks:,} blocks",
            _median(lambda: model_dashboard.full_text(board, [], 0, cap=cap, count=count)),
            "ms",
        )
        yield Figure(
            f"what a session adds to a step, {VISIBLE} visible of {blocks:,}", _steps(session), "ms", target="<= 10"
        )


def _steps(session: Session) -> float:
    """Everything of ours around a call: the request made, the reply and its result taken in; without the flushes."""
    taken: list[float] = []
    for number in range(ROUNDS):
        reply, result = step(10**6 + number)
        taken.append(seconds(lambda: (session.request(), session.append(reply), session.append(result))))  # noqa: B023
    return median_ms(taken)


def _median(work: object) -> float:
    assert callable(work)
    return median_ms([seconds(work) for _ in range(ROUNDS)])
