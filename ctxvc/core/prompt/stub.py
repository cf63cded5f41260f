"""Stubs: the short text that stands where a block or a group left the prompt. Written once, kept in the row.

And how every text of ours in a prompt is told from what was recorded.
"""

from __future__ import annotations

import re

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import RENDER, Group, Row
from ctxvc.core.prompt import tag

#: Characters of a call's arguments, and of an index text, that a stub shows at most.
ARGUMENTS = 160
INDEX = 200

#: What is sent for a call whose result was never recorded, for a tool that failed without a word, and where the first
#: message is not the user's, as the Messages API wants it to be.
INTERRUPTED = "[no result was recorded: the call was interrupted]"
FAILED = "[the tool failed without any output]"
BEGINNING = "[nothing before this is in the prompt]"

#: How a text of ours begins: a stub, a mask, a dashboard, one of the words above, a note on a change of scope.
_BEGINNINGS = r"(?:archived|masked|pruned|blocked|deleted) [BG][0-9]|dashboard\b|[→←] |" + "|".join(
    re.escape(words[1:]) for words in (INTERRUPTED, FAILED, BEGINNING)
)
_OURS = re.compile(rf"\[(?={_BEGINNINGS})", re.IGNORECASE)
#: The same where results have tags (`tag.SINCE`): with the beginning of one, and what looks like it.
_OURS_AND_TAGS = re.compile(rf"\[(?={_BEGINNINGS}|[BG][0-9]+\s*[·•∙⋅])", re.IGNORECASE)


def guarded(value: str, render: int = RENDER) -> str:
    """Recorded text in which nothing begins as a text of ours does in that version: a backslash stands before it.

    Taking away one backslash before each such beginning gives back `value`.
    """
    return (_OURS_AND_TAGS if render >= tag.SINCE else _OURS).sub(r"\\[", value)


def escaped(value: str, width: int) -> str:
    """One line of recorded text inside a stub: it cannot end the stub or look like another."""
    return display.one_line(value, width).replace("[", "(").replace("]", ")")


def _name(row: Row, *, way_back: bool) -> str:
    """A block's handle; where there is no way back, its address alone."""
    return row.handle if way_back else row.id


def stub(
    row: Row,
    *,
    tokens: int | None = None,
    index: str = "",
    call: str = "",
    truncated: bool = False,
    way_back: bool = True,
) -> str:
    """The stub of a block: address and checksum, what it is, its size, its index text, how to get it back.

    `tokens` is the size, if counted (else bytes are given), `call` the arguments of a result's call, `truncated` says
    that the tool or the host truncated the output before it was recorded. Without `way_back` it names no way to get it
    back, and no checksum either.
    """
    size = f"{tokens:,} tokens" if tokens is not None else display.human_bytes(row.bytes)
    description = f"{row.kind} of {escaped(row.tool, 60)}" if row.kind == "tool_result" and row.tool else row.kind
    parts = [f"archived {_name(row, way_back=way_back)}: {description}, {size}"]
    if call:
        parts.append(f"arguments {escaped(call, ARGUMENTS)}")
    if truncated:
        parts.append("the recorded output was cut")
    if index or row.label:
        parts.append(escaped(index or row.label, INDEX))
    if way_back:
        parts.append(f"recover {row.id}")
    return f"[{'; '.join(parts)}]"


def index(row: Row) -> str:
    """The index text of a block's own stub; empty if it has none, or shows more below."""
    for name, tail in ((row.handle, f"; recover {row.id}]"), (row.id, "]")):
        head = f"[archived {name}: "
        if row.stub.startswith(head) and row.stub.endswith(tail):
            return row.stub[len(head) : -len(tail)].partition("; ")[2]
    return ""


def arguments(call: Row | None) -> str:
    """The arguments in the label of a call; empty if there is no such call."""
    if call is None or call.kind != "tool_use":
        return ""
    return call.label.removeprefix(display.one_line(f"{call.tool}:", 60)).strip()


def is_truncated(row: Row) -> bool:
    """Whether the output of a tool was truncated before it was recorded."""
    return bool(wire.own_metadata(row.extra).get("cut"))


def absent(result: Row) -> str:
    """The answer to a call whose result is not in the prompt and has no stub of its own there."""
    where = f" in {result.group}" if result.group else ""
    return f"[{result.state} {result.id}{where}]"


def tombstone(row: Row, reason: str, *, way_back: bool = True) -> str:
    """The stub of a deleted block. It names no way back: only a person has one. `way_back` is as of other stubs."""
    return f"[deleted {_name(row, way_back=way_back)}: {escaped(reason, INDEX)}]"


def summary(header: str, text: str) -> str:
    """The stub of a summarised group: its header, then the summary. It may have lines, but it cannot forge."""
    return f"{header}\n{guarded(display.visible_controls(text))}"


def is_summary(stub: str) -> bool:
    """Whether a stub is that of a summarised group; all others are one line."""
    return "\n" in stub


def group_stub(
    group: Group,
    *,
    blocks: int,
    tokens: int | None,
    size: int,
    digest: str,
    index: str = "",
    way_back: bool = True,
) -> str:
    """The stub of a group of `blocks` blocks; `digest` is a checksum over its members' checksums."""
    amount = f"{tokens:,} tokens" if tokens is not None else display.human_bytes(size)
    many = f"{blocks} block{'' if blocks == 1 else 's'}"
    name = f"{group.id}@{digest[:6]}" if way_back else group.id
    parts = [f"archived {name}: {many}, {amount}, level {group.level}"]
    if index or group.label:
        parts.append(escaped(index or group.label, INDEX))
    if way_back:
        parts.append(f"recover {group.id}")
    return f"[{'; '.join(parts)}]"


def blocked(row: Row, *, tokens: int, call: str = "", way_back: bool = True) -> str:
    """The stub of a result that does not fit: it has run, it is stored whole, and how to get at it."""
    name, description = _name(row, way_back=way_back), f"{row.kind} of {escaped(row.tool or 'a tool', 60)}"
    parts = [f"blocked {name}: {description}, {tokens:,} tokens, does not fit"]
    if call:
        parts.append(f"arguments {escaped(call, ARGUMENTS)}")
    parts.append("stored whole, do not run it again")
    if way_back:
        parts.append(f"once there is room, recover {row.id} in parts")
    return f"[{'; '.join(parts)}]"
