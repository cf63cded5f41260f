"""`pin`: blocks stay in the prompt, whatever a policy proposes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ctxvc.cli.app import command
from ctxvc.cli.verb import Actor, act, acting_options, blocks_argument


@command("pin", "ctxvc pin B2")
@blocks_argument
@acting_options
@click.pass_context
def pin(ctx: click.Context, blocks: Sequence[str], actor: Actor) -> None:
    act(ctx, "pin", blocks, "", actor)
