"""`scope`, `goto`, `note`, `scopes`, `notes`: lines of reasoning as a person changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctxvc.core.ledger.wire import result_part, text_part
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import STEERING, Run, answer
from tests.making.conversation import human
from tests.making.project import call, reply, results


def notes(run: Run, project: Path, *arguments: str) -> list[str]:
    return [item["text"] for item in answer(run, project, "notes", *arguments)["items"]]


def test_while_a_call_is_open_a_person_s_switch_is_refused_and_not_forgotten(run: Run, project: Path) -> None:
    """An agent's switch waits for the end of the step in its process; a person's process ends at once."""
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        writer.append(reply(12, call("Bash", "open", command="sleep 9")))
    for arguments in (["scope", "side", "-m", "x"], ["scope", "side", "-m", "x", "--from", "step:1"]):
        result = run(*arguments, folder=project)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "the step is open: 1 call in main without a result" in result.stderr and "--interrupt" in result.stderr
    assert run("scope", "side", "-m", "x", "--interrupt", folder=project).exit_code == 0
    assert [item["name"] for item in answer(run, project, "scopes")["items"] if item["current"]] == ["side"]
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo", "main") as writer:
        assert writer.open_calls == ()
        assert "interrupted" in str(writer.ledger()["B17"].extra)


def test_a_scope_s_name_may_have_slashes(run: Run, project: Path) -> None:
    answer(run, project, "scope", "plan/login", "-m", "to plan")
    answer(run, project, "note", "-m", "first the clock", "--actor", "agent")
    block = answer(run, project, "notes")["items"][-1]["block"]
    answer(run, project, "goto", "main", "-m", "planned")
    answer(run, project, "scope", "plan/logout", "-m", "to plan")

    assert {item["name"] for item in answer(run, project, "scopes")["items"]} >= {"plan/login", "plan/logout"}
    for address in (f"plan/login:{block}", f"demo/plan/login:{block}", f"plan/login:{block}@"):
        result = run("recover", address.rstrip("@"), folder=project)
        assert "first the clock" in result.stdout
    assert run("prompt", "plan/login", folder=project).stdout == run("prompt", "demo/plan/login", folder=project).stdout
    assert "first the clock" in run("prompt", "plan/login", folder=project).stdout
    assert run("show", f"plan/login:{block}", folder=project).exit_code == 0
    assert run("checkout", "demo/plan/login", folder=project).exit_code == 0


def test_before_the_colon_of_an_address_is_the_longest_scope_that_there_is(run: Run, project: Path) -> None:
    """There is a session `branched` too, with a scope `main`."""
    elsewhere = run("recover", "branched/main:B1", folder=project).stdout
    answer(run, project, "scope", "branched/main", "-m", "to confuse")
    block = answer(run, project, "notes")["items"][-1]["block"]
    assert "to confuse" in run("recover", f"branched/main:{block}", folder=project).stdout
    assert elsewhere and run("recover", "--session", "branched", "main:B1", folder=project).stdout == elsewhere


def test_notes_are_found_by_their_labels(run: Run, project: Path) -> None:
    answer(run, project, "note", "-m", "the clock is wrong")
    answer(run, project, "note", "-m", "we mock the clock", "-l", "decision", "-l", "tests/login")
    assert notes(run, project, "-l", "decision") == ["we mock the clock"]
    assert len(notes(run, project)) == 2
    assert notes(run, project, "-l", "plan") == []
    assert "decision, tests/login" in run("notes", folder=project).stdout
    assert "- (decision, tests/login) we mock the clock" in run("status", "--text", folder=project).stdout


def test_a_note_archives_what_it_supersedes_and_its_address_is_in_the_stub(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        for at in range(2):
            writer.append(reply(20 + 2 * at, call("Bash", f"n{at}", command=f"try {at}")))
            writer.append(results(21 + 2 * at, result_part(f"no luck with {at}\n" * 50, f"n{at}")))
        first, second = [row.id for row in writer.ledger().rows() if row.kind == "tool_result"][-2:]
        writer.append(reply(30, text_part("Both failed.", "assistant", "model")))
    told = answer(run, project, "note", "-m", "neither works: no clock", "--supersedes", f"{first},{second}")

    assert sorted(told["archived"]) == sorted([first, second]) and told["freed"] > 100 and not told["problems"]
    prompt = run("prompt", folder=project).stdout
    assert "no luck" not in prompt and f"superseded by {told['block']}" in prompt
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        assert writer.ledger()[told["block"]].extra == {"ctxvc": {"supersedes": [first, second]}}
    assert run("undo", folder=project).exit_code == 0
    assert "no luck with 1" in run("prompt", folder=project).stdout
    assert notes(run, project) == []


def test_what_a_human_wrote_is_superseded_by_a_person_only(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        writer.append(human("use the old clock " * 60), reply(40, text_part("I do.", "assistant", "model")))
        writer.append(human("no, the new one"), reply(41, text_part("I will.", "assistant", "model")))
        (said,) = [row.id for row in writer.ledger().rows() if row.label.startswith("use the old clock")]
    before = _contents(project)
    for arguments in (["--actor", "agent"], []):
        result = run("note", "-m", "the new clock", "--supersedes", said, *arguments, folder=project)
        assert (result.exit_code, "a human wrote it" in result.stderr) == (1, True)
    result = run("note", "-m", "x", "--supersedes", said, "--allow-user", "--actor", "agent", folder=project)
    assert result.exit_code == 2
    assert run("note", "-m", "x", "--supersedes", "B999", folder=project).exit_code == 1
    assert _contents(project) == before
    told = answer(run, project, "note", "-m", "the new clock", "--supersedes", said, "--allow-user")
    assert told["archived"] == [said]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["note", "-m", "x", "-l", "a b"], 1),
        (["note", "-m", "x", *[f"-l{at}" for at in range(9)]], 1),
        (["scope", "main", "-m", "x"], 1),
        (["scope", "a b", "-m", "x"], 2),
        (["scope", "../x", "-m", "x"], 2),
        (["scope", "a//b", "-m", "x"], 2),
        (["scope", "a/", "-m", "x"], 2),
        (["scope", "a/../b", "-m", "x"], 2),
        (["scope", "a/b.lock", "-m", "x"], 2),
        (["scope", "a/" * 51, "-m", "x"], 2),
        (["scope", "main/b", "-m", "x"], 2),
        (["scope", "HEAD", "-m", "x"], 2),
        (["scope", "MAIN", "-m", "x"], 2),
        (["scope", "\x1b[2J", "-m", "x"], 2),
        (["scope", "-m", "x"], 2),
        (["scope", "a"], 2),
        (["scope", "a", "-m", ""], 1),
        (["scope", "a", "-m", "x", "--from", "nowhere"], 1),
        (["scope", "a", "-m", "x", "--from", "branched/main"], 1),
        (["goto", "main", "-m", "x"], 1),
        (["goto", "nowhere", "-m", "x"], 1),
        (["goto", "branched/main", "-m", "x"], 1),
        (["goto", "main"], 2),
        (["note", "-m", " \n"], 1),
        (["note"], 2),
        (["note", "-m", "x", "--actor", "nobody"], 2),
        (["notes", "nowhere"], 1),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else str(words),
)
def test_what_cannot_be_done_says_why_and_writes_nothing(words: list[str], code: int, run: Run, project: Path) -> None:
    before = _contents(project)
    result = run(*words, folder=project)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("ctxvc: ")
    assert "\nhint: " in result.stderr
    assert len(result.stderr) < 400
    assert not STEERING.search(result.stderr)
    assert _contents(project) == before


def _contents(project: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in (project / ".ctxvc").rglob("*")
        if path.is_file() and "cache" not in path.parts
    }
