"""The net effect of recorded edits of a file, as a diff; the file itself is not read and may no longer exist.

After a call that wrote the whole file, edits are made in that text. If only edits were recorded, an edit is merged with
an earlier one whose text it changes. Edits that cancel each other out are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from ctxvc.inspection.edits import Change
from ctxvc.inspection.lineage import aligned, split

#: Equal lines that are shown around a difference.
_AROUND = 3
#: The most edits of a file that are compared with a new one, and characters of a text that is merged.
_PIECES = 200
_LONGEST = 2_000_000

#: A line of a diff begins with one of these; `@` alone separates two places.
SAME, OLD, NEW, GAP = " ", "-", "+", "@"


class NetDiff:
    """The edits of one file, in the order in which they were made."""

    def __init__(self) -> None:
        self._text: str | None = None
        self._pieces: list[tuple[str, str]] = []  # the text before the edits, and the text now

    def add(self, change: Change) -> None:
        """Adds the next change of the file."""
        old, new = change.old.replace("\r\n", "\n"), change.new.replace("\r\n", "\n")
        if change.kind == "write":
            self._text, self._pieces = new, []
        elif change.kind == "insert":
            if self._text is not None and change.scripted:
                self._text += new
            else:
                self._pieces.append(("", new))
        elif self._text is not None and _stands_in(old, self._text, by_lines=change.whole_lines):
            self._text = _replaced(self._text, old, new, change)
        else:
            self._replace(old, new, change)

    def lines(self) -> list[str]:
        """The lines of the diff, each with its sign; empty if nothing is left of the edits."""
        pieces = [piece for piece in self._pieces if piece[0] != piece[1]]
        written = [("", self._text)] if self._text else []
        parts = [diff_lines(old, new) for old, new in chain(written, pieces)]
        return list(chain.from_iterable(([GAP] if at else []) + part for at, part in enumerate(parts)))

    def _replace(self, old: str, new: str, change: Change) -> None:
        if len(old) > _LONGEST or len(new) > _LONGEST:
            self._pieces.append((old, new))
            return
        for at in range(len(self._pieces) - 1, max(-1, len(self._pieces) - 1 - _PIECES), -1):
            before, after = self._pieces[at]
            if _stands_in(old, after, by_lines=change.whole_lines):
                self._pieces[at] = before, _replaced(after, old, new, change)
                if not change.every:
                    return
                continue
            if after.strip() and _stands_in(after, old, by_lines=change.whole_lines):
                # The new edit replaces an earlier one together with its surroundings.
                old = _replaced(old, after, before, change._replace(every=False))
                del self._pieces[at]
        self._pieces.append((old, new))


def diff_lines(old: str, new: str, around: int = _AROUND) -> list[str]:
    """The diff of two texts: lines with a sign each, and `around` equal ones on both sides of a difference."""
    before, after = split(old), split(new)
    signed = list(_signed(before, after))
    near = [at for at, line in enumerate(signed) if line[0] != SAME]
    places = sorted({place for at in near for place in range(at - around, at + around + 1) if 0 <= place < len(signed)})
    lines: list[str] = []
    for number, place in enumerate(places):
        if number and place > places[number - 1] + 1:
            lines.append(GAP)
        lines.append(signed[place])
    return lines


def counts(lines: Iterable[str]) -> tuple[int, int]:
    """The numbers of lines that a diff adds and removes."""
    signs = [line[:1] for line in lines]
    return signs.count(NEW), signs.count(OLD)


def _signed(before: list[str], after: list[str]) -> Iterator[str]:
    was = now = 0
    for source, target in [*aligned(before, after), (len(before), len(after))]:
        yield from (OLD + line for line in before[was:source])
        yield from (NEW + line for line in after[now:target])
        if source < len(before):
            yield SAME + before[source]
        was, now = source + 1, target + 1


def _stands_in(part: str, text: str, *, by_lines: bool) -> bool:
    return bool(part) and (f"\n{part}\n" in f"\n{text}\n" if by_lines else part in text)


def _replaced(text: str, old: str, new: str, change: Change) -> str:
    if not change.whole_lines:
        return text.replace(old, new, -1 if change.every else 1)
    return f"\n{text}\n".replace(f"\n{old}\n", f"\n{new}\n" if new else "\n", 1)[1:-1]
