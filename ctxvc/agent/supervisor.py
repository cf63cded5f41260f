"""The parent of an agent's commands: it runs them, lists what they leave in the background, and ends all when told.

A program of its own, run by path, with nothing but the standard library, so that it starts fast, works where the
package is out of sight, and outlives whoever started it by as long as it takes to end everything. On Linux nothing
that a command started gets away from it: what loses its parent becomes its child. Elsewhere it knows what stayed in the
process group of its command.

It is asked over the socket that is its standard input: a letter with descriptors, the first of which is a socket for
this question alone.
    r  run: a line of JSON {"argv", "cwd", "env"}; the second descriptor takes the output. Answered when the command
       ends. A byte, or the other end closed, ends it with its group and its descendants.
    l  list what runs in the background
    e  end everything; answered with what that was
An answer is a line of JSON. When the asker is gone, everything ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

LINUX = sys.platform == "linux"
#: Of linux/prctl.h.
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_CHILD_SUBREAPER = 1, 4, 36
#: Seconds that processes have to go after SIGKILL, and between two looks.
_GOING, _LOOK = 5.0, 0.005
_REQUEST = 16 << 20


class Process(NamedTuple):
    """A row of the system's table. `session` is its group's where the system does not tell."""

    pid: int
    parent: int
    group: int
    session: int
    seconds: int
    command: str


class Supervisor:
    """Runs commands until it is asked to end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._calls: dict[int, socket.socket] = {}  # by the command's pid
        self._groups: set[int] = set()  # of commands that are over
        self._woken, waking = os.pipe()
        for handle in (self._woken, waking):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def serve(self) -> None:
        """Returns when everything has ended."""
        while True:
            waits: list[Any] = [self._control, self._woken, *self._calls.values()]
            ready, _, _ = select.select(waits, [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
            self._reap()
            for pid, call in [*self._calls.items()]:
                if call in ready:
                    self._end_call(pid)
            if self._control in ready and not self._answer():
                return

    def _answer(self) -> bool:
        """Whether there is more to do."""
        try:
            letter, handles, _, _ = socket.recv_fds(self._control, 1, 2)
        except OSError:
            letter, handles = b"", []
        for handle in handles:
            os.set_inheritable(handle, False)
        if not letter or not handles:
            self._end()
            return False
        question = socket.socket(fileno=handles[0])
        if letter == b"r":
            self._run(question, handles[1])
            return True
        if letter == b"l":
            _tell(question, [item._asdict() for item in self._background()])
            return True
        ended = self._background()
        self._end()
        _tell(question, [item._asdict() for item in ended])
        return False

    def _run(self, question: socket.socket, output: int) -> None:
        try:
            with question.makefile("rb") as lines:
                request = json.loads(lines.readline(_REQUEST))
            pid = _started(request, output)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _tell(question, {"failed": str(error)})
            return
        finally:
            os.close(output)
        self._calls[pid] = question

    def _reap(self) -> bool:
        """Takes note of who has ended; whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if call := self._calls.pop(pid, None):
                self._groups.add(pid)
                _tell(call, {"code": os.waitstatus_to_exitcode(status)})

    def _end_call(self, pid: int) -> None:
        """The command is cancelled, or its asker is gone."""
        for _ in range(3):  # what was started meanwhile
            table = processes()
            tree = below(table, pid)
            mine = [item for item in table if pid in (item.group, item.session) or item.pid in tree]
            for item in mine:
                kill(item.pid)
            if not mine:
                break
        call = self._calls[pid]
        call.setblocking(False)
        try:
            if call.recv(16) == b"":
                del self._calls[pid]
                call.close()
        except OSError:
            pass

    def _background(self) -> list[Process]:
        """The processes that were left behind, the topmost of each tree."""
        if not self._reap() and LINUX:
            return []
        table = processes()
        if LINUX:
            return [item for item in table if item.parent == os.getpid() and item.pid not in self._calls]
        mine = [item for item in table if item.group in self._groups]
        pids = {item.pid for item in mine}
        return [item for item in mine if item.parent not in pids]

    def _end(self) -> None:
        """Nothing of all that was started runs any more; what the system does not let go within seconds is left."""
        until = time.monotonic() + _GOING
        while self._reap() or not LINUX:
            table = processes()
            tree = below(table, os.getpid())
            groups = self._groups | set(self._calls)
            mine = [item for item in table if item.pid in tree or item.group in groups]
            for item in mine:
                kill(item.pid)
            if time.monotonic() > until or (not LINUX and not mine):
                return
            time.sleep(_LOOK)


def processes() -> list[Process]:
    """The system's table of those that run; without the dead."""
    return _linux_processes() if LINUX else _other_processes()


def _linux_processes() -> list[Process]:
    result: list[Process] = []
    ticks = os.sysconf("SC_CLK_TCK")
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                data = file.read()
            with open(f"/proc/{name}/cmdline", "rb") as file:
                cmdline = file.read(4096)
        except OSError:
            continue  # it is gone
        comm, _, rest = data.partition(b"(")[2].rpartition(b")")
        fields = rest.split()
        if fields[0] in (b"Z", b"X"):
            continue
        parent, group, session = (int(item) for item in fields[1:4])
        command = cmdline.strip(b"\0").replace(b"\0", b" ") or comm
        started = int(fields[19]) / ticks
        result.append(
            Process(int(name), parent, group, session, int(now - started), command.decode("utf-8", "replace"))
        )
    return result


def _other_processes() -> list[Process]:
    import subprocess

    question = ["/bin/ps", "-axo", "pid=,ppid=,pgid=,etime=,stat=,command="]
    outcome = subprocess.run(question, capture_output=True, text=True, errors="replace", check=False)
    result: list[Process] = []
    for line in outcome.stdout.splitlines():
        pid, parent, group, elapsed, state, command = line.split(None, 5)
        if not state.startswith("Z"):
            result.append(Process(int(pid), int(parent), int(group), int(group), _seconds(elapsed), command))
    return result


def _seconds(elapsed: str) -> int:
    """Of `[[days-]hours:]minutes:seconds`."""
    days, _, clock = elapsed.rpartition("-")
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return total + int(days or 0) * 86_400


def below(table: list[Process], pid: int) -> set[int]:
    """The descendants of a process."""
    children: dict[int, list[int]] = {}
    for item in table:
        children.setdefault(item.parent, []).append(item.pid)
    reached: set[int] = set()
    front = children.get(pid, [])
    while front:
        reached.update(front)
        front = [child for item in front for child in children.get(item, []) if child not in reached]
    return reached


def _started(request: dict[str, Any], output: int) -> int:
    """The pid of the command, which leads a session of its own."""
    argv = [str(word) for word in request["argv"]]
    folder, env = str(request["cwd"]), {str(name): str(value) for name, value in request["env"].items()}
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.execve(argv[0], argv, env)  # noqa: S606 - this is what it is for
    except BaseException as error:  # it must not come back as a second supervisor
        os.write(output, f"{argv[0]}: {error}\n".encode("utf-8", "replace"))
    os._exit(127)


def kill(pid: int) -> None:
    """Nothing where it is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or by now a process of another user


def _tell(question: socket.socket, answer: object) -> None:
    """The asker may be gone."""
    try:
        with question:
            question.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def main() -> None:
    """Serves the socket that it was given as its standard input."""
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    _prctl(_SET_DUMPABLE, 0)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    Supervisor(control).serve()


if __name__ == "__main__":
    main()
