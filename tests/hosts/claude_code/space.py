"""A network and a process table of their own: only 127.0.0.1 can be reached, and what is left running ends with it.

As a program, this is what waits inside: it makes the socket there and hands it out.
"""

from __future__ import annotations

import array
import fcntl
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_OWN = ("--net", "--pid", "--fork", "--mount-proc", "--kill-child")
#: With rights of root, and without.
_FORMS: tuple[tuple[str, ...], ...] = ((), ("--map-root-user",))
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x1 | 0x40


@dataclass(frozen=True)
class Space:
    """`listener` accepts connections to 127.0.0.1 inside; `command` runs a program there."""

    listener: socket.socket
    pid: int
    form: tuple[str, ...]

    def command(self, arguments: Sequence[str], folder: Path) -> list[str]:
        """The command by which `arguments` run inside, in `folder`."""
        own_user = ("--user", "--preserve-credentials") if self.form else ()
        enter = ("nsenter", "--target", str(self.pid), *own_user, "--net", "--pid", "--mount")
        return [*enter, "env", "-C", str(folder), *arguments]

    def running(self) -> list[str]:
        """The command lines of what runs inside, but for the one that waits."""
        inside = Path(f"/proc/{self.pid}/ns/pid_for_children").readlink()
        lines = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                own = (process / "ns" / "pid_for_children").readlink()
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            except OSError:
                continue
            if own == inside and line and not line.startswith("unshare ") and int(process.name) != self.pid:
                lines.append(line)
        return lines


@contextmanager
def own_space(folder: Path) -> Iterator[Space]:
    """A space of its own until the end. `folder` is for a socket file. Raises: OSError if the system allows none."""
    form = _allowed()
    path = folder / "space.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(20)
        waits = [sys.executable, "-I", str(Path(__file__)), str(path)]
        process = subprocess.Popen(["unshare", *form, *_OWN, *waits], start_new_session=True)
        try:
            connection, _ = server.accept()
            with connection:
                listener = _received(connection)
            with listener:
                yield Space(listener, _child(process.pid), form)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _allowed() -> tuple[str, ...]:
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        raise OSError("no own network: unshare and nsenter (util-linux) are not there")
    for form in _FORMS:
        if not subprocess.run(["unshare", *form, *_OWN, "true"], capture_output=True, check=False).returncode:
            return form
    raise OSError("no own network: the system refuses `unshare --net`")


def _child(pid: int) -> int:
    """The process that `unshare` forked."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _received(connection: socket.socket) -> socket.socket:
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(array.array("i", [0]).itemsize))
    ((_, _, data),) = ancillary
    return socket.socket(fileno=array.array("i", data[:4])[0])


def _wait_inside(path: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14s", b"lo", _UP_AND_RUNNING, b""))
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with socket.socket(socket.AF_UNIX) as outside:
        outside.connect(path)
        outside.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener.fileno()]))])
    listener.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the first process of a table inherits all orphans
    while True:
        signal.pause()


if __name__ == "__main__":
    _wait_inside(sys.argv[1])
