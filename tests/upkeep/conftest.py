"""A store with everything in it, built once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ctxvc.store.store import Store, create
from tests.making.damage import everything, unpack


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it, to be copied."""
    path = tmp_path_factory.mktemp("whole") / ".ctxvc"
    with create(path) as store:
        everything(store)
    return path


@pytest.fixture
def full(whole: Path, tmp_path: Path) -> Store:
    """A store of this test's own with everything in it."""
    shutil.copytree(whole, tmp_path / ".ctxvc", symlinks=True)
    return Store(tmp_path / ".ctxvc")


@pytest.fixture(scope="session")
def unpacked(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, all of whose objects are loose files, so that one can be taken away; to be copied."""
    path = tmp_path_factory.mktemp("unpacked") / ".ctxvc"
    shutil.copytree(whole, path, symlinks=True)
    with Store(path) as store:
        unpack(store)
    return path


@pytest.fixture
def loose(unpacked: Path, tmp_path: Path) -> Store:
    """A store of this test's own with everything in it, in loose objects."""
    shutil.copytree(unpacked, tmp_path / ".ctxvc", symlinks=True)
    return Store(tmp_path / ".ctxvc")
