"""A bar for long work: on stderr, on a terminal, and only once the work has taken a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from ctxvc.core.display import human_bytes
from ctxvc.core.view.dashboard import BAR

_AFTER = 1.0  # seconds
_EVERY = 0.1


class Progress:
    """A progress bar towards `total` while its `with` block runs; `format` writes an amount, by default of bytes.

    `speed` is shown beside it, where it says something.
    """

    def __init__(
        self, title: str, total: int = 0, format: Callable[[int], str] = human_bytes, *, speed: bool = True
    ) -> None:
        self._title, self._total, self._format, self._shows_speed = title, total, format, speed
        self._done = 0
        self._shows = sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _AFTER
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, count: int) -> None:
        """Advances the bar by `amount`."""
        self.reach(self._done + count, self._total)

    def reach(self, amount: int, total: int) -> None:
        """Sets the bar to `amount` of `total`."""
        self._done, self._total = amount, total
        now = time.monotonic()
        if self._shows and now >= self._next:
            self._next = now + _EVERY
            self._draw(now)

    def _draw(self, now: float) -> None:
        part = min(1.0, self._done / self._total) if self._total else 0.0
        full = int(part * BAR)
        speed = f", {self._format(int(self._done / (now - self._began)))}/s" if self._shows_speed else ""
        bar = "█" * full + "░" * (BAR - full)
        sys.stderr.write(f"\r{self._title} [{bar}] {self._format(self._done)}{speed}\x1b[K")
        sys.stderr.flush()
        self._drawn = True
