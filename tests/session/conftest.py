"""What the tests of sessions share: a session of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.session.session import Session
from tests.making.bursts import _turns_of_a_burst, _verbs_of_a_burst  # noqa: F401 - pytest finds them here
from tests.making.provider import create


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


@pytest.fixture
def session(place: Path) -> Iterator[Session]:
    with create(place) as made:
        yield made


@pytest.fixture
def small(place: Path) -> Iterator[Session]:
    with create(place, budget=12_000) as made:
        yield made
