"""Times as the store, its answers and its logs write them."""

from __future__ import annotations

from datetime import datetime, timezone


def now(timespec: str = "milliseconds") -> str:
    """The time in UTC, as `text` writes it."""
    return text(datetime.now(timezone.utc), timespec)


def text(time: datetime, timespec: str = "auto") -> str:
    """`2026-03-01T12:00:00Z` of a time in UTC, as precise as `timespec` of `datetime.isoformat` says."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")
