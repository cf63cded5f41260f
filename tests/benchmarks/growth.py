"""What stays the same and what grows from 1,000 to 50,000 blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ctxvc.core.ledger.ledger import Group
from ctxvc.core.prompt.outline import outline, pieces
from ctxvc.store.log import stored_session as writer_module
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store
from ctxvc.store.verify import verify
from tests.benchmarks.making import step, store_of
from tests.benchmarks.measuring import Figure, interleaved, median_ms, seconds

SIZES = (1_000, 10_000, 50_000)
VISIBLE = 500


def figures(folder: Path) -> Iterator[Figure]:
    paths = {}
    for blocks in SIZES:
        with store_of(folder, blocks) as store:
            paths[blocks] = store.path
    yield from _appends(paths)
    for blocks, path in paths.items():
        yield from _reading(blocks, path)


def _appends(paths: dict[int, Path]) -> Iterator[Figure]:
    """Appends in a burst, the sizes in turn."""
    stores = {blocks: Store(path) for blocks, path in paths.items()}
    sessions = {blocks: StoredSession.open(store) for blocks, store in stores.items()}
    writer_module.FLUSH_STEPS, writer_module.FLUSH_SECONDS = 1 << 30, 1e9
    handle = os.open(next(iter(paths.values())) / "base.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def base(number: int) -> None:
        os.write(handle, msgspec.json.encode(step(number)) + b"\n")
        os.fdatasync(handle)

    works = {
        str(blocks): lambda number, held=held: held.append(*step(10**6 + number)) for blocks, held in sessions.items()
    }
    times = interleaved({"jsonl": base, **works}, 200)
    first = median_ms(times[str(SIZES[0])])
    for blocks in SIZES:
        took = median_ms(times[str(blocks)])
        yield Figure(f"append at {blocks:,} blocks", took, "ms", took / first, "<= 1.3 x", f"at {SIZES[0]:,}")
    writer_module.FLUSH_STEPS, writer_module.FLUSH_SECONDS = 32, 1.0
    for session in sessions.values():
        session.close()
    for store in stores.values():
        store.close()


def _reading(blocks: int, path: Path) -> Iterator[Figure]:
    opened: list[float] = []
    for _ in range(5):
        with Store(path) as store:
            opened.append(seconds(lambda store=store: StoredSession.open(store).close()))
    yield Figure(f"open cold, {blocks:,} blocks", median_ms(opened), "ms", target="<= 400 at 50,000")
    with Store(path) as store, StoredSession.open(store) as session:
        ledger = session.ledger()
        rows = list(ledger.rows())
        hidden = rows[: max(0, len(rows) - VISIBLE)]
        group = Group(id="G1", members=tuple(row.id for row in hidden), stub="[archived G1]", removed_by="user")
        gone = [msgspec.structs.replace(row, state="archived", group="G1", removed_by="user") for row in hidden]
        session.change(subject="archive", op="archive", actor="user", rows=gone, groups=[group])
        moment = revision.now(session)
        took = [seconds(lambda: pieces(outline(moment.ledger), moment.bodies)) for _ in range(5)]
        yield Figure(f"prompt, {VISIBLE} visible of {blocks:,}", median_ms(took), "ms", target="<= 50")
        yield Figure(f"verify, {blocks:,} blocks", seconds(lambda: verify.verify(store)) * 1000, "ms")
