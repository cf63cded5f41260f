"""No test, and no fixture that several share, works in the home of whoever runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.store.store import create
from ctxvc.store.trust import known_stores, trust


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where the person's data folder is while a shared fixture makes a store, and that store's record in it."""
    with create(tmp_path_factory.mktemp("shared") / ".ctxvc") as store:
        name = trust.store_id(store.path)
    return trust.data_folder(), trust.data_folder() / known_stores.STORES / f"{name}.json"


def test_a_fixture_that_is_shared_has_no_home_of_a_person(
    shared: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, record = shared
    temporary = tmp_path_factory.getbasetemp()

    assert record.is_file() and folder.is_relative_to(temporary)
    assert trust.data_folder().is_relative_to(temporary) and trust.data_folder() != folder
