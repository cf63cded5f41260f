"""Stubs: the short text in place of a block or group that left the prompt. Written once, kept in the row.

Also how every text of ours in a prompt differs from recorded text.
"""

from __future__ import annotations

import re

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.ledger.ledger import RENDER, Group, Row
from ctxvc.core.prompt import tag

#: The most characters of an index text in a stub.
INDEX = 200
#: The most characters of a group's content in its stub, names included.
DIGEST = 8_000
#: The most characters of a recorded name, and of a block's first words, in its stub.
WORDS = 60

#: Texts sent for a call whose result was never recorded, for a tool that failed without output, and before a first
#: message that is not the user's, as the Messages API requires.
INTERRUPTED = "[no result was recorded: the call was interrupted]"
FAILED = "[the tool failed without any output]"
BEGINNING = "[nothing before this is in the prompt]"

#: How a text of ours begins: a stub, a mask, a dashboard, one of the texts above, a note on a change of scope.
_BEGINNINGS = r"(?:archived|masked|pruned|blocked|deleted) [BG][0-9]|dashboard\b|[→←] |" + "|".join(
    re.escape(text[1:]) for text in (INTERRUPTED, FAILED, BEGINNING)
)
_OURS = re.compile(rf"\[(?={_BEGINNINGS})", re.IGNORECASE)
#: The same where results have tags (`tag.SINCE`): including a tag's beginning, and what looks like it.
_OURS_AND_TAGS = re.compile(rf"\[(?={_BEGINNINGS}|[BG][0-9]+\s*[·•∙⋅])", re.IGNORECASE)


def guarded(value: str, render: int = RENDER) -> str:
    """Recorded text with a backslash before anything that begins like a text of ours in that version.

    Removing one backslash before each such beginning restores `value`.
    """
    return (_OURS_AND_TAGS if render >= tag.SINCE else _OURS).sub(r"\\[", value)


def escaped(value: str, width: int) -> str:
    """One line of recorded text for use inside a stub: it cannot end the stub or look like another."""
    return display.one_line(value, width).replace("[", "(").replace("]", ")")


def _name(row: Row, *, way_back: bool) -> str:
    """A block's handle; without a way back, only its address."""
    return row.handle if way_back else row.id


def stub(
    row: Row,
    *,
    tokens: int | None = None,
    index: str = "",
    called: bool = False,
    call: str = "",
    truncated: bool = False,
    way_back: bool = True,
) -> str:
    """The stub of a block: `[archived B17@3fa9c1, 1,234 tokens]`, with its index text if somebody supplied one.

    A result whose call is in the prompt (`called`) needs no more. For any other result the stub has the tool, the end
    of the call's arguments (`call`) and whether it failed; for any other block its first words. `tokens` is the size,
    if counted (otherwise it is in bytes); `truncated` means that the tool or the host truncated the output before it
    was recorded. Without `way_back` it has no checksum. How to get a block back is in the tools' descriptions.
    """
    parts = [f"archived {_name(row, way_back=way_back)}, {_size(row, tokens)}"]
    if truncated:
        parts.append("the recorded output was cut")
    if index:
        parts.append(escaped(index, INDEX))
    elif not called:
        parts.append(_description(row, call))
    return f"[{'; '.join(filter(None, parts))}]"


def _size(row: Row, tokens: int | None) -> str:
    return f"{tokens:,} tokens" if tokens is not None else display.human_bytes(row.bytes)


def _description(row: Row, call: str) -> str:
    """A block in a few words, when nothing else in the prompt describes it."""
    if row.kind != "tool_result":
        return escaped(row.label or row.kind, WORDS)
    # The end of a path or command says more than its beginning.
    object_of_call = f" {escaped(call[-WORDS:], WORDS)}" if call else ""
    return f"{escaped(row.tool or 'result', WORDS)}{object_of_call}{', failed' if row.error else ''}"


def index(row: Row) -> str:
    """What a block's own stub states besides its size: an index text, or its description.

    Empty if it has neither, or has more than one line.
    """
    for name, back in ((row.handle, f"; recover {row.id}]"), (row.id, "]")):
        for head, tail in ((f"[archived {name}, ", "]"), (f"[archived {name}: ", back)):  # also the form of format 1
            if row.stub.startswith(head) and row.stub.endswith(tail) and "\n" not in row.stub:
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
    """The stub of a deleted block. It names no way back, since only people have one. `way_back` as in other stubs."""
    return f"[deleted {_name(row, way_back=way_back)}: {escaped(reason, INDEX)}]"


def summary(text: str) -> str:
    """A summary as shown below the first line of its group's stub: it may have lines, but cannot imitate our texts."""
    return f"\n{guarded(display.visible_controls(text))}"


def is_summary(stub: str) -> bool:
    """Whether a stub has several lines, as that of a summarised group; all others have one."""
    return "\n" in stub


def group_stub(
    group: Group,
    *,
    steps: tuple[int, int],
    blocks: int,
    tokens: int | None,
    size: int,
    digest: str,
    way_back: bool = True,
    content: str = "",
) -> str:
    """The stub of a group of `blocks` blocks from the first to the last of `steps`: what was done there, and its size.

    `content` is what was done, by default the group's label. `digest` is a checksum over its members' checksums.
    """
    first, last = steps
    name = f"{group.id}@{digest[:6]}" if way_back else group.id
    span = f"steps {first}–{last}" if last > first else f"step {first}"
    amount = display.human_tokens(tokens) if tokens is not None else display.human_bytes(size)
    parts = [escaped(content or group.label, DIGEST), f"{blocks} block{'' if blocks == 1 else 's'}, {amount}"]
    return f"[archived {name}, {span}: {'; '.join(filter(None, parts))}]"


def blocked(row: Row, *, tokens: int, way_back: bool = True) -> str:
    """The stub of a result that came in too large, or without room left for it: it has run, and is stored whole."""
    return f"[blocked {_name(row, way_back=way_back)}, {tokens:,} tokens: it ran; too large to show whole]"
