"""A session for each test, on a git that need not survive a power cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.session.session import Session
from ctxvc.store.git import program

from .building import opened


@pytest.fixture(autouse=True)
def _quick_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_CONFIG", (*program._CONFIG, "core.fsync=none"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


@pytest.fixture
def session(place: Path) -> Iterator[Session]:
    with opened(place) as made:
        yield made
