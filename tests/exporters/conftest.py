"""What tests of hostile sessions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctxvc.exporters.conversation import Conversation
from ctxvc.store.store import create
from tests.exporters.trips import conversation


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    """A session in which nothing was said, whose ledger the examples replace."""
    with create(tmp_path_factory.mktemp("hostile") / "store") as store:
        store.create_session("demo")
        yield conversation(store, "demo")
