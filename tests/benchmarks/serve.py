"""`ctxvc serve`: an answer to a coding agent with 500 blocks in its prompt, beside reading and writing its JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measuring import Figure
from tests.integrations.hosts.scripted import HOSTS, TASK, Client

#: A step is three blocks: a text, a call, a result.
STEPS = 167
ROUNDS = 30


def figures(folder: Path) -> Iterator[Figure]:
    for host in sorted(HOSTS):
        client, scripted = Client(host, folder / host), HOSTS[host]
        messages = scripted.human(TASK, 1)
        for number in range(STEPS):
            messages += scripted.step(number, 100 + 10 * number)
        client.prompt(messages, window=1_000_000)
        answers: list[tuple[float, float]] = []
        texts: list[float] = []
        for number in range(STEPS, STEPS + ROUNDS):
            messages += scripted.step(number, 100 + 10 * number)
            fields = {"session": "session-0001", "messages": messages, "window": 1_000_000}
            line = json.dumps({"id": 1, "verb": "messages", **fields}).encode()
            wall, processor = time.perf_counter(), time.process_time()
            client.service.answer(line)
            answers.append((time.perf_counter() - wall, time.process_time() - processor))
            processor = time.process_time()
            json.dumps(json.loads(line))
            texts.append(time.process_time() - processor)
        wall_ms, cpu_ms = (statistics.median(times) * 1000 for times in zip(*answers, strict=True))
        text_ms = statistics.median(texts) * 1000
        what = f"serve: an answer to {host}, {3 * STEPS} blocks"
        yield Figure(f"{what}, processor", cpu_ms, "ms", cpu_ms / text_ms, "20 ms", "reading and writing its JSON")
        yield Figure(f"{what}, wall", wall_ms, "ms", wall_ms / cpu_ms, "", "the processor's time")
