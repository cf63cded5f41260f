"""Whole processes, from their start to their end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.making import store_of
from tests.benchmarks.measuring import Figure, interleaved, median_ms, process_seconds

ROUNDS = 15


def figures(folder: Path) -> Iterator[Figure]:
    ctxvc = (sys.executable, "-m", "ctxvc")
    with store_of(folder, 1_000) as store:
        project = store.path.parent
    process_seconds(*ctxvc, "-C", str(project), "status")  # counts every block once; from here on they are cached
    works = {
        "python -c pass": lambda _: process_seconds(sys.executable, "-c", "pass"),
        "ctxvc --help": lambda _: process_seconds(*ctxvc, "--help"),
        "ctxvc status, 1,000 blocks, counts cached": lambda _: process_seconds(*ctxvc, "-C", str(project), "status"),
        "ctxvc log -n 20": lambda _: process_seconds(*ctxvc, "-C", str(project), "log", "-n", "20"),
    }
    targets = {"ctxvc --help": "<= 150", "ctxvc status, 1,000 blocks, counts cached": "<= 350"}
    times = interleaved(works, ROUNDS)
    base = median_ms(times["python -c pass"])
    for name, took in times.items():
        yield Figure(name, median_ms(took), "ms", median_ms(took) / base, targets.get(name, ""), "an empty Python")
