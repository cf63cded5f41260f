"""`hook`: the entry for hooks of a host and of git, as a command among the others."""

from __future__ import annotations

import sys

import click

from ctxvc.cli import hook_entry
from ctxvc.cli.app import App, command


@command("hook", "ctxvc hook Stop < event.json")
@click.argument("event", metavar="EVENT")
@click.argument("arguments", metavar="[WORDS]...", nargs=-1)
@click.pass_obj
def hook(app: App, event: str, arguments: tuple[str, ...]) -> None:
    """EVENT is a hook event such as SessionStart, or `statusline`, with the host's data on stdin. It never fails:
    errors go to a log that `ctxvc doctor` shows. CTXVC_RECORDING=off turns it off. For git, `post-commit COMMIT` links
    a commit, `post-rewrite` commits that replace others (lines OLD-ID NEW-ID on stdin), and `pre-push REMOTE` fails if
    a push of the store would send damaged content or a secret.
    """
    if event != hook_entry.VETO:
        hook_entry.hook([event, *arguments])
        return
    from ctxvc.recording import git_hooks

    with app.store() as store:
        git_hooks.before_push(store, arguments[0] if arguments else "", sys.stdin)
