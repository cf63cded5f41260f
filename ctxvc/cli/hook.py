"""`hook`: what a host's hooks and its status line run, as a command among the others."""

from __future__ import annotations

import click

from ctxvc.cli import hooking
from ctxvc.cli.app import command


@command("hook", "ctxvc hook Stop < event.json")
@click.argument("event", metavar="EVENT")
def hook(event: str) -> None:
    """Take in an event of Claude Code, for its hooks and its status line.

    EVENT is the name of a hook's event, as in SessionStart, or `statusline`; what the host tells of it stands on stdin.
    Answers what the host is to do with it, mostly nothing. It never fails: what went wrong stands in a log that
    `ctxvc doctor` shows. CTXVC_RECORDING=off turns it off.
    """
    hooking.hook([event])
