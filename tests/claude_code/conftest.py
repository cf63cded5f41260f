"""A project in which hooks record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.store.project.locate import FOLDER
from tests.making.host import end_recorder, project


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A project with a store; whatever records in it is gone afterwards."""
    made = project(tmp_path)
    yield made
    end_recorder(made / FOLDER)
