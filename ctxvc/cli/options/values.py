"""Values on the command line: numbers of tokens (`32000`, `32k`), times (`2026-02-10T14:30`, `2 hours ago`), paths, and
`-`, which is stdin in place of a text or a file.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ctxvc.errors import BadInput

if TYPE_CHECKING:
    _Integer = click.ParamType[int]
    _Text = click.ParamType[str]
else:  # before click 8.3 the class takes no type
    _Integer = _Text = click.ParamType

#: Why an empty name or path is refused: without it a command would act on what stands for none.
EMPTY = "it is empty, as from a variable that is not set"
_AMOUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([km]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
#: Stdin, where a file is named.
DASH = Path("-")
_TextOrTexts = TypeVar("_TextOrTexts", str, tuple[str, ...])


class TokenAmount(_Integer):
    """A number of tokens from `least` to `limit`; a command gets an integer."""

    name = "tokens"

    def __init__(self, least: int = 1, limit: int = 1_000_000_000) -> None:
        self.least = least
        self.limit = limit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of tokens. Raises: click.BadParameter if the value is no number, or out of range."""
        if isinstance(value, int):
            return value
        match = _AMOUNT.fullmatch(str(value).strip())
        tokens = round(float(match[1]) * _UNITS[match[2].lower()]) if match else -1
        if not self.least <= tokens <= self.limit:
            bounds = f"from {written(self.least)} to {written(self.limit)}"
            wrong = f"{str(value).strip()[:20]!r} is not a number of tokens {bounds}"
            self.fail(f"{wrong}: write it as 32000 or 32k", param, ctx)
        return tokens


def written(tokens: int) -> str:
    """`32k` for 32000: the shortest way to write exactly so many tokens."""
    for unit, name in ((1_000_000, "m"), (1_000, "k")):
        if tokens and tokens % unit == 0:
            return f"{tokens // unit}{name}"
    return str(tokens)


def time_option(name: str, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`--since` or `--until`: the time as ISO 8601 in UTC, empty if it is not given."""
    return click.option(name, metavar="TIME", default="", type=_Time(), help=help)


class GivenPath(click.Path):
    """A path of a file or a folder. An empty one would be the working folder, and is wrong usage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises: click.BadParameter."""
        if value == "":
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


class _Time(_Text):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The time as ISO 8601 in UTC: of a day its beginning, for `--until` its end. Raises: click.BadParameter."""
        from ctxvc.store import timestamp  # `--help` loads nothing of the store

        if not value:
            return ""
        try:
            return timestamp.iso(
                int(timestamp.seconds_of(value, time.time(), end="--until" in getattr(param, "opts", ())))
            )
        except BadInput as error:
            self.fail(f"{error}: {error.hint}", param, ctx)


# --- `-`


def data() -> bytes:
    """The bytes on stdin. Raises: BadInput if it was read already."""
    context = click.get_current_context()
    if context.meta.setdefault("ctxvc.stdin", False):
        raise BadInput(
            "two arguments are -: stdin can be read only once", hint="give one of the two as a text, or as a file"
        )
    context.meta["ctxvc.stdin"] = True
    return sys.stdin.buffer.read() if sys.stdin else b""


def text() -> str:
    """The text on stdin, without the end of its last line. Raises: BadInput."""
    try:
        return data().decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"stdin is not UTF-8: {error.reason} at byte {error.start}", hint="convert it first") from error


def or_text(_ctx: click.Context, _param: click.Parameter, value: _TextOrTexts) -> _TextOrTexts:
    """The text of an option or argument; for `-`, the text on stdin."""
    if isinstance(value, tuple):
        return tuple(text() if part == "-" else part for part in value)
    return text() if value == "-" else value


def content_of(path: Path, place: Callable[[Path], Path]) -> bytes:
    """The bytes of a file, found by `place`; of `-`, those on stdin. Raises: OSError, BadInput."""
    return data() if path == DASH else place(path).read_bytes()
