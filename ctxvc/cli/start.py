"""The program's start. Hooks of a host take a path of their own, which loads next to nothing and never fails."""

from __future__ import annotations

import sys

from ctxvc.cli import handover, hook_entry


def run() -> None:
    """Runs the program: the console script."""
    arguments = sys.argv[1:]
    if hook_entry.is_hook(arguments):
        sys.exit(hook_entry.hook(arguments[1:]))
    if handover.runs_an_agent(arguments):
        handover.separate()
    from ctxvc.cli.main import run as whole

    whole()
