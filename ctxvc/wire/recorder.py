"""Takes exchanges into memory, until there is a store for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ctxvc.wire.exchange import Exchange


class _Memory:
    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def record(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        del self.exchanges[:-8]

    def close(self) -> None:
        pass


def open_recorder(
    store_path: Path,  # noqa: ARG001
    *,
    agent: str,  # noqa: ARG001
    session: str = "",  # noqa: ARG001
    cwd: Path,  # noqa: ARG001
    on_trouble: Callable[[str], None],  # noqa: ARG001
) -> _Memory:
    """A recorder for the exchanges of one agent."""
    return _Memory()
