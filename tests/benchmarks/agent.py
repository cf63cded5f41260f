"""An agent: what the adapter adds to a step, and a long run under each policy beside the same run with all kept."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ctxvc.agent import Adapter
from ctxvc.policies import POLICIES
from ctxvc.session.session import Session
from tests.agent.working import Life, live
from tests.benchmarks.making import store_of, text
from tests.benchmarks.measuring import Figure, median_ms
from tests.making.provider import MODEL

#: Blocks that stand in the prompt when the measuring begins.
VISIBLE = 500
ROUNDS = 40
#: The long run: its replies, the budget that it is held to, and the window in which nothing need leave.
STEPS, BUDGET, LINEAR = 300, 60_000, 2_000_000
COMPOSED = ("episodes+layered", "scoped+self_managed+clear")


def figures(folder: Path) -> Iterator[Figure]:
    for policy in ("keep", "default"):
        yield from _overhead(folder / policy, policy)
    yield from _long_runs(folder)


@dataclass(frozen=True)
class _Step:
    """The seconds that each part of a step took."""

    record: float
    handle: float
    results: float
    request: float

    @property
    def all(self) -> float:
        return self.record + self.handle + self.results + self.request


def _overhead(folder: Path, policy: str) -> Iterator[Figure]:
    """Everything but the model and the tool, flushes included; the mean has them, the median mostly does not."""
    folder.mkdir()
    with store_of(folder, VISIBLE - 2) as store:
        path = store.path
    with Session.open(path, model=MODEL, budget=1_000_000, policy=policy) as session:
        adapter = Adapter(session)
        adapter.append({"role": "user", "content": "Go on."})
        adapter.request()
        _step(adapter, 0)  # counts what is not counted yet
        cpu = time.process_time()
        steps = [_step(adapter, number) for number in range(1, ROUNDS + 1)]
        cpu = (time.process_time() - cpu) / ROUNDS * 1000
    what = f"the adapter in a step, {VISIBLE} visible, {policy}"
    yield Figure(what, median_ms([step.all for step in steps]), "ms", target="<= 10", base="wall, median")
    yield Figure("  the same, mean", statistics.mean(step.all for step in steps) * 1000, "ms", base="wall")
    yield Figure("  the same, mean of processor time", cpu, "ms")
    for part in ("record", "handle", "results", "request"):
        yield Figure(f"  of it {part}", median_ms([getattr(step, part) for step in steps]), "ms")


def _step(adapter: Adapter, number: int) -> _Step:
    call = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": text(3 * number, 200)}}
    reply = {
        "id": f"r{number}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "stop_reason": "tool_use",
        "content": [{"type": "text", "text": text(3 * number + 1, 500)}, call],
    }
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": text(3 * number + 2)}
    began = time.perf_counter()
    adapter.record(reply)
    recorded = time.perf_counter()
    adapter.handle(call)
    handled = time.perf_counter()
    adapter.results([result])
    taken = time.perf_counter()
    adapter.request(max_tokens=8_000)
    asked = time.perf_counter()
    return _Step(recorded - began, handled - recorded, taken - handled, asked - taken)


def _long_runs(folder: Path) -> Iterator[Figure]:
    """The server's own counts of the prompts: the largest, all together, and what of them came from its cache."""
    linear = _lived(folder, "keep", LINEAR)
    raw = linear.bill.peak
    yield from _bill("linear", linear, linear)
    for policy in (*(policy.name for policy in POLICIES), *COMPOSED):
        life = _lived(folder, policy, BUDGET)
        assert not life.bill.refused
        assert life.bill.peak <= BUDGET < raw
        yield from _bill(policy, life, linear)


def _lived(folder: Path, policy: str, window: int) -> Life:
    life = live(folder / f"{policy}-{window}" / ".ctxvc", policy, steps=STEPS, window=window)
    life.session.close()
    return life


def _bill(name: str, life: Life, linear: Life) -> Iterator[Figure]:
    bill, base = life.bill, linear.bill
    target = "" if life is linear else f"<= {BUDGET // 1000} k"
    yield Figure(f"{name}: peak", bill.peak / 1e3, "k", bill.peak / base.peak, target, "linear's")
    yield Figure(f"{name}: total of {bill.requests} prompts", bill.total / 1e6, "M", bill.total / base.total)
    yield Figure(f"{name}: read from the cache", bill.share * 100, "%", bill.share / base.share)
