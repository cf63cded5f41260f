"""Timestamps in the store, in answers and in logs."""

from __future__ import annotations

from datetime import datetime, timezone


def now(timespec: str = "milliseconds") -> str:
    """The current time in UTC, formatted as by `text`."""
    return text(datetime.now(timezone.utc), timespec)


def text(time: datetime, timespec: str = "auto") -> str:
    """A time in UTC as `2026-03-01T12:00:00Z`, as precise as `timespec` of `datetime.isoformat` says."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


#: The end of the year 9999 in UTC, which is the last that a time is written for.
_LATEST = 253_402_300_799


def iso(seconds: int) -> str:
    """`2026-03-01T12:00:00Z`; for a year without four digits, the nearest time that has them."""
    return text(datetime.fromtimestamp(min(max(seconds, 0), _LATEST), timezone.utc))
