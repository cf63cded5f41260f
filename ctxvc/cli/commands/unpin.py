"""`unpin`: pinned blocks may leave again."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ctxvc.cli.app import command
from ctxvc.cli.verb import Actor, act, acting_options, blocks_argument


@command("unpin", "ctxvc unpin B2")
@blocks_argument
@acting_options
@click.pass_context
def unpin(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    act(ctx, "unpin", blocks, "", actor)
