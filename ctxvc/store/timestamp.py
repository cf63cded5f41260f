"""Timestamps in the store, in answers and in logs."""

from __future__ import annotations

from datetime import datetime, timezone


def now(timespec: str = "milliseconds") -> str:
    """The current time in UTC, formatted as by `text`."""
    return text(datetime.now(timezone.utc), timespec)


def text(time: datetime, timespec: str = "auto") -> str:
    """A time in UTC as `2026-03-01T12:00:00Z`, as precise as `timespec` of `datetime.isoformat` says."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")
