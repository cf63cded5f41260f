"""A session's page: how long it takes and how large it is, at 1,000 to 50,000 blocks and for the largest recording.

The sessions are compacted every 600 blocks, as a window of some 400,000 tokens needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.recording.events import Compacted, Event, Said
from ctxvc.recording.files import import_paths
from ctxvc.store.ingest import ingest
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import create
from tests.benchmarks.making import events, text
from tests.benchmarks.measuring import Figure, processor_seconds

SIZES = (1_000, 10_000, 50_000)
#: Events between two compactions; three blocks are two of them.
_COMPACTED = 400


def figures(folder: Path) -> Iterator[Figure]:
    first = 0.0
    for blocks in SIZES:
        project = folder / str(blocks)
        with create(project / FOLDER) as store:
            ingest(store, compacted(blocks), final=True)
        _page(project)  # which counts the tokens
        took, size = _page(project)
        first = first or took
        target = "<= 30" if blocks == SIZES[-1] else ""
        yield Figure(f"a page of {blocks:,} blocks, counted: processor", took, "s", took / first, target, "at 1,000")
        yield Figure(f"a page of {blocks:,} blocks: size", size / 1e6, "MB")
    largest = max(_recordings(), key=lambda path: path.stat().st_size, default=None)
    if largest is not None:
        project = folder / "recorded"
        project.mkdir()
        with create(project / FOLDER) as store:
            import_paths(store, [largest], name="recorded", final=True)
        _page(project)
        took, size = _page(project)
        yield Figure("the largest recording, counted: processor", took, "s", target="<= 3")
        yield Figure("the largest recording: size", size / 1e6, "MB", target="<= 1.5")


def compacted(blocks: int) -> Iterator[Event]:
    """A recording of so many blocks, with a summary in the place of each 600."""
    for number, event in enumerate(events(blocks), 1):
        yield event
        if isinstance(event, Said) and number % _COMPACTED == 0:
            summary = Message(role="user", parts=(wire.text_part(text(-number), "user", "client"),))
            yield Compacted(summary=(summary,), end=event.end)


def _recordings() -> list[Path]:
    data = os.environ.get("CTXVC_TEST_DATA")
    return sorted(Path(data, "trajectories").glob("*.jsonl.gz")) if data else []


def _page(project: Path) -> tuple[float, int]:
    """Processor seconds and bytes of a page, by a whole process."""
    target = project / "page.html"
    took = processor_seconds(sys.executable, "-m", "ctxvc", "-C", str(project), "report", "-o", str(target))
    return took, target.stat().st_size
