"""A process and all its children, watched at each of their system calls: to kill them there, or to fail the call.

Only on Linux, where a process may trace its children; a call is failed on x86_64 only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TRACEME, SYSCALL, SETOPTIONS, GETREGS, SETREGS = 0, 24, 0x4200, 12, 13
#: Stops at system calls are marked; new processes and threads are traced too; all die with the tracer.
OPTIONS = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x100000
_WALL = 0x40000000
_AT_CALL = signal.SIGTRAP | 0x80

#: Places in the registers of x86_64, as the kernel copies them.
_RAX, _RDX, _RDI, _CALL, _REGISTERS = 10, 12, 14, 15, 27
#: Numbers of x86_64. By descriptor; by path; and of the latter, what opens.
_BY_DESCRIPTOR = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    74: "fsync",
    75: "fdatasync",
    77: "ftruncate",
    285: "fallocate",
}
_BY_PATH = {82: "rename", 83: "mkdir", 86: "link", 258: "mkdirat", 264: "renameat", 265: "linkat", 316: "renameat2"}
_OPEN = {257: "openat"}
#: Calls that need space on the disk.
NEEDS_SPACE = frozenset({"write", "pwrite64", "writev", "fallocate", "openat", "mkdir", "mkdirat", "link", "linkat"})

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def available() -> bool:
    """Whether a process may be traced here, which some containers forbid."""
    if not sys.platform.startswith("linux"):
        return False
    child = os.fork()
    if child == 0:
        os._exit(0 if _libc.ptrace(TRACEME, 0, None, None) == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def can_fail_calls() -> bool:
    return platform.machine() == "x86_64"


@dataclass
class Tree:
    """A traced process and its children. `calls` counts the system calls that were begun, `dead` those killed."""

    root: int
    calls: int = 0
    dead: bool = False
    alive: set[int] = field(default_factory=set)
    inside: set[int] = field(default_factory=set)
    status: int = 0

    def kill(self, pids: set[int]) -> None:
        self.dead = True
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


#: Called at the beginning of each system call, with who makes it. Gives the error that it fails with; 0 for none.
Watch = Callable[[Tree, int], int]


def trace(work: Callable[[], None], watch: Watch) -> Tree:
    """Runs `work` in a child of its own, and waits until it and all that it started have ended."""
    child = os.fork()
    if child == 0:
        _libc.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, _WALL)
    _request(SETOPTIONS, child, OPTIONS)
    tree = Tree(child, alive={child})
    failing: dict[int, int] = {}
    _request(SYSCALL, child, 0)
    for pid, status in _events(tree):
        passed = 0
        if os.WSTOPSIG(status) == _AT_CALL:
            if pid in tree.inside:
                tree.inside.discard(pid)
                if error := failing.pop(pid, 0):
                    _set(pid, _RAX, -error)
            else:
                tree.inside.add(pid)
                tree.calls += 1
                if error := watch(tree, pid):
                    failing[pid] = error
                    _set(pid, _CALL, -1)
        elif status >> 16 == 0 and os.WSTOPSIG(status) not in (signal.SIGSTOP, signal.SIGTRAP):
            passed = os.WSTOPSIG(status)
        _request(SYSCALL, pid, passed)
    return tree


def _events(tree: Tree) -> Iterator[tuple[int, int]]:
    """Who stopped, and how, until nobody is left."""
    while tree.alive:
        try:
            pid, status = os.waitpid(-1, _WALL)
        except ChildProcessError:
            return
        if os.WIFSTOPPED(status):
            tree.alive.add(pid)
            yield pid, status
        else:
            tree.alive.discard(pid)
            tree.inside.discard(pid)
            if pid == tree.root:
                tree.status = status


def changing_call(pid: int, folder: str) -> str:
    """The name of the call that a process begins, where it changes files below a folder; else empty."""
    registers = _registers(pid)
    number = registers[_CALL]
    if number in _BY_DESCRIPTOR:
        try:
            target = str(Path(f"/proc/{pid}/fd/{registers[_RDI]}").readlink())
        except OSError:
            return ""
        return _BY_DESCRIPTOR[number] if target.startswith(folder) else ""
    if number in _OPEN:
        return _OPEN[number] if registers[_RDX] & (os.O_CREAT | os.O_TRUNC) else ""
    return _BY_PATH.get(number, "")


def _registers(pid: int) -> list[int]:
    values = (ctypes.c_ulong * _REGISTERS)()
    _libc.ptrace(GETREGS, pid, None, ctypes.addressof(values))
    return list(values)


def _set(pid: int, place: int, value: int) -> None:
    values = (ctypes.c_ulong * _REGISTERS)(*_registers(pid))
    values[place] = value & (1 << 64) - 1
    _libc.ptrace(SETREGS, pid, None, ctypes.addressof(values))


def _request(request: int, pid: int, data: int) -> None:
    if _libc.ptrace(request, pid, None, data) < 0 and ctypes.get_errno() != errno.ESRCH:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of {pid}")


def is_in(path: Path) -> str:
    """How the names of files below a folder begin, as the kernel tells them."""
    return f"{path.resolve()}/"
