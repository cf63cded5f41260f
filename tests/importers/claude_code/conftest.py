"""The events of lines made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.recording.events import Event
from ctxvc.importers import claude_code
from ctxvc.importers.file import Recording
from tests.importers.claude_code.lines import SESSION, Line, written


@pytest.fixture
def parsed(tmp_path: Path) -> Any:
    """The events of a session that consists of these lines."""

    def tell(*lines: Line | bytes) -> list[Event]:
        return list(claude_code.events(Recording(written(tmp_path / f"{SESSION}.jsonl", *lines))))

    return tell
