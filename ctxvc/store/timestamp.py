"""Timestamps in the store, in answers and in logs."""

from __future__ import annotations

from datetime import datetime, timezone


def now(timespec: str = "milliseconds") -> str:
    """The current time in UTC, formatted as by `text`."""
    return text(datetime.now(timezone.utc), timespec)


def text(time: datetime, timespec: str = "auto") -> str:
    """A time in UTC as `2026-03-01T12:00:00Z`, as precise as `timespec` of `datetime.isoformat` says."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


#: The last second that `text` can show.
_LATEST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc).timestamp())


def of(seconds: int) -> str:
    """Seconds since 1970 as `text`; for a year without four digits, the nearest time that has them."""
    return text(datetime.fromtimestamp(min(max(seconds, 0), _LATEST), timezone.utc))
