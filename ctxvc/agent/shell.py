"""The commands of an agent: each in a process group of its own, watched until it ends, and killed with all it started.

Several threads may run commands at the same time; a person who stops the run stops them all. The commands are children
of a process beside this one (`supervisor`), which ends whatever they left behind when this one goes, however it goes.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from ctxvc.agent import supervisor
from ctxvc.errors import CtxvcError

#: Bytes of an output that are kept.
KEPT = 16 << 20

#: Bytes that a command may write, and the seconds between two looks at how many there are.
WRITTEN = 256 << 20
_LOOK = 0.25

#: Seconds that the supervisor has to answer what takes it no time, and to end all.
_ANSWER = 10.0
_PAUSE = 0.01
SUPERVISOR = Path(supervisor.__file__)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a command left behind."""

    command: str
    seconds: int

    def __str__(self) -> str:
        minutes = self.seconds // 60
        age = f"{self.seconds} s" if not minutes else f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
        return f"{self.command}, {age}"


def supervised(python: str, program: str = str(SUPERVISOR)) -> list[str]:
    """The command line of a supervisor."""
    return [python, "-I", "-S", program]


class Shell:
    """Runs commands, until it is stopped. What they leave in the background lives until it is closed.

    `program` gives the command line of the supervisor, where that is not the usual one: a sandbox has its own.
    """

    def __init__(self, program: Callable[[], Sequence[str]] | None = None) -> None:
        self._program = program or (lambda: supervised(sys.executable))
        self._running: set[_Call] = set()
        self._supervisor: _Supervisor | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, command: str, folder: Path, env: Mapping[str, str], seconds: int) -> tuple[bytes, int, str]:
        """The kept output, the number of bytes dropped from its middle, and the error (empty: none).

        Raises: KeyboardInterrupt if it was stopped meanwhile: how far the command came is not known.
        """
        self.check()
        with tempfile.TemporaryFile() as output:
            call = self.begin(env).run(["/bin/bash", "-c", command], folder, env, output)
            try:
                with self._lock:
                    self._running.add(call)
                self.check()
                why = _waited(call, output, seconds)
                self.check()
            except BaseException:
                call.stop()
                raise
            finally:
                with self._lock:
                    self._running.discard(call)
                call.close()
            data, left_out = _bounded(output)
        return data, left_out, why or (f"[exit code {call.code}]" if call.code else "")

    def begin(self, env: Mapping[str, str]) -> _Supervisor:
        """The supervisor, which is started where none works. Raises: CtxvcError if it does not start."""
        with self._lock:
            if self._supervisor is None or not self._supervisor.works():
                self._supervisor = _Supervisor(self._program(), env)
            return self._supervisor

    def jobs(self) -> list[Job]:
        """Processes that commands have left in the background."""
        return self._supervisor.jobs() if self._supervisor else []

    def stop(self) -> None:
        """Kills what runs; from now on nothing does. Each command's own thread waits for its end."""
        with self._lock:
            self._stopped = True
            for call in self._running:
                call.kill()

    def close(self) -> list[Job]:
        """Ends all that commands have left behind, and gives what that was."""
        with self._lock:
            parent, self._supervisor = self._supervisor, None
        return parent.end() if parent else []

    def check(self) -> None:
        """Raises: KeyboardInterrupt if it was stopped."""
        if self._stopped:
            raise KeyboardInterrupt


class _Supervisor:
    """The process beside this one. It ends, with all that it runs, when this object goes."""

    def __init__(self, program: Sequence[str], env: Mapping[str, str]) -> None:
        self._socket, there = socket.socketpair()
        self._lock = threading.Lock()
        self._lost = False
        nothing = subprocess.DEVNULL
        try:
            with there:
                self._process = subprocess.Popen(
                    program, stdin=there.fileno(), stdout=nothing, stderr=nothing, env=dict(env), start_new_session=True
                )
        except OSError as error:
            self._socket.close()
            raise CtxvcError(f"cannot run commands: {error}", hint="check that this program is installed") from error
        self._finalizer = weakref.finalize(self, _let_go, self._socket, self._process)

    def works(self) -> bool:
        return not self._lost and self._process.poll() is None

    def lose(self) -> None:
        """It let go of its sockets: it is dying, though the system may not say so for a while yet."""
        self._lost = True

    def check(self) -> None:
        """Raises: CtxvcError if it does not answer."""
        try:
            with self._request(b"l") as call:
                call.answer(_ANSWER)
        except OSError as error:
            raise CtxvcError(f"the supervisor of the commands does not answer: {error}") from error

    def run(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], output: IO[bytes]) -> _Call:
        """A command that runs now. Raises: CtxvcError."""
        call = self._request(b"r", output.fileno())
        try:
            call.send({"argv": argv, "cwd": str(folder), "env": dict(env)})
        except OSError as error:
            call.close()
            raise CtxvcError(f"the command did not start: {error}") from error
        return call

    def jobs(self) -> list[Job]:
        try:
            with self._request(b"l") as call:
                return _jobs(call.answer(_ANSWER))
        except (CtxvcError, OSError):
            return []

    def end(self) -> list[Job]:
        """Ends all, and itself; what it ended."""
        try:
            with self._request(b"e") as call:
                return _jobs(call.answer(_ANSWER))
        except (CtxvcError, OSError):
            return []
        finally:
            self._finalizer()

    def kill(self) -> None:
        """Ends a supervisor that does not answer."""
        self._process.kill()

    def _request(self, letter: bytes, *more: int) -> _Call:
        here, there = socket.socketpair()
        try:
            with there, self._lock:
                socket.send_fds(self._socket, [letter], [there.fileno(), *more])
        except OSError as error:
            here.close()
            self.lose()
            raise CtxvcError("the supervisor of the commands was stopped", hint="find out what stopped it") from error
        return _Call(here, self)


class _Call:
    """A question to the supervisor, and its answer."""

    def __init__(self, channel: socket.socket, parent: _Supervisor) -> None:
        self._channel = channel
        self._parent = parent
        self._heard = b""
        self.code = 0

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, request: object) -> None:
        self._channel.sendall(json.dumps(request).encode() + b"\n")

    def answer(self, seconds: float) -> Any:
        """The answer. Raises: TimeoutError, CtxvcError if there will be none."""
        end = time.monotonic() + seconds
        while not self._heard.endswith(b"\n"):
            self._channel.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self._channel.recv(1 << 16)
            except ConnectionError:  # it was ended before it had read all that was asked
                data = b""
            if not data:
                self._parent.lose()
                raise CtxvcError("the supervisor of the commands was stopped, and the command with it")
            self._heard += data
        return msgspec.json.decode(self._heard)

    def wait(self, seconds: float) -> None:
        """The command has ended. Raises: TimeoutError, CtxvcError."""
        match self.answer(seconds):
            case {"code": int(code)}:
                self.code = code
            case report:
                raise CtxvcError(f"the command did not start: {str(report)[:200]}")

    def kill(self) -> None:
        try:
            self._channel.send(b"k")
        except OSError:
            pass  # it is over

    def stop(self) -> None:
        """The command and all that it started are gone; the supervisor, too, where it does not answer."""
        self.kill()
        try:
            self.wait(_ANSWER)
        except TimeoutError:
            self._parent.kill()
        except (CtxvcError, OSError):
            pass

    def close(self) -> None:
        self._channel.close()


def end_orphans() -> list[Job]:
    """Ends what a supervisor that was killed has left to this process, and gives what that was.

    On Linux, in a process that takes in orphans and starts nothing else in sessions of their own; elsewhere nothing.
    """
    ended: dict[int, Job] = {}
    until = time.monotonic() + _ANSWER
    while supervisor.LINUX and time.monotonic() < until:
        table = supervisor.processes()
        tree = supervisor.below(table, os.getpid())
        ours = os.getsid(0)
        remaining = [item for item in table if item.pid in tree and item.session != ours]
        for item in remaining:
            ended.setdefault(item.pid, Job(command=item.command, seconds=item.seconds))
            supervisor.kill(item.pid)
        if not remaining:
            break
        time.sleep(_PAUSE)
    for pid in ended:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return [*ended.values()]


def _let_go(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    try:
        process.wait(_ANSWER)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _jobs(answer: object) -> list[Job]:
    return msgspec.convert(answer, list[Job])


def _waited(call: _Call, output: IO[bytes], seconds: int) -> str:
    """Waits for a command, which is stopped when its time is over or it has written too much: then it says so."""
    end = time.monotonic() + seconds
    while True:
        try:
            call.wait(min(_LOOK, max(0.0, end - time.monotonic())))
        except TimeoutError:
            if os.fstat(output.fileno()).st_size > WRITTEN:
                call.stop()
                return f"[stopped: its output exceeded {WRITTEN:,} bytes]"
            if time.monotonic() >= end:
                call.stop()
                return f"[stopped after {seconds} seconds]"
        else:
            return ""


def _bounded(output: IO[bytes]) -> tuple[bytes, int]:
    """The kept part of an output (head and tail if it is too long), and the number of dropped bytes.

    No character is cut in two.
    """
    size = output.seek(0, os.SEEK_END)
    output.seek(0)
    if size <= KEPT:
        return output.read(), 0
    half = KEPT // 2
    head = output.read(half + 1)
    head = head[: next((at for at in range(half, half - 4, -1) if not _inside_character(head[at])), half)]
    output.seek(size - half)
    tail = output.read(half)
    tail = tail[next((at for at in range(4) if not _inside_character(tail[at])), 0) :]
    left_out = size - len(head) - len(tail)
    return head + f"\n[{left_out:,} bytes were not kept]\n".encode() + tail, left_out


def _inside_character(byte: int) -> bool:
    """Whether the byte is behind the first of a character in UTF-8."""
    return byte & 0xC0 == 0x80


#: A control sequence (CSI), an operating system command (OSC), or another escape of two or three characters.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/][0-~]|[0-Z\\^-~])|\x9b[0-9;?]*[ -/]*[@-~]"
)
_TAKEN_BACK = re.compile("[^\b]\b")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def settled(output: str) -> str:
    """The output without colours and other controls; of a line that was written several times the last version."""
    if not _CONTROL.search(output):
        return output
    lines = _ESCAPE.sub("", output).replace("\r\n", "\n").split("\n")
    newest = (_TAKEN_BACK.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in lines)
    return "\n".join(_CONTROL.sub("", line) for line in newest)


def tail(value: str, *, lines: int, chars: int) -> str:
    """The last lines of a text, and of those the last characters; headed by what was left out, if anything was."""
    all_lines = value.split("\n")
    newest = "\n".join(all_lines[-lines:])
    newest = newest[-chars:]
    left_out = len(value) - len(newest)
    return f"[{left_out:,} characters above left out]\n{newest}" if left_out else value
