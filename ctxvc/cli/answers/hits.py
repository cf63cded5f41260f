"""Lines of blocks that were found, and where the blocks are now."""

from __future__ import annotations

from typing import Annotated

from ctxvc.cli.answers.shared import BlockId, Item, ScopeName, SessionName, TimeText, described


class Standing(Item, frozen=True, kw_only=True):
    """Another place with the same bytes."""

    address: Annotated[str, described("`SESSION/SCOPE:B17`")]
    state: str


class Hit(Item, frozen=True, kw_only=True):
    """A matching line, and where its block is now."""

    address: Annotated[str, described("`SESSION/SCOPE:B17`")]
    session: SessionName
    scope: ScopeName
    block: BlockId
    type: Annotated[str, described("the block's kind")]
    state: str
    step: Annotated[int, described("in which it came in")]
    line: Annotated[int, described("in the block's text, from 1; in a JSON block, in the string that matches")]
    text: Annotated[str, described("the line, or the part of a long line around the match")]
    start: Annotated[int, described("position in `text` at which the match begins, in characters")]
    stop: Annotated[int, described("position at which it ends")]
    before: Annotated[list[str], described("with -C, the lines before it")]
    after: Annotated[list[str], described("with -C, the lines after it")]
    also: list[Standing]
    project: Annotated[str, described("with --all-projects, the project's folder")] = ""


class RankedHit(Hit, frozen=True, kw_only=True):
    """The line of a block that fits best."""

    time: Annotated[TimeText, described("when the block's step was made")]
    copies: Annotated[int, described("other sessions that have the same text, among those that were looked at")]
