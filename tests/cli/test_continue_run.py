"""`continue --in run`: our own agent goes on with another's session, in a scope of it, by a real client."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.cli.main import cli
from ctxvc.core.hosts import tools
from ctxvc.core.ledger import wire
from ctxvc.core.prompt.sanitise import sendable
from ctxvc.exporters.conversation import Conversation
from ctxvc.recording.files import import_paths
from ctxvc.session.session import Session
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.read import revision
from ctxvc.store.store import Store, create
from tests.cli.conftest import Run, Serving
from tests.conftest import Copied
from tests.exporters.arrival import compared, of_pieces, of_request
from tests.making.processes import KILLED, dies_at_a_record, ended
from tests.making.provider import damages
from tests.messages_api import call, script

DATA = Path(__file__).parents[1] / "data"
MODEL = "claude-sonnet-5-5"
RECORDINGS = ("recorded/claude-code.jsonl", "recorded/codex.jsonl", "recorded/pi.jsonl", "native/odd-messages.json")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Be kind.\n")
    return folder


def at(folder: Path, name: str = "HEAD") -> Conversation:
    """A revision of the only session."""
    with Store(folder / ".ctxvc") as store:
        (session,) = store.sessions()
        with StoredSession.open(store, session) as stored:
            snapshot = revision.resolve(store, stored, name)
            list(map(snapshot.bodies.body, snapshot.ledger.rows()))
        return Conversation(Store(folder / ".ctxvc"), revision.at(store, snapshot.commit))


def scopes(folder: Path) -> list[str]:
    with Store(folder / ".ctxvc") as store:
        return [scope for tips in store.all_tips().values() for scope in tips]


@pytest.mark.parametrize("name", RECORDINGS)
def test_all_of_a_prompt_is_in_the_first_request_in_order_and_once(
    run: Run, serving: Serving, place: Path, name: str
) -> None:
    assert run("import", "--final", DATA / name, folder=place).exit_code == 0
    recorded = at(place)
    going_on = run("continue", "--in", "run", folder=place)
    assert going_on.exit_code == 0, going_on.stderr
    command = going_on.stdout.split(" && ")[-1].split()
    replies = [[call("bash", command="echo done here")], "All of it is done."]
    with serving(script(*replies)) as api:
        task = ["then go on"] if "TASK" in command else []
        done = run(*command[1:4], *task, "--yes", "--model", MODEL, folder=place)
        assert done.exit_code == 0, done.stderr
        first = api.bodies[0]

    expected = [
        tools.of_agent(piece, "run")
        for piece in sendable(recorded.prompt())
        if "openai" not in piece.extra or piece.kind != "other"
    ]
    arrived = compared(list(of_pieces(expected)), of_request("/v1/messages", untagged(copy.deepcopy(first))))
    assert (arrived.missing, arrived.twice, arrived.unpaired) == ([], [], [])
    assert "You are a careful programmer" in json.dumps(first["system"])
    assert {"bash", "read_file", "delegate"} <= {tool["name"] for tool in first["tools"]}
    assert any("Be kind." in unit.text for unit in arrived.added)
    assert scopes(place) == ["main", "run-1"]
    assert at(place, "main").ledger == recorded.ledger
    sent = json.loads(run("prompt", f"{command[3]}~1", "--sent", "--json", folder=place).stdout)
    assert (sent["label"], sent["messages"]) == ("exact", unmarked(first["messages"]))
    texts = [unit.text for unit in of_pieces(at(place, "run-1").prompt())]
    assert texts[-1] == "All of it is done." and any("done here" in text for text in texts)


def unmarked(messages: Any) -> Any:
    """The messages without cache marks."""
    return json.loads(re.sub(r', "cache_control": \{[^}]*\}', "", json.dumps(messages)))


def untagged(body: dict[str, Any]) -> bytes:
    """The request without the tags by which our agent names results."""
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_result":
                block["content"] = [item for item in block.get("content", ()) if not is_tag(item)]
    return wire.compact(body)


def is_tag(item: dict[str, Any]) -> bool:
    return item["type"] == "text" and item["text"].startswith("[B") and " · " in item["text"]


def test_calls_are_of_the_runs_own_tools_and_come_back_as_they_were(run: Run, place: Path) -> None:
    assert run("import", "--final", DATA / RECORDINGS[0], folder=place).exit_code == 0
    assert run("continue", "--in", "run", folder=place).exit_code == 0
    recorded, again = at(place, "main"), at(place, "run-1")
    made = {piece.block: piece for piece in recorded.prompt() if piece.kind == "tool_use"}
    shown = {piece.block: piece for piece in again.prompt() if piece.kind == "tool_use"}

    assert {piece.tool for piece in shown.values()} >= {"bash", "read_file"}
    for block, piece in made.items():
        assert shown[block].tool == tools.of_agent(piece, "run").tool
        assert tools.call_of(shown[block]) == tools.call_of(piece)
        assert again.ledger[block].sha256 == recorded.ledger[block].sha256
        assert again.piece(again.ledger[block]).body == piece.body, "what was recorded stays"


def test_a_budget_and_a_policy_are_those_of_the_run(run: Run, serving: Serving, place: Path) -> None:
    assert run("import", "--final", DATA / RECORDINGS[0], folder=place).exit_code == 0
    whole = at(place)
    done = run("continue", "--in", "run", "--budget", "12k", "--policy", "window", folder=place)
    assert done.exit_code == 0, done.stderr
    address = done.stdout.split()[-1]
    with serving(script("Well.")) as api:
        resumed = run("run", "--resume", address, "--yes", "--model", MODEL, "more", folder=place)
        assert resumed.exit_code == 0, resumed.stderr
        size = len(json.dumps(api.bodies[0]["messages"]))

    assert (at(place, "run-1").ledger.meta.budget, at(place, "run-1").ledger.meta.policy) == (12_000, "window")
    assert size < sum(len(piece.body) for piece in whole.prompt())
    assert whole.ledger == at(place, "main").ledger


def test_the_run_is_found_by_its_scope_whatever_is_current(run: Run, serving: Serving, place: Path) -> None:
    assert run("import", "--final", DATA / RECORDINGS[0], folder=place).exit_code == 0
    refused = run("run", "--resume", at(place).snapshot.session, "go on", folder=place)
    assert refused.exit_code == 1 and "continue --in run" in refused.stderr
    address = run("continue", "--in", "run", folder=place).stdout.split()[-1]
    second = run("continue", "--in", "run", folder=place).stdout.split()[-1]
    assert (address.partition("/")[2], second.partition("/")[2]) == ("run-1", "run-2")
    with serving(script("One.", "Two.")) as api:
        for task in ("first", "second"):
            result = run("run", "--resume", address, "--yes", "--model", MODEL, task, folder=place)
            assert result.exit_code == 0 and address in result.stderr, result.stderr
        assert "One." in json.dumps(api.bodies[1])
    assert len(at(place, "run-1").ledger) > len(at(place, "run-2").ledger)


def test_it_runs_at_once_with_the_task_that_comes_in(
    place: Path, run: Run, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [{"role": "user", "content": "look"}, {"role": "assistant", "content": "Done before."}]
    (place / "asked.json").write_text(json.dumps({"model": MODEL, "messages": asked}))
    assert run("import", "--final", place / "asked.json", folder=place).exit_code == 0
    became: list[list[str]] = []
    monkeypatch.chdir(place)  # and back: it goes there
    monkeypatch.setattr("os.execve", lambda _program, argv, _env: became.append(argv))
    assert run("continue", "--in", "run", "--run", folder=place).exit_code == 0
    ((python, *program, command, option, address, task),) = became
    assert (python, program, command, option) == (sys.executable, ["-m", "ctxvc"], "run", "--resume")
    with serving(script("Then this.")) as api:
        words = ["-C", str(place), command, option, address, task, "--yes"]
        ended = CliRunner().invoke(cli, words, input="do the rest\n")
        assert (ended.exit_code, "Then this." in ended.stdout) == (0, True), ended.stderr
        assert "do the rest" in json.dumps(api.bodies[0]["messages"][-1])


@pytest.mark.parametrize("words, reason", [(("--wrap",), "--wrap"), (("--policy", "window"), "--budget")])
def test_what_makes_no_sense_is_refused(run: Run, place: Path, words: tuple[str, ...], reason: str) -> None:
    assert run("import", "--final", DATA / RECORDINGS[0], folder=place).exit_code == 0
    result = run("continue", "--in", "run", *words, folder=place)
    assert (result.exit_code, reason in result.stderr, scopes(place)) == (2, True, ["main"])


def test_an_agent_in_the_middle_of_a_step_is_left_alone_and_all_of_it_comes_along(
    run: Run, serving: Serving, place: Path
) -> None:
    with Session.open(place / ".ctxvc", "demo", model=MODEL) as session:
        session.append({"role": "user", "content": "look"})
        used = [{"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "ls"}}]
        session.append({"role": "assistant", "content": used})
        assert run("continue", "--in", "run", folder=place).exit_code == 0
        assert session.stored.open_calls == ("a",)
        with serving(script("Well.")) as api:
            assert run("run", "--resume", "demo/run-1", "--yes", folder=place).exit_code == 0
            assert "was recorded" in json.dumps(api.bodies[0]["messages"]), "the call has no result there"
        session.stored.refresh()
        assert session.stored.open_calls == ("a",)
        session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]})
        assert session.stored.open_calls == ()
    with Session.open(place / ".ctxvc", "demo", scope="run-1") as going_on:
        calls = [block for message in going_on.prompt().messages for block in message["content"] if "input" in block]
        assert calls == [{"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}]
    with Store(place / ".ctxvc") as store:
        assert not damages(store)


def imported(folder: Path) -> None:
    with create(folder / ".ctxvc") as store:
        list(import_paths(store, [DATA / RECORDINGS[0]], final=True))


@pytest.mark.parametrize("when, number", [("before", 1), *(("after", number) for number in range(1, 6))])
def test_a_kill_while_it_is_written_loses_nothing(
    run: Run, copied: Copied, place: Path, when: str, number: int
) -> None:
    copied(imported, place)
    recorded = at(place)
    assert ended(dies_at_a_record, when, number, "-C", str(place), "continue", "--in", "run") == KILLED
    again = run("continue", "--in", "run", folder=place)

    assert again.exit_code == 0, again.stderr
    assert at(place, "main").ledger == recorded.ledger
    sent = list(of_pieces([tools.of_agent(piece, "run") for piece in sendable(recorded.prompt())]))
    for scope in scopes(place)[1:]:
        arrived = compared(sent, list(of_pieces(sendable(at(place, scope).prompt()))))
        assert (arrived.missing, arrived.twice, arrived.unpaired) == ([], [], [])
    with Store(place / ".ctxvc") as store:
        assert not damages(store)


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "pi"])
def test_what_is_written_of_a_run_that_has_not_begun_is_known_again(run: Run, place: Path, agent: str) -> None:
    for words in (("import", str(DATA / RECORDINGS[0])), ("continue", "--in", "run"), ("continue", "--in", agent)):
        assert run(*words, folder=place).exit_code == 0

    imported = run("import", folder=place)

    assert imported.exit_code == 0, imported.stderr
    with Store(place / ".ctxvc") as store:
        assert len(store.sessions()) == 1
