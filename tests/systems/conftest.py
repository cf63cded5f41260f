"""A session on a store of its own, and where that store is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc import Session
from tests.conftest import Copied

from .building import in_order, opened


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where the store is; whatever a test did, it is in order afterwards."""
    path = tmp_path / ".ctxvc"
    yield path
    in_order(path)


@pytest.fixture
def session(path: Path, copied: Copied) -> Iterator[Session]:
    with opened(copied(_begun, path)) as session:
        yield session


def _begun(path: Path) -> None:
    opened(path).close()
