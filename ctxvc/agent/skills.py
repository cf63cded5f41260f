"""The skills of a project as an index, so that only what is used costs more than its line.

A project's words: bounded, and a line each.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import msgspec

from ctxvc.agent.files import down_to
from ctxvc.core.display import one_line
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.skills import FILE

#: The folders of a project in which a skill is a folder.
FOLDERS = (".claude/skills", ".agents/skills", "skills")

#: Bytes of a skill's file in which its head must end, and skills that are looked at in a folder.
_HEAD, _MOST = 8 << 10, 200
#: Characters of a line; of an index in the largest window, in the smallest, and by token of the window.
_LINE, _LONGEST, _SHORTEST, _SHARE = 240, 4_000, 600, 0.08
_TITLE = "Skills of this project, instructions for kinds of work. Read the file of one before work that it is for:"


class Skill(msgspec.Struct, frozen=True):
    """A skill that a project has: what its file's head says, and the path of the file from the working folder."""

    name: str
    description: str
    path: str


def skills(folder: Path) -> list[Skill]:
    """The skills from the top of the folder's repository down to the folder, by path; of each name the nearest.

    A link out of the folder that has the skills is none: what is elsewhere is not for a model to read.
    """
    folder = folder.resolve()
    by_name: dict[str, Skill] = {}
    for place in down_to(folder):
        for path in _skill_files(place):
            if skill := _skill(path, os.path.relpath(path, folder)):
                by_name[skill.name] = skill
    return sorted(by_name.values(), key=lambda skill: skill.path)


def _skill_files(place: Path) -> Iterator[Path]:
    for name in FOLDERS:
        try:
            entries = sorted((place / name).iterdir())[:_MOST]
        except OSError:
            continue
        for entry in entries:
            path = entry / FILE
            if place in Path(os.path.realpath(path)).parents and path.is_file():
                yield path


def _skill(path: Path, relative: str) -> Skill | None:
    """None for a file that cannot be read."""
    try:
        with open(path, "rb") as file:
            text = file.read(_HEAD).decode("utf-8", "replace")
    except OSError:
        return None
    match = re.match(r"---[ \t]*\r?\n(.*?)\r?\n---", text, re.DOTALL)
    head = match[1] if match else ""
    name = one_line(_field(head, "name") or path.parent.name, 64)
    return Skill(name, one_line(_field(head, "description"), _LINE), one_line(relative, _LINE))


def _field(head: str, name: str) -> str:
    """A field of a head in YAML: a word, a quoted text, or lines that are indented below it."""
    match = re.search(rf"^{name}:[ \t]*(.*(?:\r?\n[ \t]+.*)*)", head, re.MULTILINE)
    text = " ".join(match[1].split()) if match else ""
    return re.sub(r"^[>|][+-]?[0-9]?\s*", "", text).strip("\"'")


def index(folder: Path, window: int) -> Message | None:
    """The index of the skills as a message of the client, within a share of the window; None without skills."""
    longest = int(max(_SHORTEST, min(_LONGEST, _SHARE * window)))
    lines = [f"- {skill.name}: {skill.description or 'no description'} ({skill.path})" for skill in skills(folder)]
    if not lines:
        return None
    fitting = lines[: bisect_right(list(accumulate(map(len, lines))), longest)]
    more = [f"(and {len(lines) - len(fitting)} more)"] if len(fitting) < len(lines) else []
    return Message(role="user", parts=(wire.text_part("\n".join([_TITLE, *fitting, *more]), "user", "client"),))
