"""An agent that runs beside a proxy of its own, with the terminal as it is, and ends as without us."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ctxvc.errors import CtxvcError

#: Signals that a terminal sends to all of its foreground: the agent has them already.
_OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
#: Seconds that a proxy has lived when it is started again at once; the wait before, where it has not; and how long it
#: may take to record what is in its queue.
_LIVED, _WAIT, _LAST = 1.0, 0.2, 10.0


class OwnProxy:
    """A proxy in a process of its own, over sockets that stay open while it is started again: a client that asks
    meanwhile waits. It ends with this process.
    """

    def __init__(self, sockets: Sequence[tuple[socket.socket, str]], settings: Mapping[str, Any]) -> None:
        self._sockets = [item for item, _ in sockets]
        for item in self._sockets:
            item.listen(128)
        listening = [(item.fileno(), upstream) for item, upstream in sockets]
        self._turn = tempfile.NamedTemporaryFile(prefix="ctxvc-")  # noqa: SIM115 - as long as the proxy
        own = {"sockets": listening, "turn": self._turn.name, "run": uuid.uuid4().hex}
        self._settings = json.dumps({**settings, **own}).encode() + b"\n"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the proxy
        self._process = self._start()

    def wait(self) -> None:
        """Returns once it is ready. Raises: CtxvcError with its own message if it cannot start."""
        assert self._process.stdout
        if not self._process.stdout.readline():
            self._process.wait()
            raise CtxvcError(self.errors() or "the proxy did not start")

    def ended(self, pid: int) -> None:
        """Starts it again if `pid`, which has ended, was its process."""
        if pid != self._process.pid:
            return
        self._process.returncode = 0  # somebody else has waited for it
        self._let_go()
        if time.monotonic() - self._began < _LIVED:
            time.sleep(_WAIT)
        self._process = self._start()

    def close(self) -> None:
        """Lets it record what is in its queue, and end."""
        self._let_go()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST)
        self._turn.close()
        for item in self._sockets:
            item.close()

    def errors(self) -> str:
        """What it reported."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip().removeprefix("ctxvc: ")

    def _start(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "ctxvc", "proxy", "--wrapped"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd="/",  # modules of ours alone are found by their name
            pass_fds=[item.fileno() for item in self._sockets],
            start_new_session=True,  # no signal of the terminal reaches it
        )
        assert process.stdin
        with suppress(BrokenPipeError):
            process.stdin.write(self._settings)
            process.stdin.flush()
        return process

    def _let_go(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(OSError):
                    stream.close()


def run(command: list[str], env: Mapping[str, str], proxy: OwnProxy) -> int:
    """Runs an agent until it ends, and gives the status that the system has for it. Raises: OSError."""
    agent = 0
    early: list[int] = []  # signals that came while the agent was being started

    def pass_on(number: int, _frame: object) -> None:
        if not agent:
            early.append(number)
        elif not (number in _OF_TERMINALS and _in_foreground()):
            with suppress(ProcessLookupError):
                os.kill(agent, number)

    # A signal that comes just before one waits must end the waiting, too: so it is waited for a pipe.
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (*_OF_TERMINALS, *_PASSED_ON):
        if signal.getsignal(number) is not signal.SIG_IGN:  # which the agent inherits
            signal.signal(number, pass_on)
    agent = os.posix_spawnp(command[0], command, env, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    for signal_number in early:
        pass_on(signal_number, None)
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
        if not pid:
            select.select([woken], [], [])
            os.read(woken, 4096)
        elif pid != agent:
            proxy.ended(pid)
        elif os.WIFSTOPPED(status):
            _stop(os.WSTOPSIG(status))
        else:
            return status


def end_as(status: int) -> int:
    """The exit code of a process that has ended; does not return where a signal ended it, which ends this one, too."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the agent has left its own
    with suppress(OSError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def _stop(number: int) -> None:
    """Stops as the agent has, so that the shell takes the terminal; returns when both are continued."""
    handler = signal.SIG_DFL
    with suppress(OSError):  # SIGSTOP has none
        handler = signal.signal(number, signal.SIG_DFL)  # type: ignore[assignment]
    os.kill(os.getpid(), number)
    with suppress(OSError):
        signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether this process is in the foreground of its terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
