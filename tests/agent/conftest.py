"""A session for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.session.session import Session
from tests.conftest import Copied
from tests.making.bursts import _turns_of_a_burst, _verbs_of_a_burst  # noqa: F401 - pytest finds them here

from .building import opened, plain


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


@pytest.fixture
def session(place: Path, copied: Copied) -> Iterator[Session]:
    with plain(opened(copied(_begun, place))) as made:
        yield made


def _begun(place: Path) -> None:
    opened(place).close()
