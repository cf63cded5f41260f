"""What a call takes as a session grows to 5,000 calls, under `episodes` and a ceiling of 80,000 tokens.

Two sessions, each of recorded conversations one after the other. In the first, people write little, so that the prompt
stays the same size once the ceiling is reached. In the second, what people wrote, which never leaves, grows to most of
the ceiling. Needs the recordings (CTXVC_TEST_DATA); about two minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

from ctxvc import policies
from ctxvc.core.prompt.outline import outline
from ctxvc.replay.conversation import Conversation, conversations_in
from ctxvc.replay.drive import Prompts, new_session
from ctxvc.replay.experiments.measure import in_date_order, spliced
from ctxvc.tokens.meter import Meter
from tests.benchmarks.measuring import Figure

POLICY = "episodes:derive=on,ceiling=80000"
CEILING = 80_000
WINDOW = 200_000
#: Calls of one row of the table.
SPAN = 1_000
#: Characters a call up to which people write little.
FEW = 16


def figures(folder: Path) -> Iterator[Figure]:
    data = Path(os.environ.get("CTXVC_TEST_DATA", "")) / "trajectories"
    if not data.is_dir():
        return
    little = in_date_order(one for one in conversations_in(sorted(data.glob("*.gz"))) if _wrote(one) <= FEW)
    yield from _calls("people write little", spliced([*little, *little]).conversation)
    one_repository = in_date_order(conversations_in(sorted(data.glob("entire-*.gz"))))
    yield from _calls("people write much", spliced(one_repository).conversation)


def _wrote(conversation: Conversation) -> float:
    """The characters that people wrote, for each call."""
    typed = (len(block.text) for block in conversation.blocks if block.role == "user" and block.kind != "tool_result")
    return sum(typed) / len(conversation.calls)


def _calls(name: str, conversation: Conversation) -> Iterator[Figure]:
    """Each row: the mean of a span's calls, and in the rows after the second its ratio to that, by fixed work."""
    session = new_session(conversation, policies.parse(POLICY), WINDOW, meter=Meter(None))
    session.shows_dashboard = False
    prompts = Prompts(session)
    times: list[float] = []
    machine: list[float] = []
    above = 0
    full: float | None = None
    for number, call in enumerate(conversation.calls, 1):
        machine.append(_fixed_work())
        start = time.process_time()
        for message in call.before:
            prompts.append(message)
        session.request()
        times.append(time.process_time() - start)
        view = session.view()
        above += view.used > CEILING
        prompts.append(call.reply)
        if number % SPAN:
            continue
        share = mean(times) / mean(machine)
        # The prompt has reached the ceiling somewhere in the first span.
        full = full or (share if number > SPAN else None)
        yield Figure(
            f"{name}: calls to {number:,}",
            mean(times) * 1000,
            "ms",
            share / full if full else None,
            "0 above the ceiling",
            f"median {median(times) * 1000:.1f}, {len(outline(view.ledger))} slots, {above} above",
        )
        times, machine = [], []


def _fixed_work() -> float:
    """Seconds of processor time of the same piece of work: how fast the machine is at the moment."""
    start = time.process_time()
    numbers = {str(number): number for number in range(8_000)}
    sum(numbers[str(number)] for number in range(8_000))
    return time.process_time() - start
