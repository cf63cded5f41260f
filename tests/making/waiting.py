"""Waiting for what another process does."""

from __future__ import annotations

import time
from pathlib import Path


def until_there(path: Path) -> None:
    """Returns once the path exists; fails after half a minute."""
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.02)
