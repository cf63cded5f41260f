"""Names of sessions and scopes: git ref components that every file system can store; one, or for a scope several."""

from __future__ import annotations

import re

from ctxvc.errors import BadName

_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LONGEST = 100
_BLOCK = re.compile("[BG][0-9]{1,9}")
_WINDOWS = frozenset({"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10)})


def problem(name: str) -> str:
    """Why `name` cannot name a session or scope; empty if it can.

    The rules are the strictest of git's ref format (git-check-ref-format), of a case-insensitive file system, and of a
    shell's command line.
    """
    if not name:
        return "it is empty"
    if not _ALLOWED.fullmatch(name):
        return "use up to 100 ASCII letters, digits, '.', '_' and '-', starting with a letter or digit"
    if ".." in name or name.lower().endswith((".", ".lock")):
        return "git does not allow '..', a final '.' or '.lock' in a branch name"
    if name.lower() == "head":
        return "HEAD means the current scope"
    if name.lower() == "purged":
        return "the store uses this name for records of purges"
    if name.lower().split(".")[0] in _WINDOWS:
        return "some file systems reserve this name"
    return ""


def scope_problem(name: str) -> str:
    """Why `name` cannot name a scope; empty if it can. Each part between slashes must be a valid name.

    `NAME@CLONE` is the line of another clone that diverged from ours; only commits from that clone create one.
    """
    if len(name) > _LONGEST:
        return f"{_LONGEST} characters are allowed at most"
    name, at, clone = name.partition("@")
    if at and (reason := problem(clone)):
        return reason
    return next(filter(None, map(problem, name.split("/"))), "")


def agent_scope(name: str) -> str:
    """The scope of a sub-agent with this name: in lower case, so that no two scopes differ by case only."""
    return slug(f"agent-{name}".lower(), "agent")


def check(name: str, what: str, taken: frozenset[str] | set[str] = frozenset()) -> str:
    """`name` itself if it is valid for a `what` ("session", "scope").

    A scope's name may have several parts, as in `plan/login`. Raises: BadName if it is invalid, differs from one in
    `taken` by case only, or is a parent or child of one: git cannot have a branch `a` beside `a/b`.
    """
    is_scope = what == "scope"
    reason = (scope_problem if is_scope else problem)(name)
    if is_scope and "@" in name:
        reason = "what follows an '@' names the clone that a scope came from"
    if is_scope and _BLOCK.fullmatch(name):
        raise BadName(f"bad scope name {name!r}: blocks and groups have such names", hint=f"try 'scope-{name}'")
    if reason:
        parts = (
            "/".join(map(slug, filter(None, name.split("/")))) if is_scope and "/" in name.strip("/") else slug(name)
        )
        raise BadName(f"bad {what} name {name[:100]!r}: {reason}", hint=f"try {parts[:_LONGEST].rstrip('/')!r}")
    for other in taken:
        longer, shorter = sorted((name.lower(), other.lower()), key=len, reverse=True)
        if longer.startswith(f"{shorter}/"):
            raise BadName(
                f"bad {what} name {name!r}: {other!r} exists, and git cannot have a branch inside of another",
                hint=f"try {name.replace('/', '-') if len(name) > len(other) else f'{name}-2'!r}",
            )
        if other != name and other.lower() == name.lower():
            raise BadName(
                f"bad {what} name {name!r}: {other!r} exists, and they differ only in case",
                hint=f"use {other!r}, or a name that differs in more than case",
            )
    return name


def slug(text: str, default: str = "session") -> str:
    """A valid name close to `text`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:60].strip("-._")
    name = re.sub(r"\.{2,}", ".", name)
    while name.lower().endswith(".lock"):
        name = name[:-5].rstrip("-._")
    return name if not problem(name) else f"{default}-{name}" if name and not problem(f"{default}-{name}") else default


#: The name of a session with a project's notes, before a part of its store's id.
PROJECT_NOTES = "project-notes"
_PROJECT_NOTES = re.compile(rf"{PROJECT_NOTES}-[0-9a-f]{{8}}")


def has_project_notes(session: str) -> bool:
    """Whether a session contains the notes of a project, judging by its name."""
    return _PROJECT_NOTES.fullmatch(session) is not None
