"""What `sessions` says of each session: its title, its age, what it took, what it cost and what it changed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ctxvc.cli.commands.sessions import session_items
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.ledger import Ledger
from ctxvc.core.ledger.wire import call_part, result_part, text_part
from ctxvc.core.recording.events import Opened, Said
from ctxvc.store.ingest import ingest
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read.commit_reader import Reader
from ctxvc.store.store import Store, create
from tests.cli.conftest import Run

MODEL = "claude-opus-4-5"
TEXT = (text_part("go on", "user", "human"),)
USAGE = {"input_tokens": 100_000, "output_tokens": 20_000}  # a dollar at 5 and 25 a million


def said(role: str, *parts: Any, at: int, scope: str = "", model: str = "") -> Said:
    message = Message(role=role, parts=parts, key=f"{scope}{at}", model=model, usage=USAGE if model else {})  # type: ignore[arg-type]
    return Said(message=message, end=at, scope=scope, task="c9" if scope else "")


def edit(call: str, path: str) -> Any:
    return call_part("Edit", call, json.dumps({"file_path": path, "old_string": "a", "new_string": "b"}).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with one session of two turns, with a sub-agent that changed a file of its own."""
    human, task = (text_part(text, "user", "human") for text in ("fix the login", "look around"))
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
    assert session.endswith("\t2\t50 %\t360000\t$3.00\t2"), "turns, how full, spent, cost, files"
    assert below.startswith("\t└ agent-1\tlook around\t")
    assert below.endswith("\t50 %\t120000\t$1.00\t1")


def test_a_session_of_a_model_without_a_price_has_no_cost(run: Run, tmp_path: Path) -> None:
    events = [Opened(format="pi", source="s", name="s"), said("user", text_part("hi", "user", "human"), at=1)]
    with create(tmp_path / FOLDER) as store:
        ingest(store, [*events, said("assistant", edit("c1", "a"), at=2, model="local")], final=True)
    (item,) = json.loads(run("sessions", "--json", folder=tmp_path).stdout)["items"]
    assert (item["cost"], item["spent_tokens"]) == (None, USAGE["input_tokens"] + USAGE["output_tokens"])
    assert run("sessions", folder=tmp_path).stdout.splitlines()[1].endswith("\t120000\t–\t0")


# --- what was worked out before


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that are worked out while a command runs."""
    sessions: list[str] = []
    whole = Reader.ledger

    def ledger(reader: Reader, commit: str) -> Ledger:
        read = whole(reader, commit)
        sessions.append(read.meta.session)
        return read

    monkeypatch.setattr(Reader, "ledger", ledger)
    return sessions


def cache(folder: Path) -> Path:
    return folder / FOLDER / "ctxvc" / "cache" / "sessions.json"


def test_a_session_that_did_not_change_is_not_read_again(run: Run, folder: Path, read: list[str]) -> None:
    with Store(folder / FOLDER) as store:
        ingest(store, [Opened(format="pi", source="t", name="t"), said("user", *TEXT, at=1)], final=True)
    first = run("sessions", "--json", folder=folder).stdout
    read.clear()
    assert run("sessions", "--json", folder=folder).stdout == first
    assert read == []

    run("--session", "t", "note", "-m", "learned", folder=folder)
    read.clear()
    items = json.loads(run("sessions", "--json", folder=folder).stdout)["items"]
    assert {*read} == {"t"}
    assert {item["name"]: item["blocks"] for item in items} == {"s": 12, "t": 2}


@pytest.mark.parametrize("change", ["scope", "goto", "waiting"])
def test_what_changes_a_session_changes_its_line(run: Run, folder: Path, change: str) -> None:
    run("scope", "try", "-m", "another way", folder=folder)
    run("sessions", folder=folder)
    if change == "scope":
        run("scope", "once-more", "-m", "again", folder=folder)
    elif change == "goto":
        run("goto", "main", "-m", "back", folder=folder)
    else:
        with Store(folder / FOLDER) as store, StoredSession.open(store, "s") as stored:
            stored.append(Message(role="user", parts=TEXT))
            stored.leave()
    kept = run("sessions", "--json", folder=folder).stdout
    cache(folder).unlink()
    assert run("sessions", "--json", folder=folder).stdout == kept


def test_a_guess_is_no_longer_kept_once_the_blocks_are_counted(run: Run, tmp_path: Path) -> None:
    def item() -> Any:
        return json.loads(run("sessions", "--json", folder=tmp_path).stdout)["items"][0]

    with create(tmp_path / FOLDER) as store:
        reply = text_part("done", "assistant", "model")
        later = text_part("and this: " + 20_000 * "word ", "user", "human")  # in no prompt yet
        messages = [said("user", *TEXT, at=1), said("assistant", reply, at=2), said("user", later, at=3)]
        ingest(store, [Opened(format="pi", source="s", name="s"), *messages], final=True)
    assert item()["estimated"] and item()["used"] < 100
    status = json.loads(run("status", "--json", folder=tmp_path).stdout)
    assert not item()["estimated"]
    assert {name: item()[name] for name in ("used", "window", "percent", "by_provider")} == {
        name: status[name] for name in ("used", "window", "percent", "by_provider")
    }


@pytest.mark.parametrize("left", [b"", b"[]", b'{"s": 3}', b"\xff", b'{"s": {"key": "x", "counts": "", "item": {}}}'])
def test_a_cache_of_another_form_is_none(run: Run, folder: Path, left: bytes) -> None:
    first = run("sessions", "--json", folder=folder).stdout
    cache(folder).write_bytes(left)
    assert run("sessions", "--json", folder=folder).stdout == first
    assert len(cache(folder).read_bytes()) > len(left)


def test_a_store_that_cannot_be_written_is_listed_all_the_same(run: Run, folder: Path) -> None:
    cache(folder).parent.rmdir()
    cache(folder).parent.write_text("no folder")
    assert run("sessions", folder=folder).exit_code == 0


def test_labels_are_kept_and_are_what_they_were(run: Run, folder: Path) -> None:
    first = run("status", "--json", folder=folder).stdout
    labels = folder / FOLDER / "ctxvc" / "cache" / "captions.json"
    kept = json.loads(labels.read_bytes())
    assert next(iter(kept["labels"].values()))["B3"] == "Edit /w/b.py +1 −1"
    assert run("status", "--json", folder=folder).stdout == first
    for number in range(10):
        run("note", "-m", f"learned {number}", folder=folder)
        run("status", "--json", folder=folder)
    assert len(json.loads(labels.read_bytes())["labels"]) == 8


def test_labels_that_other_code_made_are_made_anew(run: Run, folder: Path) -> None:
    first = run("status", "--json", folder=folder).stdout
    labels = folder / FOLDER / "ctxvc" / "cache" / "captions.json"
    kept = json.loads(labels.read_bytes())
    stale = {commit: dict.fromkeys(texts, "stale") for commit, texts in kept["labels"].items()}
    labels.write_text(json.dumps({**kept, "labels": stale}))
    assert "stale" in run("status", "--json", folder=folder).stdout
    for old in ({"by": "older", "labels": stale}, stale):
        labels.write_text(json.dumps(old))
        assert run("status", "--json", folder=folder).stdout == first


# --- labels for people, wherever blocks are listed


def test_a_checkouts_page_calls_a_result_by_its_call(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("checkout", "s", tmp_path / "out", folder=folder).exit_code == 0
    page = (tmp_path / "out" / "DASHBOARD.md").read_text()
    assert [line.split(" | ")[-1] for line in page.splitlines() if line.startswith("| B5 ")] == ["Edit /w/a.py +1 −1 |"]


def test_a_turn_is_called_by_what_its_human_said(run: Run, tmp_path: Path) -> None:
    reminder = text_part("<system-reminder>be brief</system-reminder>", "user", "client")
    events = [
        Opened(format="claude-code", source="s", name="s", cwd="/w"),
        said("user", reminder, text_part("## fix **the** login", "user", "human"), at=1),
        said("assistant", edit("c1", "/w/src/a.py"), at=2, model=MODEL),
        said("user", result_part("ok", "c1"), at=3),
    ]
    with create(tmp_path / FOLDER) as store:
        ingest(store, events, final=True)

    def names(by: str) -> list[str]:
        items = json.loads(run("context", "--by", by, "--json", folder=tmp_path).stdout)["items"]
        return [item["name"] for item in items]

    assert names("turn") == ["turn 1: fix the login"]
    assert "src/a.py" in names("file")


def test_a_scratch_file_is_no_work_of_a_session_unless_its_project_is_there(run: Run, tmp_path: Path) -> None:
    for folder, name in (("/home/a/app", "one"), ("/tmp/app", "two")):
        events = [
            Opened(format="claude-code", source=name, name=name, cwd=folder),
            said("user", *TEXT, at=1),
            said("assistant", edit("c1", f"{folder}/a.py"), edit("c2", "/tmp/try.py"), edit("c3", "b.py"), at=2),
            said("user", *(result_part("ok", f"c{n}") for n in (1, 2, 3)), at=3),
        ]
        with create(tmp_path / name / FOLDER) as store:
            ingest(store, events, final=True)
        (item,) = json.loads(run("sessions", "--json", folder=tmp_path / name).stdout)["items"]
        assert item["files"] == 2, name


def test_a_list_leaves_no_file_of_a_session_open(folder: Path) -> None:
    with Store(folder / FOLDER) as store:
        for name in ("one", "two"):
            store.create_session(name)
            with StoredSession(store, name) as stored:
                stored.append(Message(role="user", parts=TEXT))
        assert len(session_items(store, [])[0]) == 3
        journals = [store.journal_path(name).stat() for name in ("one", "two")]
        for number in os.listdir("/dev/fd"):
            with suppress(OSError):  # the list's own
                assert not any(os.path.samestat(os.fstat(int(number)), journal) for journal in journals)
