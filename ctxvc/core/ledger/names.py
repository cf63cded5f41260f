"""Names of sessions and scopes: a git ref component that every file system can hold."""

from __future__ import annotations

import re

from ctxvc.errors import BadName

_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WINDOWS = frozenset({"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10)})


def problem(name: str) -> str:
    """Why `name` cannot name a session or scope; empty if it can.

    The rules are the strictest of git's ref format (git-check-ref-format), of a file system that folds case, and of a
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


def check(name: str, what: str, taken: frozenset[str] | set[str] = frozenset()) -> str:
    """`name` itself, fit to name a `what` ("session", "scope").

    Raises: BadName, also for a name that differs from one in `taken` by case only.
    """
    if reason := problem(name):
        raise BadName(f"bad {what} name {name[:100]!r}: {reason}", hint=f"try {slug(name)!r}")
    for other in taken:
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
