"""The commands of an agent: each in a process group of its own, watched until it ends, and killed with all it started.

Several threads may run commands at the same time; a person who stops the run stops them all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

#: Bytes of an output that are kept.
KEPT = 16 << 20
#: Bytes that a command may write, and the seconds between two looks at how many there are.
WRITTEN = 256 << 20
_LOOK = 0.25


class Shell:
    """Runs commands, until it is stopped."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, command: str, folder: Path, env: Mapping[str, str], seconds: int) -> tuple[bytes, int, str]:
        """What is kept of the output, the bytes in its middle that are not, and what went wrong (empty: nothing).

        Raises: KeyboardInterrupt where it was stopped meanwhile: how far the command came is not known.
        """
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                ["/bin/bash", "-c", command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )
            try:
                with self._lock:
                    self._running.add(process)
                self.check()
                why = _waited(process, output, seconds)
                self.check()
            except BaseException:
                _stop(process)
                raise
            finally:
                with self._lock:
                    self._running.discard(process)
            data, left_out = _kept(output)
        return data, left_out, why or (f"[exit code {process.returncode}]" if process.returncode else "")

    def stop(self) -> None:
        """Kills what runs; from now on nothing does. Each command's own thread waits for its end."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def check(self) -> None:
        """Raises: KeyboardInterrupt where it was stopped."""
        if self._stopped:
            raise KeyboardInterrupt


def _waited(process: subprocess.Popen[bytes], output: IO[bytes], seconds: int) -> str:
    """Waits for a command, which is stopped when its time is over or it has written too much: then it says so."""
    end = time.monotonic() + seconds
    while True:
        try:
            process.wait(min(_LOOK, max(0.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            if os.fstat(output.fileno()).st_size > WRITTEN:
                _stop(process)
                return f"[stopped: it wrote more than {WRITTEN:,} bytes]"
            if time.monotonic() >= end:
                _stop(process)
                return f"[stopped after {seconds} seconds]"
        else:
            return ""


def _kept(output: IO[bytes]) -> tuple[bytes, int]:
    """What is kept of an output, its two halves where it is too long, and the bytes that are not.

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


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The command and all that it started are gone."""
    _kill(process)
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
