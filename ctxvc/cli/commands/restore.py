"""`restore`: blocks come back into the prompt, each at its place."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ctxvc.cli.app import command
from ctxvc.cli.verb import Actor, act, acting_options, blocks_argument


@command("restore", "ctxvc restore B7")
@blocks_argument
@acting_options
@click.pass_context
def restore(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    """A call comes with its result, and a result with its call. Blocks that would exceed the budget stay out and are
    listed."""
    act(ctx, "restore", blocks, "", actor)
