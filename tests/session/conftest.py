"""What the tests of sessions share: a session of its own for each, and a git that need not survive a power cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.session.session import Session
from ctxvc.store.git import program
from tests.making.provider import create


@pytest.fixture(autouse=True)
def _quick_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about what a disk has taken in; the tests of the store are."""
    monkeypatch.setattr(program, "_CONFIG", (*program._CONFIG, "core.fsync=none"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


@pytest.fixture
def session(place: Path) -> Iterator[Session]:
    with create(place) as made:
        yield made
