"""Explicit scopes as an agent lives in them: boards after a switch, and what `main` grows by."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.prompt.cut import is_cut
from ctxvc.policies import parse
from ctxvc.session.session import Session
from tests.messages_api import call, text

from .building import opened
from .test_tools import Talk

TASKS = 8


class Worker(Talk):
    """An agent that does each task in a scope of its own."""

    def task(self, number: int) -> None:
        self.session.append(
            {"role": "user", "content": f"Please fix problem {number}: the zone is wrong in region {number}."}
        )
        self.step(call("scope", name=f"fix/{number}", note=f"fix problem {number}: the wrong zone in region {number}"))
        for _ in range(3):
            self.step(call("sh", cmd=f"cat {number}"))
        self.step(call("note", text=f"Region {number} had the server's zone; tz.py takes the profile's now."))
        self.step(call("goto", name="main", note=f"Problem {number} is fixed in tz.py, test_tz_{number}.py covers it."))
        assert self.session.scope == "main"
        self.step(text(f"Problem {number} is fixed."))


def board(session: Session) -> bool:
    """Whether the next request ends with a board that names the scope's newest note."""
    body = session.request().body()["messages"][-1]["content"]
    return body[-1]["text"].startswith("[dashboard ") and "notes" in body[-1]["text"]


@pytest.mark.parametrize("policy", ["scoped", "default", "self_managed"])
def test_a_board_comes_after_every_switch_also_where_boards_have_used_up_their_share(
    tmp_path: Path, policy: str
) -> None:
    with opened(tmp_path / "s", policy=parse(policy)) as session:
        session.append({"role": "user", "content": "Fix the zones."})
        talk = Talk(session)
        for number in range(6):
            if "scope" not in {tool["name"] for tool in session.request().body()["tools"]}:
                session.open_scope(f"fix/{number}", "to fix it")
            else:
                talk.step(call("scope", name=f"fix/{number}", note="to fix it"))
            assert session.scope == f"fix/{number}" and board(session)
            talk.step(call("sh", cmd="x"))
            session.goto("main", "fixed") if policy == "self_managed" else talk.step(
                call("goto", name="main", note="fixed")
            )
            assert session.scope == "main" and board(session)
            talk.step(call("sh", cmd="y"))


def test_main_grows_by_60_tokens_a_task_beside_the_words_of_its_notes_and_of_humans(tmp_path: Path) -> None:
    """Measured after the cut that the next turn makes: what is said twice has left by then."""
    with opened(tmp_path / "s", budget=100_000, policy=parse("scoped")) as session:
        worker, beside = Worker(session), []
        for number in range(TASKS):
            worker.task(number)
            session.append({"role": "user", "content": "And now?"})
            session.request()
            view = session.view()
            shown = [row for row in view.ledger.rows() if row.present and not is_cut(row, view.ledger.meta)]
            said = [row for row in shown if row.kind == "note" or row.origin == "human"]
            boards = [row for row in shown if row.kind == "dashboard"]
            beside.append(view.counted - sum(view.price.body(row) for row in (*said, *boards)))
            assert sum("[→ " in session.body(row.id).decode() for row in said) == number + 1, "its own stay"
            session.append({"role": "assistant", "content": "The next one."})
        growth = (beside[-1] - beside[1]) / (TASKS - 2)
        assert growth <= 60, beside


def test_copies_of_notes_leave_a_scope_with_its_first_cut_and_its_own_departure_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "s", budget=100_000, policy=parse("scoped")) as session:
        worker = Worker(session)
        for number in range(TASKS):
            worker.task(number)
        session.append({"role": "user", "content": "And this."})
        worker.step(call("scope", name="last", note="the last one"))
        session.request()
        notes = [row for row in session.ledger().rows() if row.kind == "note"]
        assert [session.body(row.id) for row in notes if row.present] == [b"[\xe2\x86\x92 last] the last one"]
        assert len(notes) == 2 * TASKS + 1
        assert "Problem 0 is fixed" in worker.told("notes"), "the tool gives the rest"
        assert all(row.present for row in session.ledger("main").rows() if row.kind == "note")


def test_a_call_whose_departure_note_is_gone_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "s", budget=100_000, policy=parse("scoped")) as session:
        worker = Worker(session)
        worker.task(0)
        notes = [row.id for row in session.ledger().rows() if row.kind == "note"]
        (note,) = [block for block in notes if b"\xe2\x86\x92" in session.body(block)]
        session.verb("prune", note)
        for number in (1, 2):
            worker.task(number)
        calls = [row for row in session.ledger().rows() if row.tool == "scope" and row.kind == "tool_use"]
        assert [row.state for row in calls] == ["visible", "pruned", "visible"]
