"""What `why` answers: the conversation that a code commit, a file or a line of it came from; computed, not printed."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from ctxvc.cli.answers.shared import Answer, CommitId, Item, described, struct_of, unless_zero
from ctxvc.cli.output import Column, Share, Timestamp, counted, iso
from ctxvc.cli.terminal.progress import Progress
from ctxvc.core import display
from ctxvc.core.ledger.ledger import Row
from ctxvc.core.prompt.recover import readable
from ctxvc.errors import BadInput, NotFound
from ctxvc.inspection import why as origins
from ctxvc.inspection.bodies import Place
from ctxvc.inspection.lineage import split
from ctxvc.inspection.why import Line, RecordedEdit
from ctxvc.store.git.program import git_says
from ctxvc.store.log.stored_session import StoredSession
from ctxvc.store.project import code_history, links
from ctxvc.store.project.code_history import FileVersion
from ctxvc.store.project.links import Link
from ctxvc.store.store import Store

#: A block or a group, in this scope or another.
_ADDRESS = re.compile(r"(?:[\w./-]{1,200}:)?[BG]\d{1,9}(?:@[0-9a-f]{4,64})?")
_FILE_LINE = re.compile(r"(.+):([0-9]{1,9})")
_FILE_LINES = re.compile(r"(.+):([0-9]{1,9})[-–,:][0-9]*")

#: The most files of a commit that are looked into, and other origins that are listed.
_MOST_FILES = 300
_MOST_OTHERS = 8
#: The most stretches of lines that are named.
_MOST_STRETCHES = 6

#: An origin → in words.
WRITERS = {"human": "a person", "unknown": "unknown", "agent": "an agent"}


class Code(NamedTuple):
    """The code in question: a commit of the project (none if a line is not committed), or a line of `file`."""

    commit: str
    subject: str = ""
    file: str = ""
    number: int = 0
    line: str = ""


class Origin(NamedTuple):
    """Lines of one origin, with each line's number in its file. Without edits, they are a person's or unknown."""

    origin: str
    session: str
    scope: str
    lines: list[tuple[str, int, Line]]

    @property
    def edits(self) -> list[tuple[RecordedEdit, int]]:
        """Each edit that made some of the lines, and how many."""
        by_address = {line.edit.place.address: line.edit for _, _, line in self.lines if line.edit}
        counts = Counter(line.edit.place.address for _, _, line in self.lines if line.edit)
        return [(edit, counts[address]) for address, edit in by_address.items()]

    @property
    def newest(self) -> RecordedEdit | None:
        edits = (edit for edit, _ in self.edits)
        return max(edits, key=lambda edit: (edit.edit.ended, edit.place.row.number), default=None)


def in_lines(folder: Path, store: Store, target: str) -> tuple[list[str], list[str]]:
    """The answer for a model, in lines, and the addresses in it. Raises: NotFound, BadInput, CtxvcError."""
    code = code_of(folder, target)
    links.take(store)
    if code.file and not code.number:
        blame = blame_of(folder, store, code)
        lines = [
            f"{item.count} of {counted(blame.count, 'line')} by "
            + (f"{item.session}/{item.scope}, step {item.step}, asked: {item.request}" if item.session else item.origin)
            for item in blame.conversations
        ]
        return lines, []
    answer = answer_of(folder, store, code, target)
    place = f"{answer.session}/{answer.scope}, step {answer.step}" if answer.session else WRITERS[answer.origin]
    lines = [f"written by {place} ({answer.count} of {counted(answer.total, 'line')})", f"evidence: {answer.basis}"]
    parts = (("asked", answer.asked), ("replied", answer.replied), ("noted", answer.notes))
    blocks = [(title, block) for title, blocks in parts for block in blocks]
    lines += [f"{title}, {block.address}: {display.one_line(block.text, 200)}" for title, block in blocks]
    lines += [f"wrote it: {call.address}, {call.tool}, {call.path}" for call in answer.calls]
    return lines, [*(block.address for _, block in blocks), *(call.address for call in answer.calls)]


def blame_of(folder: Path, store: Store, code: Code) -> WhyFile:
    """Who wrote the lines of a file. Raises: NotFound if no call on it is recorded."""
    lines = _file_lines(folder, store, code)
    if not lines:
        raise _nothing(code.file, code)
    spoken = [number for number, line in enumerate(lines, 1) if line.text.strip()]
    conversations = []
    for origin in _origins([(code.file, number, lines[number - 1]) for number in spoken]):
        newest = origin.newest
        step = origins.step_of(store, newest.place) if newest else None
        conversations.append(
            struct_of(
                WhyConversation,
                origin,
                step=step.step if step else 0,
                time=iso(step.ended) if step else "",
                request=_request(store, step) if step else "",
                count=len(origin.lines),
                share=len(origin.lines) / len(spoken),
                ranges=origins.ranges([number for _, number, _ in origin.lines], lines),
            )
        )
    return WhyFile(
        file=_decoded(code.file),
        count=len(spoken),
        conversations=conversations,
        lines=[
            WhyLine(
                line=number,
                origin=_origin(lines[number - 1]),
                evidence=lines[number - 1].evidence,
                call=edit.place.address if (edit := lines[number - 1].edit) else "",
            )
            for number in spoken
        ],
    )


def _request(store: Store, step: origins.Step) -> str:
    """The beginning of what a person asked for in the turn."""
    stored = StoredSession.open(store, step.session, step.scope)
    stored.leave()
    return next((display.one_line(readable(row, stored.body(row)), 200) for row in step.asked if row.ext == "txt"), "")


def answer_of(folder: Path, store: Store, code: Code, target: str) -> Why:
    """The conversation behind a commit or a line. Raises: NotFound, BadInput."""
    link = _link(folder, store, code, target)
    committed = _committed(store, link)
    code = code._replace(commit=code.commit or (link.commit if link and not code.file else ""))
    if code.number:
        lines = _file_lines(folder, store, code)
        if lines and code.number > len(lines):
            raise NotFound(f"{code.file} has no line {code.number}: it has {len(lines)}", hint="count from 1")
        chosen = [(code.file, code.number, lines[code.number - 1])] if lines else []
    else:
        chosen, lines = _commit_lines(folder, store, code), []
    if not chosen and not committed.session:
        if committed.recording:
            raise NotFound(
                f"{display.fitted(display.one_line(target, 400), 80)} was committed in a session of {committed.host}, "
                f"{committed.recording}, which is not in the store",
                hint="`ctxvc import` imports it if the transcript still exists",
            )
        raise _nothing(target, code)
    ranked = _origins(chosen)
    best = ranked[0] if ranked else Origin("unknown", "", "", [])
    answer = Why(
        commit=code.commit,
        subject=_decoded(code.subject),
        file=_decoded(code.file),
        line=_decoded(code.line),
        origin=best.origin,
        evidence=_evidence(best),
        basis=_basis(best, len(chosen)),
        count=len(best.lines),
        total=len(chosen),
        committed=committed,
        alternatives=_alternatives(
            ranked, [edit for _, _, line in chosen[:1] for edit in line.alternatives] if code.number else []
        ),
    )
    newest = best.newest
    return _with_step(store, answer, origins.step_of(store, newest.place), best) if newest else answer


def _nothing(target: str, code: Code) -> NotFound:
    name = display.fitted(display.one_line(target, 400), 80)
    is_here = code.commit or code.file
    return NotFound(
        f"no recorded session changed {name}" if is_here else f"no commit {name} in this project or in a recording",
        hint="`ctxvc import` imports older sessions; `ctxvc install post-commit` links commits from now on",
    )


def _origins(lines: Sequence[tuple[str, int, Line]]) -> list[Origin]:
    """The lines by origin, most lines first."""
    by_origin: dict[tuple[str, str, str], list[tuple[str, int, Line]]] = defaultdict(list)
    for name, number, line in lines:
        place = line.edit.place if line.edit else None
        key = (_origin(line), place.session if place else "", place.scope if place else "")
        by_origin[key].append((name, number, line))
    return sorted((Origin(*key, own) for key, own in by_origin.items()), key=lambda origin: -len(origin.lines))


def _origin(line: Line) -> str:
    return "agent" if line.edit else "human" if line.by_person else "unknown"


def _evidence(origin: Origin) -> str:
    return Counter(line.evidence for _, _, line in origin.lines).most_common(1)[0][0] if origin.lines else "none"


def _basis(origin: Origin, total: int) -> str:
    """In words, what the answer rests on."""
    if not origin.lines:
        return "its lines are unknown here; only the committer is known"
    which = f"{len(origin.lines)} of {counted(total, 'line')}: " if total > 1 else ""
    possible = sorted({edit.place.address for _, _, line in origin.lines for edit in line.possible})
    if possible:
        return f"{which}no recorded edit made it; a script that ran then may have: {', '.join(possible[:3])}"
    if all(line.doubtful for _, _, line in origin.lines) and _evidence(origin) == "none":
        return f"{which}a recorded call contains its text, but replaying the call does not produce it here"
    evidence = {
        "replay": "replaying the recorded edits produces it exactly",
        "layout": "replaying the recorded edits produces it except for its layout, which changed since",
        "text": "an edit has its text and the lines around it, but does not fit the file in git",
        "script": "a script that ran then has its text",
        "none": "no recorded call on the file made it",
        "older": "it is older than the first recorded call on the file",
    }
    return which + evidence[_evidence(origin)]


def _alternatives(ranked: Sequence[Origin], edits: Sequence[RecordedEdit]) -> list[WhyOther]:
    items = [
        struct_of(WhyOther, origin, step=origin.newest.place.row.step if origin.newest else 0, lines=len(origin.lines))
        for origin in ranked[1:]
    ]
    items += [struct_of(WhyOther, edit.place, edit.place.row, origin="agent", lines=1) for edit in edits]
    return items[:_MOST_OTHERS]


def _file_lines(folder: Path, store: Store, code: Code) -> list[Line]:
    """Each line of a file in the folder; none if no call on it is recorded. Raises: NotFound."""
    path = folder / code.file
    name = code_history.name_in_project(path)
    if not name:
        raise NotFound(f"{path} is not in a git repository", hint="name a file of a project, or a commit")
    with Progress("searching", 0) as progress:
        in_git = code_history.history(path.parent, name, "HEAD")
        former = code_history.former_names(in_git)
        by_name = origins.recorded_edits(store, store.sessions(), {name, *former}, progress.add)
    edits = origins.along_renames(by_name, name, former)
    since = origins.first_edit(edits)
    if since is None:
        return []
    history = code_history.versions(path.parent, in_git, since)
    text = path.read_bytes()[: code_history.LARGEST].decode("utf-8", "replace")
    if not history or split(history[-1].text) != split(text):
        now = store.now()
        history.append(FileVersion("", now, now, name, text))
    return origins.lines_of(history, edits)


def _commit_lines(folder: Path, store: Store, code: Code) -> list[tuple[str, int, Line]]:
    """The non-blank lines that a commit brought, of the files with recorded calls."""
    top = Path(git_says(folder, "rev-parse", "--show-toplevel").rstrip("\n") or folder)
    files = code_history.changed(top, code.commit)[:_MOST_FILES] if code.commit else []
    with Progress("searching", 0) as progress:
        edits = origins.recorded_edits(store, store.sessions(), files, progress.add)
    chosen = []
    for name in files:
        since = origins.first_edit(edits[name])
        if since is None:
            continue
        history = code_history.versions(top, code_history.history(top, name, code.commit), since)
        if history and history[-1].commit == code.commit:
            lines = enumerate(origins.lines_of(history, edits[name]), 1)
            newest = len(history) - 1
            chosen += [(name, at, line) for at, line in lines if line.version == newest and line.text.strip()]
    return chosen


def _link(folder: Path, store: Store, code: Code, target: str) -> Link | None:
    """The commit's link. Raises: BadInput if an id that the project lacks is the beginning of several."""
    if not code.commit and code.file:
        return None
    matches = links.find(store, code.commit or target)
    if len(matches) > 1:
        raise BadInput(f"{target[:64]} matches several commits", hint="give more digits")
    if matches:
        return matches[0]
    return links.of_patch(store, code_history.patch_id(folder, code.commit)) if code.commit else None


def _committed(store: Store, link: Link | None) -> WhyCommitted:
    if link is None:
        return WhyCommitted(host="", recording="", session="", scope="", step=0)
    session, scope, step = links.origin(store, link)
    return WhyCommitted(
        host=link.host if link.recording else "", recording=link.recording, session=session, scope=scope, step=step
    )


def code_of(folder: Path, target: str) -> Code:
    """The project's commit, file or line. Raises: NotFound."""
    match = _FILE_LINE.fullmatch(target)
    if match and (folder / match[1]).is_file():
        return _line(folder, match[1], int(match[2]))
    commit = git_says(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{target}^{{commit}}").strip()
    if commit:
        subject = git_says(folder, "log", "-1", "--no-show-signature", "--format=%s", commit, "--")
        return Code(commit, subject.rstrip("\n"))
    if (folder / target).is_file():
        return Code("", file=target)
    if re.fullmatch(r"[0-9a-fA-F]{4,64}", target):
        return Code("")  # the project may have lost it: its link can still exist
    hint = "give a commit of this project such as HEAD, a file in it, or a line of one such as src/app.py:42"
    if not git_says(folder, "rev-parse", "--git-dir"):
        hint = "this folder is in no git repository; give a file in it, or a line of one such as src/app.py:42"
    if (match := _FILE_LINES.fullmatch(target)) and (folder / match[1]).is_file():
        hint = f"give one line, as in {display.one_line(match[1], 400)}:{match[2]}, or the whole file"
    if _ADDRESS.fullmatch(target):
        hint = f"what became of a block, and who took it out of the prompt, says `ctxvc blame {target}`"
    raise NotFound(
        f"{display.fitted(display.one_line(target, 400), 80)!r} is not a commit, file or FILE:LINE here", hint=hint
    )


def _line(folder: Path, file: str, number: int) -> Code:
    """A line of a file, and the commit that it is from. Raises: NotFound."""
    path = folder / file
    data = path.read_bytes()[: code_history.LARGEST]
    lines = split(data.decode("utf-8", "surrogateescape"))
    if not 0 < number <= len(lines):
        name = display.one_line(file, 400)
        raise NotFound(
            f"{name} has no line {number}", hint=f"its lines are 1 to {len(lines)}" if lines else "it is empty"
        )
    porcelain = git_says(
        path.parent, "blame", "--porcelain", "--no-textconv", "-L", f"{number},{number}", "--", path.name
    )
    head, *rest = porcelain.split("\n")
    facts = dict(line.partition(" ")[::2] for line in rest if not line.startswith("\t"))
    commit = head.partition(" ")[0]
    if not commit.strip("0"):
        return Code("", file=file, number=number, line=lines[number - 1])
    return Code(commit, facts.get("summary", ""), file, number, lines[number - 1])


def _with_step(store: Store, answer: Why, step: origins.Step, best: Origin) -> Why:
    stored = StoredSession.open(store, step.session, step.scope)
    stored.leave()

    def block(row: Row) -> WhyBlock:
        text = readable(row, stored.body(row)) if row.ext in ("txt", "json") else row.label
        return WhyBlock(address=Place(step.session, step.scope, row).address, step=row.step, text=text)

    calls = sorted(best.edits, key=lambda item: item[0].place.row.number)
    return msgspec.structs.replace(
        answer,
        session=step.session,
        scope=step.scope,
        step=step.step,
        turn=step.turn,
        revision=step.commit,
        asked=list(map(block, step.asked)),
        replied=list(map(block, step.replied)),
        notes=list(map(block, step.notes)),
        calls=[struct_of(WhyCall, edit, edit.place, edit.place.row, lines=count) for edit, count in calls],
    )


def _decoded(value: str) -> str:
    """Output of git as text: a path or subject can have any bytes."""
    return os.fsencode(value).decode("utf-8", "replace")


class WhyBlock(Item, frozen=True, kw_only=True):
    """A block of the conversation that code came from."""

    address: Annotated[str, described("address for `show`")]
    step: int
    text: Annotated[str, described("whole")]


class WhyCall(Item, frozen=True, kw_only=True):
    """A call that wrote some of the lines."""

    TABLE = "address step tool path lines"

    address: Annotated[str, described("address for `show`"), Column("wrote")]
    step: Annotated[int, Column("step", right=True)]
    tool: Annotated[str, Column("tool")]
    path: Annotated[str, described("as named in the call; empty if not named"), Column("file", least=12)]
    lines: Annotated[int, described("number of the lines in question that it made"), Column("lines", right=True)]


class WrittenBy:
    """The column of an item that says who wrote its lines."""

    origin: str
    session: str
    scope: str

    @property
    def writer(self) -> Annotated[str, Column("conversation", least=12)]:
        return f"{self.session}/{self.scope}" if self.session else WRITERS[self.origin]


class WhyOther(Item, WrittenBy, frozen=True, kw_only=True):
    """Another origin of a commit's lines, or another edit with the text of a single line."""

    TABLE = "writer step lines"

    origin: Annotated[str, described("`agent`, `human` or `unknown`")]
    session: Annotated[str, described("empty if it is not an agent's")]
    scope: str
    step: Annotated[int, Column("step", right=True, cell=unless_zero)]
    lines: Annotated[int, Column("lines", right=True)]


class WhyCommitted(Item, frozen=True, kw_only=True):
    """Who made the commit, by its link: not who wrote the lines. All fields are empty if it has none."""

    host: Annotated[str, described("the program that ran the commit; empty if a person did or if unknown")]
    recording: Annotated[str, described("that program's name for its session")]
    session: Annotated[str, described("session in the store; empty if the store has none of that recording")]
    scope: str
    step: int


class Why(Answer, frozen=True, kw_only=True, tag="ctxvc.why/2"):
    """`why COMMIT`, `why FILE:LINE`"""

    commit: Annotated[str, described("full id of the project's commit; empty if the line is not committed")]
    subject: Annotated[str, described("subject of that commit; empty if the project no longer has it")]
    file: Annotated[str, described("the file of FILE:LINE; otherwise empty")]
    line: Annotated[str, described("the text of the line in FILE:LINE")]
    origin: Annotated[str, described("`agent`, `human` or `unknown`: who made the line, or most of the commit's")]
    evidence: Annotated[
        str, described("`replay`, `layout`, `text`, `script`, `none` or `older`, as in the how-to on `why`")
    ]
    basis: Annotated[str, described("the evidence for the answer, in words")]
    count: Annotated[int, described("lines of that origin")]
    total: Annotated[int, described("non-blank lines that the commit added to files with recorded calls, or 1")]
    committed: WhyCommitted
    alternatives: Annotated[list[WhyOther], described("other origins, those with the most lines first; at most 8")]
    session: Annotated[str, described("the conversation; empty if it is not an agent's, like all fields below")] = ""
    scope: str = ""
    step: Annotated[int, described("the newest step that made some of the lines")] = 0
    turn: int = 0
    revision: Annotated[CommitId, described("the step's commit in the store; empty if it has none yet")] = ""
    asked: Annotated[list[WhyBlock], described("human text of the turn, up to the step")] = []
    replied: Annotated[list[WhyBlock], described("the model's text in the step, or its last text before it")] = []
    notes: Annotated[list[WhyBlock], described("notes of the turn")] = []
    calls: Annotated[
        list[WhyCall], described("calls of that conversation that made some of the lines, oldest first")
    ] = []


def _first_stretches(ranges: Sequence[tuple[int, int]]) -> str:
    stretches = [f"{first}–{last}" if first < last else str(first) for first, last in ranges]
    return ", ".join(stretches[:_MOST_STRETCHES]) + (", …" if len(stretches) > _MOST_STRETCHES else "")


class WhyConversation(Item, WrittenBy, frozen=True, kw_only=True):
    """The lines of a file by one conversation, by people, or of unknown origin."""

    TABLE = "count share writer step time ranges request"

    origin: Annotated[str, described("`agent`, `human` or `unknown`")]
    session: Annotated[str, described("empty if it is not an agent's, like the next four fields")]
    scope: str
    step: Annotated[
        int, described("the newest step that made one of them"), Column("last step", right=True, cell=unless_zero)
    ]
    time: Annotated[str, described("time of that step, ISO 8601"), Column("when", cell=Timestamp)]
    request: Annotated[str, described("the beginning of the person's request in its turn"), Column("asked", least=20)]
    count: Annotated[int, described("number of non-blank lines"), Column("lines", right=True)]
    share: Annotated[float, described("share of the file's lines, 0 to 1"), Column("share", right=True, cell=Share)]
    ranges: Annotated[
        list[tuple[int, int]],
        described("first and last line of each stretch"),
        Column("where", least=12, rank=1, cell=_first_stretches),
    ]


class WhyLine(Item, frozen=True, kw_only=True):
    """A line of a file."""

    line: Annotated[int, described("from 1")]
    origin: Annotated[str, described("`agent`, `human` or `unknown`")]
    evidence: Annotated[str, described("as in `why`")]
    call: Annotated[str, described("address of the call that made it; empty if none did")]


class WhyFile(Answer, frozen=True, kw_only=True, tag="ctxvc.why_file/1"):
    """`why FILE`"""

    file: str
    count: Annotated[int, described("non-blank lines")]
    conversations: Annotated[list[WhyConversation], described("most lines first")]
    lines: Annotated[list[WhyLine], described("each non-blank line")]
