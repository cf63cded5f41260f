"""What the tests of the wire share: a model's server on this machine. No test here is of commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.making.bursts import _turns_of_a_burst  # noqa: F401 - pytest finds it here
from tests.wire.raw import Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()
