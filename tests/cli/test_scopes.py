"""`scope`, `goto`, `note`, `scopes`, `notes`: lines of reasoning as a person changes them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.wire import result_part, text_part
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store
from tests.cli.conftest import STEERING, Run
from tests.making.project import call, reply


def answer(run: Run, project: Path, *arguments: str) -> Any:
    result = run(*arguments, "--json", folder=project)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def notes(run: Run, project: Path, *arguments: str) -> list[str]:
    return [item["text"] for item in answer(run, project, "notes", *arguments)["items"]]


def current(run: Run, project: Path) -> str:
    (name,) = [item["name"] for item in answer(run, project, "scopes")["items"] if item["current"]]
    return str(name)


def graph(project: Path) -> list[str]:
    result = subprocess.run(
        ["git", "--git-dir", str(project / ".ctxvc"), "log", "--graph", "--format=%s", "-n", "7"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.rstrip() for line in result.stdout.splitlines()]


def leave_a_call_open(project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        writer.append(reply(12, call("Bash", "open", command="sleep 9")))


def test_the_journey_is_what_git_draws(run: Run, project: Path) -> None:
    assert run("scope", "step-1", "-m", "A", folder=project).stdout == "in demo/step-1, from main\n"
    assert run("note", "-m", "B", folder=project).exit_code == 0
    assert run("goto", "main", "-m", "C", folder=project).stdout == "in demo/main, from step-1\n"

    assert notes(run, project) == ["[→ step-1] A", "[← step-1] C"]
    assert notes(run, project, "step-1") == ["[→ step-1] A", "B"]
    assert graph(project)[:6] == [
        "*   goto main",
        "|\\",
        "| * note: B",
        "| * scope step-1",
        "|/",
        "* note: [→ step-1] A",
    ]


def test_the_next_command_is_in_the_scope_that_the_last_one_went_to(run: Run, project: Path) -> None:
    run("scope", "a", "-m", "x", folder=project)
    assert current(run, project) == "a"
    assert answer(run, project, "status")["scope"] == "a"
    run("goto", "main", "-m", "x", folder=project)
    assert current(run, project) == "main"


def test_a_scope_from_an_earlier_revision_is_the_prompt_of_then_and_a_word_why(run: Run, project: Path) -> None:
    before = answer(run, project, "prompt", "step:2")["messages"]

    run("scope", "retry", "--from", "step:2", "-m", "another way", folder=project)

    now = answer(run, project, "prompt")["messages"]
    assert now[:-1] == before[:-1]
    assert now[-1]["content"][: len(before[-1]["content"])] == before[-1]["content"]
    assert now[-1]["content"][-1]["text"] == "[→ retry] another way"
    assert notes(run, project, "main") == ["[→ retry] another way"]


def test_a_scope_with_messages_has_all_of_them(run: Run, project: Path) -> None:
    before = run("prompt", folder=project).stdout.partition("\n\n")[2]
    run("scope", "copy", "-m", "x", "--with-messages", folder=project)

    assert run("prompt", folder=project).stdout.partition("\n\n")[2].startswith(before.rstrip("\n"))


def test_while_a_call_is_open_a_person_s_switch_is_refused_and_not_forgotten(run: Run, project: Path) -> None:
    """An agent's switch waits for the end of the step in its process; a person's process ends at once."""
    leave_a_call_open(project)
    for arguments in (["scope", "side", "-m", "x"], ["scope", "side", "-m", "x", "--from", "step:1"]):
        result = run(*arguments, folder=project)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "the step is open: 1 call in main without a result" in result.stderr
        assert "--interrupt" in result.stderr
    assert answer(run, project, "scopes")["items"][0]["name"] == "main"

    assert run("scope", "side", "-m", "x", "--interrupt", folder=project).exit_code == 0
    assert current(run, project) == "side"
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo", "main") as writer:
        assert writer.open_calls == ()
        assert "interrupted" in str(writer.ledger()["B17"].extra)


def test_a_result_that_comes_after_its_step_was_interrupted_is_not_lost(run: Run, project: Path) -> None:
    leave_a_call_open(project)
    run("scope", "side", "-m", "x", "--interrupt", folder=project)
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo", "main") as writer:
        writer.append(Message(role="user", parts=(result_part("it ran to its end", "open"),)))

    assert "it ran to its end" in run("prompt", "main", folder=project).stdout


def test_a_note_folds_what_led_to_it(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        for at in range(3):
            writer.append(reply(20 + 2 * at, call("Bash", f"n{at}", command=f"try {at}")))
            writer.append(
                Message(role="user", parts=(result_part(f"no luck with {at}, as the log says\n" * 30, f"n{at}"),))
            )
    told = answer(run, project, "note", "-m", "it is the clock", "--fold")

    assert len(told["archived"]) == 6
    assert told["freed"] > 300
    prompt = run("prompt", folder=project).stdout
    assert "no luck with 1" not in prompt
    assert prompt.count("it is the clock") == 2, "the stub's index, and the note"
    assert run("undo", folder=project).exit_code == 0
    assert "no luck with 1" in run("prompt", folder=project).stdout


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
    assert run("verify", folder=project).exit_code == 0
    subjects = subprocess.run(
        ["git", "--git-dir", str(project / ".ctxvc"), "log", "-n1", "--format=%s", "demo/plan/login"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert subjects == "note: first the clock\n"


def test_git_has_no_branch_inside_of_another_and_the_error_says_so(run: Run, project: Path) -> None:
    answer(run, project, "scope", "plan/login", "-m", "to plan")
    for name, better in (("plan/login/more", "plan-login-more"), ("plan", "plan-2"), ("PLAN/Login/x", "PLAN-Login-x")):
        result = run("scope", name, "-m", "x", folder=project)
        assert result.exit_code == 2
        assert "'plan/login' exists, and git cannot have a branch inside of another" in result.stderr
        assert f"try '{better}'" in result.stderr


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
            writer.append(Message(role="user", parts=(result_part(f"no luck with {at}\n" * 50, f"n{at}"),)))
        writer.append(reply(30, text_part("Both failed.", "assistant", "model")))
        first, second = [row.id for row in writer.ledger().rows() if row.kind == "tool_result"][-2:]
    told = answer(run, project, "note", "-m", "neither works: no clock", "--supersedes", f"{first},{second}")

    assert sorted(told["archived"]) == sorted([first, second]) and told["freed"] > 100 and not told["problems"]
    prompt = run("prompt", folder=project).stdout
    assert "no luck" not in prompt and f"superseded by {told['block']}" in prompt
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        assert writer.ledger()[told["block"]].extra == {"ctxvc": {"supersedes": [first, second]}}
    assert run("undo", folder=project).exit_code == 0
    assert "no luck with 1" in run("prompt", folder=project).stdout
    assert notes(run, project) == []


def test_a_note_that_supersedes_a_short_one_leaves_it_in_the_prompt_and_off_the_board(run: Run, project: Path) -> None:
    old = answer(run, project, "note", "-m", "port 80", "--actor", "agent")["block"]
    told = answer(run, project, "note", "-m", "port 8080", "--supersedes", old)

    assert [problem["why"] for problem in told["problems"]] == ["no saving"] and told["archived"] == []
    listed = answer(run, project, "notes")["items"]
    assert [(item["text"], item["superseded"]) for item in listed] == [("port 80", told["block"]), ("port 8080", "")]
    board = run("status", "--text", folder=project).stdout
    assert "- port 8080" in board and "- port 80\n" not in board


def test_what_a_human_wrote_is_superseded_by_a_person_only(run: Run, project: Path) -> None:
    with Store(project / ".ctxvc") as store, StoredSession.open(store, "demo") as writer:
        writer.append(Message(role="user", parts=(text_part("use the old clock " * 60, "user", "human"),)))
        writer.append(reply(40, text_part("I do.", "assistant", "model")))
        writer.append(Message(role="user", parts=(text_part("no, the new one", "user", "human"),)))
        writer.append(reply(41, text_part("I will.", "assistant", "model")))
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


def test_listing_writes_nothing(run: Run, project: Path) -> None:
    before = _contents(project)
    for arguments in (["scopes"], ["notes"], ["notes", "--json"]):
        assert run(*arguments, folder=project).exit_code == 0
    assert _contents(project) == before


def _contents(project: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in (project / ".ctxvc").rglob("*")
        if path.is_file() and "cache" not in path.parts
    }


@pytest.mark.parametrize("text", ["it's", '"', "a\nb", "--", "$(x) `y`", "[← main] no", "é\u202e\x1b[2J\r"])
def test_a_note_is_kept_as_it_was_given_and_moves_no_cursor(text: str, run: Run, on_screen: Run, project: Path) -> None:
    assert run("note", f"-m{text}", folder=project).exit_code == 0

    assert notes(run, project) == [text]
    for arguments in (["notes"], ["log"], ["scopes"], ["status", "--all"], ["show"]):
        assert not STEERING.search(run(*arguments, folder=project).output), arguments
    assert not STEERING.search(on_screen("--color", "never", "notes", folder=project).output)


def test_who_wrote_a_note_is_recorded(run: Run, project: Path) -> None:
    arguments = ["--session", "branched"]
    made = [
        answer(run, project, *arguments, "note", "-m", text, "--actor", actor)["block"]
        for text, actor in (("mine", "user"), ("its", "agent"))
    ]

    log = answer(run, project, *arguments, "log", "-n", "2")["items"]
    assert [(item["subject"], item["actor"]) for item in log] == [("note: its", "agent"), ("note: mine", "user")]
    origins = [answer(run, project, *arguments, "show", block)["row"]["origin"] for block in made]
    assert origins == ["human", "model"]
