"""grep, bisect and blame at 1,000, 10,000 and 50,000 blocks: whole processes, as a person waits for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.making import store_of, text
from tests.benchmarks.measuring import Figure, interleaved, median_ms, process_seconds

SIZES = (1_000, 10_000, 50_000)
ROUNDS = 3
#: The block that is asked for, one of the first, so that all of history is walked through; and words that only it has.
BLOCK = "B2"
ONLY = text(0)[:40]


def figures(folder: Path) -> Iterator[Figure]:
    ctxvc = (sys.executable, "-m", "ctxvc")
    projects = {blocks: _project(folder, blocks) for blocks in SIZES}
    asked = {
        "grep -F, one hit": ("grep", "-F", ONLY),
        "grep, a pattern": ("grep", f"{ONLY[:20]}.{ONLY[21:]}"),
        "bisect TEXT": ("bisect", ONLY),
        "bisect ID": ("bisect", BLOCK),
        "bisect --tokens, counts cached": ("bisect", "--tokens", "100000"),
        "blame ID": ("blame", BLOCK),
    }
    for project in projects.values():
        process_seconds(*ctxvc, "-C", str(project), *asked["bisect --tokens, counts cached"])
    for name, words in asked.items():
        works = {
            str(blocks): lambda _, project=project, words=words: process_seconds(*ctxvc, "-C", str(project), *words)
            for blocks, project in projects.items()
        }
        times = interleaved(works, ROUNDS)
        first = median_ms(times[str(SIZES[0])])
        for blocks in SIZES:
            took = median_ms(times[str(blocks)])
            target = "<= 2000" if blocks == SIZES[-1] else ""
            yield Figure(f"{name}, {blocks:,} blocks", took, "ms", took / first, target, f"at {SIZES[0]:,}")


def _project(folder: Path, blocks: int) -> Path:
    with store_of(folder, blocks) as store:
        return store.path.parent
