"""Where the program starts. A host's hooks go their own way, which loads next to nothing and never fails."""

from __future__ import annotations

import sys

from ctxvc.cli import handover, hook_entry


def run() -> None:
    """The console script."""
    words = sys.argv[1:]
    if hook_entry.is_hook(words):
        sys.exit(hook_entry.hook(words[1:]))
    if handover.runs_an_agent(words):
        handover.separate()
    from ctxvc.cli.main import run as whole

    whole()
