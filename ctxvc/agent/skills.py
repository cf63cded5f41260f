"""The skills of a project as an index, so that an unused skill costs no more than one line.

The text is the project's, so it is bounded and each entry is one line.
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

#: The folders of a project whose subfolders are skills.
FOLDERS = (".claude/skills", ".agents/skills", "skills")

#: The bytes within which the head of a skill's file must end, and the most entries read in a folder.
_HEAD, _MOST = 8 << 10, 200
#: The most characters of a line; of an index at most, at least, and for each token of the window.
_LINE, _LONGEST, _SHORTEST, _SHARE = 240, 4_000, 600, 0.08
_TITLE = "Skills of this project, instructions for kinds of work. Read the file of one before work that it is for:"


class Skill(msgspec.Struct, frozen=True):
    """A project's skill: its file's head, and the file's path from the working folder."""

    name: str
    description: str
    path: str


def skills(folder: Path) -> list[Skill]:
    """The skills from the top of the folder's repository down to the folder, sorted by path; of several with one name,
    the nearest.

    A link that leads out of the folder with the skills is ignored: a model must not read what is elsewhere.
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
    """The skill in a file; None if the file cannot be read."""
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
    """A field of a YAML head: a word, a quoted text, or the indented lines below it."""
    match = re.search(rf"^{name}:[ \t]*(.*(?:\r?\n[ \t]+.*)*)", head, re.MULTILINE)
    text = " ".join(match[1].split()) if match else ""
    return re.sub(r"^[>|][+-]?[0-9]?\s*", "", text).strip("\"'")


def index(folder: Path, window: int) -> Message | None:
    """The skill index as a client message within a share of the window; None without skills."""
    longest = int(max(_SHORTEST, min(_LONGEST, _SHARE * window)))
    lines = [f"- {skill.name}: {skill.description or 'no description'} ({skill.path})" for skill in skills(folder)]
    if not lines:
        return None
    fitting = lines[: bisect_right(list(accumulate(map(len, lines))), longest)]
    more = [f"(and {len(lines) - len(fitting)} more)"] if len(fitting) < len(lines) else []
    return Message(role="user", parts=(wire.text_part("\n".join([_TITLE, *fitting, *more]), "user", "client"),))
