"""The prompt as a text for people, and what differs between two of them, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, takewhile
from operator import eq, sub
from typing import NamedTuple

from ctxvc.cli.output import safe, spread, words_of
from ctxvc.core import display
from ctxvc.core.prompt.outline import Piece, Show, outline, pieces, sendable
from ctxvc.store.read.revision import Snapshot

#: Lines around a difference that are the same.
_CONTEXT = 3


class Section(NamedTuple):
    """A part of a prompt: the system prompt, the tools, a block or a stub. `key` says which, once in a prompt.

    The lines are safe to print, and indented, so that no text can pass for a heading.
    """

    key: str
    heading: str
    lines: list[str]

    @property
    def text(self) -> list[str]:
        return [self.heading, *self.lines]


def sections(snapshot: Snapshot) -> Iterator[Section]:
    """The prompt of a snapshot as it would be sent."""
    if snapshot.system:
        system = snapshot.system if isinstance(snapshot.system, str) else display.decode(spread(snapshot.system))
        yield _section("system", "system", system)
    if snapshot.tools:
        names = "\n".join(str(tool.get("name", tool)) for tool in snapshot.tools)
        yield _section("tools", "tools", names)
    slots = outline(snapshot.ledger)
    shows = {(slot.group or slot.row.id, slot.role): slot.show for slot in slots}
    render = snapshot.ledger.meta.render
    seen: dict[str, count[int]] = {}
    for piece in sendable(pieces(slots, snapshot.bodies, render), render):
        name = f"{piece.block} {piece.role}"
        key = f"{name} {next(seen.setdefault(name, count()))}"
        yield _section(key, _heading(piece, shows.get((piece.block, piece.role), "text")), _piece_text(piece))


def _section(key: str, heading: str, text: str) -> Section:
    return Section(key, safe(" ".join(heading.split())), [f"  {line}" for line in safe(text).split("\n")])


def _heading(piece: Piece, show: Show) -> str:
    kind = "" if piece.kind == piece.role else piece.kind
    mark = {"body": "", "mask": "(masked)", "text": "(stub)" if piece.block else "(added)"}[show]
    tool = "" if piece.block.startswith("G") else piece.tool
    return f"{piece.role}  {piece.block}  {kind} {tool} {mark} {'(error)' if piece.error else ''}"


def _piece_text(piece: Piece) -> str:
    text = words_of(piece.body, piece.ext)
    content = f"[{piece.ext}, {display.human_bytes(len(piece.body))}]" if text is None else text
    return f"{content}\n{piece.tag}" if piece.tag else content


# --- what differs


def unified(before: Sequence[Section], after: Sequence[Section]) -> Iterator[str]:
    """The lines of a unified diff of two prompts, without the names of files; none if they are the same.

    A section is compared with the one of its key, at its two ends: so it takes linear time, however long the texts are.
    """
    marked = [*_marked(before, after)]
    changed = [at for at, (mark, _) in enumerate(marked) if mark != " "]
    numbers = [1, 1]
    end_of_last = 0
    for start, end in _hunks(changed, len(marked)):
        _pass(numbers, marked[end_of_last:start])
        hunk, first = marked[start:end], list(numbers)
        _pass(numbers, hunk)
        sides = (f"{at if size else at - 1},{size}" for at, size in zip(first, map(sub, numbers, first), strict=True))
        yield "@@ -{} +{} @@".format(*sides)
        yield from (mark + line for mark, line in hunk)
        end_of_last = end


def _pass(numbers: list[int], lines: Iterable[tuple[str, str]]) -> None:
    """Moves the line numbers of the two sides past these lines."""
    for mark, _ in lines:
        numbers[0] += mark != "+"
        numbers[1] += mark != "-"


def _hunks(changed: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    """The ranges of lines to show: those that changed, with the context around them."""
    start = stop = 0
    for at in changed:
        if at - _CONTEXT > stop and stop:
            yield start, stop
            stop = 0
        start = start if stop else max(0, at - _CONTEXT)
        stop = min(end, at + 1 + _CONTEXT)
    if stop:
        yield start, stop


def _marked(before: Sequence[Section], after: Sequence[Section]) -> Iterator[tuple[str, str]]:
    """Every line of the two prompts, each with ` `, `-` or `+`."""
    keys = [section.key for section in before], [section.key for section in after]
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if kind == "equal":
            for old, new in zip(before[i1:i2], after[j1:j2], strict=True):
                yield from _marked_section(old.text, new.text)
        else:
            yield from (("-", line) for section in before[i1:i2] for line in section.text)
            yield from (("+", line) for section in after[j1:j2] for line in section.text)


def _marked_section(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The lines of a section that is on both sides: the same at its two ends, otherwise in between."""
    head = sum(1 for _ in takewhile(bool, map(eq, before, after)))
    room = min(len(before), len(after)) - head
    tail = min(room, sum(1 for _ in takewhile(bool, map(eq, reversed(before), reversed(after)))))
    yield from ((" ", line) for line in before[:head])
    yield from (("-", line) for line in before[head : len(before) - tail])
    yield from (("+", line) for line in after[head : len(after) - tail])
    yield from ((" ", line) for line in before[len(before) - tail :])
