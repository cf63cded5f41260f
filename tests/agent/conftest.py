"""A session for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.session.session import Session

from .building import opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


@pytest.fixture
def session(place: Path) -> Iterator[Session]:
    with opened(place) as made:
        yield made
