"""`archive`: blocks leave the prompt; a stub with their address stays."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ctxvc.cli.app import command
from ctxvc.cli.options.standard_input import or_text
from ctxvc.cli.verb import Actor, act, acting_options, allow_user, blocks_argument


@command("archive", "ctxvc archive B6-B9 -m 'the four failing runs'")
@blocks_argument
@click.option("-m", "index", metavar="TEXT", default="", callback=or_text,
              help="Index text: a description for the stub; - reads stdin.")  # fmt: skip
@allow_user
@acting_options
@click.pass_context
def archive(ctx: click.Context, blocks: Sequence[str], index: str, allow_user: bool, actor: Actor) -> None:
    """
    BLOCKS are `B3`, `B3,B5-B9` or `G2`; two or more become one group. The bytes stay in the store: `ctxvc recover`
    reads them, `ctxvc restore` puts them back. Blocks that cannot be archived are skipped and listed.
    """
    act(ctx, "archive", blocks, index, actor, allow_user)
