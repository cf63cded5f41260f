"""The story of a session: its turns, the files that edits changed, and calls as a person reads them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxvc.inspection import story
from ctxvc.report import data
from ctxvc.report.texts import unpacked
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from tests.report.conftest import RECORDINGS, paged

SESSIONS = [*RECORDINGS, "managed"]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text_at(page: data.Session, place: data.Place) -> str:
    assert isinstance(place, tuple)
    return unpacked(page.bodies.chunks)[place[0] : place[0] + place[1]].decode()


def played(folder: Path, *messages: dict[str, Any]) -> data.Session:
    """The page of a session with these messages."""
    create(folder / FOLDER).close()
    with Session.open(folder / FOLDER, "played") as session:
        session.append(*messages)
    return paged(folder, "played")


def asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(*parts: dict[str, Any] | str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}


def call(name: str, tool: str, **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def results(*outputs: tuple[str, Any, bool]) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": name, "content": content, "is_error": failed}
            for name, content, failed in outputs
        ],
    }


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> data.Session:
    """The page of a session that edits, fails, commits, plans and asks a sub-agent."""
    old, new = "def a():\n    return 1\n", "def a():\n    return 2\n"
    plan = [{"content": "look", "status": "completed"}, {"content": "mend", "status": "in_progress"}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    return played(
        tmp_path_factory.mktemp("worked"),
        asked("mend a.py"),
        answered(
            "I look first.",
            call("1", "Read", file_path="src/a.py"),
            call("2", "Grep", pattern="def", path="src"),
            call("3", "Edit", file_path="src/a.py", old_string=old, new_string=new),
            call("4", "Edit", file_path="src/b.py", old_string="x", new_string="y"),
            call("5", "Bash", command="pytest -q"),
            call("6", "TodoWrite", todos=plan),
        ),
        results(("1", old, False), ("2", "1", False), ("3", "ok", False), ("4", "no such text", True)),
        results(("5", "Exit code 2\n1 failed", True), ("6", "ok", False)),
        answered(
            call("7", "Edit", file_path="src/a.py", old_string="return 2", new_string="return 3"),
            call("8", "Bash", command="pytest -q"),
            call("9", "Bash", command="git commit -am 'Mend it'"),
            call("10", "Write", file_path="docs/c.md", content="# C\n"),
            call("11", "Task", description="look around", prompt="look", subagent_type="explorer"),
            call("12", "browse", page=3, where={"text": "two\nlines"}),
        ),
        results(
            *((str(name), "ok", False) for name in range(7, 12)),
            ("12", [{"type": "text", "text": "seen"}, image], False),
        ),
        answered("## Done\n\nIt **works**: see [a](src/a.py).\n```\ncode\n```\nBye."),
        asked("thanks, and d.py?"),
        answered("Not now.", call("13", "Read", file_path="d.py")),
        results(("13", "nothing", False)),
    )  # fmt: skip


def test_a_turn_says_what_was_asked_what_was_done_and_how_it_ended(worked: data.Session) -> None:
    first, second = worked.turns
    assert (first.number, first.request, first.calls) == (1, "mend a.py", [0, 1, 2])
    assert [(worked.files[file].path, plus, minus) for file, plus, minus in first.files] == [
        ("src/a.py", 2, 2),
        ("docs/c.md", 1, 0),
    ], "what an edit failed to change is not changed"
    assert first.commands == [data.Command("pytest -q", 2, 1, "")]
    assert (first.commits, first.agents, first.others) == (["Mend it"], ["look around"], [("browse", 1)])
    assert (first.reads, first.searches, first.failures, first.tasks) == (1, 1, 2, "1/2 mend")
    assert (first.closing, first.answered) == ("Done It works: see a. … Bye.", True)
    assert (second.request, second.closing, second.answered) == ("thanks, and d.py?", "Not now.", False)


def test_calls_are_for_people(worked: data.Session) -> None:
    by_name = {worked.blocks.label[made.block]: made for made in worked.tool_calls}
    shown = {
        label: [(part.kind, part.title, text_at(worked, part.text)) for part in made.parts]
        for label, made in by_name.items()
    }
    assert shown["Edit src/a.py +1 −1"] in (
        [("diff", "src/a.py", " def a():\n-    return 1\n+    return 2")],
        [("diff", "src/a.py", "-return 2\n+return 3")],
    )
    assert shown["Bash pytest -q"] == [("command", "", "pytest -q")]
    assert shown["Write docs/c.md +1 −0"] == [("file", "docs/c.md", "# C\n")]
    assert shown["TodoWrite mend 1/2"] == [("tasks", "", "x look\n> mend")]
    assert shown["Read src/a.py"] == [], "what its arguments say best"
    endings = {worked.blocks.label[made.block]: made.ending for made in worked.tool_calls if made.ending}
    assert endings == {"Edit src/b.py +1 −1": "failed", "Bash pytest -q": "exit 2"}
    assert all(worked.blocks.kind[made.result] == "tool_result" for made in worked.tool_calls)


def test_a_file_has_the_diff_of_all_its_edits_and_the_turns_that_made_them(worked: data.Session) -> None:
    edited, written = worked.files
    assert (edited.path, edited.plus, edited.minus, edited.turns) == ("src/a.py", 1, 1, [0])
    assert text_at(worked, edited.diff) == " def a():\n-    return 1\n+    return 3"
    assert text_at(worked, written.diff) == "+# C"


def test_an_image_in_a_result_is_on_the_page(worked: data.Session) -> None:
    (picture,) = worked.pictures
    assert worked.blocks.kind[picture.block] == "tool_result" and picture.media == "image/png"
    assert isinstance(picture.place, tuple)
    start, size = picture.place
    assert unpacked(worked.bodies.chunks)[start : start + size].startswith(b"\x89PNG")


def test_of_a_long_request_both_ends_stay_and_a_clients_texts_before_it_do_not_count(tmp_path: Path) -> None:
    page = played(
        tmp_path,
        asked("<environment_context> <cwd>/work</cwd> </environment_context>"),
        asked("word " * 500 + "so what is it?"),
        answered("That."),
    )
    (turn,) = (turn for turn in page.turns if turn.calls)
    assert turn.request.startswith("word word") and turn.request.endswith("word so what is it?")
    assert len(turn.request) <= 400 and "…" in turn.request


@pytest.mark.parametrize("name", SESSIONS)
def test_each_call_is_of_one_turn_and_no_block_of_two(recorded: Path, name: str) -> None:
    page = paged(recorded, name)
    calls = sorted(number for turn in page.turns for number in turn.calls)
    assert calls == list(range(page.calls.n))
    for turn in page.turns:
        assert {page.calls.turn[number] for number in turn.calls} <= {turn.number}
        assert {page.blocks.turn[block] for block in range(*turn.blocks)} == {turn.number}
    ranges = sorted(turn.blocks for turn in page.turns)
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))
    costs = [sum(page.calls.cost[number] or 0 for number in turn.calls) for turn in page.turns]
    assert sum(costs) == pytest.approx(sum(cost or 0 for cost in page.calls.cost))


@pytest.mark.parametrize("name", SESSIONS)
def test_a_turns_words_are_those_of_log(recorded: Path, name: str) -> None:
    page = paged(recorded, name)
    with Store(recorded / FOLDER) as store:
        tip = StoredSession.open(store, name).tip("main")
        told = {turn.number: turn for turn in story.turns(story.moments(store, revision.history(store, tip)))}
    for turn in page.turns:
        if page.scopes[turn.scope].name == "main" and turn.calls:
            labels = [
                page.blocks.label[block] for block in range(*turn.blocks) if page.blocks.kind[block] == "tool_use"
            ]
            of_log = [call for moment in told[turn.number].moments for call in moment.calls]
            assert len(labels) == len(of_log)
            own = told[turn.number].request.strip("[]").rstrip("…")
            assert own[:15] in turn.request
