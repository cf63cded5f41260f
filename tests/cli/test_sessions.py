"""What `sessions` says of each session: its title, its age, what it took, what it cost and what it changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.locate import FOLDER
from ctxvc.store.store import create
from tests.cli.conftest import Run

MODEL = "claude-opus-4-5"
USAGE = {"input_tokens": 100_000, "output_tokens": 20_000}  # a dollar at 5 and 25 a million


def said(role: str, *parts: Any, at: int, scope: str = "", model: str = "") -> Said:
    message = Message(role=role, parts=parts, key=f"{scope}{at}", model=model, usage=USAGE if model else {})  # type: ignore[arg-type]
    return Said(message=message, end=at, scope=scope, task="c9" if scope else "")


def edit(call: str, path: str) -> Any:
    return call_part("Edit", call, json.dumps({"file_path": path, "old_string": "a", "new_string": "b"}).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with one session of two turns, with a sub-agent that changed a file of its own."""
    human, task = (text_part(words, "user", "human") for words in ("fix the login", "look around"))
    events = [
        Opened(format="claude-code", source="s", name="s", model=MODEL),
        said("user", human, at=1),
        said("assistant", edit("c1", "/w/a.py"), edit("c2", "/w/b.py"), edit("c3", "/w/a.py"), at=2, model=MODEL),
        said("user", *(result_part("ok", f"c{n}", error=n == 2) for n in (1, 2, 3)), at=3),
        said("user", task, at=4, scope="agent-1"),
        said("assistant", edit("d1", "/w/c.py"), at=5, scope="agent-1", model=MODEL),
        said("user", result_part("ok", "d1"), at=6, scope="agent-1"),
        said("user", human, at=7),
        said("assistant", text_part("done", "assistant", "model"), at=8, model=MODEL),
    ]
    with create(tmp_path / FOLDER) as store:
        ingest(store, events, final=True)
    return tmp_path


def test_turns_cost_and_files_are_those_of_the_session(run: Run, folder: Path) -> None:
    (item,) = json.loads(run("sessions", "--json", folder=folder).stdout)["items"]
    assert (item["turns"], item["cost"]) == (2, 3.0)
    assert item["files"] == 2, "an edit that failed changed nothing, and a file counts once"


def test_a_sub_agent_stands_below_its_session_with_its_own_figures(run: Run, folder: Path) -> None:
    ((agent,),) = (item["agents"] for item in json.loads(run("sessions", "--json", folder=folder).stdout)["items"])
    assert (agent["name"], agent["prompt"], agent["cost"], agent["files"]) == ("agent-1", "look around", 1.0, 1)

    _, session, below = run("sessions", folder=folder).stdout.splitlines()
    assert session.startswith("*\ts\tfix the login\t")
    assert session.endswith("\t$3.00\t2")
    assert below.startswith("\t└ agent-1\tlook around\t")
    assert below.endswith("\t$1.00\t1")


def test_a_session_of_a_model_without_a_price_has_no_cost(run: Run, tmp_path: Path) -> None:
    events = [Opened(format="pi", source="s", name="s"), said("user", text_part("hi", "user", "human"), at=1)]
    with create(tmp_path / FOLDER) as store:
        ingest(store, [*events, said("assistant", edit("c1", "a"), at=2, model="local")], final=True)

    assert json.loads(run("sessions", "--json", folder=tmp_path).stdout)["items"][0]["cost"] is None


def test_titles_are_cut_so_that_a_line_fits_eighty_columns(
    on_screen: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxvc.cli.output.Output.width", 80)
    assert all(len(line) <= 80 for line in on_screen("sessions", "--color", "never", folder=folder).stdout.splitlines())
