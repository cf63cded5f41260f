"""Tables on a terminal: aligned columns that fit its width."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ctxvc.core import display

#: The gap between two columns.
GAP = "  "

#: Texts of which each character takes one cell, as far as that is plain: they need no table of Unicode. No combining
#: mark, no variation selector and no joiner is among these characters, so none of them changes its neighbour.
_ONE_CELL_EACH = re.compile("[ -~\xa0-\xac\xae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u259f]*")


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

    If they would be wider than `width`, columns without information (only zeros) are left out, then the columns with
    a least width are narrowed evenly down to it. `style` colours a padded cell, by row (-1: the header) and column.
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
    """The cells that `text` takes on a terminal."""
    if _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    return sum(cells for _, cells in _graphemes(text))


def cut(text: str, width: int) -> str:
    """`text`, or as much of it as fits into `width` with an ellipsis; no character is taken apart.

    Of a path the end stays: the ellipsis is before it.
    """
    if breadth(text) <= width:
        return text
    if "/" in text and breadth(fitted := display.fitted(text, width)) <= width:
        return fitted
    if _ONE_CELL_EACH.fullmatch(text):
        return text[: max(width - 1, 0)] + "…"
    start = used = 0
    for grapheme, cells in _graphemes(text):
        used += cells
        if used >= width:
            return text[:start] + "…"
        start += len(grapheme)
    return text


def _graphemes(text: str) -> Iterator[tuple[str, int]]:
    """The characters of `text` as a person counts them, an emoji of several code points as one, with their cells."""
    from wcwidth import iter_graphemes, wcswidth  # takes a while to load, and few tables need it

    for grapheme in iter_graphemes(text):
        cells = wcswidth(grapheme)
        yield grapheme, cells if cells >= 0 else len(grapheme)  # a control character, which has no width


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[at] for at in columns) + len(GAP) * (len(columns) - 1)


def _narrow(widths: list[int], least: Mapping[int, int], excess: int) -> None:
    """Takes `excess` from the columns that may be narrower, each time from the one with the most room."""
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
