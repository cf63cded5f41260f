"""Our files for other programs, which are no modules."""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """The folder of those files: in the installed package, or in the source."""
    package = Path(__file__).parents[2]
    inside = package / "hooks"
    return inside if inside.is_dir() else package.parent / "hooks"
