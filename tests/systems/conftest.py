"""A session on a store of its own, and where that store is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc import Session

from .building import in_order, opened


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where the store is; whatever a test did, it is in order afterwards."""
    path = tmp_path / ".ctxvc"
    yield path
    in_order(path)


@pytest.fixture
def session(path: Path) -> Iterator[Session]:
    with opened(path) as session:
        yield session
