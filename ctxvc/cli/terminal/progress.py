"""A bar for long work: on stderr, on a terminal, and only once the work has taken a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from ctxvc.core.display import human_bytes
from ctxvc.core.view.dashboard import BAR

_AFTER = 1.0  # seconds
_EVERY = 0.1
#: Seconds after which work that says nothing is shown to go on, and after which the time left is a fair guess.
_SILENT = 0.5
_FAIR = 2.0


class Progress:
    """A progress bar towards `total` while its `with` block runs; `format` writes an amount, by default of bytes.

    `speed` is shown beside it, where it says something. Without a total it shows how long the work has taken.
    """

    def __init__(
        self, title: str, total: int = 0, format: Callable[[int], str] = human_bytes, *, speed: bool = True
    ) -> None:
        self._title, self._total, self._format, self._shows_speed = title, total, format, speed
        self._done = 0
        self._shows = sys.stderr.isatty()
        self._began = self._since = time.monotonic()
        self._next = self._began + _AFTER
        self._drawn = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticking: threading.Thread | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._clear()

    def add(self, count: int) -> None:
        """Advances the bar by `count`."""
        self.reach(self._done + count, self._total)

    def reach(self, amount: int, total: int) -> None:
        """Sets the bar to `amount` of `total`; once all is done, it is gone."""
        self._done, self._total = amount, total
        if amount >= total > 0:
            self._clear()
            return
        now = time.monotonic()
        if self._shows and now >= self._next:
            self._draw(now)

    def task(self, title: str, amount: int = 0, total: int = 0) -> None:
        """Reports a part of the work: its title, and how much of its own total is done. A total of 0 is unknown.

        The bar is redrawn even while the work reports nothing.
        """
        if self._shows and self._ticking is None:
            self._ticking = threading.Thread(target=self._tick, daemon=True)
            self._ticking.start()
        if title != self._title:
            self._title, self._since = title, time.monotonic()
        self.reach(amount, total)

    def _tick(self) -> None:
        """Keeps redrawing the bar while the work reports nothing."""
        while not self._over.wait(_SILENT):
            now = time.monotonic()
            if now >= self._next + _SILENT and not self._done >= self._total > 0:
                self._draw(now)

    def _draw(self, now: float) -> None:
        with self._lock:
            if self._over.is_set():
                return
            from ctxvc.cli.output import terminal_width
            from ctxvc.cli.terminal.table import first_columns

            self._next = now + _EVERY
            line = first_columns(self._line(now), terminal_width() - 1)
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
            self._drawn = True

    def _line(self, now: float) -> str:
        elapsed = now - self._since
        if not self._total:
            amount = f"{self._format(self._done)}, " if self._done else ""
            return f"{self._title} {amount}{_duration(now - self._began)}"
        part = min(1.0, self._done / self._total)
        full = int(part * BAR)
        text = f"{self._title} [{'█' * full}{'░' * (BAR - full)}] {self._format(self._done)}"
        if self._shows_speed and elapsed > 0:
            text += f", {self._format(int(self._done / elapsed))}/s"
        if part > 0 and elapsed >= _FAIR:
            text += f", {_duration(elapsed / part - elapsed)} left"
        return text

    def _clear(self) -> None:
        with self._lock:
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False


def _duration(seconds: float) -> str:
    """`8 s`, `2 min 10 s`, `1 h 5 min`"""
    rounded = max(0, round(seconds))
    if rounded < 60:
        return f"{rounded} s"
    return (
        f"{rounded // 60} min {rounded % 60} s" if rounded < 3600 else f"{rounded // 3600} h {rounded % 3600 // 60} min"
    )
