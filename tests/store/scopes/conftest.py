"""A store that is in order once its test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.scopes.looking import in_order


@pytest.fixture
def _in_order(path: Path) -> Iterator[None]:
    yield
    in_order(path)
