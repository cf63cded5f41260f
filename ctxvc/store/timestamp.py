"""Timestamps in the store, in answers and in logs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from ctxvc.errors import BadInput

_AGE = re.compile(r"([0-9]{1,6}) ?(min|minutes?|h|hours?|d|days?|w|weeks?)(?: ago)?")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def now(timespec: str = "milliseconds") -> str:
    """The current time in UTC, formatted as by `text`."""
    return text(datetime.now(timezone.utc), timespec)


def text(time: datetime, timespec: str = "auto") -> str:
    """A time in UTC, such as `2026-03-01T12:00:00Z`; `timespec` is the precision, as in `datetime.isoformat`."""
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


#: The end of the year 9999 in UTC, the latest time that is written.
_LATEST = 253_402_300_799


def iso(seconds: int) -> str:
    """A time such as `2026-03-01T12:00:00Z`; if the year has not four digits, the nearest time whose year has."""
    return text(datetime.fromtimestamp(min(max(seconds, 0), _LATEST), timezone.utc))


def seconds_of(text: str, now: float, *, end: bool = False) -> float:
    """The time in seconds since 1970 of a text such as `2026-02-10`, `2026-02-10 14:30` (local), `3d` or `2 hours ago`.

    With `end`, a day without a time means its last second. Raises: BadInput.
    """
    if age := _AGE.fullmatch(text.strip()):
        return now - timedelta(**{_UNITS[age[2][0]]: int(age[1])}).total_seconds()
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        if end and len(text.strip()) <= len("2026-02-10"):
            moment += timedelta(days=1, seconds=-1)
        return moment.timestamp()
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"{text[:40]!r} is not a time", hint="write it as in 2026-02-10, 2026-02-10T14:30, 3d, `2 hours ago`"
        ) from error
