"""`ctxvc run` starts itself again without its keys, which then are in the memory of a closed process and nowhere else.

What a process was started with stands in /proc/PID/environ for as long as it lives, whatever it changed since. So the
first process hands what is not open (`core.variables`) to its successor, the same process with a new program, over an
unnamed file or a pipe. The successor reads it before anything else and closes it. On Linux it then lets nobody look
into its memory, its descriptors and its environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

from ctxvc.core import variables

#: Names the descriptor over which the rest of the environment comes.
CHANNEL = "CTXVC_ENVIRONMENT_FD"

PACKAGE = Path(__file__).parents[1]
_VALUED = ("-C", "--session", "--color")
_CHUNK = 1 << 16
_LAST_STREAM = 2
#: Of linux/prctl.h.
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36


class Environment(MutableMapping[str, str]):
    """The environment of this process, and behind it variables that only who names them sees.

    Copies, lists and children have what is open; so nothing is handed on that nobody asked for by name.
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
        """What only who names it sees."""
        return dict(self._hidden)


def runs_an_agent(arguments: Sequence[str]) -> bool:
    """Whether the command is `run`, as far as it can be known before the words are parsed."""
    rest = iter(arguments)
    for word in rest:
        if word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            return word == "run" and not {"-h", "--help"}.intersection(arguments)
    return False


def separate() -> None:
    """From here on the environment of this process holds what is open and nothing else; the rest is in memory.

    Does not return where the program has to be started again for that; the process stays the same one.
    """
    hidden = _received()
    if any(not variables.is_open(name) for name in os.environ) and sys.executable and sys.orig_argv:
        _start_again(hidden)
    os.environ = Environment(os.environ, hidden)  # type: ignore[assignment]  # noqa: B003 - no variable is unset
    sys.path[:] = _elsewhere(sys.path, Path.cwd())
    _close()


def _elsewhere(places: Iterable[str], folder: Path) -> list[str]:
    """Where modules are looked for, without the folder that the agent writes in, but for what is ours there.

    Else a module that it writes could be loaded into this process later, and see all that is in it.
    """
    ours = (Path(sys.prefix).resolve(), PACKAGE.parent.resolve())
    result = []
    for place in places:
        path = (folder / place).resolve()
        if not path.is_relative_to(folder.resolve()) or path == ours[1] or path.is_relative_to(ours[0]):
            result.append(place)
    return result


def is_separate() -> bool:
    """Whether this process carries nothing in the open that it should not."""
    return isinstance(os.environ, Environment)


def _received() -> dict[str, str]:
    """What the program before this one left. Whatever else the variable names is left alone."""
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
    """Raises: OSError where the program cannot be started a second time."""
    public = {name: value for name, value in os.environ.items() if variables.is_open(name)}
    rest = {**hidden, **{name: value for name, value in os.environ.items() if name not in public}}
    data = b"\0".join(os.fsencode(f"{name}={value}") for name, value in rest.items())
    handle = _channel(data)
    os.set_inheritable(handle, True)
    os.execve(  # noqa: S606 - it is us
        sys.executable, [sys.executable, *sys.orig_argv[1:]], {**public, CHANNEL: str(handle)}
    )


def _channel(data: bytes) -> int:
    """A descriptor from which the bytes can be read once; they stand on no disk."""
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
    """The same file under a number that is none of the standard streams', of which one may be closed."""
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
    """On Linux: others of this person may neither look into this process nor trace it, and it takes in orphans."""
    if sys.platform != "linux":
        return
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for option, value in ((_SET_DUMPABLE, 0), (_SET_CHILD_SUBREAPER, 1)):
        if prctl(option, ctypes.c_ulong(value), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "the system does not let this process be closed to others")
