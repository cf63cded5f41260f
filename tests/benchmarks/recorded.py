"""Import speed by format, and disk per raw byte, on recordings."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

from ctxvc.cli.commands import demo
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import create
from ctxvc.store.upkeep import gc
from ctxvc.tokens.meter import Meter
from tests.benchmarks.measuring import Figure, seconds

TARGETS = {
    "claude-code": ">= 20",
    "trajectories": ">= 8",
    "codex": ">= 8",
    "copilot-cli": ">= 8",
    "pi": ">= 8",
    "openai-chat": ">= 8",
}


def figures(folder: Path) -> Iterator[Figure]:
    data = Path(os.environ.get("CTXVC_TEST_DATA", ""))
    if not (data / "trajectories").is_dir():
        yield from _imported(folder, "claude-code", [demo.SESSION])
        return
    for name in ("claude-code", "codex", "other/copilot-cli", "pi", "openai-chat"):
        yield from _imported(folder, Path(name).name, sorted((data / "transcripts" / name).iterdir()))
    yield from _imported(folder, "trajectories", sorted((data / "trajectories").glob("*.gz")), tokens=True)


def _imported(folder: Path, name: str, paths: list[Path], *, tokens: bool = False) -> Iterator[Figure]:
    raw = sum(len(_bytes(path)) for path in paths)
    with create(folder / name / ".ctxvc") as store:
        took = seconds(lambda: list(import_paths(store, paths, final=True)))
        yield Figure(
            f"import {name}, {len(paths)} files, {raw / 1e6:.1f} MB", raw / 1e6 / took, "MB/s", target=TARGETS[name]
        )
        before = gc.sizes(store).packed
        yield Figure(f"disk, {name}, packs before gc", before / 1e6, "MB", before / raw, "<= 1.6 x", "raw bytes")
        gc.gc(store)
        after = gc.sizes(store).packed
        yield Figure(f"disk, {name}, packs after gc", after / 1e6, "MB", after / raw, "<= 1.0 x", "raw bytes")
        if tokens:
            counted = seconds(lambda: _count(store))
            yield Figure(f"import {name}, with tokens", raw / 1e6 / (took + counted), "MB/s", target=">= 3")


def _count(store: object) -> None:
    from ctxvc.store.store import Store

    assert isinstance(store, Store)
    meter = Meter(store)
    for name in store.sessions():
        with StoredSession.open(store, name) as session:
            meter.costs(revision.now(session))


def _bytes(path: Path) -> bytes:
    return gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
