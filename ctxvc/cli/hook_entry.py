"""Hook events in, answers out, without loading anything that a hook does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxvc.claude_code.compaction import Choice

#: The longest event that is read, in bytes; some include a tool's result.
_MOST = 64 * 1024 * 1024
#: Characters that are read of what git tells of a rebase.
_MOST_LINES = 1024 * 1024


#: The event by which a host's extension asks for a compaction.
COMPACTION = "SessionCompact"
#: The one event whose answer counts: it may stop a push.
VETO = "pre-push"


def is_hook(arguments: Sequence[str]) -> bool:
    """Whether a host calls a hook, rather than a person asking for its help."""
    return arguments[:1] == ["hook"] and arguments[1:2] != [VETO] and not {"-h", "--help"}.intersection(arguments)


def hook(arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    """Handles an event. The exit code is always 0: hosts take any other for a veto."""
    from ctxvc.claude_code import hook as answering

    event = arguments[0] if arguments else ""
    if event == answering.RECORD:
        from ctxvc.claude_code.recorder import record
        from ctxvc.cli.remotes.auto_push import AutoPush
        from ctxvc.phrases import COMMAND_LINE  # `doctor` shows the log

        record(arguments[1:], env, COMMAND_LINE, _choice, AutoPush(env))
        return 0
    if event == "push" and len(arguments) > 1:
        from ctxvc.cli.remotes.auto_push import push

        push(Path(arguments[1]))
        return 0
    if event in ("post-commit", "post-rewrite", "link"):
        from ctxvc.recording import git_hooks

        if event == git_hooks.LINK:
            git_hooks.link(arguments[1:])
        elif event == git_hooks.REWRITE:
            lines = sys.stdin.read(_MOST_LINES).splitlines() if sys.stdin else []
            git_hooks.after_rewrite(lines, env, Path.cwd(), answering.SESSIONS)
        else:
            git_hooks.after_commit(arguments[1:], env, Path.cwd(), answering.SESSIONS)
        return 0
    data = sys.stdin.buffer.read(_MOST) if sys.stdin else b""
    if event == COMPACTION:
        from ctxvc.claude_code import compaction_desk

        _say(compaction_desk.answer(data, env, _choice))
        return 0
    _say(answering.answer(event, data, env))
    return 0


def _choice(env: Mapping[str, str]) -> Choice:
    """What the person has set for the host's compactions. Raises: CtxvcError."""
    from ctxvc.cli.hosts import choice

    return choice(env)


def _say(data: bytes) -> None:
    # Not through sys.stdout, which complains at exit if the host has stopped listening.
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except OSError:
        return
