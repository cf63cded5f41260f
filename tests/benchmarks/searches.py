"""Ranked search: the index's time and size, how long an answer takes, and how many of the best blocks it has.

The recordings are stored again and again, each time as sessions of their own, with new ids in every body and at other
times, until the texts are as large as wanted: `python -m tests.benchmarks.searches 2000` for 2,000 MB.
"""

from __future__ import annotations

import os
import random
import re
import resource
import sqlite3
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from multiprocessing import get_context
from pathlib import Path

import msgspec

from ctxvc.cli.commands import demo
from ctxvc.core import relevance
from ctxvc.core.ledger.block import Message, Part
from ctxvc.core.recording.events import Event, Opened, Said
from ctxvc.errors import BadInput
from ctxvc.inspection import text_index
from ctxvc.inspection.indexed_bodies import text_of
from ctxvc.inspection.search import Filters, Score, Searched, best, searched
from ctxvc.inspection.text_index import COUNTED
from ctxvc.recording.files import MANY_PACKS
from ctxvc.store.git.objects import Objects
from ctxvc.store.ingest import Unfinished, start_ingest
from ctxvc.store.store import Store, create
from ctxvc.store.upkeep import gc
from tests.benchmarks.measuring import Figure
from tests.making.events import read

MEGABYTES = 60
#: Sessions that git writes at once.
_UNDER_WAY = 8
QUERIES = 200
#: Queries of each kind whose ten best are looked for in all bodies, and megabytes up to which they are.
RECALLED, RECALL_MEGABYTES = 25, 80
TEN = 10
_WORD = re.compile(r"[A-Za-z_]{3,20}")


def figures(folder: Path, megabytes: int = MEGABYTES) -> Iterator[Figure]:
    texts = list(filter(None, map(_events, _recordings())))
    chance = random.Random(1)
    began = time.perf_counter()
    with create(folder / ".ctxvc") as store:
        sessions, size = _fill(store, texts, megabytes * 1_000_000, chance)
        gc.gc(store)
    yield Figure(f"{sessions:,} sessions, {size / 1e6:,.0f} MB of bodies, stored", time.perf_counter() - began, "s")
    queries = _queries(texts, chance)
    if size <= RECALL_MEGABYTES * 1_000_000:
        yield from _recall(folder, {kind: asked[:RECALLED] for kind, asked in queries.items()})
    with ProcessPoolExecutor(1, get_context("spawn")) as process:  # whose memory is that of the searches alone
        yield from process.submit(_measured, folder, queries, size).result()


def _measured(folder: Path, queries: dict[str, list[str]], size: int) -> list[Figure]:
    before = _memory()
    seconds, _ = _asked(folder, "zzzzzz")
    figures = [Figure("the index, made", seconds, "s", size / 1e6 / seconds, "", "MB/s")]
    with Store(folder / ".ctxvc") as store:
        _, characters = text_index.TextIndex(store).totals()
        index = sum(path.stat().st_size for path in store.cache_path.glob(f"{text_index.FILE}*"))
    figures.append(
        Figure(f"its size, of {characters / 1e6:,.0f} M characters", index / 1e6, "MB", index / characters, "<= 0.3")
    )
    figures.append(Figure("memory, at most", _memory(), "MB", None, "<= 500", f"{before:.0f} before"))
    times = {kind: [_asked(folder, query) for query in asked] for kind, asked in queries.items()}
    times["all"] = [took for kind in queries for took in times[kind]]
    for kind, asked in times.items():
        for name, of in (("", 0), (", processor", 1)):
            ordered = sorted(1000 * took[of] for took in asked)
            figures.append(Figure(f"a search, {kind}{name}, p50", ordered[len(ordered) // 2], "ms"))
            figures.append(
                Figure(f"a search, {kind}{name}, p95", ordered[int(len(ordered) * 0.95)], "ms", None, "<= 200")
            )
    figures.append(Figure("memory, at most, with all searches", _memory(), "MB", None, "<= 500"))
    return figures


def _recall(folder: Path, queries: dict[str, list[str]]) -> Iterator[Figure]:
    """Of the ten best of all bodies, the share among the ten that are given, and how often the best is the same."""
    _asked(folder, "zzzzzz")
    now = time.time()
    with Store(folder / ".ctxvc") as store:
        everything = _Everything(store)
        for kind, asked in queries.items():
            shares, firsts = [], []
            for query in asked:
                with suppress(BadInput):
                    terms = relevance.terms(query)
                    result = searched(store, terms, Filters(), now, TEN, unreadable=[])
                    given = [f"{one.place.session}:{one.place.row.id}" for one in best([result], now, TEN)]
                    if true := everything.best(terms, result, now):
                        shares.append(len(set(true) & set(given)) / len(true))
                        firsts.append(given[:1] == true[:1])
            yield Figure(f"of the ten best of {kind}, given", sum(shares) / max(len(shares), 1), "")
            yield Figure(f"the best of {kind}, given first", sum(firsts) / max(len(firsts), 1), "")


class _Everything:
    """The texts of all bodies, to rank without an index."""

    def __init__(self, store: Store) -> None:
        objects = Objects(store.repository)
        with sqlite3.connect(store.cache_path / text_index.FILE) as database:
            rows = database.execute(
                "SELECT s.name, b.block, b.time, b.size, b.form, b.blob"
                " FROM bodies b JOIN sessions s ON s.id = b.session"
            )
            self._bodies = [(*row[:4], self._text(objects, *row[4:])) for row in rows]

    def _text(self, objects: Objects, form: int, blob: bytes) -> str:
        return relevance.folded(text_of(form, objects.blob(blob))[:COUNTED])

    def best(self, query: Sequence[relevance.Term], result: Searched, now: float) -> list[str]:
        """The ten best, as `SESSION:BLOCK`; fewer where fewer fit."""
        score = Score(result.having, result.bodies, result.characters, now)
        scored = [
            (-score(counts, size, at), f"{session}:B{block}")
            for session, block, at, size, text in self._bodies
            if (counts := relevance.frequencies(text, query))
        ]
        return [name for _, name in sorted(scored)[:TEN]]


def _memory() -> float:
    """The most MB that this process had; what Linux keeps for `getrusage` is also that of the parent."""
    if not Path("/proc/self/status").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _recordings() -> Iterator[Path]:
    data = Path(os.environ.get("CTXVC_TEST_DATA", ""))
    if not (data / "trajectories").is_dir():
        yield demo.SESSION
        return
    yield from sorted((data / "trajectories").glob("*.gz"))
    for name in ("claude-code", "codex", "pi"):
        yield from sorted((data / "transcripts" / name).iterdir())


def _events(path: Path) -> list[Event]:
    return [event for event in read(path) if isinstance(event, Opened) or (isinstance(event, Said) and not event.scope)]


def _fill(store: Store, texts: list[list[Event]], wanted: int, chance: random.Random) -> tuple[int, int]:
    """Stores copies until their bodies have so many bytes; returns their number and the bytes."""
    number = size = 0
    written: deque[Unfinished] = deque()
    while size < wanted:
        events = texts[number % len(texts)]
        at = datetime(2026, 1, 1, tzinfo=timezone.utc) - timedelta(minutes=chance.randrange(60 * 24 * 700))
        copy = [_copied(event, number, at, chance) for event in events]
        written.append(start_ingest(store, copy, final=True, as_new=True, redact=False, after=written))
        size += sum(len(part.body) for event in copy if isinstance(event, Said) for part in event.message.parts)
        number += 1
        if len(written) > _UNDER_WAY or size >= wanted:
            _finish(store, written)
    return number, size


def _finish(store: Store, written: deque[Unfinished]) -> None:
    for unfinished in written:
        unfinished.finish()
    store.set_current_scope(written[-1].result.session, "main")
    written.clear()
    store.merge_packs(MANY_PACKS)


def _copied(event: Event, number: int, at: datetime, chance: random.Random) -> Event:
    if isinstance(event, Opened):
        return msgspec.structs.replace(
            event, source=f"s{number}", name=f"s{number}", time=at.isoformat(), exported=None
        )
    assert isinstance(event, Said)
    parts = tuple(_with_id(part, chance) for part in event.message.parts)
    message: Message = msgspec.structs.replace(event.message, parts=parts, time=at.isoformat())
    return msgspec.structs.replace(event, message=message)


def _with_id(part: Part, chance: random.Random) -> Part:
    name = f"{chance.getrandbits(64):016x}".encode()
    body = part.body
    if part.ext == "txt":
        body += b"\nrun " + name
    elif part.ext == "json" and body.startswith(b'{"'):
        body = b'{"run":"' + name + b'",' + body[1:]
    return msgspec.structs.replace(part, body=body)


def _queries(texts: list[list[Event]], chance: random.Random) -> dict[str, list[str]]:
    """Words that stand in one body: one, two, three of them, and two that stand beside each other."""
    bodies = [
        part.body.decode("utf-8", "replace")
        for events in texts
        for event in events
        if isinstance(event, Said)
        for part in event.message.parts
        if part.ext == "txt"
    ]
    words = [found for body in bodies if len(found := _WORD.findall(body[:20_000])) > 10]
    queries: dict[str, list[str]] = {f"{count} word{'s' * (count > 1)}": [] for count in (1, 2, 3)}
    queries["a phrase"] = []
    for _ in range(QUERIES // 4):
        for count in (1, 2, 3):
            queries[f"{count} word{'s' * (count > 1)}"].append(" ".join(chance.sample(chance.choice(words), count)))
        body = chance.choice(bodies)
        at = chance.randrange(max(1, len(body) - 40))
        queries["a phrase"].append(f'"{" ".join(body[at : at + 40].replace(chr(34), " ").split()[1:3]) or "no such"}"')
    return queries


def _asked(folder: Path, query: str) -> tuple[float, float]:
    """The seconds of a search in a store that is opened for it, and those of the processor."""
    began, processor = time.perf_counter(), time.process_time()
    with suppress(BadInput), Store(folder / ".ctxvc") as store:  # what was cut out may have no word
        result = searched(store, relevance.terms(query), Filters(), time.time(), 20, unreadable=[])
        best([result], time.time(), 20)
    return time.perf_counter() - began, time.process_time() - processor


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary)
        for figure in figures(folder, int(sys.argv[1])):
            print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
