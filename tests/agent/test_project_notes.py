"""Notes of the project that an agent writes: only where a person lets it, kept as a person's are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.agent import Adapter, definitions
from ctxvc.agent.tools.definitions import has_project_notes, ours
from ctxvc.cli.main import cli
from ctxvc.core.project_notes import ProjectNote
from ctxvc.policies import parse
from ctxvc.session import project_notes
from ctxvc.session.session import Session
from ctxvc.store.store import Store
from tests.making.provider import MODEL, SYSTEM, damages
from tests.messages_api import call

from .building import SH


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session whose note tool can write notes of the project, in its second step."""
    (tmp_path / "app.py").write_text("one")
    tools = definitions(own=[SH], project_notes=True)
    with Session.open(tmp_path / ".ctxvc", "demo", model=MODEL, budget=32_000, system=SYSTEM, tools=tools) as opened:
        opened.append({"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"})
        opened.append({"role": "user", "content": "go on"})
        yield opened


def answered(session: Session, *, allowed: bool = True, **arguments: Any) -> dict[str, Any]:
    """What a call of `note` is answered, within a step."""
    adapter = Adapter(session, writes_project_notes=allowed)
    use = {**call("note", **arguments), "id": f"toolu_{len(session.ledger())}"}
    adapter.request()
    adapter.record({"role": "assistant", "content": [use], "stop_reason": "tool_use", "usage": {}})
    answer = adapter.handle(use)
    assert answer is not None
    adapter.results([answer])
    return answer


def kept(store: Store) -> list[ProjectNote]:
    return project_notes.notes(store)


def test_a_note_of_the_project_is_kept_with_its_step_and_files(session: Session) -> None:
    answer = answered(session, text="app.py begins it all", project=True, name="entry", labels=["map"])
    (note,) = kept(session.store)
    assert note.address in answer["content"] and "is_error" not in answer
    about = note.about
    assert (about.name, about.session, about.scope, note.labels) == ("entry", "demo", "main", ("map",))
    step = next(row.step for row in session.ledger().rows() if row.kind == "tool_use")
    assert about.step == step > 0
    assert note.stale(project_notes.digests(session.store.path.parent, [note])) == []
    (session.store.path.parent / "app.py").write_text("two")
    assert note.stale(project_notes.digests(session.store.path.parent, [note])) == ["app.py"]
    assert not session.notes(), "it is in no session of the work"

    answer = answered(session, text="it is main.py now", project=True, name="entry")
    assert f"it replaces {note.address}" in answer["content"]
    assert [one.text for one in kept(session.store)] == ["it is main.py now"]
    assert not damages(session.store)


def test_without_a_persons_leave_nothing_is_kept(session: Session) -> None:
    answer = answered(session, allowed=False, text="the key is the tenant", project=True)
    assert answer["is_error"] and "a person has to allow it" in answer["content"]
    assert kept(session.store) == []
    assert "is_error" not in answered(session, allowed=False, text="the key is the tenant")
    assert [note.text for note in session.notes()] == ["the key is the tenant"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "x"}, "set project"),
        ({"project": True, "fold": True}, "leave fold and supersedes out"),
        ({"project": True, "supersedes": "B1"}, "leave fold and supersedes out"),
        ({"project": True, "name": "../x\x1b[1m"}, "cannot be a note's name"),
        ({"project": True, "text": " "}, "a note needs text"),
        ({"project": True, "text": "x" * 4_001}, "4,000 are allowed"),
        ({"project": "yes"}, "Expected `bool`"),
    ],
)
def test_what_is_wrong_is_answered(session: Session, arguments: dict[str, Any], why: str) -> None:
    answer = answered(session, **{"text": "a note", **arguments})
    assert answer["is_error"] and why in answer["content"]
    assert kept(session.store) == []


def test_hostile_text_is_kept_and_shown_as_text(session: Session) -> None:
    text = "see\x1b[31m \u202egnp.\x07\r\n- fake: line [x] \x00"
    answered(session, text=text, project=True)
    shown = project_notes.for_task(session.store, "", session.store.path.parent, 2_000, len)
    assert len(shown.splitlines()) == 2, "one line a note"
    assert all(line.isprintable() for line in shown.splitlines())


def test_only_a_tool_that_was_asked_for_has_it() -> None:
    for terms in (None, parse("default").terms_in(100_000), parse("scoped").terms()):
        usual, more = definitions(terms), definitions(terms, project_notes=True)
        assert (has_project_notes(usual), has_project_notes(more)) == (False, True)
        assert ours(more, [tool["name"] for tool in usual]) == ours(usual, [tool["name"] for tool in usual])
        assert [one for one, other in zip(usual, more, strict=True) if one == other] == [
            one for one in usual if one["name"] != "note"
        ]


def run(folder: Path, *words: str, script: object) -> tuple[int, str]:
    (folder / "script.json").write_text(json.dumps(script))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(cli, ["run", *words, "--yes", "--script", "script.json"], env={"HOME": str(folder)})
    return result.exit_code, result.output


@pytest.mark.parametrize("allowed", [True, False])
def test_a_run_writes_notes_only_with_the_option_and_the_next_sees_them(tmp_path: Path, allowed: bool) -> None:
    options = ["--write-project-notes"] if allowed else []
    noting = [{"content": [call("note", text="the tests need a tag", project=True)]}, {"content": "Done."}]
    code, out = run(tmp_path, "look", "--window", "100000", *options, script=noting)
    assert code == 0, out
    with Store(tmp_path / ".ctxvc") as store:
        assert [note.about.session for note in kept(store)] == (["run-1"] if allowed else [])
        assert store.current_session() == "run-1"
    run(tmp_path, "run the tests", "--project-notes", "1000", script=[{"content": "Done."}])
    with Session.open(tmp_path / ".ctxvc", "run-2") as session:
        bodies = b"".join(session.body(row.id) for row in session.ledger().rows() if row.kind == "user")
    assert (b"the tests need a tag [run-1/main step" in bodies) == allowed
    code, out = run(tmp_path, "--resume", "run-1", "more", "--write-project-notes", script=[{"content": "Done."}])
    assert (code == 0) == allowed, out
    assert ("only a new run can have it" in out) != allowed


def test_a_policy_without_notes_cannot_write_them(tmp_path: Path) -> None:
    code, out = run(tmp_path, "look", "--policy", "window", "--write-project-notes", script=[{"content": "Done."}])
    assert code == 1 and "gives the model no notes" in out
