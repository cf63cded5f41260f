"""`ctxvc run` restarts itself without its keys, which are then only in the memory of a closed process.

The environment that a process was started with is readable in /proc/PID/environ for as long as it lives, whatever it
changes later. So the first process hands every variable that is not open (`core.variables`) to its successor, the same
process with a new program, over an unnamed file or a pipe. The successor reads them before anything else and closes the
descriptor. On Linux it then denies other processes its memory, its descriptors and its environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

from ctxvc.core import variables

#: The variable that names the descriptor with the rest of the environment.
CHANNEL = "CTXVC_ENVIRONMENT_FD"

PACKAGE = Path(__file__).parents[1]
_VALUED = ("-C", "--session", "--color")
_CHUNK = 1 << 16
_LAST_STREAM = 2
#: From linux/prctl.h.
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36


class Environment(MutableMapping[str, str]):
    """The environment of this process, and hidden variables that can only be read by name.

    Copies, lists and children get the open variables alone, so a hidden one is never handed on by accident.
    """

    def __init__(self, public: MutableMapping[str, str], hidden: Mapping[str, str]) -> None:
        self._open = public
        self._hidden = dict(hidden)

    def __getitem__(self, name: str) -> str:
        try:
            return self._open[name]
        except KeyError:
            return self._hidden[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._open[name] = value

    def __delitem__(self, name: str) -> None:
        if self._hidden.pop(name, None) is None:
            del self._open[name]
        else:
            self._open.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return repr(self._open)

    def copy(self) -> dict[str, str]:
        return dict(self)

    def hidden(self) -> dict[str, str]:
        """The variables that can only be read by name."""
        return dict(self._hidden)


def runs_an_agent(arguments: Sequence[str]) -> bool:
    """Whether the command is `run`, as far as that can be known before the arguments are parsed."""
    remaining = iter(arguments)
    for word in remaining:
        if word in _VALUED:
            next(remaining, None)
        elif not word.startswith("-"):
            return word == "run" and not {"-h", "--help"}.intersection(arguments)
    return False


def separate() -> None:
    """Leaves only the open variables in the environment of this process; the rest is kept in memory.

    Does not return if the program has to be restarted for that; the process stays the same.
    """
    hidden = _received()
    if any(not variables.is_open(name) for name in os.environ) and sys.executable and sys.orig_argv:
        _start_again(hidden)
    os.environ = Environment(os.environ, hidden)  # type: ignore[assignment]  # noqa: B003 - no variable is unset
    sys.path[:] = _elsewhere(sys.path, Path.cwd())
    _close()


def _elsewhere(places: Iterable[str], folder: Path) -> list[str]:
    """The module search path without the folder that the agent writes in, except for our own modules there.

    Otherwise a module that the agent writes could be loaded into this process later and read its memory.
    """
    ours = (Path(sys.prefix).resolve(), PACKAGE.parent.resolve())
    result = []
    for place in places:
        path = (folder / place).resolve()
        if not path.is_relative_to(folder.resolve()) or path == ours[1] or path.is_relative_to(ours[0]):
            result.append(place)
    return result


def is_separate() -> bool:
    """Whether the environment of this process has only open variables."""
    return isinstance(os.environ, Environment)


def _received() -> dict[str, str]:
    """The variables that the previous program left. Any other descriptor the variable may name is left alone."""
    try:
        handle = int(os.environ.pop(CHANNEL, ""))
        os.set_inheritable(handle, False)
    except (ValueError, OSError, OverflowError):
        return {}
    with open(handle, "rb") as channel:
        lines = channel.read().split(b"\0")
    pairs = (line.partition(b"=") for line in lines if line)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _start_again(hidden: Mapping[str, str]) -> None:
    """Restarts the program. Raises: OSError."""
    public = {name: value for name, value in os.environ.items() if variables.is_open(name)}
    rest = {**hidden, **{name: value for name, value in os.environ.items() if name not in public}}
    data = b"\0".join(os.fsencode(f"{name}={value}") for name, value in rest.items())
    handle = _channel(data)
    os.set_inheritable(handle, True)
    os.execve(  # noqa: S606 - it is us
        sys.executable, [sys.executable, *sys.orig_argv[1:]], {**public, CHANNEL: str(handle)}
    )


def _channel(data: bytes) -> int:
    """A descriptor from which the bytes can be read once; they are never on a disk."""
    if hasattr(os, "memfd_create"):
        handle = _apart(os.memfd_create("environment"))
        _write(handle, data)
        os.lseek(handle, 0, os.SEEK_SET)
        return handle
    reading, writing = map(_apart, os.pipe())
    if not os.fork():  # a pipe may hold less than there is
        os.close(reading)
        _write(writing, data)
        os._exit(0)
    os.close(writing)
    return reading


def _apart(handle: int) -> int:
    """The same file under a number beyond the standard streams', one of which may be closed."""
    lower = []
    while handle <= _LAST_STREAM:
        lower.append(handle)
        handle = os.dup(handle)
    for number in lower:
        os.close(number)
    return handle


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view[:_CHUNK]) :]


def _close() -> None:
    """On Linux: other processes of the same user can neither read nor trace this one, and it adopts orphans."""
    if sys.platform != "linux":
        return
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for option, value in ((_SET_DUMPABLE, 0), (_SET_CHILD_SUBREAPER, 1)):
        if prctl(option, ctypes.c_ulong(value), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "the system does not allow this process to be protected from others")
