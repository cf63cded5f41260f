"""What a folder's `conftest.py` imports whose tests are not of commits: it is in the journal when a turn has ended.

A commit for each turn takes a fifth of their time. Flushes by verbs, by the number of steps and on closing stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctxvc.store.log.stored_session import StoredSession


@pytest.fixture(autouse=True, scope="package")
def _turns_of_a_burst() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredSession, "_end_turn", lambda _: None)
        yield
