"""A clone's index of its sessions, as a commit on a remote has it: values ⇄ files and parents. Pure.

docs/format.md specifies it. What is read may come from anybody: a malformed line is left out, with the reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import name_rules
from ctxvc.errors import Damaged, Phrase, Refused

FORMAT = 1
#: The prefix of clones' refs on a remote.
REFS = "refs/ctxvc/w/"
HEAD_FILE = "index.json"
LIST_FILE = "sessions.jsonl"
SHARDS = "sessions"
#: An index of more sessions than this is split into 256 files, so that a push does not send all of it again.
MOST_UNSHARDED = 1_000

#: The most bytes of all files of an index, and the most sessions and scopes that one clone may have.
LARGEST = 64 << 20
MOST_SESSIONS = 100_000
MOST_SCOPES = 10_000
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TITLE = 120
_CLONE = 40


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session in its clone's index. `scope` is the current scope, `tip` that scope's tip.

    `tokens` estimates all blocks, as bytes / 4; `updated` is the newest commit's time. `pieces` is the carrier commit
    of a session that travels in pieces; empty if the remote has its tips.
    """

    name: str
    scope: str
    tip: str
    scopes: dict[str, str]
    tokens: int = 0
    started: str = ""
    updated: str = ""
    title: str = ""
    pieces: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The clone of an index: its name, its newest purge, its links to code."""

    format: int = FORMAT
    clone: str
    purged: str = ""
    links: str = ""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """A clone's sessions by name. `ignored` has the reason for each entry that was left out."""

    head: Head
    sessions: dict[str, SessionEntry]
    ignored: tuple[str, ...] = ()


def clone_problem(name: str) -> str:
    """Why a clone cannot have this name; empty if it can."""
    if len(name) > _CLONE or name != name.lower():
        return f"use up to {_CLONE} lower-case letters, digits, '.', '_' and '-'"
    return name_rules.problem(name)


def files(index: Index) -> dict[str, bytes]:
    """The files of an index, path → bytes."""
    head = msgspec.json.format(msgspec.json.encode(index.head), indent=1) + b"\n"
    return {HEAD_FILE: head, **{path: _lines(part) for path, part in parts(index).items()}}


def parts(index: Index) -> dict[str, list[SessionEntry]]:
    """The sessions of an index, by the path of the file that lists them."""
    ordered = [index.sessions[name] for name in sorted(index.sessions)]
    if len(ordered) <= MOST_UNSHARDED:
        return {LIST_FILE: ordered}
    shards: dict[str, list[SessionEntry]] = {}
    for session in ordered:
        digest = hashlib.sha256(session.name.encode()).hexdigest()
        shards.setdefault(f"{SHARDS}/{digest[:2]}.jsonl", []).append(session)
    return dict(sorted(shards.items()))


def tips_of(sessions: Iterable[SessionEntry]) -> set[str]:
    """The tips of all scopes of these sessions."""
    return {tip for session in sessions for tip in session.scopes.values()}


def parents(sessions: Iterable[SessionEntry]) -> list[str]:
    """The parent commits of an index of these sessions: the tips of their scopes, or their carriers."""
    return sorted(
        {tip for session in sessions for tip in ([session.pieces] if session.pieces else session.scopes.values())}
    )


def parse(clone: str, content: Mapping[str, bytes]) -> Index:
    """The index of a clone from its files. Raises: Refused for a newer format; Damaged if this is not one."""
    if sum(map(len, content.values())) > LARGEST:
        raise Damaged(f"the index of {clone} is larger than {LARGEST:,} bytes", hint=Phrase("share-theirs"))
    try:
        head = msgspec.json.decode(content.get(HEAD_FILE, b""), type=Head)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Damaged(f"the index of {clone} has an unknown form", hint=Phrase("share-theirs")) from error
    if head.format > FORMAT:
        raise Refused(f"the index of {clone} has format {head.format}; this ctxvc reads {FORMAT}", hint="update ctxvc")
    if head.clone != clone or any(text and not _COMMIT.fullmatch(text) for text in (head.purged, head.links)):
        raise Damaged(f"the index of {clone} names another clone", hint=Phrase("share-theirs"))
    sessions: dict[str, SessionEntry] = {}
    ignored: list[str] = []
    lower: set[str] = set()
    for line in _all_lines(content):
        session, why = _session(line)
        if session is None:
            ignored.append(why)
        elif session.name.lower() in lower:
            ignored.append(f"{session.name} is in the index of {clone} twice")
        elif len(sessions) >= MOST_SESSIONS:
            ignored.append(f"{clone} has more than {MOST_SESSIONS:,} sessions")
            break
        else:
            sessions[session.name] = session
            lower.add(session.name.lower())
    return Index(head=head, sessions=sessions, ignored=tuple(ignored))


def _lines(sessions: Iterable[SessionEntry]) -> bytes:
    return b"".join(msgspec.json.encode(session, order="sorted") + b"\n" for session in sessions)


def _all_lines(content: Mapping[str, bytes]) -> Iterator[bytes]:
    for path in sorted(content):
        if path == LIST_FILE or path.startswith(f"{SHARDS}/"):
            yield from filter(None, content[path].split(b"\n"))


def _session(line: bytes) -> tuple[SessionEntry | None, str]:
    """The session on a line; or None, and why the line is left out."""
    try:
        session = msgspec.json.decode(line, type=SessionEntry)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None, "a line that is no session's"
    name = display.one_line(session.name, 100)
    if reason := name_rules.problem(session.name):
        return None, f"session {name!r}: {reason}"
    if len(session.scopes) > MOST_SCOPES:
        return None, f"session {name!r} has more than {MOST_SCOPES:,} scopes"
    for scope, tip in session.scopes.items():
        if reason := name_rules.scope_problem(scope) or ("" if _COMMIT.fullmatch(tip) else "its tip is no commit"):
            return None, f"session {name!r}, scope {display.one_line(scope, 100)!r}: {reason}"
    if session.pieces and not _COMMIT.fullmatch(session.pieces):
        return None, f"session {name!r}: what brings it is no commit"
    if clash := _clash(session.scopes):
        return None, f"session {name!r}: {clash}"
    if "main" not in session.scopes:
        return None, f"session {name!r} has no scope main"
    scope = session.scope if session.scope in session.scopes else "main"
    return msgspec.structs.replace(
        session,
        scope=scope,
        tip=session.scopes[scope],
        tokens=max(0, session.tokens),
        title=display.one_line(session.title, _TITLE),
        started=display.one_line(session.started, 40),
        updated=display.one_line(session.updated, 40),
    ), ""


def _clash(scopes: Iterable[str]) -> str:
    """The conflict of two scopes that git or a file system cannot have side by side; empty if there is none."""
    before = ""
    for name in sorted(scope.lower() + "/" for scope in scopes):
        if before and name.startswith(before):
            return f"{before[:-1]!r} and {name[:-1]!r} cannot be beside each other"
        before = name
    return ""
