"""Times on the command line: `2026-02-10`, `2026-02-10T14:30`, `3d`, `2 hours ago`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _Text = click.ParamType[str]
else:  # before click 8.3 the class takes no type
    _Text = click.ParamType


def time_option(name: str, help: str, metavar: str = "TIME") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`--since` or `--until`: the time as ISO 8601 in UTC, empty if it is not given."""
    return click.option(name, metavar=metavar, default="", type=_Time(), help=help)


class _Time(_Text):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The time as ISO 8601 in UTC: of a day its beginning, for `--until` its end. Raises: click.BadParameter."""
        from ctxvc.errors import BadInput
        from ctxvc.store import timestamp  # `--help` loads nothing of the store

        if not value:
            return ""
        try:
            return timestamp.iso(
                int(timestamp.seconds_of(value, time.time(), end="--until" in getattr(param, "opts", ())))
            )
        except BadInput as error:
            self.fail(f"{error}: {error.hint}", param, ctx)
