"""What a folder's `conftest.py` imports whose tests are not of commits: what is recorded waits in the journal.

A commit for each turn and each verb takes a quarter of their time. Flushes of long runs, those that are asked for and
that on closing stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctxvc.store.log.stored_session import StoredSession

#: A flush happens once so many changes wait.
_WAITING = 48


@pytest.fixture(autouse=True, scope="package")
def _turns_of_a_burst() -> Iterator[None]:
    """A turn's end waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredSession, "_end_turn", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="package")
def _verbs_of_a_burst() -> Iterator[None]:
    """So do verbs and switches."""
    flush = StoredSession._flush_if_possible

    def flush_many(stored: StoredSession) -> None:
        if stored.waiting() >= _WAITING:
            flush(stored)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredSession, "_flush_if_possible", flush_many)
        yield
