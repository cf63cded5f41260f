"""`delete`: blocks leave the prompt for good; a tombstone says why."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ctxvc.cli.app import command
from ctxvc.cli.options.standard_input import or_text
from ctxvc.cli.verb import Actor, act, acting_options, allow_user, blocks_argument


@command("delete", "ctxvc delete B12 -m 'a password was in it'")
@blocks_argument
@click.option("-m", "reason", metavar="TEXT", required=True, callback=or_text,
              help="Why it is no longer needed; - reads stdin.")  # fmt: skip
@allow_user
@acting_options
@click.pass_context
def delete(ctx: click.Context, blocks: Sequence[str], reason: str, allow_user: bool, actor: Actor) -> None:
    """
    An agent cannot get them back; a person can, with `ctxvc restore`. The bytes stay in history: only `ctxvc purge`
    erases.
    """
    act(ctx, "delete", blocks, reason, actor, allow_user)
