"""Tables on a terminal: aligned columns that fit its width."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ctxvc.core import display

#: The gap between two columns.
GAP = "  "

#: Texts of which each character takes one cell, as far as that is plain: they need no table of Unicode. No combining
#: mark, no variation selector and no joiner is among these characters, so none of them changes its neighbour.
_ONE_CELL_EACH = re.compile("[ -~\xa0-\xac\xae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u259f]*")


#: Rows that are no row of the table, as `style` gets them.
HEADER, REMARK = -1, -2

#: The columns that a text keeps where all else has been narrowed already, and from which on both its ends are shown.
_LEAST = 8
_BOTH_ENDS = 24


def aligned(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    right: Sequence[bool],
    least: Sequence[int],
    rank: Sequence[int] = (),
    style: Callable[[int, int, str], str] = lambda _row, _column, text: text,
) -> Iterator[str]:
    """The lines of a table, the header first.

    If they would be wider than `width`, columns without information (only zeros) are left out; then those with a rank,
    the highest first, until the columns with a least width fit when they are narrowed down to it. A last line names
    what was left out. `style` colours a padded cell, by row (`HEADER`, `REMARK`) and column.
    """
    columns = list(range(len(header)))
    widths = [max(map(breadth, (header[at], *(row[at] for row in rows)))) for at in columns]
    omitted: list[int] = []
    if _total(widths, columns) > width:
        columns = [at for at in columns if not rows or any(row[at] not in ("", "0") for row in rows)]
        narrowest = [min(size, least[at]) if least[at] else size for at, size in enumerate(widths)]
        for at in sorted((at for at in columns if rank and rank[at]), key=lambda at: -rank[at]):
            if _total(narrowest, columns) > width:
                columns.remove(at)
                omitted.append(at)
        _narrow(widths, {at: least[at] for at in columns if least[at]}, _total(widths, columns) - width)
        texts = {at: min(_LEAST, widths[at]) for at in columns if not right[at]}
        _narrow(widths, texts, _total(widths, columns) - width)
    for number, row in enumerate((header, *rows), HEADER):
        padded = [_padded(row[at], widths[at], right=right[at]) for at in columns]
        padded[-1:] = [cell.rstrip() for cell in padded[-1:]]
        yield GAP.join(style(number, at, cell) for at, cell in zip(columns, padded, strict=True)).rstrip()
    if omitted:
        names = ", ".join(header[at] for at in sorted(omitted))
        yield style(REMARK, 0, cut(f"(no room for: {names})", width))


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """`text` in lines of at most `width` columns, broken at spaces; `indent` before each but the first.

    A longer word is not broken: it may be a path, which somebody copies.
    """
    if breadth(text) <= width:
        yield text
        return
    line = text[: len(text) - len(text.lstrip(" "))]
    indent = indent or line
    used, empty = breadth(line), True
    for word in text.split():
        cells = breadth(word)
        if not empty and used + 1 + cells > width:
            yield line
            line, used, empty = indent, breadth(indent), True
        line, used = (line + word, used + cells) if empty else (f"{line} {word}", used + 1 + cells)
        empty = False
    yield line


def breadth(text: str) -> int:
    """The cells that `text` takes on a terminal."""
    if _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    return sum(cells for _, cells in _graphemes(text))


def cut(text: str, width: int) -> str:
    """`text`, or as much of it as fits into `width` with an ellipsis; no character is taken apart.

    Of a path the file's name stays: its middle goes. Of what has no spaces, and of a text with room for both, the
    two ends stay, unless the end is missing already.
    """
    if breadth(text) <= width:
        return text
    if "/" in text and breadth(fitted := display.fitted(text, width)) <= width:
        return fitted
    both = width >= _BOTH_ENDS or (" " not in text and width >= _LEAST)
    tail = (width - 1) // 3 if both and not text.endswith("…") else 0
    if _ONE_CELL_EACH.fullmatch(text):
        return f"{text[: max(width - 1 - tail, 0)]}…{text[len(text) - tail :]}"
    parts = list(_graphemes(text))
    end = _fitting(reversed(parts), tail)
    start = _fitting(parts, width - 1 - sum(cells for _, cells in parts[len(parts) - end :]))
    return "".join(character for character, _ in [*parts[:start], ("…", 1), *parts[len(parts) - end :]])


def first_columns(text: str, width: int) -> str:
    """`text`, or its beginning with an ellipsis in at most `width` columns."""
    if breadth(text) <= width:
        return text
    parts = list(_graphemes(text))
    return "".join(character for character, _ in parts[: _fitting(parts, width - 1)]) + ("…" if width > 0 else "")


def _fitting(characters: Iterable[tuple[str, int]], width: int) -> int:
    """How many of the first characters fit into `width`."""
    used = count = 0
    for _, cells in characters:
        used += cells
        if used > width:
            break
        count += 1
    return count


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
