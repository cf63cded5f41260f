"""Lines of blocks that were found, and where the blocks are now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ctxvc.cli.answers.shared import BlockId, Item, ScopeName, SessionName, TimeText, described
from ctxvc.cli.output import Column, Timestamp


class Standing(Item, frozen=True, kw_only=True):
    """Another place with the same bytes."""

    address: Annotated[str, described("`SESSION/SCOPE:B17`")]
    state: str


def _places(also: Sequence[Standing]) -> str:
    return ", ".join(f"{place.address} {place.state}" for place in also)


class Hit(Item, frozen=True, kw_only=True):
    """A matching line, and where its block is now."""

    TABLE = "project address state step line text also"

    address: Annotated[str, described("`SESSION/SCOPE:B17`"), Column("block")]
    session: SessionName
    scope: ScopeName
    block: BlockId
    type: Annotated[str, described("the block's kind")]
    state: Annotated[str, Column("state")]
    step: Annotated[int, described("in which it came in"), Column("step", right=True)]
    line: Annotated[
        int,
        described("in the block's text, from 1; in a JSON block, in the string that matches"),
        Column("line", right=True, rank=1),
    ]
    text: Annotated[str, described("the line, or the part of a long line around the match"), Column("text", least=32)]
    start: Annotated[int, described("position in `text` at which the match begins, in characters")]
    stop: Annotated[int, described("position at which it ends")]
    before: Annotated[list[str], described("with -C, the lines before it")]
    after: Annotated[list[str], described("with -C, the lines after it")]
    also: Annotated[list[Standing], Column("also in", least=8, rank=2, cell=_places)]
    project: Annotated[
        str, described("with --all-projects, the project's folder"), Column("project", least=16, rare=True)
    ] = ""


class RankedHit(Hit, frozen=True, kw_only=True):
    """The line of a block that fits best."""

    TABLE = "project address state time line text copies"

    time: Annotated[TimeText, described("when the block's step was made"), Column("time", cell=Timestamp)]
    copies: Annotated[
        int,
        described("other sessions that have the same text, among those that were looked at"),
        Column("copies", right=True, rank=2),
    ]
