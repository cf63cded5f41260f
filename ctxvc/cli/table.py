"""Tables on a terminal: aligned columns that fit its width. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

#: Between two columns.
GAP = "  "


def aligned(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    right: Sequence[bool],
    least: Sequence[int],
    style: Callable[[int, int, str], str] = lambda _row, _column, text: text,
) -> Iterator[str]:
    """The lines of a table, the header first.

    Where they would be wider than `width`, columns that say nothing (only zeros) are left out, and then those that have
    a least width are cut down to it, evenly. `style` colours a padded cell, by row (-1: the header) and column.
    """
    columns = list(range(len(header)))
    widths = [max(map(breadth, (header[at], *(row[at] for row in rows)))) for at in columns]
    if _total(widths, columns) > width:
        columns = [at for at in columns if not rows or any(row[at] not in ("", "0") for row in rows)]
        _narrow(widths, {at: least[at] for at in columns if least[at]}, _total(widths, columns) - width)
    for number, row in enumerate((header, *rows), -1):
        padded = [_padded(row[at], widths[at], right=right[at]) for at in columns]
        padded[-1:] = [cell.rstrip() for cell in padded[-1:]]
        yield GAP.join(style(number, at, cell) for at, cell in zip(columns, padded, strict=True)).rstrip()


def breadth(text: str) -> int:
    """The cells of a terminal that `text` take."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def cut(text: str, width: int) -> str:
    """`text`, or as much of them as fits into `width` with an ellipsis behind."""
    if breadth(text) <= width:
        return text
    taken = 0
    for at, character in enumerate(text):
        taken += _cells(character)
        if taken >= width:
            return text[:at] + "…"
    return text


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[at] for at in columns) + len(GAP) * (len(columns) - 1)


def _narrow(widths: list[int], least: Mapping[int, int], excess: int) -> None:
    """Takes `excess` from the columns that may be narrower, always from the one that has the most to give."""
    while excess > 0:
        giver = max(least, key=lambda at: widths[at] - least[at], default=None)
        if giver is None or widths[giver] <= least[giver]:
            return
        widths[giver] -= 1
        excess -= 1


def _padded(text: str, width: int, *, right: bool) -> str:
    text = cut(text, width)
    blank = " " * (width - breadth(text))
    return blank + text if right else text + blank
