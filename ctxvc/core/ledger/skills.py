"""Skills that a model has loaded: the instructions of a `SKILL.md`, which apply for as long as they are used.

A skill is recognised from rows alone: a call that names a `SKILL.md` and whose result is larger than its arguments, or
the text that Claude Code adds for its tool `Skill`. A row shows only the beginning of a long path; the name then comes
from the head of the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, takewhile
from typing import NamedTuple

import msgspec

from ctxvc.core.ledger.ledger import Ledger, Row
from ctxvc.core.ledger.pairs import calls_and_results

#: The steps without a mention, counted from loading on, after which a skill is unused.
UNUSED = 20

#: The file, and its path in a text.
FILE = "SKILL.md"
_FILE = re.compile(r"SKILL\.md(?![\w-]|\.\w)", re.IGNORECASE)
_PATH = re.compile(rf"(?:[^\s'\"]*?([^\s'\"/\\]+)[/\\])?{_FILE.pattern}", re.IGNORECASE)
_APART = re.compile(r"[\s'\"]")
#: Only the end of a longer path is used.
_LONGEST_PATH = 1_000
#: The beginning of the text that Claude Code adds, and the name in the call before it.
_BASE = "Base directory for this skill: "
_CALLED = re.compile(r"^Skill: .*\"skill\": ?\"([^\"]{1,80})\"")
#: The head of such a file at the beginning of a result, with or without line numbers.
_HEAD = re.compile(r"^(?:1\S?\s*)?---\s+(?:2\S?\s*)?name: *[\"']?([A-Za-z0-9_.-]{1,64})")
_LETTERS = re.compile(r"[^A-Za-z0-9_.-]+")


class Skill(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A skill in a block: its name, and its path as far as the rows contain it."""

    name: str
    path: str
    row: Row

    @property
    def label(self) -> str:
        """`skill pdf, skills/pdf/SKILL.md`"""
        return f"skill {self.name}" + (f", {self.path}" if self.path else "")


def skills(ledger: Ledger) -> Sequence[Skill]:
    """The skills that were loaded, in the order of their blocks."""
    return ledger.derived(_skills)


def unused(ledger: Ledger) -> frozenset[str]:
    """The blocks of skills that were unused for `UNUSED` steps, or loaded again since."""
    return ledger.derived(_unused)


def path_in(text: str) -> str:
    """The path of the first `SKILL.md` that a text names; empty if it names none."""
    match = _path(text)
    return match[0] if match else ""


def _path(text: str) -> re.Match[str] | None:
    """The path of the first `SKILL.md` in a text, with its folder as first group.

    `_PATH` alone would try every position in a long word as the beginning of a path.
    """
    file = _FILE.search(text)
    if file is None:
        return None
    word = _APART.split(text[max(0, file.start() - _LONGEST_PATH) : file.start()])[-1]
    return _PATH.search(text, file.start() - len(word))


def _unused(ledger: Ledger) -> frozenset[str]:
    loaded = {skill.name: skill for skill in skills(ledger)}
    if not loaded:
        return frozenset()
    last = max((step for step in ledger.by_segment(newest_step) if step is not None), default=0)
    recent = list(takewhile(lambda row: row.step >= last - UNUSED, ledger.backwards()))
    in_use = {
        skill.row.id
        for skill in loaded.values()
        if skill.row.step >= last - UNUSED or any(row.kind == "tool_use" and _names(row, skill) for row in recent)
    }
    return frozenset(skill.row.id for skill in skills(ledger) if skill.row.id not in in_use)


def _skills(ledger: Ledger) -> tuple[Skill, ...]:
    calls: dict[str, Row] = {}
    loaded: list[Skill] = []
    called = ""
    for row in _telling(ledger):
        if row.kind == "tool_use":
            calls[row.call] = row
            match = _CALLED.search(row.label)
            called = match[1] if match else called
        elif row.kind == "tool_result" and (skill := _of_result(row, calls.get(row.call))):
            loaded.append(skill)
        elif row.origin == "client" and row.label.startswith(_BASE):
            path = row.label.removeprefix(_BASE).split()[0] if row.label != _BASE.strip() else ""
            name = called if path.endswith("…") else path.rstrip("/").rpartition("/")[2]
            loaded.append(Skill(name=_name(name or called), path=path, row=row))
    return tuple(loaded)


def _telling(ledger: Ledger) -> list[Row]:
    """The rows that may involve a skill, in order: with each call all results by its id, and the reverse."""
    segments = list(ledger.by_segment(_signs))
    if not any(signs.loads for signs in segments):
        return []
    pairs = calls_and_results(ledger, set().union(*(signs.calls for signs in segments)))
    rows = {row.id: row for row in (*pairs, *chain.from_iterable(signs.rows for signs in segments))}
    return sorted(rows.values(), key=lambda row: row.number)


def _of_result(result: Row, call: Row | None) -> Skill | None:
    if call is None or result.error or result.bytes <= call.bytes:
        return None
    if match := _path(call.label):
        return Skill(name=_name(match[1] or ""), path=match[0], row=result)
    head = _HEAD.search(result.label) if call.label.endswith("…") else None
    return Skill(name=_name(head[1]), path="", row=result) if head else None


def _names(call: Row, skill: Skill) -> bool:
    """Whether a call names a skill, or something in its folder."""
    return bool(re.search(rf"(?<![\w.-]){re.escape(skill.name)}(?![\w.-])", call.label))


def _name(name: str) -> str:
    """A skill's name without the characters that have a meaning in an object's name."""
    return _LETTERS.sub("_", name)[:64].strip("_") or "unnamed"


class _Signs(NamedTuple):
    """The signs of skills in some rows: ids of calls, and the rows that are a sign without a call or result.

    `loads` says whether a skill may have been loaded in these rows.
    """

    calls: frozenset[str]
    rows: tuple[Row, ...]
    loads: bool


def _signs(rows: tuple[Row, ...]) -> _Signs:
    patterns = {"tool_use": _FILE, "tool_result": _HEAD}
    calls = frozenset(row.call for row in rows if row.kind in patterns and patterns[row.kind].search(row.label))
    texts = [row for row in rows if row.kind not in patterns and row.origin == "client" and row.label.startswith(_BASE)]
    by_tool = [row for row in rows if row.kind == "tool_use" and _CALLED.search(row.label)]
    return _Signs(calls, (*texts, *by_tool), loads=bool(calls or texts))


def newest_step(rows: tuple[Row, ...]) -> int | None:
    """The latest step with a reply, or None."""
    return max((row.step for row in rows if row.role == "assistant"), default=None)
