"""What looking for secrets costs: on text by itself, and in an import beside one without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ctxvc.cli.commands import demo
from ctxvc.core.secrets.redact import Criteria, find, redact
from ctxvc.recording.files import import_paths
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.purge.purge import PurgeRequest, purge
from ctxvc.store.secrets import secret_scanner
from ctxvc.store.store import create
from tests.benchmarks.measuring import Figure, seconds
from tests.benchmarks.recorded import _bytes
from tests.making import secrets as planting


def figures(folder: Path) -> Iterator[Figure]:
    data = Path(os.environ.get("CTXVC_TEST_DATA", ""))
    sources = {"claude-code": [demo.SESSION]}
    if (data / "transcripts").is_dir():
        sources = {name: sorted((data / "transcripts" / name).iterdir()) for name in ("claude-code", "codex", "pi")}
        sources["trajectories"] = sorted((data / "trajectories").glob("*.gz"))
    texts = [_bytes(path) for paths in sources.values() for path in paths]
    pieces = [text[at : at + 4000] for text in texts for at in range(0, len(text), 4000)]
    size = sum(map(len, pieces)) / 1e6
    took = min(seconds(lambda: [find(piece) for piece in pieces]) for _ in range(3))
    yield Figure(f"look for secrets, {size:.1f} MB in pieces of 4 kB", size / took, "MB/s")
    if secret_scanner.installed():
        criteria = Criteria(scan=secret_scanner.Scanner(secret_scanner.KINGFISHER, folder))
        find(b"", criteria)  # loads it
        both = min(seconds(lambda: [find(piece, criteria) for piece in pieces]) for _ in range(3))
        yield Figure("the same, and by kingfisher", size / both, "MB/s", both / took, "", "time without")
    for name, paths in sources.items():
        yield from _imported(folder, name, paths)
    yield from _purged(folder)


def _imported(folder: Path, name: str, paths: list[Path]) -> Iterator[Figure]:
    raw = sum(len(_bytes(path)) for path in paths)
    exact, redacted = [], []
    for number in range(3):
        exact.append(_import(folder / f"{name}-{number}-exact", paths, redact=False))
        redacted.append(_import(folder / f"{name}-{number}-redacted", paths, redact=True))
    yield Figure(f"import {name}, without redaction", raw / 1e6 / min(exact), "MB/s")
    ratio = min(redacted) / min(exact)
    yield Figure(f"import {name}, with redaction", raw / 1e6 / min(redacted), "MB/s", ratio, "", "time without")


def _import(folder: Path, paths: list[Path], *, redact: bool) -> float:
    with create(folder / ".ctxvc") as store:
        return seconds(lambda: list(import_paths(store, paths, final=True, redact=redact)))


def _purged(folder: Path) -> Iterator[Figure]:
    text = "\n".join(planting.LINES)
    assert redact(text.encode(), lambda _: "00000000") == text.encode()
    with create(folder / "purged" / ".ctxvc") as store:
        from tests.making.conversation import exchange, human, reply

        store.create_session("demo")
        with StoredSession.open(store, "demo") as session:
            for number in range(1000):
                session.append(*exchange(number))
                if number == 500:
                    session.append(human("plum-harbour-9431-violet"), reply("yes"))
        took = seconds(lambda: purge(store, PurgeRequest(texts=("plum-harbour-9431-violet",))))
    yield Figure("purge of a text, halfway in 1,000 steps", took, "s")
