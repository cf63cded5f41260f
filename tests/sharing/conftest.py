"""Two clones of nothing yet, and the bare repository that they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sharing.clones import Clone, bare


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the machine, so that git does the same everywhere."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return bare(tmp_path / "server" / "sessions.git")


@pytest.fixture
def anna(tmp_path: Path, server: Path) -> Clone:
    return Clone(tmp_path / "anna" / ".ctxvc", "anna", str(server))


@pytest.fixture
def bob(tmp_path: Path, server: Path) -> Clone:
    return Clone(tmp_path / "bob" / ".ctxvc", "bob", str(server))
