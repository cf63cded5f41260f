"""A durable append of a three-block step against the ways without versions, and against plain git."""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import text_part
from ctxvc.store.git import program
from ctxvc.store.log import stored_session as writer_module
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import create
from tests.benchmarks.making import step, text
from tests.benchmarks.measuring import Figure, interleaved, median_ms

BURST = 300


def figures(folder: Path) -> Iterator[Figure]:
    store = create(folder / ".ctxvc")
    for name in ("burst", "flushed"):
        store.create_session(name)
    prepared = [step(number) for number in range(BURST + 8)]
    with StoredSession.open(store, "burst") as burst, StoredSession.open(store, "flushed") as flushed:
        hello = Message(role="user", parts=(text_part("go", "user", "human"),))
        burst.append(hello)
        flushed.append(hello)

        def in_burst(number: int) -> None:
            every, writer_module.FLUSH_STEPS = writer_module.FLUSH_STEPS, 1 << 30
            seconds, writer_module.FLUSH_SECONDS = writer_module.FLUSH_SECONDS, 1e9
            burst.append(*prepared[number])
            writer_module.FLUSH_STEPS, writer_module.FLUSH_SECONDS = every, seconds

        times = interleaved(
            {
                "jsonl": _jsonl(folder / "log.jsonl"),
                "sqlite": _sqlite(folder / "log.sqlite"),
                "ours": in_burst,
                "flushed": lambda number: flushed.append(*prepared[number]),
            },
            BURST,
        )
    plain = interleaved({"git": _git(folder / "plain")}, 12)
    base = median_ms(times["jsonl"])
    yield Figure("JSONL + fdatasync", base, "ms", 1.0, base="a step of 3 blocks, 6 kB")
    yield Figure("SQLite, WAL, synchronous=FULL", median_ms(times["sqlite"]), "ms", median_ms(times["sqlite"]) / base)
    yield Figure(
        "ctxvc, acknowledged, in a burst",
        median_ms(times["ours"]),
        "ms",
        median_ms(times["ours"]) / base,
        "<= 2 x",
        "JSONL",
    )
    mean, mean_base = statistics.mean(times["flushed"]) * 1000, statistics.mean(times["jsonl"]) * 1000
    yield Figure("ctxvc, mean with flushes counted in", mean, "ms", mean / mean_base, base="JSONL's mean")
    yield Figure("git add + git commit", median_ms(plain["git"]), "ms", median_ms(plain["git"]) / base, base="JSONL")


def _jsonl(path: Path) -> Callable[[int], None]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(number: int) -> None:
        lines = (json.dumps({"id": 3 * number + at, "body": text(3 * number + at)}) + "\n" for at in range(3))
        os.write(handle, "".join(lines).encode())
        os.fdatasync(handle)

    return append


def _sqlite(path: Path) -> Callable[[int], None]:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("pragma journal_mode=wal")
    database.execute("pragma synchronous=full")
    database.execute("create table blocks (id integer primary key, body text)")

    def append(number: int) -> None:
        database.execute("begin")
        for at in range(3):
            database.execute("insert into blocks values (?, ?)", (3 * number + at, text(3 * number + at)))
        database.execute("commit")

    return append


def _git(folder: Path) -> Callable[[int], None]:
    subprocess.run([program.program(), "init", "-q", str(folder)], check=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@x"]

    def append(number: int) -> None:
        for at in range(3):
            (folder / f"B{3 * number + at}.txt").write_text(text(3 * number + at))
        subprocess.run([program.program(), "-C", str(folder), "add", "-A"], check=True)
        subprocess.run([program.program(), "-C", str(folder), *who, "commit", "-qm", "step"], check=True)

    return append
