"""A recorder in a process of its own: whichever process dies, what was taken is recorded, once and in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxvc.store.store import Store
from ctxvc.wire import exchange as exchanges
from ctxvc.wire import recorder_process
from ctxvc.wire.exchange import Answered, Exchange, Managed, Management, Requested
from ctxvc.wire.frames import received
from ctxvc.wire.recorder import Recorder, open_recorder
from ctxvc.wire.recorder_process import RecorderProcess
from tests.making.store import complaints
from tests.wire.raw import PATIENCE
from tests.wire.sending import exchange
from tests.wire.test_recorder import CLAUDE, asked, bodies, calls, results, said, scopes, texts, user

REQUESTED = Requested(number=1, upstream="anthropic", path="/v1/messages", headers={}, body=b"{}", began=0.0)
ANSWERED = Answered(number=1, status=200, answer=b"{}", stream=False, whole=True, first=0.0, ended=0.0)


def conversation(count: int, headers: Any = CLAUDE) -> list[Exchange]:
    history: list[Any] = []
    sent = []
    for number in range(count):
        history.append(user(f"Question {number}"))
        sent.append(asked(history, f"Answer {number}", number, headers=headers))
        history.append(said(f"Answer {number}"))
    return sent


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / ".ctxvc"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Those of the recorders, as they are started. A stopped one goes on at the end, or nobody could close it."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def starting(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*args, **options))
        return started[-1]

    monkeypatch.setattr(recorder_process.subprocess, "Popen", starting)
    yield started
    for process in started:
        process.send_signal(signal.SIGCONT)


@pytest.fixture
def opened(store: Path) -> Iterator[Callable[..., tuple[RecorderProcess, list[str]]]]:
    """Makes a recorder, with the list of its troubles."""
    recorders = []

    def make(**fields: Any) -> tuple[RecorderProcess, list[str]]:
        troubles: list[str] = []
        recorders.append(RecorderProcess(store, on_trouble=troubles.append, **fields))
        return recorders[-1], troubles

    yield make
    for recorder in recorders:
        recorder.close()


def record_here(store: Path, exchanges: Sequence[Exchange]) -> None:
    """Records in this process what no process dies of."""
    recorder = open_recorder(store, cwd=store.parent, on_trouble=pytest.fail)
    for item in exchanges:
        recorder.record(item)
    recorder.close()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_was_taken_is_recorded_when_it_is_closed(store: Path, opened: Any) -> None:
    sent = conversation(4)
    recorder, troubles = opened(agent="claude-code")
    for item in sent[:3]:
        recorder.record(item)
    recorder.close()
    assert bodies(store) == [item.body for item in sent[:3]]

    recorder.record(sent[3])
    recorder.close()
    assert bodies(store) == [item.body for item in sent]
    assert troubles == []


def test_a_recorder_that_is_killed_is_replaced(
    store: Path, opened: Any, processes: list[subprocess.Popen[bytes]]
) -> None:
    """At once, at work, and when it has done its work."""
    sent, pauses = conversation(12), iter((0.0, 0.1, 0.3))
    recorder, troubles = opened()
    for number, item in enumerate(sent):
        recorder.record(item)
        if number % 4 == 1:
            until(lambda number=number: len(processes) == number // 4 + 1)
            time.sleep(next(pauses))
            processes[-1].kill()
    recorder.close()

    assert troubles == [] and len(processes) == 4
    assert scopes(store) == ["main"]
    assert bodies(store) == [item.body for item in sent]
    # One that dies between a session's first commit and HEAD leaves HEAD where `git init` put it.
    assert complaints(store).strip() in ("", "notice: HEAD points to an unborn branch (main)")


ONE, TWO = ({**CLAUDE, "x-claude-code-agent-id": name} for name in ("one", "two"))
TASK, RESULT = [user("Look around.")], [user("Fix it."), calls("a"), results("a")]
FIXED = [asked(RESULT[:1], RESULT[1], 0), asked(RESULT, "Done.", 1)]
#: The last exchange is recorded, and comes again.
AGAIN: dict[str, list[Exchange]] = {
    "the first": FIXED[:1],
    "a later one": FIXED,
    "the first of a client without ids": conversation(1, {}),
    "a later one of a client without ids": conversation(3, {}),
    "a sub-agent's": [*FIXED, asked(TASK, calls("x"), 2, headers=ONE), asked(TASK, calls("y"), 3, headers=TWO)],
    "a sub-agent's without a name": [
        asked(RESULT[:1], RESULT[1], 0, headers={}), asked(TASK, calls("x"), 1, headers={}, system="Look."),
        asked(TASK, calls("y"), 2, headers={}, system="Look.")],
    "a call beside it": [*FIXED, asked([user("Title?")], "Fixing", 2, tools=(), system="You write titles.")],
    "one that went back": [*FIXED, asked([*RESULT, said("Done."), user("Thanks.")], "Welcome.", 2),
                           asked([*RESULT, said("Done."), user("No.")], "So.", 3)],
    "a broken one": [*FIXED[:1], asked(RESULT, "Let me", 1, whole=False)],
    "one with a secret": [asked([user("Use ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8.")],
                                "I used ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8.", 0)],
}  # fmt: skip


def everything(store: Path) -> dict[tuple[str, str], list[bytes]]:
    with Store(store) as opened:
        names = [(session, scope) for session in opened.sessions() for scope in opened.tips(session)]
    return {name: bodies(store, *name) for name in names}


@pytest.mark.parametrize("name", AGAIN)
def test_what_is_recorded_and_comes_again_is_there_once(name: str, store: Path) -> None:
    record_here(store, AGAIN[name])
    before = everything(store)

    acknowledged: list[Managed] = []
    with Store(store) as there:
        second = Recorder(lambda: there)
        second.take(AGAIN[name][-1], acknowledged.append, again=True)
        second.close()

    assert acknowledged == [Managed()]
    assert everything(store) == before


def test_what_a_recorder_had_no_time_to_acknowledge_is_there_once(
    store: Path, opened: Any, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    unheard = []

    def deaf(connection: socket.socket, kind: Any) -> Iterator[Any]:
        for frame in received(connection, kind):
            if len(processes) > 1:
                yield frame
            else:
                unheard.append(frame)

    monkeypatch.setattr(recorder_process, "received", deaf)
    recorder, _ = opened()
    recorder.record(FIXED[0])
    until(lambda: unheard)
    processes[0].kill()
    recorder.record(FIXED[1])
    recorder.close()

    assert len(processes) == 2
    assert [*everything(store).values()] == [[item.body for item in FIXED]]


def test_what_was_not_recorded_and_comes_again_is_recorded(store: Path) -> None:
    record_here(store, FIXED)
    more = asked([*RESULT, said("Done."), user("Thanks.")], "Welcome.", 2)
    with Store(store) as there:
        second = Recorder(lambda: there)
        second.take(more, lambda _: None, again=True)
        second.close()

    assert bodies(store)[-1] == more.body and len(bodies(store)) == 3


def test_a_reply_that_broke_off_outlives_a_recorder(
    store: Path, opened: Any, processes: list[subprocess.Popen[bytes]]
) -> None:
    """It waits in memory for what the client makes of it."""
    recorder, _ = opened()
    recorder.record(FIXED[0])
    recorder.record(asked(RESULT, "Let me", 1, whole=False))
    until(lambda: store.exists() and recorder.ask(REQUESTED).result(PATIENCE))
    processes[0].kill()
    recorder.close()

    assert len(processes) == 2
    assert texts(store)[-1] == ("visible", "Let me")


@pytest.mark.parametrize("hangs", [False, True])
def test_a_request_is_answered_and_goes_out_as_it_is_where_the_recorder_dies_or_hangs(
    opened: Any, processes: list[subprocess.Popen[bytes]], hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, _ = opened(management=Management(budget=12_000))
    until(lambda: processes)
    assert recorder.manages
    assert recorder.ask(REQUESTED).result(PATIENCE) == recorder.ask(ANSWERED).result(PATIENCE) == Managed()

    processes[0].send_signal(signal.SIGSTOP)
    monkeypatch.setattr(recorder_process, "_PATIENCE", 0.5 if hangs else PATIENCE)
    asked = [recorder.ask(REQUESTED), recorder.ask(ANSWERED)]
    monkeypatch.setattr(recorder_process, "_PATIENCE", PATIENCE)
    asked[0].cancel()
    until(lambda: not recorder._unsent)
    assert hangs or not any(future.done() for future in asked)
    if not hangs:
        processes[0].kill()
    assert [future.result(PATIENCE) for future in asked] == [Managed()] * 2
    assert recorder.ask(REQUESTED).result(PATIENCE) == Managed() and len(processes) == 2


def test_a_first_request_that_nobody_answered_is_of_the_session_of_its_run(
    store: Path, opened: Any, processes: list[subprocess.Popen[bytes]]
) -> None:
    recorder, troubles = opened(agent="agent", management=Management(budget=12_000))
    first = conversation(1, {})[0]
    fields = {name: getattr(first, name) for name in Requested.__struct_fields__}
    for number in range(2):
        requested = Requested(**{**fields, "number": number})
        until(lambda requested=requested: recorder.ask(requested).result(PATIENCE).tools)
        processes[-1].kill()
    recorder.close()

    with Store(store) as opened_store:
        assert len(opened_store.sessions()) == 1
    assert troubles == []


def test_what_kills_each_recorder_is_left_out_and_told(
    store: Path, opened: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorder_process, "_WAIT", 0.0)
    recorder, troubles = opened()
    first, second = conversation(2)
    for program in ("/bin/false", "/nowhere/python"):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", program)
            future = recorder.ask(REQUESTED)
            recorder.record(first)
            assert future.result(PATIENCE) == Managed()
            until(lambda: not recorder._waiting)
    recorder.record(second)
    recorder.close()

    assert len(troubles) == 1 and "ended several times" in troubles[0]
    assert bodies(store) == [second.body]


def test_what_comes_faster_than_it_can_be_recorded_is_left_out(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_process, "MOST_WAITING", 1000)
    recorder, troubles = opened()
    recorder.record(exchange(bytes(1001), b""))

    assert troubles == [exchanges.TOO_FAST]
    assert recorder.ask(REQUESTED).result(PATIENCE) == Managed()


def test_trouble_of_the_recorder_is_told_once(store: Path, opened: Any) -> None:
    recorder, troubles = opened()
    for item in (exchange(b"{}", b"?"), exchange(b"[]", b""), *FIXED):
        recorder.record(item)
    recorder.close()

    assert len(troubles) == 1 and len(bodies(store)) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from ctxvc.wire import recorder_process
from tests.wire.test_recorder_process import conversation, until
send, sent = recorder_process.send, []
recorder_process.send = lambda *what: sent.append(send(*what))
recorder = recorder_process.RecorderProcess(Path(sys.argv[1]), turn=Path(sys.argv[2]))
for item in conversation(8):
    recorder.record(item)
until(lambda: len(sent) == 9)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_sent_is_recorded_before_what_comes_after_a_killed_sender(store: Path, opened: Any) -> None:
    root = Path(__file__).parents[2]
    sent = conversation(10)
    turn = store.with_name("turn")
    subprocess.run(
        [sys.executable, "-c", KILLED, str(store), str(turn)],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=False, timeout=60,
    )  # fmt: skip
    recorder, _ = opened(turn=turn)
    for item in sent[8:]:
        recorder.record(item)
    recorder.close()

    assert scopes(store) == ["main"]
    assert bodies(store) == [item.body for item in sent]
    assert not complaints(store)
