"""What a terminal would show of a program's output in the end: progress bars collapse to their last state.

Only what a plain log needs is followed: carriage return, backspace, erase in line, and columns. Colours and all other
control sequences are left out. Lines are never wrapped, and no line above the current one is changed.
"""

from __future__ import annotations

import re

#: A control sequence (CSI), an operating system command (OSC), or another escape of two or three characters.
_ESCAPE = re.compile(
    r"\x1b(?:\[([0-9;?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/][0-~]|[0-Z\\^-~])"
    r"|\x9b([0-9;?]*)[ -/]*([@-~])"
)
#: What makes a line more than its characters.
_MOVES = re.compile("[\r\b\x1b\x9b]")
_OTHERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Columns of a line that a terminal is followed to.
_WIDEST = 10_000


def settled(output: str) -> str:
    """The output as a terminal would show it once the program has ended."""
    if not _OTHERS.search(output):
        return output
    return "\n".join(map(_line, output.replace("\r\n", "\n").split("\n")))


def tail(value: str, *, lines: int, chars: int, above: int = 0) -> str:
    """The last lines of a text, and of those the last characters; headed by what was left out, if anything was.

    `above` are the characters that stood before the text and are left out already.
    """
    held = value.split("\n")
    shown = "\n".join(held[-lines:])
    shown = shown[-chars:]
    left_out = above + len(value) - len(shown)
    return f"[{left_out:,} characters above left out]\n{shown}" if left_out else value


def _line(line: str) -> str:
    if not _MOVES.search(line):
        return _OTHERS.sub("", line)
    cells: list[str] = []
    column = at = 0
    while at < len(line):
        escape = _ESCAPE.match(line, at)
        if escape:
            at = escape.end()
            column = _moved(cells, column, escape[1] or escape[3] or "", escape[2] or escape[4] or "")
            continue
        sign = line[at]
        at += 1
        if sign == "\r":
            column = 0
        elif sign == "\b":
            column = max(0, column - 1)
        elif not _OTHERS.match(sign):
            if column > len(cells):
                cells += [" "] * (column - len(cells))
            cells[column : column + 1] = [sign]
            column += 1
    return "".join(cells).rstrip(" ") if "\r" in line or "\x1b" in line else "".join(cells)


def _moved(cells: list[str], column: int, number: str, command: str) -> int:
    """The column after a control sequence, which may erase."""
    amount = min(int(number), _WIDEST) if number.isdigit() else 0
    match command:
        case "K":
            if amount == 0:
                del cells[column:]
            else:
                end = len(cells) if amount == 2 else min(column + 1, len(cells))
                cells[:end] = [" "] * end
        case "G":
            return max(0, amount - 1)
        case "C":
            return min(column + max(1, amount), _WIDEST)
        case "D":
            return max(0, column - max(1, amount))
    return column
