"""Calls for people: edits as diffs, commands as commands, tasks as lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ctxvc.core.ledger import caption, facts, wire
from ctxvc.core.ledger.facts import Fact
from ctxvc.inspection import net_diff
from ctxvc.inspection.edits import Change
from ctxvc.report.data import PartKind

#: The media types of images that browsers draw, by the ending of the file.
MEDIA = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_SIGNS = {"done": "x", "doing": ">", "open": "-"}


def path_of(path: str, folder: str) -> str:
    """The path of a changed file, relative to the session's folder if it is below it."""
    return caption.relative(path, folder).removeprefix("./")


class CallDetail(NamedTuple):
    """A call: what it did, its line for a person, and its parts: kind, title, and number of the text, -1 for none."""

    facts: tuple[Fact, ...]
    line: str
    parts: tuple[tuple[PartKind, str, int], ...]

    @property
    def ran(self) -> bool:
        """Whether the call ran a command."""
        return any(part == "command" for part, _, _ in self.parts)


def parts(
    tool: str, body: bytes, ext: str, changes: Sequence[Change], folder: str
) -> Iterator[tuple[PartKind, str, str]]:
    """The parts of a call as (kind, title, text); none if its arguments show it best."""
    did = facts.script_or_facts(tool, body, ext)
    if isinstance(did, str):
        yield "command", "", did
        return
    for path, own in groupby(changes, lambda change: path_of(change.path, folder)):
        yield from _file_parts(path, list(own))
    for fact in did:
        if fact.act == "deleted":
            yield "deleted", path_of(fact.object, folder), ""
    match wire.parsed(body, dict) if ext == "json" else None:
        case {"todos": list(items)} | {"plan": list(items)}:
            yield (
                "tasks",
                "",
                "\n".join(f"{_SIGNS[state]} {' '.join(text.split())}" for state, text in facts.tasks(items)),
            )


def _file_parts(path: str, changes: Sequence[Change]) -> Iterator[tuple[PartKind, str, str]]:
    """The parts for a call's changes of a file: new texts, and all edits as one diff."""
    diffs: list[list[str]] = []
    for change in changes:
        if change.kind == "write":
            yield "file", path, change.new
        else:
            diffs.append(net_diff.diff_lines(change.old if change.kind == "replace" else "", change.new))
    if diffs:
        yield "diff", path, f"\n{net_diff.GAP}\n".join("\n".join(part) for part in diffs)
