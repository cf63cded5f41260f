"""Times and their table. Medians of interleaved runs, so that a machine that slows down slows all alike."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pygit2

from ctxvc.store.git import program


@dataclass(frozen=True)
class Figure:
    """One row: `value` with its unit, its ratio to a base of the same run, and its target."""

    what: str
    value: float
    unit: str
    ratio: float | None = None
    target: str = ""
    base: str = ""

    def line(self) -> str:
        ratio = f"{self.ratio:.2f} x" if self.ratio is not None else ""
        return f"{self.what:<58} {self.value:>9.2f} {self.unit:<3} {ratio:>7}  {self.target:<22} {self.base}".rstrip()


def machine() -> str:
    """What was measured on."""
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, "
        f"git {program.version()}, pygit2 {pygit2.__version__}, load {os.getloadavg()[0]:.1f}"
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(works: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, list[float]]:
    """name → seconds of each round; the works take turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(lambda work=work, number=number: work(number)))  # type: ignore[misc]
    return times


def median_ms(times: list[float]) -> float:
    return statistics.median(times) * 1000


def process_seconds(*command: str) -> float:
    """The wall time of a whole process. Raises: CalledProcessError where it fails."""
    return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


def processor_seconds(*command: str) -> float:
    """The processor time of a whole process. Raises: CalledProcessError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process_seconds(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
