"""Names of refs: a session is a folder of branches, a scope a branch in it."""

from __future__ import annotations

HEADS = "refs/heads/"


def ref_of(session: str, scope: str) -> str:
    return f"{HEADS}{session}/{scope}"


def scope_of(ref: str) -> tuple[str, str] | None:
    """(session, scope), or None where `ref` is no scope's."""
    if not ref.startswith(HEADS):
        return None
    session, _, scope = ref.removeprefix(HEADS).partition("/")
    return (session, scope) if session and scope else None


def head_ref(session: str) -> str:
    """The symbolic ref that names the session's current scope on this machine."""
    return f"refs/ctxvc/{session}/HEAD"
