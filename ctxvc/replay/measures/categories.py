"""What a lost anchor would have been for: the failure categories of Self-GC, by fixed rules.

Source: Self-GC, arXiv:2607.00692, Table 7. There a judge reads the case; here the kind of the anchor and the blocks
that hold it decide. No rule knows whether a state is still current, or whether a sentence is a rule or a story.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from ctxvc.core.plan.protected import INSTRUCTIONS
from ctxvc.replay.conversation import Block
from ctxvc.replay.measures.anchors import AnchorKind

Category = Literal["evidence", "locator", "contract", "verbatim", "state"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

#: The paper's names. Its sixth, `recovery-routing loss`, is no property of an anchor but of a prompt: uses that are
#: only recoverable.
TITLES: dict[Category, str] = {
    "evidence": "evidence-detail loss",
    "locator": "locator / handle loss",
    "contract": "behavioural-contract loss",
    "verbatim": "verbatim-source loss",
    "state": "live-state loss",
}

_BY_KIND: dict[AnchorKind, Category] = {
    "path": "locator",
    "url": "locator",
    "id": "locator",
    "hash": "locator",
    "number": "evidence",
    "identifier": "evidence",
    "quoted": "verbatim",
    "line": "verbatim",
}

#: Tools each of whose calls states the whole of a list of work anew, or a change of it; in lower case.
_STATE_TOOLS = frozenset(
    {"todowrite", "write_todos", "update_plan", "todo_write", "taskcreate", "taskupdate", "tasklist", "todolist"}
)


def category(kind: AnchorKind, oldest: Block, newest: Block, failures: Mapping[tuple[str, str], int] = {}) -> Category:
    """The category of a use by the oldest and the newest of the blocks that hold its anchor. The first of these counts:

    - `contract`: the oldest is a person's or a system message, or is of an instruction or skill file.
    - `state`: the newest is a failed result, one of a call that had failed before with the same argument, or of a tool
      that keeps a list of work. `failures` has the number of the first failed result of each tool and argument.
    - `locator`: a path, URL, id or hash. `evidence`: a number or identifier. `verbatim`: a quoted string or a line.
    """
    if oldest.kind == "system" or (oldest.kind == "user" and oldest.origin == "human"):
        return "contract"
    if oldest.source.rpartition("/")[2] in INSTRUCTIONS:
        return "contract"
    if newest.tool.lower() in _STATE_TOOLS:
        return "state"
    if newest.kind == "tool_result" and newest.number >= failures.get((newest.tool, newest.source), newest.number + 1):
        return "state"
    return _BY_KIND[kind]


def first_failures(blocks: Iterable[Block]) -> dict[tuple[str, str], int]:
    """The number of the first failed result of each tool and argument."""
    failures: dict[tuple[str, str], int] = {}
    for block in blocks:
        if block.kind == "tool_result" and block.error:
            failures.setdefault((block.tool, block.source), block.number)
    return failures
