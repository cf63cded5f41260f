"""How fast a purge searches a history, for a text as it is and with its encoded forms. In processor time, git's too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from ctxvc.cli.commands import demo
from ctxvc.core.secrets.encodings import Search
from ctxvc.errors import NotFound
from ctxvc.recording.files import import_paths
from ctxvc.store.git import program
from ctxvc.store.purge import purge
from ctxvc.store.store import Store, create
from tests.benchmarks.measuring import Figure

TEXTS = {
    "24 bytes": "plum-harbour-9431-violet",
    "8 bytes": "pl-9431x",
    "several words": "a plum in the harbour of 9431",
}
_ROUNDS = 3


def figures(folder: Path) -> Iterator[Figure]:
    data = Path(os.environ.get("CTXVC_TEST_DATA", ""))
    paths = [demo.SESSION]
    if (data / "transcripts").is_dir():
        names = ("claude-code", "codex", "pi")
        paths = [path for name in names for path in sorted((data / "transcripts" / name).iterdir())]
        paths += sorted((data / "trajectories").glob("*.gz"))
    with create(folder / ".ctxvc") as store:
        list(import_paths(store, paths, final=True, redact=False))
        sizes = program.run(store.path, "cat-file", "--batch-all-objects", "--batch-check=%(objectsize)").split()
        size = sum(map(int, sizes)) / 1e6
        yield Figure(f"a history of {len(sizes)} objects, unpacked", size, "MB")
        for name, text in TEXTS.items():
            plain, encoded = [], []
            for _ in range(_ROUNDS):
                with (
                    patch.object(Search, "has", lambda *_: False),
                    patch.object(Search, "without", lambda _, data: data),
                ):
                    plain.append(_searched(store, text))
                encoded.append(_searched(store, text))
            yield Figure(f"search for {name} as it is", size / min(plain), "MB/s")
            ratio = min(encoded) / min(plain)
            yield Figure(
                f"search for {name} in all forms", size / min(encoded), "MB/s", ratio, "<= 2 x", "time as it is"
            )


def _searched(store: Store, text: str) -> float:
    """Seconds of processor time to find nothing of a text."""
    before = sum(os.times()[:4])
    try:
        purge.survey(store, purge.PurgeRequest(texts=(text,)))
    except NotFound:
        return sum(os.times()[:4]) - before
    raise AssertionError("it is there")
