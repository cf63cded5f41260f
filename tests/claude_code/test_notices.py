"""What hooks and the recorder leave for each other in a person's data folder: notices, and trouble, told once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ctxvc.claude_code import hook as answering
from ctxvc.claude_code import recorder, requests, spool
from ctxvc.claude_code.requests import Request
from ctxvc.recording import log, places
from ctxvc.store.project.locate import FOLDER
from ctxvc.store.store import Store
from tests.making.host import ROOT, environment, hook, settle
from tests.recording.test_files import CONVERSATION, write

SESSION = "11111111-2222-3333-4444-555555555555"
PLUGIN = ROOT / "hooks" / "claude-code"


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    return write(tmp_path / f"{SESSION}.jsonl", *CONVERSATION)


def plugin_hook(place: Path, event: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command of the plugin for an event, as the host runs it, with a `ctxvc` that says that it was called."""
    programs = place.parent / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "ctxvc").write_text('#!/bin/sh\necho "python $2"\n')
    (programs / "ctxvc").chmod(0o755)
    groups = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"][event]
    command = groups[0]["hooks"][0]["command"].replace("${CLAUDE_PLUGIN_ROOT}", str(PLUGIN))
    named = {"PATH": f"{programs}:{os.environ['PATH']}", "CLAUDE_CODE_SESSION_ID": SESSION, **env}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        input=b"{}",
        capture_output=True,
        env={"HOME": os.environ["HOME"], **named},
        check=False,
    )


def test_an_event_without_an_answer_is_a_mark_where_a_recorder_watches(place: Path, transcript: Path) -> None:
    spool.attend(str(transcript))
    for event in ("UserPromptSubmit", "PostToolUse", "Stop", "StopFailure", "SubagentStart"):
        result = plugin_hook(place, event)
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    noticed = {name for _, name in spool.notices(str(transcript))}
    assert noticed == {"UserPromptSubmit", "PostToolUse", "Stop", "StopFailure", "SubagentStart"}


@pytest.mark.parametrize("event", ["SessionStart", "PreToolUse", "PreCompact", "PostCompact", "SessionEnd"])
def test_what_has_an_answer_or_must_not_be_lost_is_no_mark(place: Path, transcript: Path, event: str) -> None:
    spool.attend(str(transcript))
    assert plugin_hook(place, event).stdout == f"python {event}\n".encode()


def test_without_a_recorder_python_is_asked(place: Path, transcript: Path) -> None:
    assert plugin_hook(place, "Stop").stdout == b"python Stop\n"
    spool.attend(str(transcript))
    folder = spool.folder(str(transcript))
    assert folder
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (folder / "recorder").write_bytes(ended.stdout)
    assert plugin_hook(place, "Stop").stdout == b"python Stop\n"
    spool.attend(str(transcript))
    assert plugin_hook(place, "Stop", CTXVC_LONGEST_OUTPUT="9").stdout == b"python Stop\n"
    assert plugin_hook(place, "Stop", CTXVC_RECORDING="off").stdout == b"python Stop\n"
    assert plugin_hook(place, "Stop", CLAUDE_CODE_SESSION_ID="../../x").stdout == b"python Stop\n"
    folder.chmod(0o500)  # no notice can be left: a full disk, to anyone but root
    if os.geteuid():
        assert plugin_hook(place, "Stop").stdout == b"python Stop\n"


def test_a_program_that_does_not_run_any_more_is_written_down_once(place: Path, transcript: Path) -> None:
    spool.begin(str(transcript))
    told = []
    for event in ("PreCompact", "Stop", "Stop", "SessionStart"):
        result = plugin_hook(place, event, PATH="/nowhere:/usr/bin:/bin")
        assert result.returncode == 0
        told += [event] if b"not on the search path" in result.stdout else []
    assert told == ["Stop"]
    (entry,) = spool.log_entries()
    assert "ctxvc is not on the search path" in entry


def test_notices_are_recorded_also_those_that_come_as_the_recorder_ends(
    place: Path, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, late = place / FOLDER, CONVERSATION[2:]
    write(transcript, *CONVERSATION[:2])
    leave = spool.leave

    def left(path: str) -> None:
        with transcript.open("ab") as file:
            file.writelines(json.dumps(one).encode() + b"\n" for one in late)
        (spool.folder(path) or Path()).joinpath("Stop.1").touch()  # a hook that saw the recorder a moment ago
        monkeypatch.setattr(spool, "leave", leave)
        leave(path)

    monkeypatch.setattr(spool, "leave", left)
    requests.post(store, Request("UserPromptSubmit", str(transcript)))
    recorder.work(store, linger=0)

    assert spool.notices(str(transcript)) == []
    with Store(store) as opened:
        (session,) = opened.sessions()
        source = opened.source_of(session, SESSION)
    assert source and source.offset > sum(len(json.dumps(one)) for one in CONVERSATION[:2])


def test_what_a_conversation_left_is_gone_when_it_ends(place: Path, transcript: Path) -> None:
    hook(place, transcript, "SessionStart", source="startup")
    hook(place, transcript, "SessionEnd")
    settle(place / FOLDER)
    folder = spool.folder(str(transcript))
    until = time.monotonic() + 10
    while folder and folder.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert folder and not folder.exists()


def test_what_killed_clients_left_is_forgotten_after_a_month(place: Path, transcript: Path, tmp_path: Path) -> None:
    old, young = (str(tmp_path / f"{name}.jsonl") for name in ("old", "young"))
    for path in (old, young):
        spool.begin(path)
        spool.report(path, place / FOLDER, "odd")
    folder = spool.folder(old)
    assert folder
    os.utime(folder, (0, 0))
    spool.begin(str(transcript))
    assert not folder.exists() and spool.trouble(young)


def answered(place: Path, transcript: Path, event: str, **fields: Any) -> str:
    given = {"hook_event_name": event, "transcript_path": str(transcript), "cwd": str(place), **fields}
    return answering.answer(event, json.dumps(given).encode(), environment(place)).decode()


def test_trouble_is_told_once_a_conversation_and_shown_while_it_lasts(
    place: Path, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_start", lambda _: None)
    assert answered(place, transcript, "SessionStart", source="startup") == ""
    spool.report(str(transcript), place / FOLDER, "the store\x1b[2J is damaged")
    assert "PreCompact" not in answered(place, transcript, "PreCompact")
    (message,) = json.loads(answered(place, transcript, "UserPromptSubmit")).values()
    assert "does not record this session" in message and "is damaged" in message and "\x1b" not in message
    assert answered(place, transcript, "Stop") == ""
    assert "does not record" in answered(place, transcript, "SessionStart", source="resume")
    fields = {"transcript_path": str(transcript)}
    assert "NOT RECORDED: " in answering.status_line(fields, place / FOLDER, color=False)

    spool.mended(str(transcript))
    assert answered(place, transcript, "SessionStart", source="resume") == ""
    assert "NOT RECORDED" not in answering.status_line(fields, place / FOLDER, color=False)


def test_a_hook_that_cannot_leave_its_request_tells_so_itself(
    place: Path, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool.begin(str(transcript))
    monkeypatch.setattr(requests, "post", full)
    assert "No space left" in json.loads(answered(place, transcript, "Stop"))["systemMessage"]
    assert answered(place, transcript, "Stop") == ""
    assert "No space left" in json.loads(answered(place, transcript, "SessionStart", source="startup"))["systemMessage"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_conversation_that_goes_on_before_its_end_was_served_has_not_ended(
    place: Path, transcript: Path, goes_on: bool
) -> None:
    store = place / FOLDER
    write(transcript, *CONVERSATION[:8])  # two calls are under way
    spool.begin(str(transcript))
    requests.post(store, Request("SessionEnd", str(transcript)))
    if goes_on:
        requests.post(store, Request("SessionStart", str(transcript), "resume"))
    requests.post(store, Request("Stop", str(transcript)))  # a notice, which is read behind all requests

    recorder.work(store, linger=0)

    with Store(store) as opened:
        (session,) = opened.sessions()
        source = opened.source_of(session, SESSION)
    assert source and (source.offset == transcript.stat().st_size) is not goes_on
    assert spool.tell(str(transcript)) is goes_on


def test_an_end_that_comes_in_late_leaves_trouble_to_be_told(place: Path, transcript: Path) -> None:
    for trouble in (True, False):
        spool.begin(str(transcript))
        if trouble:
            spool.report(str(transcript), place / FOLDER, "odd")
        spool.end(str(transcript))
        assert spool.tell(str(transcript)) is trouble
        spool.mended(str(transcript))


def test_the_reason_is_logged_once_until_it_changes(place: Path, transcript: Path) -> None:
    store = place / FOLDER
    write(transcript, *CONVERSATION)
    requests.post(store, Request("SessionEnd", str(transcript)))
    recorder.work(store, linger=0)
    write(transcript, *CONVERSATION[2:])  # an edited transcript
    for _ in range(3):
        requests.post(store, Request("SessionEnd", str(transcript)))
        recorder.work(store, linger=0)
    assert len(log.entries(store)) == 1
    assert spool.trouble(str(transcript))


def test_a_request_that_was_set_aside_is_tried_again_by_the_next_recorder(
    place: Path, transcript: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place / FOLDER
    requests.set_aside(store, Request("SessionEnd", str(transcript)))
    other = write(tmp_path / "other.jsonl", *({**one, "sessionId": "2" * 8} for one in CONVERSATION))
    requests.post(store, Request("Stop", str(other)))
    assert recorder.work.__kwdefaults__
    monkeypatch.setitem(recorder.work.__kwdefaults__, "linger", 0)
    recorder.record([str(store)], {})
    assert requests.aside(store) == [] and not requests.pending(store)
    assert places.status(store, str(transcript)).exists()
