"""Claude Code's session transcripts → events; where they are, and how they are recognised.

A session is `~/.claude/projects/<project>/<session>.jsonl`, with one content block a line; a sub-agent's own
transcript is `<session>/subagents/agent-<id>.jsonl` beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ctxvc.core.ledger import wire
from ctxvc.core.ledger.block import Part
from ctxvc.core.prompt import truncation
from ctxvc.core.prompt.truncation import Truncation
from ctxvc.core.recording.events import Event, Exported, Opened, Said
from ctxvc.errors import BadInput
from ctxvc.importers.claude_code.events import FORMAT as FORMAT
from ctxvc.importers.claude_code.events import Session
from ctxvc.importers.claude_code.window import settings_beside
from ctxvc.importers.file import LONGEST, Recording
from ctxvc.importers.protocol import (
    LINES,
    Conversations,
    Importer,
    State,
    file_state,
    folder_of,
    is_within,
    of_project,
    starting_call,
)

#: Files beside those of sub-agents with the host's side requests: the whole conversation sent again to summarise it, or
#: to guess the next prompt.
_SIDE_REQUESTS = ("agent-acompact", "agent-aprompt_suggestion")

_CONVERSATION = frozenset({"parentUuid", "isSidechain", "sessionId"})
_SIDE_RECORDS = {
    "ai-title": {"aiTitle", "sessionId"},
    "custom-title": {"customTitle", "sessionId"},
    "file-history-snapshot": {"messageId", "snapshot"},
    "last-prompt": {"sessionId"},
    "mode": {"mode", "sessionId"},
    "permission-mode": {"permissionMode", "sessionId"},
    "queue-operation": {"operation", "sessionId"},
    "summary": {"leafUuid", "summary"},
}
_LONGEST_FOLDER = 200
#: Bytes in which the last line of an exported session fits.
_LAST_LINE = 4096


def sniff(head: bytes) -> bool:
    """Whether a file that begins with `head` is a transcript, by its first lines."""
    for line in head.splitlines()[:20]:
        try:
            value = wire.parse(line)
        except ValueError:
            # A prompt may be longer than the head; the distinctive keys come before its text.
            return line.startswith(b'{"parentUuid":') and all(f'"{key}":'.encode() in line for key in _CONVERSATION)
        if not isinstance(value, dict):
            return False
        kind = value.get("type")
        if value.keys() >= _CONVERSATION or (isinstance(kind, str) and value.keys() >= _SIDE_RECORDS.get(kind, {""})):
            return True
    return False


def events(recording: Recording) -> Iterator[Event]:
    """The events of a session's or sub-agent's own file, in file order. Raises: BadInput if it cannot be read."""
    if recording.stem.startswith("agent-"):
        session = Session(recording.stem, subagent=True, task=starting_call(recording.path))
    else:
        session = Session(recording.stem, settings=settings_beside(recording.path))
    return session.events(recording)


def conversations(recording: Recording) -> Conversations:
    """The file's conversation; outputs that the host or a hook truncated have their whole text beside them."""
    events_of_file = with_whole(events(recording), recording.path, recording.stored_output)
    yield "", _with_provenance(events_of_file, recording)


def _with_provenance(stream: Iterator[Event], recording: Recording) -> Iterator[Event]:
    """The events, with the export of ours that the file continues, if any, in `Opened`."""
    for event in stream:
        if isinstance(event, Opened):
            yield msgspec.structs.replace(event, exported=exported(recording))
            yield from stream
            return
        yield event


def beside(path: Path) -> list[Path]:
    """The transcripts of the sub-agents of the session at `path`, in a fixed order.

    Before version 2.1 they were in the session's own folder, with the session's id in each line.
    """
    session = Recording(path).stem
    paths = sorted((path.parent / session / "subagents").rglob("agent-*.jsonl"))
    paths += (legacy for legacy in sorted(path.parent.glob("agent-*.jsonl")) if _is_of_session(legacy, session))
    return [file for file in paths if not file.name.startswith(_SIDE_REQUESTS)]


def _is_of_session(path: Path, session: str) -> bool:
    try:
        return f'"sessionId":"{session}"'.encode() in Recording(path).head(4096)
    except BadInput:
        return False  # an unreadable file belongs to no session


def folders(project: Path, home: Path, env: Mapping[str, str]) -> list[Path]:
    """The folders in which Claude Code keeps the transcripts of sessions started in `project`.

    The folder of a very long path has a name that cannot be predicted, so only existing ones are returned. Two projects
    can share a folder (`a/b` and `a-b` do): `is_of_project` separates their sessions.
    """
    root = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    # The host counts in UTF-16: a character beyond the first plane becomes two dashes.
    dashed = re.sub(r"[^A-Za-z0-9]", lambda character: "--" if character[0] > "\uffff" else "-", str(project))
    if name := env.get("CLAUDE_CODE_PROJECT_DIR_NAME"):
        return [root / name]
    if len(dashed) > _LONGEST_FOLDER:
        return [folder for folder in sorted(root.glob(f"{dashed[:_LONGEST_FOLDER]}-*")) if folder.is_dir()]
    return [root / dashed]


def recordings(folder: Path, project: Path) -> Iterator[Path]:
    """The main transcripts of `project` in one of its `folders`: every `*.jsonl` except `agent-*.jsonl`."""
    main = (path for path in sorted(folder.glob("*.jsonl")) if not path.name.startswith("agent-"))
    return of_project(main, project, is_of_project)


def is_of_project(head: bytes, project: str) -> bool:
    """Whether the session that begins with `head` was started in the folder `project` or below it.

    One in the project's `folders` that records no folder counts as the project's.
    """
    return is_within(folder_of(head) or project, project)


def more_files(path: Path) -> Iterator[Path]:
    """The transcripts of sub-agents in the folder of the one at `path`, and the files in the session's own folder."""
    yield from path.parent.glob("agent-*.jsonl")
    yield from (file for file in path.with_suffix("").rglob("*") if file.is_file())


def state(path: Path, positions: Mapping[str, int]) -> State:
    """`Importer.state` of a transcript; an export of ours that was not continued counts as whole."""
    recorded = file_state(path, positions)
    return "whole" if recorded == "missing" and _is_export(path) else recorded


IMPORTER = Importer(
    format=FORMAT,
    sniff=sniff,
    conversations=conversations,
    endings=LINES,
    grows=True,
    folders=folders,
    recordings=recordings,
    beside=beside,
    more_files=more_files,
    state=state,
)


def _is_export(path: Path) -> bool:
    """Whether the file is an unchanged export: its name is not a host's, and its last line is still the title."""
    try:
        if uuid.UUID(path.stem).version != 5:
            return False
    except ValueError:
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_LINE))
        line = wire.parsed(file.read().rstrip(b"\n").rpartition(b"\n")[2], dict) or {}
    return line.get("type") == "custom-title" and line.get("sessionId") == path.stem


# --- the mark of an export: its commit, and a checksum that shows whether it was changed

# It is a field of the file's first line. The host leaves that alone: it only appends lines.
_ZEROS = "0" * 64
_COMMIT_ID = re.compile("[0-9a-f]{40}")
_MARK = re.compile(rb'"ctxvc":\{"commit":"([0-9a-f]{40})","bytes":"([0-9]{12})","sha256":"([0-9a-f]{64})"\}\}\Z')


def marked(lines: list[bytes], commit: str) -> bytes:
    """The file made of these lines (a JSON object and newline each), with the mark in the first."""
    if not lines or not _COMMIT_ID.fullmatch(commit):
        return b"".join(lines)
    first, *later = lines
    unmarked = first.rstrip(b"\n").removesuffix(b"}")
    size = len(b"".join(later)) + len(unmarked) + len(_provenance(commit, 0, _ZEROS)) + 1
    blank = b"".join([unmarked, _provenance(commit, size, _ZEROS), b"\n", *later])
    return b"".join([unmarked, _provenance(commit, size, hashlib.sha256(blank).hexdigest()), b"\n", *later])


def exported(recording: Recording) -> Exported | None:
    """The export that the recording continues; None if it does not begin with an unchanged one."""
    try:
        first = recording.first_line()
        match = _MARK.search(first.rstrip(b"\n")[-256:])
        if match is None:
            return None
        commit, size, digest = match[1].decode(), int(match[2]), match[3]
        begin = recording.beginning(size)
    except BadInput:
        return None
    at = len(first.rstrip(b"\n")) - len(digest) - 3
    blank = begin[:at] + _ZEROS.encode() + begin[at + len(digest) :]
    is_unchanged = len(begin) == size and hashlib.sha256(blank).hexdigest().encode() == digest
    return Exported(commit=commit, end=size) if is_unchanged else None


def _provenance(commit: str, size: int, digest: str) -> bytes:
    fields = {"ctxvc": {"commit": commit, "bytes": f"{size:012}", "sha256": digest}}
    return b"," + wire.compact(fields).removeprefix(b"{")


# --- whole outputs

#: The whole output that a hook stored for a truncation; None if there is none of that name and checksum.
StoredOutput = Callable[[Truncation], bytes | None]

#: The beginning of a result that the host truncated, the line that names the file with all of it, and the number of
#: bytes within which that line comes.
_CUT = b"<persisted-output>"
_SAVED = re.compile(rb"saved to: ([^\r\n]+?)\s*$", re.MULTILINE)
_HEAD = 4096
#: The file noted as the whole output: nearly always the only one.
_FIRST = truncation.suffix(1)


def with_whole(events: Iterable[Event], transcript: Path, stored_output: StoredOutput) -> Iterator[Event]:
    """The events; a truncated result has its whole output as a file, if the host or a hook still has it."""
    for event in events:
        if isinstance(event, Said) and any(map(_is_truncated, event.message.parts)):
            parts = tuple(
                _with_files(part, transcript, stored_output) if _is_truncated(part) else part
                for part in event.message.parts
            )
            yield msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, parts=parts))
        else:
            yield event


def _is_truncated(part: Part) -> bool:
    """Whether a part is a result with the mark of a truncation, genuine or forged."""
    return part.kind == "tool_result" and (part.body.startswith(_CUT) or truncation.MARK in part.body)


def _with_files(part: Part, transcript: Path, stored_output: StoredOutput) -> Part:
    by_host = _of_host(part.body, transcript) if part.body.startswith(_CUT) else None
    # The host may truncate a result that a hook truncated before: its file then has our mark.
    marked = part.body if by_host is None else by_host
    outputs = {truncation.suffix(one.number): stored_output(one) for one in truncation.truncations(marked, part.call)}
    files = {name: data for name, data in outputs.items() if data is not None}
    if by_host is not None and not files:
        files = {_FIRST: by_host}
    if not files:
        return part
    noted = {**wire.own_metadata(part.extra), "cut": True, **({"whole": _FIRST} if _FIRST in files else {})}
    return msgspec.structs.replace(part, files=(*part.files, *files.items()), extra={**part.extra, "ctxvc": noted})


def _of_host(body: bytes, transcript: Path) -> bytes | None:
    """The content of the file that a result names; None if it is gone, or not one of the host's."""
    match = _SAVED.search(body[:_HEAD])
    if match is None:
        return None
    file = Path(os.fsdecode(match[1]))
    project = transcript.parents[2] if transcript.parent.name == "subagents" else transcript.parent
    try:
        # A tool may have forged the path: only files that the host keeps for its outputs are read.
        inside = file.parent.name == "tool-results" and file.resolve(strict=True).is_relative_to(project.resolve())
        return file.read_bytes() if inside and file.stat().st_size <= LONGEST else None
    except (OSError, ValueError):
        return None  # the host has removed it: the truncated text is all there is
