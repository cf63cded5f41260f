"""What a run is told besides its task and instruction files: a project's skills, the memory of its runs, git's status.

All of it is the client's text, and a project's or a model's words: bounded, and a line each. Skills and memory are
indexes, so that only what is used costs more than its line.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import msgspec

from ctxvc.agent.file_list import down_to
from ctxvc.core.display import decode, one_line
from ctxvc.core.ledger import notes, wire
from ctxvc.core.ledger.block import Message
from ctxvc.core.ledger.skills import FILE
from ctxvc.errors import Damaged
from ctxvc.session.session import Session
from ctxvc.store.git import program
from ctxvc.store.store import Store

#: The folders of a project in which a skill is a folder.
FOLDERS = (".claude/skills", ".agents/skills", "skills")
#: The label by which a note goes into the memory of later runs.
LABEL = "memory"

#: Bytes of a skill's file in which its head must end, and skills that are looked at in a folder.
_HEAD, _MOST = 8 << 10, 200
#: Characters of a line; of an index in the largest window, in the smallest, and by token of the window.
_LINE, _LONGEST, _SHORTEST, _SHARE = 240, 4_000, 600, 0.08
#: The newest sessions whose notes are looked at, and lines of a status.
_SESSIONS, _CHANGES = 30, 40


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


def memory(store: Store) -> list[str]:
    """A line for each note with the label `memory` in the newest sessions, newest session first: address and words.

    Notes of an open step are not among them: they are committed once it is complete.
    """
    tips = store.all_tips()
    newest = sorted(
        ((max(store.commit(commit).commit_time for commit in scopes.values()), name) for name, scopes in tips.items()),
        reverse=True,
    )
    lines: list[str] = []
    for _, session in newest[:_SESSIONS]:
        seen: dict[str, str] = {}
        for scope, commit in tips[session].items():
            try:
                seen.update(_remembered(store, commit, f"{session}/{scope}"))
            except Damaged:
                continue  # `verify` tells of it
        lines += [seen[block] for block in sorted(seen, key=lambda block: -int(block[1:]))]
    return lines


def _remembered(store: Store, commit: str, scope: str) -> Iterator[tuple[str, str]]:
    ledger = store.reader.ledger(commit)
    replaced = notes.superseded(ledger)
    for row in ledger.rows():
        if row.kind == "note" and row.state != "deleted" and LABEL in notes.labels_of(row) and row.id not in replaced:
            yield row.id, f"{scope}:{row.id} {one_line(decode(store.reader.body(commit, row)), _LINE)}"


def index(session: Session, folder: Path) -> list[Message]:
    """The indexes of skills and of memory as messages of the client; none for what there is not."""
    longest = int(max(_SHORTEST, min(_LONGEST, _SHARE * session.budget.window)))
    messages = []
    if lines := [_line(skill) for skill in skills(folder)]:
        title = (
            "Skills of this project, instructions for kinds of work. Read the file of one before work that it is for:"
        )
        messages.append(_message([title, *_bounded(lines, longest)]))
    if "note" in session.terms.tools:
        lines = [f"- {line}" for line in memory(session.store)]
        title = (
            "Memory, notes of earlier runs (what was true then; recover reads one in full):"
            if lines
            else "Memory: no run has left a note yet."
        )
        way = f"A note that you give the label {LABEL} is listed here for later runs."
        messages.append(_message([title, *_bounded(lines, longest), way]))
    return messages


def _line(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description or 'no description'} ({skill.path})"


def _bounded(lines: list[str], longest: int) -> list[str]:
    """The first lines that have so many characters together, and how many there are more."""
    fitting = bisect_right(list(accumulate(map(len, lines))), longest)
    return [*lines[:fitting], *([f"(and {len(lines) - fitting} more)"] if fitting < len(lines) else [])]


def status(session: Session, folder: Path) -> Message | None:
    """git's status of the folder as a message of the client; None if it is the one that the session saw last."""
    answer = program.of_project(
        folder, "status", "--short", "--branch", "--untracked-files=normal", "--", ".", at=("--no-optional-locks",)
    )
    if not answer:
        return None
    branch, *changes = answer.decode("utf-8", "replace").splitlines()
    lines = [one_line(line, _LINE) for line in changes[:_CHANGES]]
    more = [f"(and {len(changes) - _CHANGES} more)"] if len(changes) > _CHANGES else []
    message = _message([f"git status: {one_line(branch, _LINE)}", *(lines or ["no changes"]), *more], status=True)
    rows = session.ledger().backwards()
    last = next((row for row in rows if wire.own_metadata(row.extra).get("status") is True), None)
    return None if last and session.stored.body(last) == message.parts[0].body else message


def _message(lines: list[str], **noted: bool) -> Message:
    text = "\n".join(lines)
    part = wire.text_part(text, "user", "client", ctxvc=noted) if noted else wire.text_part(text, "user", "client")
    return Message(role="user", parts=(part,))
