"""Candidates: the results that would best leave, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.plan.candidates import candidates
from ctxvc.core.view import model_dashboard
from ctxvc.core.view.dashboard import Dashboard
from ctxvc.session.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Three results: 600, 1,200 and 60 words, of steps 1, 2 and 3; the last is of the newest step."""
    opened = Session.open(tmp_path / ".ctxvc", "s", model="none", budget=50_000)
    opened.append({"role": "user", "content": "Mend it."})
    for number, size in enumerate((600, 1200, 60), 1):
        path = f"/home/somebody/a/very/long/way/down/to/the/module/{'folders/' * 6}paths_{number}.py"
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": path}}
        opened.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "word " * size}
        opened.append({"role": "user", "content": [result]})
    return opened


def test_the_largest_and_oldest_comes_first_told_by_its_path(session: Session) -> None:
    found = candidates(session.view(), 6)
    assert [one.block for one in found] == ["B3", "B5"], "600 × 2 and 1,200 × 1 are equal: the older leads"
    assert [one.age for one in found] == [2, 1]
    assert str(found[0]).startswith("B3 Read /home/…/")
    assert "paths_1.py, " in str(found[0]) and str(found[0]).endswith(", 2 steps old")


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_there_are_no_more_than_were_asked_for(session: Session, limit: int) -> None:
    assert len(candidates(session.view(), limit)) == limit


@pytest.mark.parametrize("cap", [20, 30, 45, 60, 90, 250])
def test_a_brief_board_keeps_to_its_cap_and_drops_candidates_first(cap: int) -> None:
    board = Dashboard(
        session="s", scope="fix", limit=10_000, overhead=100, conversation=5000, lines=(), prompt="exact", step=7
    )
    best = [f"B{number} Read paths.go, 974, 24 steps old" for number in range(1, 7)]

    def count(text: str) -> int:
        return len(text) // 4

    text = model_dashboard.brief_text(board, ["a note"], 0, best, cap=cap, count=count, nudge="past 60 %")
    assert count(text) <= cap
    assert not text or text.startswith("[dashboard ##########")
    assert (text.count(" Read ") == 6) == (cap >= 90)
    assert text.count(" Read ") == 0 or "- a note" in text
