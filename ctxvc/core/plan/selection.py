"""Selections as models and people write them, `B3,B5-B9,G2`, resolved to a ledger's blocks and groups.

A context object has a name that stands for its blocks, as in `Read:12` or `user:5` (`core.ledger.objects`). The id that
a provider gave to a call, `toolu_01AbC`, also addresses its result. A word that is an id of ours, or a range of them,
never means a call, whatever ids a recording has.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ctxvc.core.ledger.ledger import Ledger, Row, blocks_of, digest
from ctxvc.core.ledger.objects import NAME, alike, object_of, objects
from ctxvc.core.ledger.pairs import is_interrupted
from ctxvc.core.plan.plan import Problem, RefusalReason
from ctxvc.core.prompt.stub import escaped

_GAP = re.compile(r"[\s,;]+")
_DASH = re.compile("([-:–—])")
_ID = re.compile(r"([BG])([1-9][0-9]{0,11})(?:@([0-9A-F]{4,64}))?", re.IGNORECASE)
_NUMBER = re.compile("[1-9][0-9]{0,11}")
#: The number of words that a problem names, and the characters of each.
_NAMED = 3
_WIDTH = 24


@dataclass(slots=True)
class _Selectors:
    """A parsed selection: single ids in the order given, ranges of numbers, and anything that is not an id."""

    single: list[tuple[str, str]] = field(default_factory=list)  # id, the beginning of its checksum
    ranges: list[tuple[str, int, int]] = field(default_factory=list)  # letter, first, last
    bad: list[str] = field(default_factory=list)


def expand(selection: str | Sequence[str], ledger: Ledger) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """The blocks, then the groups that `selection` names, in order of their numbers, without repeats; and the problems.

    Ids are given singly (`B3`, `b3`), with their checksum (`B3@3fa9c1`, which must match), or as a range (`B5-B9`, also
    with `:`, `–` or `to`, in either direction), which names the existing ones. A call's id stands for its block, as in
    `of_calls`, and an object's name for its blocks. All problems together have fewer than 400 characters, whatever the
    input.
    """
    selectors = _parsed(selection if isinstance(selection, str) else " ".join(selection), ledger)
    numbers = {
        "B": [row.number for row in ledger.rows()],
        "G": sorted(int(name[1:]) for name in ledger.groups),
    }
    names: set[str] = set()
    missing: list[str] = []
    other: list[str] = []
    for name, checksum in dict.fromkeys(selectors.single):
        actual = _checksum(name, ledger) if checksum else ""
        if not (name in ledger.groups if name.startswith("G") else ledger.get(name)):
            missing.append(name)
        elif not actual.startswith(checksum):
            other.append(f"{name}@{checksum}")
        else:
            names.add(name)
    for letter, first, last in _merged(selectors.ranges):
        existing = numbers[letter]
        names.update(
            f"{letter}{number}" for number in existing[bisect_left(existing, first) : bisect_right(existing, last)]
        )
    for letter, first, last in selectors.ranges:
        existing = numbers[letter]
        if (
            not existing
            or first < existing[0]
            or last > existing[-1]
            or bisect_left(existing, first) == bisect_right(existing, last)
        ):
            missing.append(f"{letter}{first}-{letter}{last}")
    guess = next(filter(None, (alike(ledger, word) for word in selectors.bad[:_NAMED])), "")
    way = f"; did you mean {escaped(guess, 2 * _WIDTH)}?" if guess else "; write B3, B5-B9 or G2"
    problems = [
        *_problem("unknown", selectors.bad, "not an id: ", way),
        *_problem("unknown", missing, "not (all) in this scope: ", ""),
        *_problem("stale", other, "checksum has changed: ", ""),
    ]
    if not (selectors.single or selectors.ranges or selectors.bad):
        problems.append(Problem(target="", why="unknown", text="no id given; write B3, B5-B9 or G2"))
    names -= {name.partition("@")[0] for name in other}
    order = sorted(names, key=lambda name: (name[0], int(name[1:])))
    return tuple(order), tuple(problems)


def of_calls(ledger: Ledger) -> Mapping[str, Row]:
    """Each call's id → the block that it addresses: the newest recorded result, else the call itself."""
    return ledger.derived(_of_calls)


def _of_calls(ledger: Ledger) -> dict[str, Row]:
    calls: dict[str, Row] = {}
    results: dict[str, Row] = {}
    for row in ledger.rows():
        if row.call and row.kind == "tool_use":
            calls[row.call] = row
        elif row.call and row.kind == "tool_result" and not is_interrupted(row):
            results[row.call] = row
    return calls | results


def _parsed(selection: str, ledger: Ledger) -> _Selectors:
    selectors = _Selectors()
    atoms = [atom for word in _GAP.split(selection) if word for atom in _atoms(word, ledger)]
    at = 0
    while at < len(atoms):
        first = _ID.fullmatch(atoms[at])
        if first and at + 2 < len(atoms) and _joins(atoms[at + 1]) and (last := _last(first[1], atoms[at + 2])):
            low, high = sorted((int(first[2]), int(last[0])))
            selectors.ranges.append((first[1].upper(), low, high))
            # The ends are also named singly, so that a checksum given with one is verified.
            for number, checksum in ((first[2], first[3]), last):
                if checksum:
                    selectors.single.append((f"{first[1].upper()}{number}", checksum.lower()))
            at += 3
        elif first:
            selectors.single.append((f"{first[1].upper()}{first[2]}", (first[3] or "").lower()))
            at += 1
        else:
            selectors.bad.append(atoms[at])
            at += 1
    return selectors


def _atoms(word: str, ledger: Ledger) -> list[str]:
    """A word split into ids, numbers and connectors; a call's id becomes its block's."""
    atoms = [atom for atom in _DASH.split(word) if atom]
    if all(_ID.fullmatch(atom) or _NUMBER.fullmatch(atom) or _joins(atom) for atom in atoms):
        return atoms
    row = of_calls(ledger).get(word) if word not in objects(ledger) else None
    if row:
        return [row.id]
    if one := object_of(ledger, word):
        return [row.id for row in one.rows]
    return [word] if NAME.fullmatch(word) else atoms


def _joins(atom: str) -> bool:
    return atom.lower() == "to" or bool(_DASH.fullmatch(atom))


def _last(letter: str, atom: str) -> tuple[str, str] | None:
    """Number and checksum of a range's second end: an id with the same letter, or a bare number."""
    if _NUMBER.fullmatch(atom):
        return atom, ""
    match = _ID.fullmatch(atom)
    return (match[2], match[3] or "") if match and match[1].upper() == letter.upper() else None


def _merged(ranges: Iterable[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """The ranges merged without overlaps, so that many of them cost no more than one."""
    current: tuple[str, int, int] | None = None
    for letter, first, last in sorted(ranges):
        if current and current[0] == letter and first <= current[2] + 1:
            current = letter, current[1], max(current[2], last)
            continue
        if current:
            yield current
        current = letter, first, last
    if current:
        yield current


def _checksum(name: str, ledger: Ledger) -> str:
    """The checksum of a block, or of a group's blocks together."""
    blocks = blocks_of(ledger.groups, name) if name.startswith("G") else [name]
    rows = [row for block in blocks if (row := ledger.get(block))]
    return digest(rows) if name.startswith("G") else "".join(row.sha256 for row in rows)


def _problem(why: RefusalReason, names: list[str], before: str, after: str) -> Iterator[Problem]:
    """One problem for all of `names`; none if there are none."""
    if names:
        listed = ", ".join(escaped(name, _WIDTH) for name in names[:_NAMED])
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield Problem(target=escaped(names[0], _WIDTH), why=why, text=f"{before}{listed}{more}{after}")


def ranges(names: Sequence[str]) -> list[str]:
    """Block and group ids with runs of three or more as ranges: `B6-B9`, `B12`, `G2`."""
    runs: list[list[str]] = []
    for name in names:
        if runs and runs[-1][-1][0] == name[0] and int(name[1:]) == int(runs[-1][-1][1:]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return [word for run in runs for word in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)]
