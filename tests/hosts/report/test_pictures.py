"""The pictures in the documents show what the page shows today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.hosts.environments import ROOT
from tests.hosts.report.pictures import PICTURES, PICTURES_FOLDER, made, outline


def test_the_pictures_have_what_the_page_has(browser: Any, tmp_path: Path) -> None:
    page = made(tmp_path)
    outlines = [outline(browser, page, picture) for picture in PICTURES]
    assert (PICTURES_FOLDER / "outline.txt").read_text() == "\n\n".join(outlines) + "\n", (
        "python -m tests.hosts.report.pictures"
    )


def test_the_pictures_are_small_and_the_documents_show_them() -> None:
    pictures = {path.name: path.stat().st_size for path in PICTURES_FOLDER.glob("*.png")}
    assert set(pictures) == set(PICTURES)
    assert max(pictures.values()) <= 150_000
    documents = [(ROOT / "README.md").read_text(), *(page.read_text() for page in (ROOT / "docs").rglob("*.md"))]
    assert [name for name in PICTURES if not any(f"pictures/{name}" in text for text in documents)] == []
