"""Machines with the real client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.claude_code.machine import VERSIONS, Machine, machine


@pytest.fixture
def here() -> Iterator[Machine]:
    """A machine with the newest client."""
    with machine() as made:
        yield made


@pytest.fixture(params=VERSIONS)
def every(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with each client in turn."""
    with machine(request.param) as made:
        yield made
