"""`why`: the conversation that a code commit, or a line of code, came from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import click

from ctxvc.cli.answers import Answer, CommitId, Item, ScopeName, SessionName, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Cell, Column, Output, Table, safe
from ctxvc.cli.progress import Progress
from ctxvc.core import display
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.recover import readable
from ctxvc.errors import BadInput, NotFound
from ctxvc.inspection import why as origins
from ctxvc.inspection.bodies import Place
from ctxvc.store import links
from ctxvc.store.git.program import git_says
from ctxvc.store.links import Link
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.store import Store

_FILE_LINE = re.compile(r"(.+):([1-9][0-9]{0,8})")
_HUNK = re.compile(r"\+\+\+ (?:\"?b/)?(.+?)\"?\t?")

#: The most lines of a message that are printed, and characters of a line; `--json` has all.
_SHOWN = 30
_WIDE = 2_000


class Code(NamedTuple):
    """The code in question: a commit of the project (none if a line is not committed) and the lines it added.

    `time` is when it was written, in seconds since 1970. `line` is set for a single line, which is in `file`.
    """

    commit: str
    subject: str = ""
    time: int | None = None
    lines: Mapping[str, Sequence[str]] = {}
    file: str = ""
    line: str = ""


@command("why", "ctxvc why src/app.py:42")
@click.argument("target", metavar="COMMIT|FILE:LINE")
@json_option
@click.pass_obj
def why(app: App, target: str) -> None:
    """The session and the step, what the person asked, what the model said, the calls that wrote the files, and the
    notes. A commit made while `ctxvc install post-commit` is in force is linked to its step. Else the calls of all
    sessions are searched for the lines themselves, and the answer says that it was found by text.
    """
    code = _code(app.folder, target)
    with app.store() as store:
        links.take(store)
        answer = _answer(store, code, target)
    if app.output.json:
        app.output.value(answer)
    else:
        app.output.lines(_lines(app.output, answer))


def _answer(store: Store, code: Code, target: str) -> Why:
    link = _link(store, code, target)
    sought = origins.sought_lines(code.lines, code.time)
    if link:
        chosen = dict.fromkeys([code.file] if code.file else link.files, frozenset[str]())
        step = origins.linked(store, link, {**chosen, **sought.lines})
        if step:
            return _why(store, code._replace(commit=link.commit), step, "link", _basis(link))
    with Progress("searching", 0) as progress:
        match = origins.by_text(store, store.sessions(), sought, progress.add)
    if match:
        subject = "the line was" if code.line else f"{match.found} of {sought.count} added lines were"
        return _why(store, code, match.step, "text", f"{subject} written by calls of this session")
    name = display.one_line(target, 80)
    if link:
        raise NotFound(
            f"{name} was made in a session of {link.host}, {link.recording}, which is not in the store",
            hint="`ctxvc import` brings it in, if the transcript is still there",
        )
    raise NotFound(
        f"nothing in the store says where {name} came from",
        hint="`ctxvc install post-commit` links commits from now on; `ctxvc import` brings in older sessions",
    )


def _link(store: Store, code: Code, target: str) -> Link | None:
    """The commit's link. Raises: BadInput if an id that the project lacks is the beginning of several."""
    if not code.commit and code.line:
        return None
    matches = links.find(store, code.commit or target)
    if len(matches) > 1:
        raise BadInput(f"{target[:64]} is the beginning of several commits' ids", hint="give more digits")
    return matches[0] if matches else None


def _basis(link: Link) -> str:
    if link.recording:
        return f"{link.host} ran the commit in this session"
    return "this was the current session when the commit was made"


def _code(folder: Path, target: str) -> Code:
    """The project's commit or line. Raises: NotFound."""
    match = _FILE_LINE.fullmatch(target)
    if match and (folder / match[1]).is_file():
        return _line(folder / match[1], int(match[2]))
    commit = git_says(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{target}^{{commit}}").strip()
    if not commit:
        if re.fullmatch(r"[0-9a-fA-F]{4,64}", target):
            return Code("")  # the project may have lost it: its link can still exist
        hint = "a commit of this project, as in HEAD, or a line of a file in it, as in src/app.py:42"
        raise NotFound(f"{display.one_line(target, 80)!r} is neither a commit nor FILE:LINE here", hint=hint)
    return _commit(folder, commit)


def _commit(folder: Path, commit: str) -> Code:
    time, _, subject = git_says(folder, "log", "-1", "--no-show-signature", "--format=%at %s", commit, "--").partition(
        " "
    )
    diff = git_says(
        folder, "diff-tree", "-p", "-U0", "--root", "--no-commit-id", "--no-renames",
        "--no-ext-diff", "--no-textconv", "--no-color", "--diff-merges=first-parent", "--src-prefix=a/",
        "--dst-prefix=b/", commit,
    )  # fmt: skip
    lines: dict[str, list[str]] = {}
    added: list[str] = []
    for line in diff.split("\n"):
        if line.startswith("+++ ") and (hunk := _HUNK.fullmatch(line)):
            added = lines.setdefault(hunk[1], [])
        elif line.startswith("+"):
            added.append(line[1:])
    return Code(commit, subject.rstrip("\n"), int(time) if time.isdigit() else None, lines)


def _line(path: Path, number: int) -> Code:
    """A line of a file, and the commit that it is from. Raises: NotFound if git does not know."""
    porcelain = git_says(
        path.parent, "blame", "--porcelain", "--no-textconv", "-L", f"{number},{number}", "--", path.name
    )
    if not porcelain:
        count = path.read_bytes().count(b"\n") + 1
        if number > count:
            raise NotFound(f"{path} has no line {number}: it has about {count}", hint="count from 1")
        raise NotFound(f"git does not know {path}", hint="name a file of the project that is committed, or a commit")
    head, *rest = porcelain.split("\n")
    facts = dict(line.partition(" ")[::2] for line in rest if not line.startswith("\t"))
    line = next((line[1:] for line in rest if line.startswith("\t")), "").rstrip("\r")
    commit = head.partition(" ")[0]
    file = facts.get("filename", path.name)
    if not commit.strip("0"):
        return Code("", lines={file: [line]}, file=file, line=line)
    time = facts.get("author-time", "")
    return Code(commit, facts.get("summary", ""), int(time) if time.isdigit() else None, {file: [line]}, file, line)


def _why(store: Store, code: Code, step: origins.Step, method: str, basis: str) -> Why:
    stored = StoredSession.open(store, step.session, step.scope)
    stored.leave()

    def block(row: Row) -> WhyBlock:
        text = readable(row, stored.body(row)) if row.ext in ("txt", "json") else row.label
        return WhyBlock(address=Place(step.session, step.scope, row).address, step=row.step, text=text)

    return Why(
        commit=code.commit,
        subject=_decoded(code.subject),
        file=_decoded(code.file),
        line=_decoded(code.line),
        found=method,
        basis=basis,
        session=step.session,
        scope=step.scope,
        step=step.step,
        turn=step.turn,
        revision=step.commit,
        asked=list(map(block, step.asked)),
        replied=list(map(block, step.replied)),
        notes=list(map(block, step.notes)),
        calls=[
            WhyCall(
                address=call.place.address, step=call.place.row.step, tool=call.place.row.tool, path=call.path,
                lines=call.lines,
            )
            for call in step.calls
        ],
    )  # fmt: skip


def _decoded(value: str) -> str:
    """Output of git as text: a path or subject can have any bytes."""
    return os.fsencode(value).decode("utf-8", "replace")


def _lines(output: Output, answer: Why) -> Iterator[str]:
    facts: list[tuple[str, Cell]] = [
        ("commit", " ".join(filter(None, [answer.commit[:12], answer.subject]))),
        ("line", f"{answer.file}: {answer.line.strip()}" if answer.file else ""),
        ("in", f"{answer.session}/{answer.scope}, step {answer.step}, turn {answer.turn}"),
        ("found by", f"{answer.found}: {answer.basis}"),
    ]
    yield from output.facts([(name, value) for name, value in facts if value])
    for title, blocks in (("asked", answer.asked), ("replied", answer.replied), ("noted", answer.notes)):
        for block in blocks:
            yield ""
            yield output.style(f"{title}  {block.address}  step {block.step}", dim=True)
            yield from (f"  {safe(line)}" for line in _bounded(block))
    if answer.calls:
        yield ""
        yield from output.table_lines(
            Table(
                [Column("wrote"), Column("step", right=True), Column("tool"), Column("file", least=12),
                 Column("lines", right=True)],
                [[call.address, call.step, call.tool, call.path, call.lines] for call in answer.calls],
            )
        )  # fmt: skip
    yield ""
    yield f"all of it: ctxvc log {answer.session}/{answer.scope}; ctxvc show {(answer.revision or 'HEAD')[:12]}"


def _bounded(block: WhyBlock) -> Iterator[str]:
    lines = block.text[: _SHOWN * _WIDE].split("\n")
    yield from (line if len(line) <= _WIDE else line[:_WIDE] + "…" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN or len(block.text) > _SHOWN * _WIDE:
        yield f"… ctxvc show {block.address}"


class WhyBlock(Item, frozen=True, kw_only=True):
    """A block of the conversation that code came from."""

    address: Annotated[str, described("as `show` takes it")]
    step: int
    text: Annotated[str, described("whole")]


class WhyCall(Item, frozen=True, kw_only=True):
    """A call that wrote a file."""

    address: Annotated[str, described("as `show` takes it")]
    step: int
    tool: str
    path: Annotated[str, described("as the call names it; empty where it does not")]
    lines: Annotated[int, described("how many of the commit's added lines it wrote, or 1 if it wrote the line")]


class Why(Answer, frozen=True, kw_only=True, tag="ctxvc.why/1"):
    """`why`"""

    commit: Annotated[str, described("full id of the project's commit; empty where the line is not committed")]
    subject: Annotated[str, described("of that commit; empty where the project has it no more")]
    file: Annotated[str, described("of FILE:LINE, the file as the commit names it; else empty")]
    line: Annotated[str, described("of FILE:LINE, the line's text")]
    found: Annotated[str, described("`link` or `text`: how the step was found")]
    basis: Annotated[str, described("in words, what that rests on")]
    session: SessionName
    scope: ScopeName
    step: int
    turn: int
    revision: Annotated[CommitId, described("the step's commit in the store; empty where it has none yet")]
    asked: Annotated[list[WhyBlock], described("what a person said in the turn, up to the step")]
    replied: Annotated[list[WhyBlock], described("what the model said in the step, or last before it")]
    notes: Annotated[list[WhyBlock], described("notes of the turn")]
    calls: Annotated[list[WhyCall], described("calls that wrote the commit's files, oldest first")]
