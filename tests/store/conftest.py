"""A store, a session in it, and nothing of the person who runs the tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.store import store as stores
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the machine, so that the tests' own git says the same everywhere."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an empty session `demo`, to be copied and never written to."""
    path = tmp_path_factory.mktemp("pristine") / ".ctxvc"
    with stores.create(path) as store:
        store.create_session("demo")
    return path


@pytest.fixture
def path(pristine: Path, tmp_path: Path) -> Path:
    """A store of this test's own, with an empty session `demo`."""
    shutil.copytree(pristine, tmp_path / ".ctxvc", symlinks=True)
    return tmp_path / ".ctxvc"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


@pytest.fixture
def session(store: Store) -> Iterator[StoredSession]:
    with StoredSession.open(store, "demo") as opened:
        yield opened
