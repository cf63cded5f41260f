"""The findings of a verification, as values."""

from __future__ import annotations

from typing import Literal

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger.ledger import SEGMENT
from ctxvc.errors import Phrase
from ctxvc.store import format as fmt

#: `damage`: the store does not hold what it claims. `warning`: it does, but something needs attention.
Level = Literal["damage", "warning"]

FROM_A_COPY = "restore the store from a clone or backup; the rest of it can still be read"
EDITED = "something other than ctxvc wrote this commit; " + FROM_A_COPY


class Where(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a finding.

    `block` is `B17` or `G3`, or `B64-B127` for a ledger file or folder. `path` is in the commit's tree or, without a
    commit, in the store's folder.
    """

    session: str = ""
    scope: str = ""
    commit: str = ""
    block: str = ""
    path: str = ""

    def __str__(self) -> str:
        scope = f"{self.session}/{self.scope}" if self.scope else self.session
        commit = f"commit {self.commit[:12]}" if self.commit else ""
        # A path in a damaged or foreign tree can contain anything, including terminal escapes.
        return ", ".join(display.one_line(part, 200) for part in (scope, commit, self.block, self.path) if part)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    level: Level
    what: str
    hint: str | Phrase = ""
    where: Where = Where()


def damage(what: str, where: Where, hint: str | Phrase = FROM_A_COPY) -> Finding:
    return Finding(level="damage", what=display.one_line(what, 500), hint=hint, where=where)


def warning(what: str, where: Where, hint: str | Phrase) -> Finding:
    return Finding(level="warning", what=display.one_line(what, 500), hint=hint, where=where)


def blocks_at(path: str) -> str:
    """The block whose body is at `path`, or the range of blocks of a ledger file or folder; empty otherwise."""
    if block := fmt.block_of_path(path):
        return block
    top, *names = path.removesuffix(".jsonl").split("/")
    if top not in ("ledger", "blocks", "archive") or len(names) != 2:
        return ""
    try:
        segment = fmt.segment_number(f"ledger/{names[0]}/{names[1]}.jsonl")
    except ValueError:
        return ""
    return f"B{max(1, segment * SEGMENT)}-B{segment * SEGMENT + SEGMENT - 1}"
