"""The parent of an agent's commands, by itself: time-outs, jobs in the background, and what happens when it is hurt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxvc.agent import supervisor
from ctxvc.agent.shell import SUPERVISOR, Job, Shell, supervised
from ctxvc.errors import CtxvcError

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux")
ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def shell() -> Iterator[Shell]:
    result = Shell()
    yield result
    result.close()


def ran(shell: Shell, folder: Path, command: str, seconds: int = 20) -> str:
    data, _, why = shell.run(command, folder, ENV, seconds)
    return data.decode() + why


def mine() -> list[supervisor.Process]:
    table = supervisor.processes()
    tree = supervisor.below(table, os.getpid())
    return [item for item in table if item.pid in tree]


def test_what_stays_in_the_background_is_listed_and_ends_at_the_end(shell: Shell, tmp_path: Path) -> None:
    assert ran(shell, tmp_path, "echo one; sleep 77 & exit 3") == "one\n[exit code 3]"
    end = time.monotonic() + 5
    while (jobs := [job.command for job in shell.jobs()]) != ["sleep 77"]:
        assert len(jobs) == 1 and time.monotonic() < end, jobs  # for a moment it is the shell that becomes it
        time.sleep(0.02)
    assert [job.command for job in shell.close()] == ["sleep 77"]
    assert not [item for item in mine() if "sleep 77" in item.command]
    assert ran(shell, tmp_path, "echo again") == "again\n"
    assert shell.jobs() == []


def test_a_command_over_its_time_ends_with_its_group_and_nothing_else_does(shell: Shell, tmp_path: Path) -> None:
    ran(shell, tmp_path, "sleep 78 &")
    assert ran(shell, tmp_path, "sleep 79 & setsid sleep 79 & sleep 79", 1) == "[stopped after 1 seconds]"
    assert [job.command for job in shell.jobs()] == ["sleep 78"]


def test_a_large_command_and_one_that_cannot_start_are_answered(shell: Shell, tmp_path: Path) -> None:
    assert ran(shell, tmp_path, f": {'x' * 120_000}; echo ok") == "ok\n"
    assert "Argument list too long" in ran(shell, tmp_path, f": {'x' * 200_000}")
    assert "No such file or directory" in ran(shell, tmp_path / "nowhere", "true")
    broken = Shell(lambda: ["/nowhere/python"])
    with pytest.raises(CtxvcError, match="cannot run commands"):
        ran(broken, tmp_path, "true")


def test_a_supervisor_that_is_dying_gets_no_more_commands(tmp_path: Path) -> None:
    """Killed, it lets go of its sockets a while before the system says that it is gone: longer under load."""
    dying = (
        "import socket, time; control = socket.socket(fileno=0); _, handles, _, _ = socket.recv_fds(control, 1, 2); "
        "question = socket.socket(fileno=handles[0]); question.recv(65536); question.close(); control.close(); "
        "time.sleep(30)"
    )
    programs = [[sys.executable, "-c", dying], supervised(sys.executable)]
    shell = Shell(lambda: programs.pop(0))
    with pytest.raises(CtxvcError, match="was stopped"):
        ran(shell, tmp_path, "echo lost")
    first = shell._supervisor
    assert first is not None and first._process.poll() is None
    assert ran(shell, tmp_path, "echo again") == "again\n"
    first.kill()
    shell.close()


def test_commands_run_beside_each_other(shell: Shell, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    meet = "touch here-{0}; until [ $(ls here-* | wc -l) = 4 ]; do sleep 0.02; done; echo {0}"
    with ThreadPoolExecutor(4) as pool:
        output = list(pool.map(lambda number: ran(shell, tmp_path, meet.format(number)), range(4)))
    assert output == [f"{number}\n" for number in range(4)]


@linux_only
def test_a_supervisor_that_hangs_is_ended_and_another_takes_its_place(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("ctxvc.agent.shell._ANSWER", 0.3)
    assert ran(shell, tmp_path, "kill -STOP $PPID; sleep 1.5", 1) == "[stopped after 1 seconds]"
    end = time.monotonic() + 5
    while True:
        try:
            assert ran(shell, tmp_path, "echo again") == "again\n"
            break
        except CtxvcError:
            assert time.monotonic() < end
            time.sleep(0.05)


@linux_only
def test_all_ends_when_the_one_who_asked_is_gone(tmp_path: Path) -> None:
    """Also what has left its session and lost its parent."""
    others = {item.pid for item in mine()}  # a fork server of other tests
    code = (
        "import pathlib, sys, time; from ctxvc.agent.shell import Shell\n"
        "shell = Shell(); env = {'PATH': sys.argv[2]}\n"
        "shell.run('(setsid sh -c \"sleep 81; : left\" &) ; sleep 82 & disown', pathlib.Path(sys.argv[1]), env, 9)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    env = {**ENV, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), ENV["PATH"]], stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "up\n"
    try:
        end = time.monotonic() + 5
        while not {"sleep 81", "sleep 82"} <= {item.command for item in mine()}:
            assert time.monotonic() < end, mine()  # the shell that has left takes a moment
            time.sleep(0.02)
        tree = {item.pid for item in mine()} - others
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 5
    while remaining := [item for item in supervisor.processes() if item.pid in tree]:
        assert time.monotonic() < end, remaining
        time.sleep(0.02)


def test_where_the_table_is_only_that_of_ps_what_stays_in_its_group_is_found() -> None:
    process = subprocess.Popen(["sleep", "83"], start_new_session=True)
    try:
        rows = {item.pid: item for item in supervisor._other_processes()}
        assert rows[process.pid].parent == os.getpid()
        assert rows[process.pid].group == process.pid
        assert "sleep 83" in rows[process.pid].command
        assert [supervisor._seconds(item) for item in ("00:07", "02:03:04", "1-00:00:01")] == [7, 7384, 86_401]
    finally:
        process.kill()
        process.wait()


def test_an_age_is_short() -> None:
    ages = [str(Job(command="x", seconds=seconds)) for seconds in (5, 185, 7_300)]
    assert ages == ["x, 5 s", "x, 3 min", "x, 2 h"]


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = f"import runpy, sys; runpy.run_path({str(SUPERVISOR)!r}); print(*sys.modules)"
    outcome = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, env={}
    )
    assert not [name for name in outcome.stdout.split() if name.startswith(("ctxvc", "msgspec"))]
