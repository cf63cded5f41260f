"""The form in which an experiment shows its figures beside a paper's."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Table(msgspec.Struct, frozen=True):
    """Figures of ours with the paper's beside them; a cell is empty if one of the two has none.

    `apart` says in a line what of the two is not comparable.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    apart: str = ""

    @property
    def markdown(self) -> str:
        """The table as Markdown, with what is not comparable below it."""
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
        return "\n\n".join(filter(None, (f"### {self.title}", table, self.apart))) + "\n"


class Result(Protocol):
    """What an experiment measured."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its figures, beside the paper's."""


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent, empty if there is none."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def change(share: float | None) -> str:
    """By how much something is more or less, as per cent with its sign, empty if there is nothing to compare."""
    return "" if share is None else f"{100 * share:+.1f} %"


def interval(low: float, high: float) -> str:
    """An interval of shares, in per cent."""
    return f"{100 * low:.1f}-{100 * high:.1f} %"
