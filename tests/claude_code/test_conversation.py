"""Which session a call of a tool acts on: that of the conversation it is made in, never the newest by chance."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ctxvc.claude_code import conversation, requests, spool
from ctxvc.claude_code import hook as answering
from ctxvc.claude_code.requests import Request
from ctxvc.cli.main import cli
from ctxvc.errors import NotFound
from ctxvc.mcp.protocol import Connection
from ctxvc.mcp.recordings import Recordings
from ctxvc.recording import places
from ctxvc.recording.files import import_paths
from ctxvc.session.session import Session
from ctxvc.store.project import locate
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store, create
from tests.making.host import environment
from tests.recording.test_files import CONVERSATION, write

FIRST, SECOND = "11111111-2222-3333-4444-555555555555", "22222222-2222-3333-4444-555555555555"


@pytest.fixture
def transcripts(place: Path, tmp_path: Path) -> dict[str, Path]:
    """Two recorded conversations of one project."""
    lines = {name: [{**one, "sessionId": name} for one in CONVERSATION] for name in (FIRST, SECOND)}
    paths = {name: write(tmp_path / f"{name}.jsonl", *own) for name, own in lines.items()}
    with Store(place / FOLDER) as store:
        assert not [outcome.error for outcome in import_paths(store, paths.values(), final=True) if outcome.error]
    return paths


def caller(place: Path, call: str = "", **env: str) -> tuple[str, str]:
    meta: dict[str, Any] = {"claudecode/toolUseId": call} if call else {}
    with Store(place / FOLDER) as store:
        return conversation.of_call(store, meta, env, patience=0.2)


def of_call(place: Path, call: str = "", **env: str) -> str:
    """The session of a call that is no sub-agent's."""
    session, scope = caller(place, call, **env)
    assert scope == ""
    return session


def test_the_variable_of_the_host_names_the_session(place: Path, transcripts: dict[str, Path]) -> None:
    for name in (FIRST, SECOND):
        assert of_call(place, CLAUDE_CODE_SESSION_ID=name) == f"claude-{name[:8]}"
    assert of_call(place) == ""


def test_a_call_is_in_the_conversation_that_its_hook_named(
    place: Path, transcripts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_start", lambda _: None)
    event = {"hook_event_name": "PreToolUse", "tool_use_id": "toolu_1", "cwd": str(place)}
    given = {**event, "transcript_path": str(transcripts[FIRST])}
    assert answering.answer("PreToolUse", json.dumps(given).encode(), environment(place)) == b""

    # The server was started in the other one, as before a `/clear`.
    assert of_call(place, "toolu_1", CLAUDE_CODE_SESSION_ID=SECOND) == f"claude-{FIRST[:8]}"
    assert not places.call(place / FOLDER, "toolu_1").exists()
    assert of_call(place, "toolu_2", CLAUDE_CODE_SESSION_ID=SECOND) == f"claude-{SECOND[:8]}"


def test_a_call_of_a_sub_agent_is_in_its_scope(
    place: Path, transcripts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_start", lambda _: None)
    main = transcripts[FIRST]
    own = [{**one, "sessionId": FIRST, "isSidechain": True, "agentId": "Ab22"} for one in CONVERSATION]
    inner = main.with_suffix("") / "subagents"
    inner.mkdir(parents=True)
    write(inner / "agent-Ab22.jsonl", *own)
    with Store(place / FOLDER) as store:
        assert not [outcome.error for outcome in import_paths(store, [main], final=True) if outcome.error]

    def call(number: int, **fields: str) -> tuple[str, str]:
        event = {"hook_event_name": "PreToolUse", "tool_use_id": f"toolu_{number}", "cwd": str(place), **fields}
        assert answering.answer("PreToolUse", json.dumps(event).encode(), environment(place)) == b""
        return caller(place, f"toolu_{number}")

    session = f"claude-{FIRST[:8]}"
    assert call(1, transcript_path=str(main), agent_id="Ab22") == (session, "agent-ab22")
    assert call(2, transcript_path=str(inner / "agent-Ab22.jsonl")) == (session, "agent-ab22")
    assert call(3, transcript_path=str(main)) == (session, "")
    assert call(4, transcript_path=str(main), agent_id="b99") == (session, "agent-b99")  # not recorded yet

    def answer(number: int, name: str, **fields: str) -> Any:
        event = {"tool_use_id": f"toolu_{number}", "transcript_path": str(main), "cwd": str(place), **fields}
        answering.answer(
            "PreToolUse", json.dumps({**event, "hook_event_name": "PreToolUse"}).encode(), environment(place)
        )
        recordings = Recordings(
            lambda: place / FOLDER, of_call=lambda store, meta: conversation.of_call(store, meta, {}, patience=0.2)
        )
        params = {"name": name, "arguments": {"text": "Mine."} if name == "note" else {}}
        params["_meta"] = {"claudecode/toolUseId": f"toolu_{number}"}
        message = {"id": 1, "method": "tools/call", "params": params}
        return json.loads(Connection(recordings, print).answer(json.dumps(message).encode()) or b"")["result"]

    noted = answer(5, "note", agent_id="Ab22")["structuredContent"]
    assert (noted["session"], noted["scope"]) == (session, "agent-ab22")
    assert answer(6, "notes", agent_id="Ab22")["structuredContent"]["notes"][0]["text"] == "Mine."
    assert answer(7, "notes")["structuredContent"] == {"session": session, "scope": "main", "notes": [], "older": 0}
    # A sub-agent of which nothing is recorded yet may read, and writes nothing into what is not its own.
    assert answer(8, "notes", agent_id="b99")["structuredContent"]["scope"] == "main"
    refused = answer(9, "note", agent_id="b99")
    assert refused["isError"] and "agent-b99 of this call is not recorded yet" in refused["content"][0]["text"]


def test_what_is_new_in_a_conversation_is_recorded_before_a_call_is_answered(
    place: Path, transcripts: dict[str, Path]
) -> None:
    store = place / FOLDER
    requests.post(store, Request("PreToolUse", str(transcripts[FIRST])))
    answers: list[float] = []

    def serve() -> None:  # as the recorder does, when it has read on
        time.sleep(0.2)
        answers.append(time.monotonic())
        for path, _ in requests.pending(store):
            places.remove(store, path)

    recorder = threading.Thread(target=serve)
    recorder.start()
    with Store(store) as opened:
        session = conversation.of_call(opened, {}, {"CLAUDE_CODE_SESSION_ID": FIRST}, patience=20)
    answered = time.monotonic()
    recorder.join()
    assert session == (f"claude-{FIRST[:8]}", "") and answers[0] <= answered


def test_a_call_waits_for_the_first_recording_where_one_is_coming(tmp_path: Path) -> None:
    store = tmp_path / FOLDER
    looks = 0

    def is_coming() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            create(store).close()
        if looks == 3:
            Session.open(store, "demo").close()
        return True

    recordings = Recordings(lambda: locate.find(tmp_path), is_coming=is_coming)
    connection = Connection(recordings, print)
    message = {"id": 1, "method": "resources/list"}
    listed = json.loads(connection.answer(json.dumps(message).encode()) or b"")["result"]["resources"]
    assert [resource["uri"] for resource in listed] == ["ctxvc://dashboard"] and not looks, "a list waits for nothing"
    message = {"id": 2, "method": "tools/call", "params": {"name": "status"}}  # type: ignore[dict-item]
    status = json.loads(connection.answer(json.dumps(message).encode()) or b"")["result"]
    assert status["structuredContent"]["session"] == "demo" and looks == 3


def test_a_recording_is_coming_where_hooks_began_a_conversation_and_nothing_went_wrong(
    place: Path, transcripts: dict[str, Path]
) -> None:
    env = {"CLAUDE_CODE_SESSION_ID": FIRST}
    assert not conversation.has_begun({}) and not conversation.has_begun(env)
    spool.begin(str(transcripts[FIRST]))
    assert conversation.has_begun(env) and not conversation.has_begun({"CLAUDE_CODE_SESSION_ID": "../x"})
    spool.report(str(transcripts[FIRST]), place / FOLDER, "no room")
    assert not conversation.has_begun(env)


def test_a_conversation_that_is_not_recorded_is_not_taken_for_another(
    place: Path, transcripts: dict[str, Path]
) -> None:
    with pytest.raises(NotFound, match=r"this conversation \(33333333\) is not recorded") as raised:
        of_call(place, CLAUDE_CODE_SESSION_ID="33333333-0")
    assert "claude-11111111" in str(raised.value.hint)


def test_one_that_has_only_begun_is_waited_for(place: Path, transcripts: dict[str, Path], tmp_path: Path) -> None:
    requests.post(place / FOLDER, Request("PreToolUse", str(tmp_path / "33333333-0.jsonl")))
    with pytest.raises(NotFound):
        of_call(place, CLAUDE_CODE_SESSION_ID="33333333-0")  # in vain: no recorder is at work here


def test_a_command_in_the_agents_shell_is_in_it_too(place: Path, transcripts: dict[str, Path]) -> None:
    def session(*arguments: str, **env: str) -> str:
        result = CliRunner().invoke(cli, ["-C", str(place), *arguments, "status", "--json"], env=env)
        name: str = json.loads(result.stdout)["session"]
        return name

    first, second = (f"claude-{name[:8]}" for name in (FIRST, SECOND))
    assert session(CLAUDE_CODE_SESSION_ID=FIRST) == first
    assert session(CLAUDE_CODE_SESSION_ID=SECOND) == second
    assert session(CLAUDE_CODE_SESSION_ID=FIRST, CTXVC_SESSION=second) == second
    assert session("--session", second, CLAUDE_CODE_SESSION_ID=FIRST) == second
    assert session(CLAUDE_CODE_SESSION_ID="33333333-0") == session()


def test_a_forged_note_on_a_call_counts_nothing(place: Path, transcripts: dict[str, Path]) -> None:
    path = places.call(place / FOLDER, "toolu_1")
    path.parent.mkdir(parents=True)
    path.write_text(str(transcripts[FIRST]))
    assert of_call(place, "toolu_1", CLAUDE_CODE_SESSION_ID=SECOND) == f"claude-{SECOND[:8]}"
