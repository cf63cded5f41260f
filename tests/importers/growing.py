"""A recording that grows: what a store has after imports at several moments of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ctxvc.recording.files import import_paths
from ctxvc.store.store import create
from tests.making.store import Trees, trees


def imported_at(folder: Path, moments: Iterable[Path], **options: Any) -> Trees:
    """What a store in `folder` has after an import of each of these, as it is written when its turn comes."""
    folder.mkdir(parents=True)
    with create(folder / ".ctxvc") as store:
        for path in moments:
            errors = [str(outcome.error) for outcome in import_paths(store, [path], **options) if outcome.error]
            assert all("no messages" in error for error in errors), errors
        assert not [one.error for one in import_paths(store, [path], final=True, **options) if one.error]
        return trees(store)


def file_with(path: Path, contents: Iterable[bytes]) -> Iterator[Path]:
    """The path, where a file has these contents, one after the other."""
    path.parent.mkdir(parents=True)
    for content in contents:
        path.write_bytes(content)
        yield path


def random_ends(data: bytes, count: int, seed: object) -> list[int]:
    """Where a file may have ended while it was written, after its first line, in order; at last where it ends."""
    first = data.index(b"\n") + 1
    chance = random.Random(str(seed))
    return [*sorted(chance.sample(range(first, len(data)), min(count, len(data) - first))), len(data)]


def assert_grows_into_the_whole(folder: Path, name: str, data: bytes, ends: Sequence[int], **options: Any) -> Trees:
    """A file imported at each of these ends is what one import makes of it; gives that."""
    grown, whole = (
        imported_at(folder / kind, file_with(folder / kind / "of" / name, (data[:end] for end in until)), **options)
        for kind, until in (("grown", ends), ("whole", ends[-1:]))
    )

    assert grown == whole != {}
    return whole
